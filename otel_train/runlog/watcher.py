"""What the writer shows of a run as it passes by, to whoever watches its health, and what it takes from him."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from otel_train.record.digest import Digested
from otel_train.record.entries import AttributeValue, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A condition began or ended: an event, and the readings of that moment."""

    time_ns: int
    event: str
    severity: str
    body: str
    attributes: Mapping[str, AttributeValue]
    samples: Sequence[Sample] = field(default_factory=tuple)


class Watcher(Protocol):
    """For the writer's thread. What a method raises is said and costs nothing else."""

    def take(self, digested: Digested) -> None:
        """See points and steps."""
        ...

    def readings(self, time_ns: int, samples: Sequence[Sample]) -> None:
        """See readings of the machine, made at one wall time."""
        ...

    def settle(self, wall_ns: int, mono_ns: int, *, ended: bool) -> Sequence[Finding]:
        """Return what began or ended, once everything recorded up to now was seen; `ended` with the run."""
        ...

    def heartbeat(self, *, ended: bool) -> Sequence[Sample]:
        """Return present values and thresholds."""
        ...


class Watchers:
    """Several watchers as one. Each is asked, even where one before it raises; the first exception is raised then."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def take(self, digested: Digested) -> None:
        """See points and steps."""
        self._each(lambda watcher: watcher.take(digested))

    def readings(self, time_ns: int, samples: Sequence[Sample]) -> None:
        """See readings of the machine, made at one wall time."""
        self._each(lambda watcher: watcher.readings(time_ns, samples))

    def settle(self, wall_ns: int, mono_ns: int, *, ended: bool) -> Sequence[Finding]:
        """Return what began or ended."""
        found: list[Finding] = []
        self._each(lambda watcher: found.extend(watcher.settle(wall_ns, mono_ns, ended=ended)))
        return found

    def heartbeat(self, *, ended: bool) -> Sequence[Sample]:
        """Return present values and thresholds."""
        samples: list[Sample] = []
        self._each(lambda watcher: samples.extend(watcher.heartbeat(ended=ended)))
        return samples

    def _each(self, ask: Callable[[Watcher], None]) -> None:
        first: Exception | None = None
        for watcher in self._watchers:
            try:
                ask(watcher)
            except Exception as fault:  # noqa: BLE001 - one must not cost the others
                first = first or fault
        if first is not None:
            raise first
