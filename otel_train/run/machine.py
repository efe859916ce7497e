"""Starts to read the machine; imported on a thread of its own, since what reads it takes time to import."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from otel_train.record.entries import Sample
from otel_train.sources.gpu import GpuSampler
from otel_train.sources.host import HostSampler
from otel_train.sources.process import ProcessSampler
from otel_train.sources.process_tree import ProcessTreeMemory
from otel_train.sources.sampler import MachineSource, Sampler
from otel_train.watch.device_memory import DeviceMemory
from otel_train.watch.memory_slope import MemorySlope

if TYPE_CHECKING:
    from otel_train.config import Settings
    from otel_train.lineage.ranks import Ranks
    from otel_train.record.entries import Sink


def start_machine(
    settings: Settings,
    ranks: Ranks,
    root: Path,
    environ: Mapping[str, str],
    sink: Sink,
    training: Callable[[], bool] = lambda: False,
) -> tuple[HostSampler, GpuSampler, Sampler | None]:
    """Return the samplers of host and cards, and what reads them at the interval, None where that is not wanted.

    `training` tells whether a step of training has ended yet.
    """
    # On a machine with several ranks the first reads the host, and each its own card.
    first_here = ranks.local_rank in (None, 0)
    indices = {ranks.local_rank} if ranks.shared and ranks.local_rank is not None else None
    host = HostSampler(root)
    gpu = GpuSampler(environ=environ, indices=indices)
    if not settings["sample_machine"]:
        return host, gpu, None
    own = (ProcessSampler(), GrowingMemory(training), gpu, DeviceMemory())
    machine: list[MachineSource] = [*([host] if first_here else []), *own]
    sampler = Sampler(sink, machine, interval_s=settings["sample_interval_s"])
    sampler.start()
    return host, gpu, sampler


class GrowingMemory:
    """The process tree's memory and, once training has settled, its slope; a source of the machine."""

    name = "memory of the process tree"

    def __init__(
        self,
        training: Callable[[], bool],
        *,
        tree: ProcessTreeMemory | None = None,
        slope: MemorySlope | None = None,
    ) -> None:
        self._training = training
        self._tree = tree or ProcessTreeMemory()
        self._slope = slope or MemorySlope()

    def sample(self, now_ns: int) -> list[Sample]:
        """Return both, as far as they are known."""
        samples = self._tree.sample(now_ns)
        if samples:
            reading = samples[0]
            slope = self._slope.take(self._tree.read_ns, float(reading.value), training=self._training())
            if slope is not None:
                samples.append(Sample("dl.process_tree.memory.slope", slope, reading.attributes))
        return samples

    def close(self) -> None:
        """Nothing is held."""
