"""Reads one sampled step: gradients as they are before clipping, weights, and by how much the step changes them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from otel_train.record.entries import SeriesAttributes
from otel_train.record.readings import Reading
from otel_train.watch.model_activations import Activations
from otel_train.watch.model_backward_order import BackwardOrder
from otel_train.watch.model_distributions import count
from otel_train.watch.model_layers import Layers, Watched
from otel_train.watch.model_reading import ModelReading, Totals
from otel_train.watch.model_sampling import Sampling
from otel_train.watch.model_tensors import counts_here, local, norms_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is recorded, and how often; see `Run.watch`."""

    every: int = 100
    window: int = 1
    activations: bool = True
    distributions: bool = True
    updates: bool = True


class Subject(Protocol):
    """The watched model, as its samplers see it."""

    choice: Choice
    sharded: bool
    rank: int
    activations: Activations
    order: BackwardOrder
    of_model: SeriesAttributes

    def layers(self) -> Layers:
        """Survey the model."""
        ...

    def emit(self, reading: Reading) -> None:
        """Hand over a reading at the run's present step."""
        ...

    def say(self, text: str) -> None:
        """Say something once, in the run log too."""
        ...


class StepSampler:
    """The sampled steps of one optimizer, or of the whole model where there is none; for the thread that trains."""

    def __init__(self, subject: Subject, name: str | None, *, leads: bool, alone: bool) -> None:
        self._subject = subject
        # The first tells of the activations; the only one has the parameters that no optimizer has.
        self.leads = leads
        self.alone = alone
        self.attributes: SeriesAttributes = (
            *subject.of_model,
            *(() if name is None else (("optimizer", name),)),
            *((("part", "shard"),) if subject.sharded else ()),
        )
        self.totals = Totals()
        self._layers = Layers((), ())
        self._sampling = Sampling()
        self._read: list[Watched] = []
        self._before: list[tuple[Watched, Any]] = []
        self._copies_weights = subject.choice.updates

    @property
    def has_read(self) -> bool:
        """Whether this step's gradients have been read."""
        return bool(self._read)

    @property
    def is_stale(self) -> bool:
        """Whether what was read is of gradients that others have followed, or was never read."""
        return not self._read or self._subject.order.fresh

    def read(self, owned: Callable[[Any], bool], factor: Any = None) -> None:
        """Read the gradients and weights of the parameters that are `owned`; `factor` undoes a loss scale."""
        self.drop()
        subject = self._subject
        self._layers = layers = subject.layers()
        mine = [one for one in layers.parameters if owned(one.parameter) and self._counts_here(one.parameter)]
        gradients: list[tuple[Watched, Any]] = []
        weights: list[tuple[Watched, Any, bool]] = []
        for one in mine:
            gradient = one.parameter.grad
            values = None if gradient is None else local(gradient)
            if gradient is not None and values is None:
                subject.say("sparse gradients on a device are not read: that would wait for it")
            if values is not None:
                gradients.append((one, values))
            weight = local(one.parameter)
            if weight is not None:
                weights.append((one, weight, values is not None))
        subject.order.settle()
        self._read = mine
        self._put_norms("grad", [self._place(one) for one, _ in gradients], [g for _, g in gradients], factor)
        self._put_norms("weight", [(one.layer, moves) for one, _, moves in weights], [w for _, w, _ in weights])
        if subject.choice.distributions:
            self._count([(one.layer, g) for one, g in gradients], [(one.layer, w) for one, w, _ in weights], factor)
        if self._copies_weights:
            self._copy([(one, weight) for one, weight, moves in weights if moves])

    def _counts_here(self, parameter: Any) -> bool:
        return not self._subject.sharded or counts_here(parameter, self._subject.rank)

    def _place(self, one: Watched) -> tuple[int, int]:
        return one.layer, self._subject.order.place_of(one.parameter)

    def _put_norms(self, what: str, about: Sequence[Any], tensors: Sequence[Any], factor: Any = None) -> None:
        for norms in norms_of(tensors):
            vector = norms.vector if factor is None else norms.vector * factor.to(norms.vector.device)
            self._sampling.put(what, [about[place] for place in norms.places], vector)

    def _count(self, gradients: list[tuple[int, Any]], weights: list[tuple[int, Any]], factor: Any) -> None:
        layers = len(self._layers.labels)
        if factor is None:
            # Together: on small models the calls cost more than the numbers.
            both = gradients + [(layers + layer, weight) for layer, weight in weights]
            found = [("grad", "weight", one) for one in count(both, 2 * layers)]
        else:
            found = [("grad", "", one) for one in count(gradients, layers, factor=factor)]
            found += [("weight", "", one) for one in count(weights, layers)]
        for first, second, one in found:
            about = [what for what in (first, second) if what]
            self._sampling.put("counts", about, one.table)
            self._sampling.put("sums", about, one.sums)

    def _copy(self, weights: list[tuple[Watched, Any]]) -> None:
        try:
            self._before = [(one, weight.clone()) for one, weight in weights]
        except RuntimeError as fault:
            if type(fault).__name__ != "OutOfMemoryError":
                raise
            self._before = []
            self._copies_weights = False
            self._subject.say("no memory for a copy of the weights: dl.update.ratio is no longer recorded")

    def read_clipped(self) -> None:
        """Read the norm that the optimizer gets, after the user's clipping."""
        self._sampling.forget("clipped")
        gradients = [local(one.parameter.grad) for one in self._read if one.parameter.grad is not None]
        self._put_norms("clipped", [0] * len(gradients), [one for one in gradients if one is not None])

    def put(self, what: str, values: Any) -> None:
        """Add a tensor of the step's own, such as the loss scale."""
        self._sampling.put(what, None, values)

    def read_updates(self) -> None:
        """Read how far the step moved the weights, and let go of their copies."""
        torch = sys.modules["torch"]
        before, self._before = self._before, []
        if not before:
            return
        with torch.no_grad():
            moved = [old.sub_(local(one.parameter)) for one, old in before]
        self._put_norms("update", [one.layer for one, _ in before], moved)

    def hand_over(self, *, done: int, tried: int, skipped: int, tells_step: bool = False) -> None:
        """Give what was read to the writer; the step is over."""
        subject = self._subject
        labels = self._layers.labels
        tells = self.leads and self.has_read and subject.activations.open
        if tells and not subject.activations.collect(self._sampling):
            subject.say("watch: no activation was seen; those in compiled code, and functions, are not")
        reading = ModelReading(
            self._sampling.hand_over(),
            self.totals,
            labels=labels,
            activations=subject.activations.labels.labels,
            of_model=subject.of_model,
            attributes=self.attributes,
            done=done,
            tried=tried,
            skipped=skipped,
            tells_step=tells_step,
        )
        self._sampling = Sampling()
        self._read = []
        # Its parameters must be free to go with their model.
        self._layers = Layers((), ())
        subject.emit(reading)

    def again(self) -> None:
        """Have the activations' window begin anew, for a step that was not done."""
        self._subject.activations.again()

    def drop(self) -> None:
        """Forget what was read of a step that was not done after all."""
        self._sampling = Sampling()
        self._read = []
        self._before = []
