"""Iterates over epochs, each a span that is the current one while its body runs."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Any

from otel_train.run.spans import Activation
from otel_train.semconv import EPOCH

if TYPE_CHECKING:
    from otel_train.run.run import Run


class EpochLoop:
    """An iterable over epoch numbers; `len()` where it is known. Made by `Run.epochs`."""

    def __init__(self, run: Run, epochs: Iterable[int]) -> None:
        self._run = run
        self._epochs = epochs

    def __len__(self) -> int:
        if isinstance(self._epochs, Sized):
            return len(self._epochs)
        raise TypeError(f"{type(self._epochs).__name__} has no length")

    def __iter__(self) -> Iterator[int]:
        run = self._run
        outer = own = run.points.epoch
        span: Any = None
        activation: Activation | None = None
        with run.guard("epochs"):
            run.progress.epochs_begin(self, self._epochs)
        try:
            for epoch in self._epochs:
                own = run.points.epoch = _number(epoch)
                with run.guard("epochs"):
                    span = run.spans.start("epoch", {} if own is None else {EPOCH: own})
                    activation = Activation(span)
                yield epoch
                self._end(span, activation)
                span = activation = None
                run.progress.epoch_ends(self)
        finally:
            # Also where the loop is left by `break` or an exception; that may be late, when another loop is at work.
            self._end(span, activation)
            run.progress.epochs_end(self)
            if run.points.epoch == own:
                run.points.epoch = outer

    def _end(self, span: Any, activation: Activation | None) -> None:
        with self._run.guard("epochs"):
            if activation is not None:
                activation.close()
            if span is not None:
                self._run.spans.end(span)


def _number(epoch: Any) -> int | None:
    try:
        return operator.index(epoch)
    except TypeError:
        return None
