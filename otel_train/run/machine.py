"""Starts to read the machine; imported on a thread of its own, since what reads it takes time to import."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from otel_train.sources.gpu import GpuSampler
from otel_train.sources.host import HostSampler
from otel_train.sources.process import ProcessSampler
from otel_train.sources.sampler import MachineSource, Sampler

if TYPE_CHECKING:
    from otel_train.config import Settings
    from otel_train.lineage.ranks import Ranks
    from otel_train.record.entries import Sink


def start_machine(
    settings: Settings, ranks: Ranks, root: Path, environ: Mapping[str, str], sink: Sink
) -> tuple[HostSampler, GpuSampler, Sampler | None]:
    """Return the samplers of host and cards, and what reads them at the interval, None where that is not wanted."""
    # On a machine with several ranks the first reads the host, and each its own card.
    first_here = ranks.local_rank in (None, 0)
    indices = {ranks.local_rank} if ranks.shared and ranks.local_rank is not None else None
    host = HostSampler(root)
    gpu = GpuSampler(environ=environ, indices=indices)
    if not settings["sample_machine"]:
        return host, gpu, None
    machine: list[MachineSource] = [*([host] if first_here else []), ProcessSampler(), gpu]
    sampler = Sampler(sink, machine, interval_s=settings["sample_interval_s"])
    sampler.start()
    return host, gpu, sampler
