"""Knows which runs belong together by their trace: one started the other, or a script started both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

STARTED_BY: Final = "started by"
AFTER: Final = "in one trace after"


@dataclass(frozen=True, slots=True)
class Related:
    """The run before another one, and how the two belong together."""

    run_id: str
    link: str


class Traces:
    """The places of runs in traces. A run's place comes from `TRACEPARENT`, which its attempts note in run.json."""

    def __init__(self) -> None:
        # Which run has a span: that which stands for it, or one of its stages.
        self._owners: dict[str, str] = {}
        # (trace, span) above a run, and the runs below it with their time of creation.
        self._above: dict[str, tuple[str, str]] = {}
        self._below: dict[tuple[str, str], list[tuple[str, str]]] = {}

    def take(self, run_id: str, document: Mapping[str, Any]) -> None:
        """Take a run's document."""
        for stage in _listed(document, "stages"):
            self._own(stage, run_id)
        for attempt in _listed(document, "attempts"):
            trace = attempt.get("trace")
            if not isinstance(trace, Mapping):
                continue
            self._own(trace, run_id)
            parent = trace.get("parent")
            if isinstance(parent, Mapping) and parent.get("trace_id") and parent.get("span_id"):
                # Of several attempts the first one's: a later one may have been resumed by hand.
                place = str(parent["trace_id"]), str(parent["span_id"])
                if self._above.setdefault(run_id, place) == place:
                    created = str(document.get("created") or "")
                    if (created, run_id) not in self._below.setdefault(place, []):
                        self._below[place].append((created, run_id))

    def before(self, run_id: str) -> Related | None:
        """Return the run that started this one, else the one that the same script started last before; else None."""
        place = self._above.get(run_id)
        if place is None:
            return None
        owner = self._owners.get(place[1])
        if owner is not None and owner != run_id:
            return Related(owner, STARTED_BY)
        own = next((created for created, other in self._below[place] if other == run_id), "")
        earlier = [(created, other) for created, other in self._below[place] if (created, other) < (own, run_id)]
        return Related(max(earlier)[1], AFTER) if earlier else None

    def _own(self, place: Mapping[str, Any], run_id: str) -> None:
        if place.get("span_id"):
            self._owners.setdefault(str(place["span_id"]), run_id)


def _listed(document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = document.get(key)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
