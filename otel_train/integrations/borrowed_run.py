"""Finds the run that a framework's adapter records to: the user's own, else one that the adapter opens and ends."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

import otel_train

F = TypeVar("F", bound=Callable[..., Any])
_log = logging.getLogger("otel_train")


class BorrowedRun:
    """The run of an adapter. Opened when it is first asked for; `arguments` are those of `otel_train.init`."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.arguments = dict(arguments)
        self._run: otel_train.Run | None = None
        self.is_own = False

    @property
    def run(self) -> otel_train.Run:
        """The user's run where one is open, else the adapter's own, which is opened now if need be.

        It stays the same, also where the user has ended it meanwhile, until `renew`.
        """
        if self._run is None:
            user = otel_train.current_run()
            self.is_own = user is None
            self._run = otel_train.init(**self.arguments) if user is None else user
        return self._run

    def renew(self) -> None:
        """Let go of a run that has ended: what begins now is another's."""
        if not self.is_open:
            self._run = None

    @property
    def is_open(self) -> bool:
        """Whether there is a run that has not ended."""
        return self._run is not None and not self._run.finished

    def stores_numbers(self) -> bool:
        """Whether this rank stores what is the same on all: rank 0 does, or each where the user wants it so."""
        # A disabled run does not know.
        return bool(getattr(self.run, "stores_common", False))

    def finish(self, status: str | None = None, *, exception: BaseException | None = None) -> None:
        """End the run where it is the adapter's own; the user ends his himself."""
        if self._run is not None and self.is_own:
            self._run.finish(status, exception=exception)
        self._run = None

    def take(self, place: str, fault: Exception) -> None:
        """Count a fault of the adapter's, and keep it from the training."""
        guard = getattr(self._run, "guard", None)
        if guard is None:
            _log.warning("%s: %s: %s", place, type(fault).__name__, fault, exc_info=fault)
            return
        with guard(place):
            raise fault

    def __getstate__(self) -> dict[str, Any]:
        # A run stays in its process; a copy finds its own.
        return {"arguments": self.arguments, "_run": None, "is_own": False}


def telemetry(hook: F) -> F:
    """Have a method of an adapter, which has a `borrowed` run, never raise into the framework."""

    @functools.wraps(hook)
    def quiet(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return hook(self, *arguments, **named)
        except otel_train.OtelTrainError:
            # What the user said wrongly, such as an argument of init().
            raise
        except Exception as fault:  # noqa: BLE001 - a fault of telemetry must not end training
            self.borrowed.take(f"{type(self).__name__}.{hook.__name__}", fault)
            return None

    return cast(F, quiet)


def learning_rates(optimizers: Iterable[Any]) -> dict[str, Any]:
    """Return `lr`, of several optimizers `lr/0`, `lr/1` …, and `lr/group1` … of groups with a rate of their own."""
    several = list(optimizers)
    rates: dict[str, Any] = {}
    for number, optimizer in enumerate(several):
        key = f"lr/{number}" if len(several) > 1 else "lr"
        groups = [group["lr"] for group in getattr(optimizer, "param_groups", ()) if "lr" in group]
        if groups:
            rates[key] = groups[0]
        # A rate may be a tensor on a device: comparing would wait for it.
        if all(isinstance(rate, (int, float)) for rate in groups):
            rates |= {f"{key}/group{place}": rate for place, rate in enumerate(groups) if rate != groups[0]}
    return rates


def log_foreign(
    run: otel_train.Run, values: Mapping[str, Any], step: int | None, *, default_split: str | None, **about: Any
) -> None:
    """Record a framework's numbers: a key without a split of its own gets this one."""
    own: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for key, value in values.items():
        says_split = default_split is None or run.split_of(key)[1] is not None
        (own if says_split else others)[key] = value
    if own:
        run.log(own, step, **about)
    if others:
        run.log(others, step, split=default_split, **about)
