"""What a panel asks of a store: small values, without layout."""

from __future__ import annotations

from dataclasses import dataclass

from grafana.source.names import equal
from otel_train.semconv import RUN_ID


@dataclass(frozen=True, slots=True)
class Metrics:
    """A PromQL query. `instant`: one value at the range's end; `table`: as rows; `exemplars`: with links to traces.

    `heatmap`: of a native histogram, the counts of its buckets.
    """

    promql: str
    legend: str = ""
    instant: bool = False
    table: bool = False
    exemplars: bool = False
    heatmap: bool = False


@dataclass(frozen=True, slots=True)
class Logs:
    """A LogQL query for lines."""

    logql: str
    most_lines: int = 200


@dataclass(frozen=True, slots=True)
class Traces:
    """A TraceQL search, as a table of spans (or of traces) with the attributes that the query selects."""

    traceql: str
    most_traces: int = 20
    most_spans_of_each: int = 100
    spans: bool = True


Query = Metrics | Logs | Traces
# The queries of one dashboard, by the key of the panel that shows them.
Table = dict[str, tuple[Query, ...]]


def now(promql: str, legend: str = "") -> tuple[Query, ...]:
    """Return the one query of a panel that shows a single value."""
    return (Metrics(promql, legend, instant=True),)


def over_time(promql: str, legend: str = "") -> tuple[Query, ...]:
    """Return the one query of a panel that draws over time."""
    return (Metrics(promql, legend),)


def rows(*promql: str) -> tuple[Query, ...]:
    """Return the queries of a table, one a column."""
    return tuple(Metrics(text, instant=True, table=True) for text in promql)


def lines_of(filters: str, run: str = equal(RUN_ID, "$run_id"), most_lines: int = 200) -> tuple[Query, ...]:
    """Return a query for log records of a run; service_name is the index, all else is structured metadata."""
    return (Logs(f'{{service_name=~"$project"}} | {run} | {filters}', most_lines),)
