"""Joins a run and the watcher that keeps its accounts: what it does, what earlier attempts lost, how many ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

from otel_train.clock import NS_PER_S, from_iso
from otel_train.lineage.project import parse_resource_attributes
from otel_train.record.entries import Sample
from otel_train.runlog.status import last_sign_of_life_ns
from otel_train.watch.accounts import Accounts
from otel_train.watch.elsewhere import Aside

if TYPE_CHECKING:
    from otel_train.lineage.ranks import Ranks
    from otel_train.run.run import Run

# How many ranks have batches of their own; and how many compute one batch together, in one way or another.
DATA_PARALLEL: Final = "dl.data_parallel.size"
TOGETHER: Final = ("dl.tensor_parallel.size", "dl.pipeline_parallel.size", "dl.context_parallel.size")


class RunTraining:
    """What the accounts ask of a run; see `watch.accounts.Training`."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def asides(self) -> Sequence[Aside]:
        """Take out what began since the last call that is no training."""
        return self._run.activity.asides()

    def open_phases(self) -> Sequence[Aside]:
        """Return the phases that are no training and last at this moment."""
        return self._run.activity.open_phases()

    def present(self) -> tuple[int, int] | None:
        """Return when the one open loop began and when its last batch was there; None where that is not known."""
        run = self._run
        loops = list(run.points.loops)
        times = [(getattr(loop, "began_ns", 0), getattr(loop, "ready_ns", 0)) for loop in loops]
        # Looked at last: whatever ended before the loops were looked at is digested if nothing waits now.
        if run.points.buffer.entries or run.digest.waiting:
            return None
        if not times:
            return 0, 0
        return times[0] if len(times) == 1 and times[0][0] else None

    def progress(self) -> tuple[float, float] | None:
        """Return the share of training that is done and what was done when this attempt began; None where unknown."""
        progress = self._run.progress
        share = progress.share()
        return None if share is None else (share, progress.began_at)

    def emit(self, time_ns: int, samples: Sequence[Sample]) -> None:
        """Write samples at a wall time."""
        if samples:
            self._run.log_sink.emit_samples(time_ns, samples)


def accounts_of(run: Run, former: Mapping[str, Any] | None, *, main: bool) -> Accounts:
    """Return the watcher that counts; `former` is run.json of the earlier attempt that the run goes on from."""
    session = run.session
    found: list[float | None] = []

    def lost_s() -> float | None:
        # Once, and not before it is asked for: it reads the end of the earlier attempt's run log.
        if not found:
            found.append(None if former is None else time_lost_s(former, _last_seen_ns(run, former)))
        return found[0]

    attributes, _ = parse_resource_attributes(session.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    return Accounts(
        RunTraining(run),
        run.activity.began_ns,
        optimizer_steps=run.optimizer_steps,
        flops=run.flop_count,
        ranks=data_parallel_ranks(session.ranks, attributes) if main else None,
        lost_s=lost_s,
    )


def data_parallel_ranks(ranks: Ranks, attributes: Mapping[str, Any]) -> int:
    """Return how many ranks have batches of their own.

    As the resource attribute `dl.data_parallel.size` says it; else all ranks, by what `dl.tensor_parallel.size` and
    its like (pipeline, context) take of them.
    """
    given = _size(attributes, DATA_PARALLEL)
    if given:
        return given
    together = prod(_size(attributes, name) or 1 for name in TOGETHER)
    return max(1, ranks.world_size // together)


def _size(attributes: Mapping[str, Any], name: str) -> int:
    try:
        return max(0, int(attributes.get(name, 0)))
    except (TypeError, ValueError):
        return 0


def time_lost_s(former: Mapping[str, Any], last_seen_ns: int) -> float | None:
    """Return how long the newest earlier attempt went on after its last checkpoint, all of it where it wrote none.

    What it did in that time is done again. `last_seen_ns` is its last sign of life, for one that wrote no end. None
    for one that ended well, and where its times are not known.
    """
    attempts = [entry for entry in former.get("attempts", []) if isinstance(entry, Mapping)]
    newest = max(attempts, key=lambda entry: int(entry.get("attempt") or 0), default=None)
    if newest is None or newest.get("status") == "finished":
        return None
    began_ns, ended_ns = _time_ns(newest.get("started")), _time_ns(newest.get("ended")) or last_seen_ns
    saved_ns = [
        _time_ns(entry.get("time"))
        for entry in former.get("checkpoints", [])
        if isinstance(entry, Mapping)
        and entry.get("attempt") == newest.get("attempt")
        and entry.get("role") in ("saved", "logged")
    ]
    since_ns = max([began_ns, *saved_ns])
    return (ended_ns - since_ns) / NS_PER_S if 0 < since_ns <= ended_ns else None


def _time_ns(text: object) -> int:
    try:
        return from_iso(text) if isinstance(text, str) and text else 0
    except ValueError:
        return 0


def _last_seen_ns(run: Run, former: Mapping[str, Any]) -> int:
    opened = run.session.opened_now
    if opened is None or opened.place is None or opened.resumed_from is None:
        return 0
    return last_sign_of_life_ns(opened.place.folder, opened.resumed_from)
