"""Turns the values of one sampled step into points, distributions and counters, on the writer's thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite, sqrt
from typing import Any

from otel_train.record.entries import Sample, SeriesAttributes
from otel_train.record.readings import Distribution, Occurrence, Read, Reading
from otel_train.semconv import LAYER
from otel_train.watch import model_distributions
from otel_train.watch.model_sampling import Copies


@dataclass(slots=True)
class Totals:
    """What one attempt has counted so far; for the writer's thread."""

    distributions: dict[str, model_distributions.Totals] = field(default_factory=dict)
    nonfinite: Counter[str] = field(default_factory=Counter)
    # Steps that a fused optimizer was told to skip, which only the device knew.
    found: int = 0


@dataclass(slots=True)
class _Parts:
    """The values of one sampling, on the host: rows are (what it is about, value)."""

    gradients: list[tuple[tuple[int, int], float]] = field(default_factory=list)
    weights: list[tuple[tuple[int, bool], float]] = field(default_factory=list)
    updates: list[tuple[int, float]] = field(default_factory=list)
    clipped: list[float] = field(default_factory=list)
    tables: list[tuple[list[str], Any, Any]] = field(default_factory=list)
    activations: list[tuple[int, int, float, float]] = field(default_factory=list)
    dead: list[tuple[int, int, float]] = field(default_factory=list)
    scale: float | None = None
    found: list[float] = field(default_factory=list)
    folded: float = 0.0


class ModelReading(Reading):
    """One sampled step of one optimizer; see `StepSampler`."""

    __slots__ = (
        "_activations",
        "_attributes",
        "_copies",
        "_done",
        "_labels",
        "_of_model",
        "_skipped",
        "_tells_step",
        "_totals",
        "_tried",
    )

    split = ""

    def __init__(
        self,
        copies: Copies,
        totals: Totals,
        *,
        labels: Sequence[str] = (),
        activations: Sequence[str] = (),
        of_model: SeriesAttributes = (),
        attributes: SeriesAttributes = (),
        done: int = 0,
        tried: int = 0,
        skipped: int = 0,
        tells_step: bool = False,
    ) -> None:
        self._copies = copies
        self._totals = totals
        self._labels = labels
        self._activations = activations
        self._of_model = of_model
        self._attributes = attributes
        self._done = done
        self._tried = tried
        self._skipped = skipped
        self._tells_step = tells_step

    def ready(self) -> bool:
        """Tell whether the device has handed over everything."""
        return self._copies.ready()

    def read(self) -> Read:
        """Return what the step showed; of a step that was skipped only that, and the loss scale."""
        parts = _sorted_out(self._copies)
        read = Read()
        totals = self._totals
        totals.found += sum(one > 0 for one in parts.found) + int(parts.folded)
        if parts.scale is not None:
            read.points.append(Sample("dl.amp.scale", parts.scale, self._attributes))
        skipped = self._skipped + totals.found
        if parts.scale is not None or skipped:
            read.counters.append(Sample("dl.optimizer.skipped", skipped, self._attributes))
        if self._tried:
            read.counters.append(Sample("dl.optimizer.tried", self._tried, self._attributes))
        if self._tells_step:
            read.points.append(Sample("dl.optimizer.step", self._done - totals.found))
        if parts.found and parts.found[-1] > 0:
            return read
        self._add_norms(parts, read)
        self._add_nonfinite(parts, read)
        self._add_activations(parts, read)
        self._add_distributions(parts, read)
        return read

    def _of(self, layer: int | None) -> SeriesAttributes:
        return self._attributes if layer is None else ((LAYER, self._labels[layer]), *self._attributes)

    # Norms ---------------------------------------------------------------------------------------------------------

    def _add_norms(self, parts: _Parts, read: Read) -> None:
        gradients = _roots((layer, norm) for (layer, _), norm in parts.gradients)
        weights = _roots((layer, norm) for (layer, _), norm in parts.weights)
        moving = _roots((layer, norm) for (layer, moves), norm in parts.weights if moves)
        updates = _roots(parts.updates)
        read.points += [Sample("dl.grad.norm", norm, self._of(layer)) for layer, norm in gradients.items()]
        if parts.clipped:
            norm = _root(parts.clipped)
            read.points.append(Sample("dl.grad.norm.clipped", norm, self._attributes))
        read.points += [Sample("dl.weight.norm", norm, self._of(layer)) for layer, norm in weights.items()]
        for layer, norm in updates.items():
            # Weights that are all zero, as biases begin: any step is infinitely large beside them.
            ratio = norm / moving[layer] if moving[layer] else float("inf") if norm else 0.0
            read.points.append(Sample("dl.update.ratio", ratio, self._of(layer)))

    def _add_nonfinite(self, parts: _Parts, read: Read) -> None:
        totals = self._totals.nonfinite
        bad = [(order, layer) for (layer, order), norm in parts.gradients if not isfinite(norm)]
        if bad:
            label = self._labels[min(bad)[1]]
            totals[label] += 1
            if totals[label] == 1:
                layers = len({layer for _, layer in bad})
                all_layers = len({layer for (layer, _), _ in parts.gradients})
                body = f"the gradient is not finite; it began in {label} ({layers} of {all_layers} layers)"
                attributes = {LAYER: label, "layers": layers, **dict(self._attributes)}
                read.occurrences.append(Occurrence(event="gradient.nonfinite", body=body, attributes=attributes))
        read.counters += [
            Sample("dl.grad.nonfinite", steps, ((LAYER, label), *self._attributes)) for label, steps in totals.items()
        ]

    # Activations ---------------------------------------------------------------------------------------------------

    def _add_activations(self, parts: _Parts, read: Read) -> None:
        groups: dict[int, list[tuple[int, float, float]]] = {}
        for layer, count, mean, spread in parts.activations:
            groups.setdefault(layer, []).append((count, mean, spread))
        for layer, rows in groups.items():
            of = ((LAYER, self._activations[layer]), *self._of_model)
            numbers = sum(count for count, _, _ in rows)
            mean = sum(count * mean for count, mean, _ in rows) / numbers
            # Chan's formula: squares within the calls, and between their means.
            squares = sum(spread * spread + count * (one - mean) ** 2 for count, one, spread in rows)
            read.points.append(Sample("dl.activation.mean", mean, of))
            read.points.append(Sample("dl.activation.std", sqrt(squares / numbers) if squares >= 0 else squares, of))
        dead: dict[int, tuple[float, int]] = {}
        for layer, units, zeros in parts.dead:
            known = dead.get(layer, (0.0, 0))
            dead[layer] = known[0] + zeros, known[1] + units
        for layer, (zeros, units) in dead.items():
            of = ((LAYER, self._activations[layer]), *self._of_model)
            read.points.append(Sample("dl.activation.dead", zeros / units, of))

    # Distributions -------------------------------------------------------------------------------------------------

    def _add_distributions(self, parts: _Parts, read: Read) -> None:
        for names, tables, sums in parts.tables:
            layers = len(self._labels)
            for part, what in enumerate(names):
                totals = self._totals.distributions.setdefault(what, model_distributions.Totals())
                mine = slice(part * layers, (part + 1) * layers)
                totals.add(self._labels, tables[mine], sums[mine].tolist())
        for what, totals in self._totals.distributions.items():
            read.distributions += [
                Distribution(
                    name=f"dl.{what}.distribution",
                    attributes=((LAYER, label), *self._attributes),
                    value=totals.value(label),
                )
                for label in self._labels
                if label in totals
            ]


