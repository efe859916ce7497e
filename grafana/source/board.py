"""Puts a dashboard together, and writes it as the JSON that Grafana's file provisioning reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from grafana_foundation_sdk.builders.dashboard import Dashboard, TimePicker
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync

from grafana.source.grid import Grid
from grafana.source.links import between

SCHEMA_VERSION: Final = 42
TAG: Final = "otel-train"


def dashboard(
    uid: str,
    title: str,
    description: str,
    grid: Grid,
    *,
    variables: Sequence[Any],
    annotations: Sequence[Any] = (),
    since: str,
    refresh: str,
) -> str:
    """Return the JSON of a dashboard. `since` is the beginning of its range, such as now-1h."""
    board = Dashboard(title)
    board = board.uid(uid).description(description).tags([TAG]).timezone("browser").editable()
    board = board.tooltip(DashboardCursorSync.CROSSHAIR).time(since, "now").refresh(refresh).version(1)
    board = board.timepicker(TimePicker().refresh_intervals(["5s", "10s", "30s", "1m", "5m", "15m", "1h"]))
    board = board.variables(list(variables)).annotations(list(annotations)).links(between(uid))
    model = board.build()
    model.panels = grid.panels
    model.schema_version = SCHEMA_VERSION
    return json.dumps(model, cls=JSONEncoder, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
