"""Makes the links between dashboards, and from points to spans; each carries the run's id and a range of time."""

from __future__ import annotations

import json
import re
from typing import Any, Final
from urllib.parse import quote

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models.dashboard import DashboardLinkType

from otel_train.semconv import STEP

RUNS: Final = "otel-train-runs"
RUN: Final = "otel-train-run"
COMPARE: Final = "otel-train-compare"
RANKS: Final = "otel-train-ranks"
INTERNALS: Final = "otel-train-internals"
PIPELINE: Final = "otel-train-pipeline"

# The panel of the run's dashboard that lists spans of steps; links show it alone.
STEPS_PANEL: Final = 100
# How much time around a point such a link shows.
AROUND_MS: Final = 60_000
STEPS_AROUND: Final = 100

_SOURCES: Final = "${prometheus:queryparam}&${loki:queryparam}&${tempo:queryparam}"
_RANGE: Final = "${__url_time_range}"
_THIS_RUN: Final = "var-run_id=${run_id}"
_VARIABLE: Final = re.compile(r"(\$\{[^}]+\})")


def to_dashboard(uid: str, *parameters: str) -> str:
    """Return the address of a dashboard with these parameters, and the same data sources."""
    return f"/d/{uid}?{'&'.join((*parameters, _SOURCES))}"


def of_the_row(field: str) -> str:
    """Return the placeholder of another column of the row that a link stands in."""
    return f"${{__data.fields.{field}}}"


RUN_OF_ROW: Final = to_dashboard(
    RUN,
    f"var-run_id={of_the_row('run_id')}",
    f"from={of_the_row('from_ms')}",
    f"to={of_the_row('until_ms')}",
)
SAME_RANGE_RUN_OF_ROW: Final = to_dashboard(RUN, f"var-run_id={of_the_row('run_id')}", _RANGE)
_MOMENT: Final = (_THIS_RUN, "time=${__value.time}", f"time.window={AROUND_MS}")
THIS_MOMENT: Final = to_dashboard(RUN, *_MOMENT)
STEPS_OF_THIS_MOMENT: Final = to_dashboard(RUN, *_MOMENT, f"viewPanel=panel-{STEPS_PANEL}")


def _encoded(text: str) -> str:
    """Return a text for an address; Grafana's variables stay, for it to fill in."""
    return "".join(part if _VARIABLE.fullmatch(part) else quote(part, safe="") for part in _VARIABLE.split(text))


def search_of_spans(traceql: str) -> str:
    """Return the address of a search in Tempo, over the range of the dashboard."""
    query = {
        "refId": "A",
        "datasource": {"type": "tempo", "uid": "${tempo}"},
        "queryType": "traceql",
        "query": traceql,
        "limit": 20,
        "spss": 100,
        "tableType": "spans",
    }
    pane = {"datasource": "${tempo}", "queries": [query], "range": {"from": "${__from}", "to": "${__to}"}}
    return f"/explore?schemaVersion=1&orgId=1&panes={_encoded(json.dumps({'steps': pane}))}"


_STEP: Final = of_the_row("step")
STEPS_AROUND_THIS_STEP: Final = search_of_spans(
    f'{{ resource.run_id = "${{run_id}}" && name = "step" && span.{STEP} >= {_STEP} - {STEPS_AROUND} '
    f"&& span.{STEP} <= {_STEP} + {STEPS_AROUND} }}"
)


def data_link(title: str, url: str) -> dict[str, Any]:
    """Return a link of a point or of a cell."""
    return {"title": title, "url": url, "targetBlank": False}


AT_A_POINT: Final = (
    data_link("Steps of this moment in Tempo", STEPS_OF_THIS_MOMENT),
    data_link("Everything within this minute", THIS_MOMENT),
)
AT_A_STEP: Final = (data_link("Steps around this one in Tempo", STEPS_AROUND_THIS_STEP),)


def top(title: str, url: str, tooltip: str) -> builders.DashboardLink:
    """Return a link at the top of a dashboard, which takes the range of time along."""
    link = builders.DashboardLink(title).type(DashboardLinkType.LINK).url(url).tooltip(tooltip).icon("dashboard")
    link = link.keep_time(True).include_vars(False).as_dropdown(False).target_blank(False)
    # The builder would put it into a menu.
    link._internal.placement = None  # type: ignore[assignment]
    return link


def between(uid: str) -> list[Any]:
    """Return the links from one dashboard to the others; those of one run keep the run."""
    one_run = uid in (RUN, RANKS, INTERNALS)
    found = {
        RUNS: top("Runs", to_dashboard(RUNS), "All runs, with state, step, loss and alerts"),
        RUN: top("Run", to_dashboard(RUN, *([_THIS_RUN] if one_run else [])), "One run in full"),
        COMPARE: top(
            "Compare", to_dashboard(COMPARE, *(["var-runs=${run_id}"] if one_run else [])), "Runs over each other"
        ),
        INTERNALS: top(
            "Internals",
            to_dashboard(INTERNALS, *([_THIS_RUN] if one_run else [])),
            "One run inside: model, data, speed, memory",
        ),
        RANKS: top("Ranks", to_dashboard(RANKS, *([_THIS_RUN] if one_run else [])), "The ranks of one run"),
        PIPELINE: top("Pipeline", to_dashboard(PIPELINE), "The stack's own health"),
    }
    return [link for target, link in found.items() if target != uid]
