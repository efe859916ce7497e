"""Joins a run and the watcher of its data loaders: faults become events, and the writer looks after the workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from otel_train.record.entries import AttributeValue
from otel_train.watch.loader import Loaders

if TYPE_CHECKING:
    from otel_train.run.run import Run


def loaders_of(run: Run) -> Loaders:
    """Return the watcher of a run's data loaders."""

    def died(body: str, attributes: dict[str, AttributeValue]) -> None:
        with run.guard("watch_data"):
            run.events.emit("data.worker_died", body, {**run.position(), **attributes})

    def own_fault(place: str, fault: Exception) -> None:
        with run.guard(place):
            raise fault

    return Loaders(
        run.points,
        on_failed=run.events.batch_failed,
        on_died=died,
        on_fault=own_fault,
        notice=run.warn,
    )


def opener(run: Run, split: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return what makes a loader's iterator for a loop: watched, unless the settings say otherwise."""
    if not run.settings["watch_loaders"]:
        return iter
    return lambda loader: run.loaders.open(loader, split)
