"""Makes a run that has a value of every metric: two ranks with a GPU each, thresholds of all conditions, an alert.

What it holds is known, so queries over it have right answers on a machine without any GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from otel_train.otlp.encode import LineEncoder
from otel_train.otlp.histogram import Exemplar, ExponentialHistogram, HistogramData
from otel_train.record.entries import Column, Sample, SeriesAttributes
from otel_train.semconv import METRICS, RUN_STATES, Metric
from otel_train.watch.conditions import CONDITIONS

RUN_ID: Final = "20260303-030303-wholerun"
RUN_NAME: Final = "whole run"
PROJECT: Final = "dashboards"
STEPS: Final = 240
STEP_S: Final = 0.25
LASTS_S: Final = STEPS * STEP_S
TRACE_ID: Final = 0x1234
# By rank: the second is slower, and waits longer.
STEP_TIME_S: Final = (0.2, 0.25)
WAIT_S: Final = (0.01, 0.03)
BUSY: Final = (0.9, 0.5)
THRESHOLDS: Final = {name: condition.threshold for name, condition in CONDITIONS.items()}
# Values that metrics have for each value of an attribute; one where there is nothing to say.
_VALUES: Final[Mapping[str, Sequence[str]]] = {
    "dl.process": ("main", "children"),
    "disk.io.direction": ("read", "write"),
    "network.io.direction": ("receive", "transmit"),
    "system.memory.state": ("used", "free"),
    "system.device": ("sda",),
    "network.interface.name": ("eth0",),
    "reason": ("hw_slowdown", "gpu_idle"),
    "error.type": ("uncorrected",),
    "hw.type": ("gpu",),
    "metric": ("train.loss",),
    "split": ("train",),
    "phase": ("forward", "backward"),
    "kind": ("NaN",),
    "outcome": ("recorded",),
    "signal": ("metrics",),
    # Of dl.time: the run's own states are written below.
    "state": ("productive", "data"),
    "layer": ("fc1", "fc2"),
    "class": ("0", "1"),
    "worker": ("0", "1"),
}
# What is of the whole has no such attribute.
_OF_THE_WHOLE_TOO: Final = "layer"
# What is no label of the panels, or is set by rank.
_LEFT_OUT: Final = {"axis", "clock", "hw.parent", "mig.gpu_instance", "mig.compute_instance", "physical_index"}
_LEFT_OUT |= {"model", "optimizer", "part", "loader"}
# These have values of their own below.
_OWN: Final = {"dl.step", "dl.epoch", "dl.step.time", "dl.data.wait.time", "dl.run.state", "dl.alert.threshold"}
_OWN |= {"dl.run.heartbeat", "dl.run.progress", "dl.step.duration", "hw.gpu.utilization", "dl.step.last_time"}


@dataclass(frozen=True)
class WholeRun:
    """The run's lines of OTLP JSON, when it began, and under which id."""

    begins_ns: int
    run_id: str = RUN_ID
    run_name: str = RUN_NAME
    ranks: int = 2
    state: str = "finished"
    scale: float = 1.0

    @property
    def ends_ns(self) -> int:
        """When its last point is."""
        return self.begins_ns + round(LASTS_S * 1e9)

    def lines(self) -> Iterator[bytes]:
        """Yield requests for metrics, one line each."""
        for rank in range(self.ranks):
            encoder = LineEncoder(self._resource(rank), "0.1.0")
            yield encoder.points(self._columns(rank))
            beats = range(0, int(LASTS_S) + 1, 5)
            for second in beats:
                yield encoder.samples(
                    self.begins_ns + second * 10**9,
                    self.begins_ns,
                    list(self._samples(rank, second, second == beats[-1])),
                )
            for second in beats[1:]:
                yield encoder.histograms([self._histogram(rank, second), *self._distributions(second)])

    def lines_of(self, rank: int, samples: Sequence[Sample]) -> Iterator[bytes]:
        """Yield requests with these values only, every five seconds of the run."""
        encoder = LineEncoder(self._resource(rank), "0.1.0")
        for second in range(0, int(LASTS_S) + 1, 5):
            yield encoder.samples(self.begins_ns + second * 10**9, self.begins_ns, samples)

    def alert(self, name: str, severity: str) -> bytes:
        """Return a line that says that an alert fired for this run, as Prometheus writes it."""
        attributes: SeriesAttributes = (("alertname", name), ("alertstate", "firing"), ("severity", severity))
        times = [self.begins_ns + second * 10**9 for second in range(30, 46, 5)]
        return LineEncoder(self._resource(0), "0.1.0").points([Column("ALERTS", times, [1.0] * len(times), attributes)])

    def _resource(self, rank: int) -> dict[str, Any]:
        return {
            "service.name": PROJECT,
            "service.instance.id": f"{self.run_id}-{rank}",
            "run_id": self.run_id,
            "run_name": self.run_name,
            "run_attempt": 1,
            "dl.rank": rank,
            "dl.local_rank": 0,
            "dl.world_size": self.ranks,
            "host.name": f"node-{rank}",
        }

    def _columns(self, rank: int) -> list[Column]:
        times = [self.begins_ns + round(step * STEP_S * 1e9) for step in range(1, STEPS + 1)]
        train: SeriesAttributes = (("split", "train"),)
        steps = list(range(1, STEPS + 1))
        columns = [
            Column("dl.step", times, steps, train),
            Column("dl.epoch", times, [step // 80 for step in steps], train),
            Column("dl.step.time", times, [STEP_TIME_S[rank]] * STEPS, train, "s"),
            Column("dl.data.wait.time", times, [WAIT_S[rank]] * STEPS, train, "s"),
        ]
        if rank == 0:
            columns.append(Column("train.loss", times, [self.scale / step for step in steps], train))
            columns.append(Column("train.lr", times, [0.001] * STEPS))
            evaluated = times[39::40]
            val: SeriesAttributes = (("split", "val"),)
            columns.append(Column("train.loss", evaluated, [self.scale * 2 / step for step in steps[39::40]], val))
            columns.append(Column("dl.step", evaluated, steps[39::40], val))
            columns.append(Column("train.reward", times, [1.0] * STEPS, (("axis", "frames"),)))
        return columns

    def _samples(self, rank: int, second: int, last: bool) -> Iterator[Sample]:
        now_s = self.begins_ns / 1e9 + second
        yield Sample("dl.run.heartbeat", now_s)
        yield Sample("dl.step.last_time", now_s)
        yield Sample("dl.run.progress", second / LASTS_S / 2)
        state = self.state if last else "running"
        yield from (Sample("dl.run.state", int(state == known), (("state", known),)) for known in RUN_STATES)
        for name, threshold in THRESHOLDS.items():
            yield Sample("dl.alert.threshold", threshold, (("alert", name),))
        gpu: SeriesAttributes = (("hw.id", f"GPU-{rank}"), ("hw.name", "H200"), ("index", "0"))
        yield Sample("hw.gpu.utilization", BUSY[rank], (*gpu, ("hw.gpu.task", "general")))
        for metric in METRICS.values():
            if metric.name in _OWN or metric.kind == "histogram":
                continue
            for attributes in _combinations(metric, gpu):
                yield Sample(metric.name, second + 1.0 if metric.kind == "counter" else 0.5, attributes)

    def _histogram(self, rank: int, second: int) -> HistogramData:
        histogram = ExponentialHistogram()
        time_ns = self.begins_ns + second * 10**9
        for _ in range(round(second / STEP_S)):
            histogram.record(STEP_TIME_S[rank])
        histogram.record(
            STEP_TIME_S[rank],
            Exemplar(time_ns=time_ns, value=STEP_TIME_S[rank], trace_id=TRACE_ID + second, span_id=0x56),
        )
        value, exemplars = histogram.snapshot()
        metric = METRICS["dl.step.duration"]
        return HistogramData(
            name=metric.name,
            unit=metric.unit,
            description=metric.description,
            attributes=(("split", "train"),),
            start_ns=self.begins_ns,
            time_ns=time_ns,
            value=value,
            exemplars=exemplars,
        )

    def _distributions(self, second: int) -> Iterator[HistogramData]:
        """Yield what was counted of weights and gradients so far: hundred values around zero for each sampling."""
        for name in ("dl.weight.distribution", "dl.grad.distribution"):
            histogram = ExponentialHistogram()
            for number in range(100 * second):
                histogram.record((number % 100 - 49.5) / 100)
            metric = METRICS[name]
            yield HistogramData(
                name=name,
                unit=metric.unit,
                description=metric.description,
                attributes=(("layer", "fc1"),),
                start_ns=self.begins_ns,
                time_ns=self.begins_ns + second * 10**9,
                value=histogram.snapshot()[0],
            )


def _combinations(metric: Metric, gpu: SeriesAttributes) -> list[SeriesAttributes]:
    """Return the attributes of each series of a metric."""
    found: list[SeriesAttributes] = [gpu if "hw.id" in metric.attributes else ()]
    for attribute in metric.attributes:
        if attribute in _LEFT_OUT or attribute in dict(gpu):
            continue
        values = _VALUES.get(attribute, ("some",))
        whole = found if attribute == _OF_THE_WHOLE_TOO else []
        found = [*whole, *((*attributes, (attribute, value)) for attributes in found for value in values)]
    return found
