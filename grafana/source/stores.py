"""Names the data sources, and turns queries into what Grafana's panels ask of them."""

from __future__ import annotations

from typing import Any, Final

from grafana_foundation_sdk.builders import loki, prometheus, tempo
from grafana_foundation_sdk.models.common import DataSourceRef
from grafana_foundation_sdk.models.prometheus import PromQueryFormat, QueryEditorMode
from grafana_foundation_sdk.models.tempo import SearchTableType

from grafana.source.query import Logs, Metrics, Query

# Each stands for a variable of the dashboard that names a data source, so that a dashboard works whatever their uids.
PROMETHEUS: Final = DataSourceRef("prometheus", "${prometheus}")
LOKI: Final = DataSourceRef("loki", "${loki}")
TEMPO: Final = DataSourceRef("tempo", "${tempo}")
LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def source_of(queries: tuple[Query, ...]) -> DataSourceRef:
    """Return the one data source of a panel's queries."""
    (source,) = {_source(query).type_val or "": _source(query) for query in queries}.values()
    return source


def _source(query: Query) -> DataSourceRef:
    if isinstance(query, Metrics):
        return PROMETHEUS
    return LOKI if isinstance(query, Logs) else TEMPO


def targets(queries: tuple[Query, ...]) -> list[Any]:
    """Return builders of a panel's queries, named A, B, C and so on."""
    return [_target(query, ref) for query, ref in zip(queries, LETTERS[: len(queries)], strict=True)]


def _target(query: Query, ref: str) -> Any:
    if isinstance(query, Metrics):
        target = prometheus.Dataquery().ref_id(ref).datasource(PROMETHEUS).expr(query.promql)
        target = target.editor_mode(QueryEditorMode.CODE)
        target = target.format(_format(query))
        target = target.instant() if query.instant else target.range()
        if query.legend:
            target = target.legend_format(query.legend)
        return target.exemplar(True) if query.exemplars else target
    if isinstance(query, Logs):
        lines = loki.Dataquery().ref_id(ref).datasource(LOKI).expr(query.logql).query_type("range")
        return lines.max_lines(query.most_lines)
    search = tempo.Dataquery().ref_id(ref).datasource(TEMPO).query_type("traceql").query(query.traceql)
    table = SearchTableType.SPANS if query.spans else SearchTableType.TRACES
    return search.limit(query.most_traces).spss(query.most_spans_of_each).table_type(table)


def _format(query: Metrics) -> PromQueryFormat:
    if query.heatmap:
        return PromQueryFormat.HEATMAP
    return PromQueryFormat.TABLE if query.table else PromQueryFormat.TIME_SERIES
