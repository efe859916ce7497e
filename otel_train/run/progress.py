"""Knows how much of a training is done: whole epochs, and of the present one the steps by the loader's length."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Any

from otel_train.record.entries import Sample
from otel_train.record.points import PointLog


class Progress:
    """For the training thread to note where loops begin, for the writer's thread to ask; a step itself costs nothing.

    Known where the script goes through `run.epochs` over something that has a length, or through one `run.steps` over
    such a loader; with a loop of epochs by hand nobody knows how many there will be, unless `known_end` says it.
    """

    def __init__(self, points: PointLog) -> None:
        self._points = points
        # The outermost loop over epochs: which one, how many epochs are behind, how many there are.
        self._outer: object | None = None
        self._done = 0
        self._total = 0
        # The step before the present epoch's (or loop's) first, and how many the loader has.
        self._before = 0
        self._batches = 0
        self._loops = 0
        # Of the whole training, where somebody has said it: steps with the number of the first, or epochs.
        self._known_steps: tuple[int, int] | None = None
        self._known_epochs = 0
        # What was done already when this attempt's first loop began.
        self.began_at = 0.0

    def known_end(self, *, steps: int | None = None, first: int = 0, epochs: int | None = None) -> None:
        """Take the length of the whole training, earlier attempts included.

        In `steps` as the run counts them, `first` being the number of the very first; or in `epochs` from 0 on, each
        of one loop over steps. None where that is not known.
        """
        self._known_steps = None if not steps else (first, steps)
        self._known_epochs = epochs or 0
        if self._loops <= 1:
            self.began_at = self._share_before()

    def epochs_begin(self, loop: object, epochs: Iterable[Any]) -> None:
        """Note that a loop over epochs begins; one within another says nothing of the whole."""
        length = _length(epochs)
        if self._outer is not None or not length:
            return
        self._outer = loop
        # A resumed training goes on from its first epoch: those before count as done.
        self._done = epochs.start if isinstance(epochs, range) and epochs.step == 1 else 0
        self._total = self._done + length
        self._begin()

    def epoch_ends(self, loop: object) -> None:
        """Note that one more epoch is behind."""
        if loop is self._outer:
            self._begin()
            self._done += 1

    def epochs_end(self, loop: object) -> None:
        """Note that a loop over epochs is left; what was reached stays."""
        if loop is self._outer:
            self._outer = None

    def steps_begin(self, loader: Iterable[Any]) -> None:
        """Note the loader of a training loop."""
        self._loops += 1
        if not self._total:
            self._begin()
        self._batches = _length(loader)
        if self._loops == 1:
            self.began_at = self._share_before()

    def share(self) -> float | None:
        """Return what is done of the whole, 0 to 1; None where that is not known."""
        points = self._points
        if self._known_steps is not None:
            first, steps = self._known_steps
            return min(max(points.step + points.used - first, 0) / steps, 1.0)
        begun = (points.step - self._before) / self._batches if self._batches else 0.0
        if self._known_epochs:
            return min(((points.epoch or 0) + min(max(begun, 0.0), 1.0)) / self._known_epochs, 1.0)
        if self._total:
            return min((self._done + min(max(begun, 0.0), 1.0)) / self._total, 1.0)
        return begun if self._loops == 1 and 0 < begun <= 1 else None

    def _share_before(self) -> float:
        """Return what was done before the first loop of this attempt."""
        if self._known_steps is not None:
            return self.share() or 0.0
        if self._known_epochs:
            return min((self._points.epoch or 0) / self._known_epochs, 1.0)
        return self._done / self._total if self._total else 0.0

    def samples(self) -> list[Sample]:
        """Return the reading for a heartbeat."""
        share = self.share()
        return [] if share is None else [Sample("dl.run.progress", share)]

    def _begin(self) -> None:
        points = self._points
        self._before = points.step if points.used else points.step - 1


def _length(items: Iterable[Any]) -> int:
    """Return how many there are, 0 where nobody knows: a loader over a stream has a length that raises."""
    try:
        return len(items) if isinstance(items, Sized) else 0
    except Exception:  # noqa: BLE001 - it is the user's method, and asked for by us alone
        return 0
