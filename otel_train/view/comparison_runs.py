"""Names the runs of a comparison, gives each its colour, and tells of each in short what became of it."""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from otel_train.clock import NS_PER_S, iso
from otel_train.semconv import DEFAULT_AXIS
from otel_train.view import overview, text
from otel_train.view.run_data import RunData, time_of
from otel_train.view.series import Series

COLOURS = 8
# How much of an id tells two runs of one name apart, where that is enough.
SHORT_ID = 4


def id_of(run: RunData) -> str:
    """Return by what a run is found in its root: the name of its folder, also where that was copied or renamed."""
    return run.path.name or run.run_id


def labels(names: Sequence[tuple[str, str]]) -> list[str]:
    """Return for each (run id, run name) a name that no other has: the run's, with the end of its id where needed."""
    found = [name or run_id for run_id, name in names]
    for length in (SHORT_ID, 8, 0):
        doubles = {label for label in found if found.count(label) > 1}
        if not doubles:
            break
        found = [
            f"{name or run_id} ({run_id[-length:] if length else run_id})" if label in doubles else label
            for label, (run_id, name) in zip(found, names, strict=True)
        ]
    return found if len(set(found)) == len(found) else [run_id for run_id, _ in names]


def roles(ids: Iterable[str]) -> dict[str, str]:
    """Return each run's colour, whatever the order in which the runs are given.

    A run has the colour that its id chooses. Where several choose the same, the one of the first id has it and the
    next takes the next free one; beyond `COLOURS` runs, colours come again.
    """
    chosen: dict[str, str] = {}
    free = list(range(COLOURS))
    for run_id in sorted(set(ids)):
        wanted = hashlib.blake2s(run_id.encode("utf-8", "surrogateescape"), digest_size=4).digest()
        number = int.from_bytes(wanted, "big") % COLOURS
        if not free:
            free = list(range(COLOURS))
        while number not in free:
            number = (number + 1) % COLOURS
        free.remove(number)
        chosen[run_id] = f"series-{number}"
    return chosen


def described(run: RunData) -> dict[str, Any]:
    """Return state, start, duration, steps and machine of a run, as they are."""
    newest = run.attempts[-1] if run.attempts else {}
    started_ns, tags = run.started_ns, run.info.get("tags")
    world_size = newest.get("world_size")
    return {
        "id": id_of(run),
        "state": run.state,
        "reason": run.reason,
        "project": str(run.info.get("project") or ""),
        "group": str(run.info.get("group") or ""),
        "tags": [str(tag) for tag in tags] if isinstance(tags, list) else [],
        "started": iso(started_ns) if started_ns else None,
        "started_s": started_ns / NS_PER_S if started_ns else None,
        "duration_s": overview.elapsed_s(run),
        "step": run.last_step(),
        "epoch": run.last_epoch(),
        "steps_per_s": steps_per_s(run),
        "host": str(newest.get("host") or ""),
        "gpus": gpus(newest.get("environment")),
        "ranks": world_size if isinstance(world_size, int) else 1,
        "attempts": max(1, len(run.attempts)),
        "points": run.store.points,
        "damaged": len(run.damage),
    }


def gpus(environment: object) -> str:
    """Return the cards of a machine in words, ``2 x NVIDIA H200``; empty where there is none."""
    machine = environment.get("machine") if isinstance(environment, Mapping) else None
    described_gpu = machine.get("gpu") if isinstance(machine, Mapping) else None
    listed = described_gpu.get("gpus") if isinstance(described_gpu, Mapping) else None
    counts: dict[str, int] = {}
    for card in listed if isinstance(listed, list) else ():
        name = str(card.get("name") or "GPU") if isinstance(card, Mapping) else str(card)
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in counts.items())


def steps_per_s(run: RunData) -> float | None:
    """Return the steps that training did in a second, the time between attempts left out; None where unknown."""
    series = _longest_of_training(run)
    if series is None:
        return None
    starts = [time_ns for attempt in run.attempts[1:] if (time_ns := time_of(attempt.get("started")))]
    edges = [0, *(bisect_left(series.times_ns, time_ns) for time_ns in starts), len(series.times_ns)]
    steps, seconds = 0.0, 0.0
    for start, end in itertools.pairwise(edges):
        known = [index for index in range(start, end) if series.steps[index] == series.steps[index]]
        if len(known) > 1:
            steps += series.steps[known[-1]] - series.steps[known[0]]
            seconds += (series.times_ns[known[-1]] - series.times_ns[known[0]]) / NS_PER_S
    return steps / seconds if seconds > 0 and steps > 0 else None


def _longest_of_training(run: RunData) -> Series | None:
    found = [
        item.series
        for item in run.series()
        if item.series.axis == DEFAULT_AXIS
        and item.series.split in ("train", "")
        and item.series.name.startswith(("train.", "dl.step.time"))
        and any(step == step for step in item.series.steps)
    ]
    return max(found, key=lambda series: (series.split == "train", len(series.values)), default=None)


# What is told of each run, with how it is written; the keys are those of `described`.
FACTS: tuple[tuple[str, str], ...] = (
    ("state", "State"),
    ("reason", "Reason"),
    ("project", "Project"),
    ("group", "Group"),
    ("tags", "Tags"),
    ("started", "Started (UTC)"),
    ("duration_s", "Duration"),
    ("step", "Last step"),
    ("epoch", "Last epoch"),
    ("steps_per_s", "Steps per second"),
    ("host", "Host"),
    ("gpus", "GPUs"),
    ("ranks", "Ranks"),
    ("attempts", "Attempts"),
    ("points", "Points read"),
    ("damaged", "Damaged lines"),
)


def fact_text(key: str, value: Any) -> str:
    """Return one fact for people; empty where there is none."""
    if value is None or value in ("", []):
        return ""
    if key == "started":
        return str(value)[:19].replace("T", " ")
    if key == "duration_s":
        return text.duration(value)
    if key == "steps_per_s":
        return text.short(value)
    if key == "tags":
        return ", ".join(str(tag) for tag in value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return text.number(value) if key in ("step", "epoch") else f"{value:,}"
    return str(value)
