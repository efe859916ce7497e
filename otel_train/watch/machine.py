"""Watches the machine's readings as they pass: cards that idle, are hot, slowed down or damaged, disk and memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from otel_train.clock import NS_PER_S
from otel_train.record.entries import Sample, SeriesAttributes
from otel_train.semconv import GPU_ATTRIBUTES

# Reasons that are a fault of cooling or power supply. Idleness, set clocks and the power cap are normal.
BAD_REASONS: Final = frozenset({"hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown"})
# Beyond this the sampler was away, or the machine asleep: what was before is not "the last minutes".
LONGEST_PAUSE_NS: Final = 60 * NS_PER_S
ECC_QUIET_NS: Final = 600 * NS_PER_S
_CARD: Final = frozenset(GPU_ATTRIBUTES)


@dataclass(frozen=True, slots=True)
class Reading:
    """The present value of one condition of one thing; `card` is the card's attributes, () for the host."""

    condition: str
    time_ns: int
    value: float
    card: SeriesAttributes = ()
    detail: SeriesAttributes = ()


class BusyShare:
    """The mean utilisation of one card over a window of time that was training."""

    def __init__(self, window_ns: int) -> None:
        self._window_ns = window_ns
        self._samples: deque[tuple[int, float]] = deque()
        self._total = 0.0

    def take(self, time_ns: int, share: float) -> None:
        """Take one reading; after a pause the window begins anew."""
        samples = self._samples
        if samples and not 0 <= time_ns - samples[-1][0] <= LONGEST_PAUSE_NS:
            samples.clear()
            self._total = 0.0
        samples.append((time_ns, share))
        self._total += share
        # One reading stays from before the window, so that it is covered.
        while len(samples) > 1 and samples[1][0] <= time_ns - self._window_ns:
            self._total -= samples.popleft()[1]

    @property
    def mean(self) -> float | None:
        """The mean, None before the window is covered."""
        samples = self._samples
        if not samples or samples[-1][0] - samples[0][0] < self._window_ns:
            return None
        return min(1.0, max(0.0, self._total / len(samples)))


class Machine:
    """Turns samples into readings of conditions, for `report`; `training` tells whether a GPU should be busy now."""

    def __init__(
        self, report: Callable[[Reading], None], *, idle_window_s: float, training: Callable[[], bool]
    ) -> None:
        self._report = report
        self._idle_window_ns = int(idle_window_s * NS_PER_S)
        self._training = training
        self._busy: dict[SeriesAttributes, BusyShare] = {}
        self._ecc: dict[SeriesAttributes, tuple[float, float, int]] = {}
        self._limit_bytes = self._used_bytes = self._reclaimable_bytes = 0.0
        self._host_share = 0.0
        self._host_bytes: dict[object, float] = {}
        self.memory_share: float | None = None
        self.time_to_full_s: float | None = None
        self._takers: dict[str, Callable[[int, Sample], None]] = {
            "hw.gpu.utilization": self._take_utilization,
            "hw.temperature": self._take_temperature,
            "hw.errors": self._take_errors,
            "system.filesystem.utilization": self._take_disk,
            "system.memory.utilization": self._take_memory,
            "system.memory.usage": self._take_memory,
            "dl.process_tree.memory.slope": self._take_slope,
            "container.memory.usage": self._take_memory,
            "dl.container.memory.limit": self._take_memory,
            "dl.container.memory.reclaimable": self._take_memory,
        }

    def take(self, time_ns: int, samples: Sequence[Sample]) -> None:
        """Take the readings of one source at one time."""
        takers = self._takers
        throttled: dict[SeriesAttributes, list[str]] = {}
        memory = False
        for sample in samples:
            if sample.name == "hw.gpu.throttled":
                reasons = throttled.setdefault(_card(sample.attributes), [])
                reason = str(dict(sample.attributes).get("reason"))
                if sample.value and reason in BAD_REASONS:
                    reasons.append(reason)
            elif (take := takers.get(sample.name)) is not None:
                take(time_ns, sample)
                memory = memory or take == self._take_memory
        for card, reasons in throttled.items():
            detail: SeriesAttributes = (("reason", ",".join(reasons)),) if reasons else ()
            self._report(Reading("gpu_throttled", time_ns, int(bool(reasons)), card, detail))
        if memory:
            self._report_memory(time_ns)

    def busy_shares(self) -> list[tuple[SeriesAttributes, float]]:
        """Return the mean utilisation of each card whose window is covered."""
        return [(card, busy.mean) for card, busy in self._busy.items() if busy.mean is not None]

    def _take_utilization(self, time_ns: int, sample: Sample) -> None:
        if not self._idle_window_ns or not self._training():
            return
        card = _card(sample.attributes)
        busy = self._busy.get(card)
        if busy is None:
            busy = self._busy[card] = BusyShare(self._idle_window_ns)
        busy.take(time_ns, sample.value)
        if busy.mean is not None:
            self._report(Reading("gpu_idle", time_ns, busy.mean, card))

    def _take_temperature(self, time_ns: int, sample: Sample) -> None:
        if ("hw.type", "gpu") in sample.attributes:
            self._report(Reading("gpu_hot", time_ns, sample.value, _card(sample.attributes)))

    def _take_errors(self, time_ns: int, sample: Sample) -> None:
        if ("error.type", "uncorrected") not in sample.attributes:
            return
        card = _card(sample.attributes)
        # What the driver counted before the run is not the run's; it counts anew when it is loaded again.
        before, rise, rose_ns = self._ecc.get(card, (sample.value, 0.0, 0))
        if sample.value > before:
            rise, rose_ns = rise + sample.value - before, time_ns
        if rise and time_ns - rose_ns > ECC_QUIET_NS:
            rise = 0.0
        self._ecc[card] = sample.value, rise, rose_ns
        self._report(Reading("gpu_ecc", time_ns, rise, card))

    def _take_disk(self, time_ns: int, sample: Sample) -> None:
        self._report(Reading("disk_full", time_ns, sample.value))

    def _take_memory(self, time_ns: int, sample: Sample) -> None:
        if sample.name == "system.memory.utilization":
            self._host_share = sample.value
        elif sample.name == "system.memory.usage":
            self._host_bytes[sample.attributes] = sample.value
        elif sample.name == "container.memory.usage":
            self._used_bytes = sample.value
        elif sample.name == "dl.container.memory.limit":
            self._limit_bytes = sample.value
        else:
            self._reclaimable_bytes = sample.value

    def _report_memory(self, time_ns: int) -> None:
        group_share = (self._used_bytes - self._reclaimable_bytes) / self._limit_bytes if self._limit_bytes else 0.0
        self.memory_share = max(self._host_share, group_share)
        of = "control group" if group_share > self._host_share else "host"
        self._report(Reading("memory_full", time_ns, self.memory_share, detail=(("of", of),)))

    def _take_slope(self, time_ns: int, sample: Sample) -> None:
        """Take by how much the memory of the run's processes grows a second; what is free comes from other readings."""
        free = [(1 - self._host_share) * sum(self._host_bytes.values())] if self._host_bytes else []
        if self._limit_bytes:
            free.append(self._limit_bytes - self._used_bytes + self._reclaimable_bytes)
        if not free:
            return
        self.time_to_full_s = max(0.0, min(free)) / sample.value if sample.value > 0 else inf
        self._report(Reading("memory_growth", time_ns, self.time_to_full_s, detail=(("slope", sample.value),)))


def _card(attributes: SeriesAttributes) -> SeriesAttributes:
    """Return what names the card among the attributes of one of its series."""
    return tuple([pair for pair in attributes if pair[0] in _CARD])
