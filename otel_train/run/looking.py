"""Looks into training on the user's word: model, data path, samples and amounts; the part of `Run` that does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_train.record.points import PointLog
    from otel_train.run.guard import Guard, Warner
    from otel_train.run.session import Session


class LookingInside:
    """The part of `Run` that looks into training. What is costly to import is imported when it is asked for."""

    session: Session
    points: PointLog
    guard: Guard
    warn: Warner
    finished: bool
