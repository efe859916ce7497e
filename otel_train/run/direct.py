"""Opens runs without a folder (`dir=False`): whether there can be one, and how it gets its id without a file."""

from __future__ import annotations

import os
from base64 import b32encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_train.clock import SYSTEM, mono_ns, sleep
from otel_train.errors import ConfigError
from otel_train.lineage.launch_exchange import wait_for
from otel_train.lineage.run_id import new_run_id
from otel_train.run import opening
from otel_train.run.direct_sending import destinations_of
from otel_train.run.opening import Opened, Opening

if TYPE_CHECKING:
    from otel_train.config import Settings
    from otel_train.lineage.ranks import Ranks
    from otel_train.record.entries import AttributeValue
    from otel_train.run.run import Run

_HOW_TO_JOIN: Final = (
    "without a folder ranks agree on a run by torch.distributed (initialised before init()), a Slurm step, "
    "OTEL_TRAIN_LAUNCH_KEY, or the same run_id=… in all of them"
)


def check_direct(settings: Settings, environ: Mapping[str, str], resume: str | None) -> None:
    """Raise ConfigError where a run without a folder cannot be: nothing would be kept, or it needs a folder."""
    if resume is not None:
        raise ConfigError("resume", resume, "name a folder (dir=…): a run without one leaves nothing to go on from")
    if settings["sender"] == "none":
        raise ConfigError("sender", "none", 'use "thread" with dir=False, else nothing would be kept')
    destinations_of(settings, environ)


def facts_without_run_json(run: Run) -> dict[str, AttributeValue]:
    """Return what run.json would say of a new run, for the event of its start."""
    settings = run.settings
    texts = {"project": run.project, "run_name": run.name, "group": settings["group"], "notes": settings["notes"]}
    facts: dict[str, Any] = {key: value for key, value in texts.items() if value}
    if settings["tags"]:
        facts["tags"] = list(settings["tags"])
    facts["world_size"] = run.session.ranks.world_size
    seed = (run.session.seed or {}).get("seed")
    return facts if seed is None else {**facts, "seed": seed}


class DirectOpening(Opening):
    """Finds the run's id without a file: it is given, follows from the launch, or comes by the job's own store."""

    def __init__(self, ranks: Ranks, *, run_id: str | None, sequence: int) -> None:
        super().__init__(Path(os.devnull), ranks, run_id=run_id, resume=None, project="", sequence=sequence)
        self._known = run_id or (derived_run_id(ranks, sequence, has_store=self._store is not None))

    @property
    def must_wait(self) -> bool:
        """Whether rank 0 draws the id, and the job's store tells it."""
        return self.ranks.shared and not self.ranks.is_main and self._known is None and self._store is not None

    def open_main(self, document: Callable[[str, int], dict[str, Any]]) -> Opened:
        """Open the run as rank 0, as a rank that knows the id, or alone."""
        if self._known is not None:
            # A launcher that starts its processes anew keeps the launch's name: the same run goes on.
            return Opened(self._known, self.ranks.restart_count + 1, None)
        if not self.ranks.is_main:
            return self._alone(f"rank {self.ranks.rank} has no way to rank 0's run id")
        opened = Opened(new_run_id(SYSTEM), 1, None)
        if self.ranks.shared:
            if self._store is not None:
                self._store.publish(self.ranks, opened.run_id, opened.attempt, self._sequence, self.traceparent)
            else:
                opened.notice = f"the other ranks cannot learn the id of run {opened.run_id}: {_HOW_TO_JOIN}"
        return opened

    def wait(self, document: Callable[[str, int], dict[str, Any]]) -> Opened | None:
        """Open the run once rank 0 has published its id in the job's store; None where it has been given up."""

        def read() -> Any:
            if self.given_up.is_set():
                return self.given_up
            return None if self._store is None else self._store.try_read(self.ranks, self._sequence)

        found = wait_for(read, deadline_ns=mono_ns() + opening.RANK_WAIT_NS, clock=SYSTEM, sleep=sleep)
        if self.given_up.is_set():
            return None
        if found is not None:
            return Opened(found.run_id, found.attempt, None, traceparent=found.traceparent)
        return self._alone(f"rank {self.ranks.rank} saw no run id of rank 0 in the job's store")

    def _alone(self, why: str) -> Opened:
        opened = Opened(self._known or new_run_id(SYSTEM), 1, None, alone=True)
        opened.notice = f"{why} and records the run {opened.run_id} of its own: {_HOW_TO_JOIN}"
        return opened

    def retire(self, run_id: str) -> None:
        """Nothing was published that could outlive the job."""


def derived_run_id(ranks: Ranks, sequence: int, *, has_store: bool) -> str | None:
    """Return the id that every rank of a launch works out alike; None where nothing names the launch for certain.

    Certain are `OTEL_TRAIN_LAUNCH_KEY`, a Slurm step, and a launch that is all on one host. A process's parent alone
    is none where there is a store: ranks on several hosts have several parents.
    """
    key = ranks.launch_key
    if key is None or not ranks.shared:
        return None
    certain = ranks.key_is_unique or key.startswith("key-") or "-parent-" in key
    if not certain and (has_store or not key.startswith("parent-")):
        return None
    digest = b32encode(sha256(f"{key}/{sequence}".encode()).digest()).decode("ascii").lower()
    return f"launch-{digest[:16]}"
