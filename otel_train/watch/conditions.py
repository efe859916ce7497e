"""Names every condition that is watched for, once: events, alert rules, runbook and dashboards come from this table."""

from __future__ import annotations

from typing import Final

from otel_train.watch.condition import Condition
from otel_train.watch.inside_conditions import INSIDE
from otel_train.watch.machine_conditions import MACHINE
from otel_train.watch.training_conditions import TRAINING

__all__ = ["CONDITIONS", "Condition"]

CONDITIONS: Final[dict[str, Condition]] = {row.name: row for row in (*TRAINING, *INSIDE, *MACHINE)}
