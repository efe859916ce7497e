"""A real card, beside what its own tool says of it at the same moment."""

from __future__ import annotations

import shutil
import subprocess
import time
from typing import Any

import pytest

from otel_train.clock import SYSTEM
from otel_train.sources.gpu import GpuSampler

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="nvidia-smi is missing: there is no NVIDIA card"),
]
MIB = 1 << 20


def told(field: str) -> float:
    """Return what nvidia-smi says of the first card."""
    command = ["nvidia-smi", "--id=0", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout)


def sampled(sampler: GpuSampler, name: str) -> float:
    """Return what we say of the first card."""
    samples = [one for one in sampler.sample(SYSTEM.wall_ns()) if one.name == name]
    of_first: Any = [one for one in samples if dict(one.attributes).get("physical_index") == 0] or samples
    return float(of_first[0].value)


def test_memory_and_its_limit_are_those_of_nvidia_smi() -> None:
    """Used memory within 64 MiB (it moves between the two readings), the limit within the tool's rounding."""
    sampler = GpuSampler()
    assert sampled(sampler, "hw.gpu.memory.limit") == pytest.approx(told("memory.total") * MIB, abs=MIB)
    used = sampled(sampler, "hw.gpu.memory.usage")
    # NVML's second form counts what the driver reserves, which the tool names apart.
    with_reserved = (told("memory.used") + told("memory.reserved")) * MIB
    assert told("memory.used") * MIB - 64 * MIB <= used <= with_reserved + 64 * MIB


def test_energy_grows_by_power_and_time() -> None:
    """Over two seconds the counter grows by what the tool's power makes of them, within half."""
    sampler = GpuSampler()
    before, start_ns = sampled(sampler, "hw.energy"), SYSTEM.mono_ns()
    power_w = told("power.draw")
    time.sleep(2)  # the stretch over which energy is measured
    grown, elapsed_s = sampled(sampler, "hw.energy") - before, (SYSTEM.mono_ns() - start_ns) / 1e9
    assert grown == pytest.approx(power_w * elapsed_s, rel=0.5)


def test_power_is_that_of_nvidia_smi() -> None:
    """Read one after the other, within half: a card's power moves by itself."""
    assert sampled(GpuSampler(), "hw.power") == pytest.approx(told("power.draw"), rel=0.5)
