"""Reads one card or slice through NVML, a function for each reading; each returns values or raises NVML's error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from otel_train.clock import NS_PER_S, Clock
from otel_train.record.entries import Sample, SeriesAttributes
from otel_train.sources.gpu_visible import Nvml

_GPU: Final[SeriesAttributes] = (("hw.type", "gpu"),)

# Bits of NVML's reasons for holding a clock down. NVML counts idleness among them.
THROTTLE_REASONS: Final[dict[str, int]] = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clock_setting": 0x100,
}


@dataclass(frozen=True, slots=True)
class Reading:
    """One thing that can be read. Samples carry what tells their series apart within the device."""

    name: str
    read: Callable[[Nvml, Any], Sequence[Sample]]


def unsupported_codes(nvml: Nvml) -> tuple[int, ...]:
    """Return NVML's codes for what this card, driver or user will not be given later either."""
    return (
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        nvml.NVML_ERROR_NO_PERMISSION,
        nvml.NVML_ERROR_INVALID_ARGUMENT,
        nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        nvml.NVML_ERROR_DEPRECATED,
        nvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED,
    )


def memory_info(nvml: Nvml, handle: Any) -> tuple[int, int]:
    """Return bytes in use and bytes in all.

    The second version of the call leaves the driver's own reserve out of what is in use, as nvidia-smi does.
    """
    info = _first_supported(
        nvml,
        lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2),
        lambda: nvml.nvmlDeviceGetMemoryInfo(handle),
    )
    return int(info.used), int(info.total)


def _memory(nvml: Nvml, handle: Any) -> list[Sample]:
    used, total = memory_info(nvml, handle)
    samples = [Sample("hw.gpu.memory.usage", used), Sample("hw.gpu.memory.limit", total)]
    if total:
        samples.append(Sample("hw.gpu.memory.utilization", used / total))
    return samples


def _utilization(nvml: Nvml, handle: Any) -> list[Sample]:
    busy_percent = nvml.nvmlDeviceGetUtilizationRates(handle).gpu
    return [Sample("hw.gpu.utilization", busy_percent / 100, (("hw.gpu.task", "general"),))]


def _power(nvml: Nvml, handle: Any) -> list[Sample]:
    return [Sample("hw.power", nvml.nvmlDeviceGetPowerUsage(handle) / 1000, _GPU)]


def _energy(nvml: Nvml, handle: Any) -> list[Sample]:
    return [Sample("hw.energy", nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000, _GPU)]


def _temperature(nvml: Nvml, handle: Any) -> list[Sample]:
    celsius = _first_supported(
        nvml,
        lambda: nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU),
        lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
    )
    return [Sample("hw.temperature", celsius, _GPU)]


def _clock(nvml: Nvml, handle: Any) -> list[Sample]:
    return [Sample("hw.gpu.clock", nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1_000_000)]


def _throttling(nvml: Nvml, handle: Any) -> list[Sample]:
    bits = _first_supported(
        nvml,
        lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
        lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
    )
    return [
        Sample("hw.gpu.throttled", int(bool(bits & bit)), (("reason", reason),))
        for reason, bit in THROTTLE_REASONS.items()
    ]


def _corrected_errors(nvml: Nvml, handle: Any) -> list[Sample]:
    return _ecc(nvml, handle, "corrected", nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED)


def _uncorrected_errors(nvml: Nvml, handle: Any) -> list[Sample]:
    return _ecc(nvml, handle, "uncorrected", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)


def _ecc(nvml: Nvml, handle: Any, error_type: str, code: int) -> list[Sample]:
    count = nvml.nvmlDeviceGetTotalEccErrors(handle, code, nvml.NVML_VOLATILE_ECC)
    return [Sample("hw.errors", count, (*_GPU, ("error.type", error_type)))]


# What a slice has of its own. Its card tells the rest, as a device beside it.
SLICE_READINGS: Final = (Reading("memory", _memory), Reading("utilization", _utilization))
SLICED_CARD_READINGS: Final = (
    Reading("power", _power),
    Reading("temperature", _temperature),
    Reading("SM clock", _clock),
    Reading("throttle reasons", _throttling),
    Reading("energy", _energy),
    Reading("corrected ECC errors", _corrected_errors),
    Reading("uncorrected ECC errors", _uncorrected_errors),
)
CARD_READINGS: Final = SLICE_READINGS + SLICED_CARD_READINGS


class PcieTraffic:
    """Adds up bytes over PCIe of one card.

    NVML gives no count, only KB/s over the last 20 ms, and takes these 20 ms for each direction: the thread that asks
    waits, without holding the interpreter. The rate stands for the whole time since the last call, so the count is an
    estimate; over many calls its slope is right.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._before: dict[str, int] = {}
        self._total: dict[str, float] = {}

    def readings(self) -> tuple[Reading, Reading]:
        """Return the two readings, one a direction: seen from the card, `receive` is what the host sends it."""
        return (
            Reading("PCIe traffic received", lambda nvml, handle: self._read(nvml, handle, "receive")),
            Reading("PCIe traffic sent", lambda nvml, handle: self._read(nvml, handle, "transmit")),
        )

    def _read(self, nvml: Nvml, handle: Any, direction: str) -> list[Sample]:
        code = nvml.NVML_PCIE_UTIL_RX_BYTES if direction == "receive" else nvml.NVML_PCIE_UTIL_TX_BYTES
        kilobytes_per_s = nvml.nvmlDeviceGetPcieThroughput(handle, code)
        now_ns = self._clock.mono_ns()
        elapsed_ns = max(0, now_ns - self._before.get(direction, now_ns))
        self._before[direction] = now_ns
        moved = kilobytes_per_s * 1000 * elapsed_ns / NS_PER_S
        self._total[direction] = self._total.get(direction, 0.0) + moved
        return [Sample("hw.gpu.io", round(self._total[direction]), (("network.io.direction", direction),))]


def _first_supported(nvml: Nvml, *calls: Callable[[], Any]) -> Any:
    """Return the answer of the first call that this driver knows: newer names first, older ones end with CUDA 14."""
    for call in calls[:-1]:
        try:
            return call()
        except nvml.NVMLError as error:
            if error.value not in unsupported_codes(nvml):
                raise
    return calls[-1]()
