"""Judges what was seen inside training: sampled gradients, dead units, skipped steps, checked samples, slow ranks."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Final

from otel_train.record.entries import Sample, Scalar, SeriesAttributes
from otel_train.record.readings import Arrived
from otel_train.record.summary import kind_of, plain
from otel_train.runlog.watcher import Finding
from otel_train.semconv import LAYER, METRIC, STEP
from otel_train.watch.gradients import GradientNorm
from otel_train.watch.onsets import Judged

SAMPLINGS: Final = 3
OPTIMIZER_STEPS: Final = 100
NORM: Final = "dl.grad.norm"
# After so many samplings that did not come, what was seen last says nothing about the present.
STALE_SAMPLINGS: Final = 5


@dataclass(slots=True)
class _Seen:
    """When something was last sampled, in steps, and how many lie between two samplings."""

    step: int
    apart: int = 0

    def again(self, step: int) -> None:
        self.apart, self.step = max(self.apart, step - self.step), step

    def is_stale(self, step: int | None) -> bool:
        return step is not None and bool(self.apart) and step - self.step > STALE_SAMPLINGS * self.apart


@dataclass(slots=True)
class _Layer:
    """The last shares of dead units of one layer."""

    seen: _Seen
    shares: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLINGS))

    @property
    def lasting(self) -> float | None:
        return min(self.shares) if len(self.shares) == SAMPLINGS else None


class SkippedSteps:
    """The share of the last 100 optimizer steps that a loss scaler left out, from totals at some steps."""

    def __init__(self) -> None:
        # (steps tried, steps skipped), the oldest one no younger than 100 steps.
        self._totals: deque[tuple[float, float]] = deque()

    def take(self, tried: float, skipped: float) -> None:
        """Take the totals so far."""
        totals = self._totals
        if totals and tried < totals[-1][0]:
            totals.clear()
        totals.append((tried, skipped))
        while len(totals) > 1 and tried - totals[1][0] >= OPTIMIZER_STEPS:
            totals.popleft()

    @property
    def share(self) -> float | None:
        """The share, 0 to 1; None before 100 steps were tried."""
        if not self._totals:
            return None
        (tried, skipped), (tried_now, skipped_now) = self._totals[0], self._totals[-1]
        steps = tried_now - tried
        return min(1.0, (skipped_now - skipped) / steps) if steps >= OPTIMIZER_STEPS else None


class Inside:
    """What is kept of one run and rank; `limits` are those of the conditions by name."""

    def __init__(self, limits: Mapping[str, float]) -> None:
        self._limits = limits
        self._norms: dict[SeriesAttributes, tuple[_Seen, GradientNorm]] = {}
        self._crossings: dict[SeriesAttributes, tuple[int, float]] = {}
        self._layers: dict[SeriesAttributes, _Layer] = {}
        self._skipped: dict[SeriesAttributes, SkippedSteps] = {}
        self._bad_norms: Counter[tuple[SeriesAttributes, str]] = Counter()
        self._first_bad: list[tuple[int, int, SeriesAttributes, float]] = []
        self._bad_samples: dict[SeriesAttributes, float] = {}
        self._judged: list[Judged] = []
        self._step: int | None = None

    # What passes by ------------------------------------------------------------------------------------------------

    def take(self, arrived: Arrived) -> None:
        """See one reading."""
        read, step = arrived.read, arrived.step
        # A scaler's search for its scale begins with gradients that overflow: those steps are counted as skipped.
        scaled = any(sample.name == "dl.amp.scale" for sample in read.points)
        checked: dict[SeriesAttributes, dict[str, float]] = {}
        for sample in read.points:
            if sample.name == NORM:
                self._take_norm(arrived, sample, scaled=scaled)
            elif sample.name == "dl.activation.dead":
                layer = self._layers.setdefault(sample.attributes, _Layer(_Seen(step)))
                layer.seen.again(step)
                layer.shares.append(sample.value)
            elif sample.name.startswith("dl.samples."):
                checked.setdefault(_without(sample.attributes, "class"), {})[sample.name] = sample.value
        # A table has missing cells, and a text may be empty, by its nature: there only drift is a fault.
        kinds = {one.attributes.get("kind") for one in read.occurrences if one.event == "samples.checked"}
        for of, values in checked.items():
            self._take_samples(arrived, of, values, judged=not kinds & {"table", "text", "tokens"})
        self._take_skipped(arrived)

    def readings(self, time_ns: int, samples: Sequence[Sample]) -> None:
        """See readings of the machine, and of the ranks."""
        for sample in samples:
            if sample.name == "dl.rank.straggler":
                self._judged.append(self._new("straggler", sample.value, time_ns, of=sample.attributes))

    def _take_norm(self, arrived: Arrived, sample: Sample, *, scaled: bool) -> None:
        of, value = sample.attributes, sample.value
        if not isfinite(value) and not scaled and not _has_layer(of):
            kind = kind_of(value)
            if not any(place[0] == of for place in self._bad_norms):
                self._first_bad.append((arrived.time_ns, arrived.step, of, value))
            self._bad_norms[of, kind] += 1
        if of not in self._norms:
            self._norms[of] = _Seen(arrived.step), GradientNorm(sampled=True)
        seen, norm = self._norms[of]
        seen.again(arrived.step)
        crossing = norm.take([arrived.step], [value], self._limits["gradient_exploding"])
        if crossing is not None and not _has_layer(of):
            self._crossings.setdefault(of, crossing)

    def _take_samples(
        self, arrived: Arrived, of: SeriesAttributes, values: Mapping[str, float], *, judged: bool
    ) -> None:
        parts = [values[name] for name in ("dl.samples.nonfinite", "dl.samples.constant") if name in values]
        if parts and judged:
            self._bad_samples[of] = share = min(1.0, sum(parts))
            self._judged.append(self._new("samples_bad", share, arrived.time_ns, arrived.step, of=of))
        if "dl.samples.drift" in values:
            drift = values["dl.samples.drift"]
            self._judged.append(self._new("samples_drift", drift, arrived.time_ns, arrived.step, of=of))

    def _take_skipped(self, arrived: Arrived) -> None:
        totals = {(sample.name, sample.attributes): sample.value for sample in arrived.read.counters}
        for (name, of), skipped in totals.items():
            if name == "dl.optimizer.skipped" and (tried := totals.get(("dl.optimizer.tried", of))) is not None:
                self._skipped.setdefault(of, SkippedSteps()).take(tried, skipped)

    def _new(
        self,
        condition: str,
        value: float,
        time_ns: int,
        step: int | None = None,
        *,
        of: SeriesAttributes = (),
        place: str | None = None,
    ) -> Judged:
        return Judged(
            condition=condition,
            value=value,
            limit=self._limits[condition],
            time_ns=time_ns,
            step=step,
            of=of,
            place=place,
            subject=_words(of),
        )

    # What comes of it ----------------------------------------------------------------------------------------------

    def settle(self, wall_ns: int, step: int | None, *, user_logs_norm: bool, vanished: bool) -> list[Judged]:
        """Return what is to be judged now, without limits.

        Where the user logs a gradient norm himself, at each step, that one tells of the whole gradient. `vanished`:
        it has vanished already, and of the layers nothing need be said.
        """
        self._step = step
        judged, self._judged = self._judged, []
        norms = self._present_norms()
        whole = {of: norm for of, norm in norms.items() if not _has_layer(of)} if not user_logs_norm else {}
        judged += self._exploding(whole, wall_ns)
        if not vanished:
            judged += self._vanishing(norms, whole, wall_ns)
        if lasting := self._lasting():
            of = max(lasting, key=lambda of: lasting[of])
            # One condition for the run, by the layer that is worst at the time.
            judged.append(self._new("dead_units", lasting[of], wall_ns, self._layers[of].seen.step, of=of, place=""))
        judged += [
            self._new("amp_skipping", skipped.share, wall_ns, step, of=of)
            for of, skipped in self._skipped.items()
            if skipped.share is not None
        ]
        return judged

    def _exploding(self, whole: Mapping[SeriesAttributes, GradientNorm], wall_ns: int) -> list[Judged]:
        crossings, self._crossings = self._crossings, {}
        judged = []
        for of, norm in whole.items():
            found = [crossings[of]] if of in crossings else []
            if norm.excess is not None:
                found.append((norm.step, norm.excess))
            of_norm = ((METRIC, NORM), *of)
            judged += [self._new("gradient_exploding", value, wall_ns, step, of=of_norm) for step, value in found]
        return judged

    def _vanishing(
        self,
        norms: Mapping[SeriesAttributes, GradientNorm],
        whole: Mapping[SeriesAttributes, GradientNorm],
        wall_ns: int,
    ) -> list[Judged]:
        """Return the least of the greatest norms of late, one for the run: the whole first, since it says more."""
        known = {of: norm.recent_max for of, norm in norms.items() if _has_layer(of) or of in whole}
        values = {of: value for of, value in known.items() if value is not None}
        if not values:
            return []
        of = min(values, key=lambda of: (values[of], _has_layer(of)))
        of_norm = ((METRIC, NORM), *of)
        return [self._new("gradient_vanishing", values[of], wall_ns, norms[of].step, of=of_norm, place=NORM)]

    def nonfinite(self, *, user_logs_norm: bool) -> list[Finding]:
        """Return the event of a gradient norm that is not finite for the first time."""
        found, self._first_bad = self._first_bad, []
        if user_logs_norm:
            return []
        return [
            Finding(
                time_ns=time_ns,
                event="health.nonfinite",
                severity="ERROR",
                body=f"{NORM} is not finite for the first time: {plain(value)} at step {step}",
                attributes={METRIC: NORM, **dict(of), "value": plain(value), STEP: step},
                samples=self._counts(of),
            )
            for time_ns, step, of, value in found
        ]

    def values(self, *, user_logs_norm: bool) -> list[Sample]:
        """Return present values, for rules and dashboards."""
        samples = [] if user_logs_norm else self._counts()
        for of, norm in self._present_norms().items():
            layer = _has_layer(of)
            if user_logs_norm and not layer:
                continue
            made = (
                ("usual", None if layer else norm.usual),
                ("excess", None if layer else norm.excess),
                ("recent_max", norm.recent_max),
            )
            samples += [
                Sample(f"dl.grad.{what}", value, ((METRIC, NORM), *of)) for what, value in made if value is not None
            ]
        samples += [Sample("dl.activation.dead.lasting", value, of) for of, value in self._lasting().items()]
        samples += [
            Sample("dl.amp.skipped.share", skipped.share, of)
            for of, skipped in self._skipped.items()
            if skipped.share is not None
        ]
        samples += [Sample("dl.samples.bad", value, of) for of, value in self._bad_samples.items()]
        return samples

    def _present_norms(self) -> dict[SeriesAttributes, GradientNorm]:
        return {of: norm for of, (seen, norm) in self._norms.items() if not seen.is_stale(self._step)}

    def _lasting(self) -> dict[SeriesAttributes, float]:
        found = {of: layer.lasting for of, layer in self._layers.items() if not layer.seen.is_stale(self._step)}
        return {of: value for of, value in found.items() if value is not None}

    def _counts(self, only: SeriesAttributes | None = None) -> list[Sample]:
        return [
            Sample("dl.nonfinite", count, ((METRIC, NORM), *of, ("kind", kind)))
            for (of, kind), count in self._bad_norms.items()
            if only is None or of == only
        ]


def _has_layer(of: SeriesAttributes) -> bool:
    return any(key == LAYER for key, _ in of)


def _without(of: SeriesAttributes, name: str) -> SeriesAttributes:
    return tuple([pair for pair in of if pair[0] != name])


def _words(of: SeriesAttributes) -> str:
    """Return what the thing is called by its attributes, for a person."""
    words: list[Scalar] = [value for _, value in of]
    return " ".join(map(str, words))
