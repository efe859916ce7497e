"""Keeps what the writer itself has to say of a run: that it is alive, how long steps take, what was not finite."""

from __future__ import annotations

from collections import Counter
from typing import Final

from otel_train.clock import NS_PER_S
from otel_train.otlp.histogram import Exemplar, ExponentialHistogram, HistogramData
from otel_train.record.digest import Digest, StepFacts
from otel_train.record.entries import AttributeValue, Sample, Scalar, SpanEntry
from otel_train.record.summary import Best, NonFinite, plain
from otel_train.runlog.accounting import Accounting
from otel_train.semconv import METRIC, METRICS, RUN_STATES, SPLIT, STATE, STEP

_ACCOUNTS: Final = (("metrics", "otel_train.points"), ("logs", "otel_train.logs"), ("traces", "otel_train.spans"))


class OwnMetrics:
    """For the writer's thread alone."""

    def __init__(self, digest: Digest, accounting: Accounting, start_ns: int) -> None:
        self._digest = digest
        self._accounting = accounting
        self._start_ns = start_ns
        self._durations: dict[str, ExponentialHistogram] = {}
        self._nonfinite: Counter[tuple[str, str, str]] = Counter()
        self._steps: Counter[str] = Counter()

    def take_step(self, facts: StepFacts, offset_ns: int, span: SpanEntry | None) -> None:
        """Count a step's duration; with its span it becomes an exemplar."""
        exemplar = None
        self._steps["thinned" if span is None else "kept"] += 1
        if span is not None:
            exemplar = Exemplar(
                time_ns=facts.end_ns + offset_ns,
                value=facts.duration_s,
                trace_id=span.trace_id,
                span_id=span.span_id,
            )
        histogram = self._durations.get(facts.split)
        if histogram is None:
            histogram = self._durations[facts.split] = ExponentialHistogram()
        histogram.record(facts.duration_s, exemplar)

    def take_nonfinite(self, bad: NonFinite) -> list[Sample]:
        """Count values that are not finite; return the counters of their series."""
        places = [(bad.series.name, bad.series.split, kind) for kind in bad.kinds]
        for place in places:
            self._nonfinite[place] += bad.kinds[place[2]]
        return [self._nonfinite_sample(*place) for place in places]

    def _nonfinite_sample(self, name: str, split: str, kind: str) -> Sample:
        attributes: list[tuple[str, Scalar]] = [(METRIC, name), ("kind", kind)]
        if split:
            attributes.insert(1, (SPLIT, split))
        return Sample("dl.nonfinite", self._nonfinite[(name, split, kind)], tuple(attributes))

    def heartbeat(self, now_ns: int, offset_ns: int, state: str, disk_bytes: int) -> list[Sample]:
        """Return what says that the run is alive, where it is, and what became of its records."""
        samples = [Sample("dl.run.heartbeat", now_ns / NS_PER_S)]
        samples += [Sample("dl.run.state", int(known == state), ((STATE, known),)) for known in RUN_STATES]
        step = self._digest.last_step
        if step is not None:
            samples.append(Sample("dl.step.last_time", (step.end_ns + offset_ns) / NS_PER_S))
            usual = self._digest.usual.get("train") or self._digest.usual[step.split]
            if usual.median_ns:
                samples.append(Sample("dl.step.usual_time", usual.median_ns / NS_PER_S))
        samples += self._digest.batches.workers()
        # Again, though unchanged: stores forget a series that is silent for some minutes.
        samples += [self._nonfinite_sample(*place) for place in self._nonfinite]
        for signal, name in _ACCOUNTS:
            samples.append(Sample(name, self._accounting.recorded[signal], (("outcome", "recorded"),)))
            samples += [
                Sample(name, count, (("outcome", cause),)) for cause, count in self._accounting.causes(signal).items()
            ]
        samples += [
            Sample("otel_train.steps", count, (("outcome", outcome),)) for outcome, count in self._steps.items()
        ]
        samples.append(Sample("otel_train.runlog.size", disk_bytes))
        return samples

    def histograms(self, now_ns: int) -> list[HistogramData]:
        """Return the distribution of step durations so far, by split."""
        metric = METRICS["dl.step.duration"]
        histograms = []
        for split, histogram in self._durations.items():
            value, exemplars = histogram.snapshot()
            histograms.append(
                HistogramData(
                    name=metric.name,
                    unit=metric.unit,
                    description=metric.description,
                    attributes=((SPLIT, split),),
                    start_ns=self._start_ns,
                    time_ns=now_ns,
                    value=value,
                    exemplars=exemplars,
                )
            )
        return histograms


def nonfinite_event(bad: NonFinite) -> tuple[str, dict[str, AttributeValue]]:
    """Return body and attributes of the event of a series' first value that is not finite."""
    attributes: dict[str, AttributeValue] = {METRIC: bad.series.name, STEP: bad.step, "value": str(plain(bad.value))}
    if bad.series.split:
        attributes[SPLIT] = bad.series.split
    return f"{bad.series.description} is {plain(bad.value)} at step {bad.step}", attributes


def best_event(best: Best) -> tuple[str, dict[str, AttributeValue]]:
    """Return body and attributes of the event of a new best value."""
    attributes: dict[str, AttributeValue] = {
        METRIC: best.series.name,
        "value": best.value,
        "goal": best.goal,
        STEP: best.step,
    }
    if best.series.split:
        attributes[SPLIT] = best.series.split
    if best.previous is not None:
        attributes["previous"] = best.previous
    place = f"{best.series.split} {best.series.key}".strip()
    return f"new best {place} {best.value:.6g} at step {best.step}", attributes
