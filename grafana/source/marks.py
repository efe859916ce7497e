"""Makes the marks that panels over time show: alerts while they fire, and events of a run's life."""

from __future__ import annotations

from typing import Any, Final

from grafana_foundation_sdk.builders import loki, prometheus
from grafana_foundation_sdk.builders.dashboard import AnnotationQuery
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from grafana.source.fragments import THIS_RUN, alerts
from grafana.source.queries.run import LIFECYCLE
from grafana.source.stores import LOKI, PROMETHEUS

ALERTS: Final = alerts(THIS_RUN)
_LINES: Final = '{service_name=~"$project"} | run_id="$run_id" | event_name=~'
EVENTS: Final = f'{_LINES}"{LIFECYCLE}"'
HEALTH: Final = f'{_LINES}"health[.].+"'


def of_one_run() -> list[AnnotationQuery]:
    """Return alerts from Prometheus, and events of the run and of its health from Loki."""
    fires = prometheus.Dataquery().ref_id("Anno").datasource(PROMETHEUS).expr(ALERTS).interval("15s")
    alert = _marks("Alerts", PROMETHEUS, fires.format(PromQueryFormat.TIME_SERIES).range(), "red").expr(ALERTS)
    alert = alert.title_format("{{alertname}}").text_format("{{severity}}").tag_keys("severity").step("15s")
    return [
        alert.use_value_for_time(False),
        _events("Events", EVENTS, "blue"),
        _events("Health", HEALTH, "orange"),
    ]


def _events(name: str, logql: str, color: str) -> AnnotationQuery:
    lines = loki.Dataquery().ref_id("Anno").datasource(LOKI).expr(logql).query_type("range").max_lines(500)
    marks = _marks(name, LOKI, lines, color).expr(logql)
    return marks.title_format("{{event_name}}").tag_keys("event_name,dl_stage")


def _marks(name: str, source: Any, target: Any, color: str) -> AnnotationQuery:
    marks = AnnotationQuery().name(name).datasource(source).enable(True).hide(False).icon_color(color).target(target)
    # The builder would put their switch into a menu.
    marks._internal.placement = None  # type: ignore[assignment]
    return marks
