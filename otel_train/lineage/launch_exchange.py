"""What rank 0 tells the other processes of its launch, and how they wait for it; by torch.distributed's store here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from otel_train.clock import NS_PER_S, SYSTEM, Clock
from otel_train.lineage.ranks import Ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What rank 0 tells the others, and who it is."""

    run_id: str
    attempt: int = 1
    created_ns: int = 0
    host: str = ""
    pid: int = 0
    start_s: float | None = None
    ended_ns: int | None = None
    # The span that stands for the run of rank 0, as `TRACEPARENT` spells it.
    traceparent: str = ""


class Exchange(Protocol):
    """A place where rank 0 leaves the run's id and the others find it. Neither call blocks for long or raises."""

    def publish(
        self, ranks: Ranks, run_id: str, attempt: int, sequence: int = 0, traceparent: str = ""
    ) -> Published | None:
        """Leave the id; None where that failed, another's id where another rank 0 of the launch was there first."""
        ...

    def try_read(self, ranks: Ranks, sequence: int = 0) -> Published | None:
        """Return what rank 0 has left, None where it has not yet."""
        ...


class StoreExchange:
    """The exchange by the key-value store of an initialised process group; it ends with the launch: nothing is stale.

    `store` has `set`, `get` and `check`, as torch.distributed's stores do.
    """

    def __init__(self, store: Any, clock: Clock = SYSTEM) -> None:
        self._store = store
        self._clock = clock

    def publish(
        self, ranks: Ranks, run_id: str, attempt: int, sequence: int = 0, traceparent: str = ""
    ) -> Published | None:
        """Leave the id for the other ranks."""
        published = Published(run_id=run_id, attempt=attempt, created_ns=self._clock.wall_ns(), traceparent=traceparent)
        try:
            self._store.set(_store_key(ranks, sequence), json.dumps(asdict(published)))
        except Exception:  # noqa: BLE001 - a store whose server is gone
            return None
        return published

    def try_read(self, ranks: Ranks, sequence: int = 0) -> Published | None:
        """Return what rank 0 has left; never waits for it."""
        key = _store_key(ranks, sequence)
        try:
            return parse(self._store.get(key)) if self._store.check([key]) else None
        except Exception:  # noqa: BLE001 - as above
            return None


class SeveralExchanges:
    """Several exchanges as one: published in all, read from the first that has it."""

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self._exchanges = tuple(exchanges)

    def publish(
        self, ranks: Ranks, run_id: str, attempt: int, sequence: int = 0, traceparent: str = ""
    ) -> Published | None:
        """Leave the id in all of them; a rival found in any is returned."""
        results = [exchange.publish(ranks, run_id, attempt, sequence, traceparent) for exchange in self._exchanges]
        found = [result for result in results if result is not None]
        return next((result for result in found if result.run_id != run_id), found[0] if found else None)

    def try_read(self, ranks: Ranks, sequence: int = 0) -> Published | None:
        """Return the first that is there."""
        for exchange in self._exchanges:
            if (found := exchange.try_read(ranks, sequence)) is not None:
                return found
        return None


def default_store(distributed: Any) -> Any:
    """Return the store of torch.distributed's default process group; None where it is not initialised."""
    try:
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return None
        return distributed.distributed_c10d._get_default_store()
    except Exception:  # noqa: BLE001 - not public; without it the files are left
        return None


def wait_for(
    read: Callable[[], Published | None],
    *,
    deadline_ns: int,
    clock: Clock,
    sleep: Callable[[float], object],
    poll_s: float = 0.05,
) -> Published | None:
    """Call `read` until it has something or `clock.mono_ns()` passes the deadline. Blocks: off the training thread."""
    while (found := read()) is None:
        left_ns = deadline_ns - clock.mono_ns()
        if left_ns <= 0:
            return None
        sleep(min(poll_s, left_ns / NS_PER_S))
    return found


def parse(data: bytes) -> Published | None:
    """Return what the bytes say; None for a file that is still being written, or is none of ours."""
    try:
        content = json.loads(data)
        known = {name: content[name] for name in Published.__slots__ if name in content}
        published = Published(**known)
    except (ValueError, TypeError):
        return None
    return published if isinstance(published.run_id, str) and published.run_id else None


def _store_key(ranks: Ranks, sequence: int) -> str:
    return f"otel_train/{sequence}/{ranks.restart_count}"