def _sorted_out(copies: Copies) -> _Parts:
    parts = _Parts()
    counts: list[tuple[list[str], Any]] = []
    for what, about, values in copies.parts():
        if what == "counts":
            counts.append((about, values.reshape(-1, 2, model_distributions.ROW).long()))
            continue
        if what == "sums":
            parts.tables.append((*counts[len(parts.tables)], values))
            continue
        numbers = values.reshape(-1).tolist()
        if what == "grad":
            parts.gradients += zip(about, numbers, strict=True)
        elif what == "weight":
            parts.weights += zip(about, numbers, strict=True)
        elif what == "update":
            parts.updates += zip(about, numbers, strict=True)
        elif what == "clipped":
            parts.clipped += numbers
        elif what == "activation":
            middle = len(about)
            rows = zip(about, numbers[:middle], numbers[middle:], strict=True)
            parts.activations += [(layer, count, mean, spread) for (layer, count), mean, spread in rows]
        elif what == "dead":
            parts.dead += [(layer, units, zeros) for (layer, units), zeros in zip(about, numbers, strict=True)]
        elif what == "scale":
            (parts.scale,) = numbers
        elif what == "found":
            parts.found += numbers
        elif what == "folded":
            parts.folded += sum(numbers)
    return parts


def _root(norms: Iterable[float]) -> float:
    return sqrt(sum(norm * norm for norm in norms))


def _roots(norms: Iterable[tuple[int, float]]) -> dict[int | None, float]:
    """Return the norm of each layer, and under None that of all; empty where there are none."""
    squares: dict[int | None, float] = {}
    for layer, norm in norms:
        square = norm * norm
        squares[None] = squares.get(None, 0.0) + square
        squares[layer] = squares.get(layer, 0.0) + square
    return {layer: sqrt(square) for layer, square in squares.items()}
