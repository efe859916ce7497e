"""Watches one model while it trains: which steps are read, who is asked, and that no hook stays behind."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from otel_train.record.entries import SeriesAttributes
from otel_train.record.readings import Reading
from otel_train.watch import model_patches
from otel_train.watch.model_activations import ActivationLabels, Activations
from otel_train.watch.model_backward import BackwardWatch
from otel_train.watch.model_backward_order import BackwardOrder
from otel_train.watch.model_hooks import Hook
from otel_train.watch.model_layers import Layers, survey
from otel_train.watch.model_optimizer import OptimizerWatch
from otel_train.watch.model_sampler import Choice, StepSampler

# Where each parameter has an optimizer of its own, each would be a set of series.
MOST_FOUND: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a watch needs of the run that it belongs to."""

    guard: Callable[[str], AbstractContextManager[None]]
    emit: Callable[[Reading], None]
    # Says a text once, in the run log too.
    say: Callable[[str], None]
    # Layers, and labels of activations, at the beginning and after each change.
    on_layers: Callable[[Watch, Layers, ActivationLabels], None] = lambda watch, layers, activations: None
    on_step: Callable[[int], None] = lambda done: None
    tells_step: Callable[[], bool] = lambda: True
    rank: int = 0


class Watch:
    """A model that `run.watch` looks into, until `close`; for the thread that trains.

    `optimizers` maps names to optimizers, None where they are to be found: the first that makes a step with
    parameters of the model. Until then, and where there is none, each backward pass counts as a step.
    """

    def __init__(
        self,
        model: Any,
        optimizers: Mapping[str, Any] | None,
        surroundings: Surroundings,
        *,
        choice: Choice,
        name: str | None = None,
        scaler: Any = None,
        sharded: bool = False,
        active: bool = True,
    ) -> None:
        self.choice = choice
        self.name = name
        self.sharded = sharded
        self.rank = surroundings.rank
        self.of_model: SeriesAttributes = () if name is None else (("model", name),)
        self.say = surroundings.say
        self.emit = surroundings.emit
        self.closed = not active
        self._surroundings = surroundings
        # Weakly: who throws his model away need not think of us.
        self._model = weakref.ref(model)
        self._scaler = scaler
        self._first = 0
        self._key: tuple[Any, ...] = ()
        self._layers = Layers((), ())
        self._told: tuple[Any, ...] = ()
        self._lock = threading.Lock()
        self.activations = Activations(surroundings.guard)
        self._backward: BackwardWatch | None = None
        self.order = BackwardOrder(self._gradient_comes)
        self._sides: list[OptimizerWatch] = []
        self._handles: list[Any] = []
        if not active:
            # Another rank tells of it.
            return
        try:
            self._begin(model, optimizers)
        except Exception:
            # A model or optimizer that takes some of the hooks only keeps none.
            self.close()
            raise

    def _begin(self, model: Any, optimizers: Mapping[str, Any] | None) -> None:
        self.layers()
        # Hooks that are there when torch.compile first traces a model would have it compile again without them.
        self._first = 1 if compiles(model) else 0
        if optimizers is None:
            self._look_out(model)
        else:
            for optimizer_name, optimizer in optimizers.items():
                self._adopt(optimizer, optimizer_name if len(optimizers) > 1 else None, alone=len(optimizers) == 1)
        model_patches.listen(self)
        if not self._first:
            self._arm()

    # What others ask -------------------------------------------------------------------------------------------------

    @property
    def model(self) -> Any:
        """The model; None once nobody else holds it any more."""
        return self._model()

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the layers."""
        return self._layers.labels

    def layers(self) -> Layers:
        """Survey the model: modules may have come or gone, parameters been frozen."""
        model = self.model
        layers = Layers((), ()) if model is None else survey(model)
        if layers.key != self._key:
            self._key = layers.key
            self._layers = layers.without_parameters()
            self._tell()
        return layers

    def _tell(self) -> None:
        """Tell which layers and activations there are, where that is new."""
        now = self._layers, self.activations.labels
        if now != self._told:
            self._told = now
            self._surroundings.on_layers(self, *now)

    def close(self) -> None:
        """Take all hooks away."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
        model_patches.leave(self)
        try:
            for closing in (*self._sides, *(() if self._backward is None else (self._backward,))):
                # What it hands over last may fail on a device that is lost; the other hooks must go all the same.
                with self._surroundings.guard("watch"):
                    closing.close()
        finally:
            for handle in self._handles:
                handle.remove()
            self._handles = []
            self.order.end()
            self.activations.end()

    # Arming ----------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Make ready for a step that is sampled, before its forward pass."""
        model = self.model
        # Each rank has its own batch: of a model in shards the first rank tells of the activations.
        tells = self.choice.activations and (self.rank == 0 or not self.sharded)
        if model is not None and not self.closed and tells and not self.activations.open:
            with self._surroundings.guard("watch"):
                self.activations.begin(model)
                self._tell()
        self._arm_order()

    def _arm_order(self) -> None:
        model = self.model
        if model is not None and not self.closed and not self.order.open:
            with self._surroundings.guard("watch"):
                self.order.begin(dict.fromkeys(model.parameters()))

    def _disarm(self) -> None:
        if not any(side.is_due for side in self._sides):
            self.order.end()

    # Optimizers ------------------------------------------------------------------------------------------------------

    def _adopt(self, optimizer: Any, name: str | None, *, alone: bool) -> OptimizerWatch:
        leads = not self._sides
        surroundings = self._surroundings
        side = OptimizerWatch(
            optimizer,
            StepSampler(self, name, leads=leads, alone=alone),
            every=self.choice.every,
            first=self._first,
            window=self.choice.window,
            guard=surroundings.guard,
            on_arm=self._arm if leads else self._arm_order,
            on_sampled=self._disarm,
            on_step=surroundings.on_step if leads else lambda done: None,
            tells_step=surroundings.tells_step,
            scaler=self._scaler,
        )
        self._sides.append(side)
        return side

    def _look_out(self, model: Any) -> None:
        optimizer_module = sys.modules["torch.optim.optimizer"]
        self._handles.append(optimizer_module.register_optimizer_step_pre_hook(Hook(self._somebody_steps)))
        sampler = StepSampler(self, None, leads=True, alone=True)
        surroundings = self._surroundings
        self._backward = BackwardWatch(
            model,
            sampler,
            every=self.choice.every,
            first=self._first,
            guard=surroundings.guard,
            on_arm=self._arm,
            on_sampled=self.order.end,
            scaler=self._scaler,
        )

    def _somebody_steps(self, optimizer: Any, arguments: Any, named: Any) -> None:
        if any(side.optimizer() is optimizer for side in self._sides):
            return
        with self._surroundings.guard("watch"):
            self._consider(optimizer)

    def _consider(self, optimizer: Any) -> None:
        """Adopt an optimizer that has parameters of the model. Its own hooks hear of this very step already."""
        model = self.model
        if model is None or self.closed or not has_parameters_of(optimizer, model.parameters()):
            return
        if len(self._sides) >= MOST_FOUND:
            self.say(f"watch: more than {MOST_FOUND} optimizers train one model; the others are not watched")
            return
        if self._backward is not None:
            self._backward.close(hand_over=False)
            self._backward = None
        self._adopt(optimizer, str(len(self._sides)) if self._sides else None, alone=not self._sides)

    def _gradient_comes(self) -> None:
        if self._backward is not None:
            with self._surroundings.guard("watch"):
                self._backward.gradient_comes()

    # Torch's own functions -------------------------------------------------------------------------------------------

    def before_clipping(self, parameters: Any) -> None:
        """Hear of clipping; see `model_patches`."""
        # Without an optimizer the gradients were read at the end of the pass, before anybody could clip them.
        if not any(side.is_due for side in self._sides):
            return
        with self._surroundings.guard("watch"):
            clipped = {id(one) for one in ([parameters] if hasattr(parameters, "grad") else parameters)}
            for side in self._sides:
                side.before_clipping(clipped)

    def scaler_steps(self, scaler: Any, optimizer: Any) -> Callable[[], None] | None:
        """Hear of a loss scaler's step; see `model_patches`."""
        if not self._sides:
            with self._surroundings.guard("watch"):
                self._consider(optimizer)
        for side in self._sides:
            if side.optimizer() is optimizer:
                return side.scaler_steps(scaler)
        return None


def compiles(model: Any) -> bool:
    """Tell whether torch.compile is in use: for this model, or for anything in this process."""
    for module in model.modules():
        if "_orig_mod" in module._modules or getattr(module, "_compiled_call_impl", None) is not None:
            return True
    backends = getattr(sys.modules.get("torch._dynamo.eval_frame"), "cached_backends", {})
    return any(backend is not None for backend in backends.values())


def has_parameters_of(optimizer: Any, parameters: Iterable[Any]) -> bool:
    """Tell whether an optimizer has any of these parameters."""
    ids = {id(parameter) for parameter in parameters}
    return any(id(parameter) in ids for group in optimizer.param_groups for parameter in group["params"])
