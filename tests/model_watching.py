"""Watches models without a run: readings are kept as they come, and asked by name, layer and sampling."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from otel_train.record.histogram_value import HistogramValue
from otel_train.record.readings import Read, Reading
from otel_train.run.guard import Guard
from otel_train.watch import model_patches
from otel_train.watch.model_sampler import Choice
from otel_train.watch.model_watch import Surroundings, Watch

torch: Any = pytest.importorskip("torch")


@dataclass
class Sampled:
    """What watches of a test have handed over, in order."""

    readings: list[Reading] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    layers: list[Any] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    guard: Guard = field(default_factory=lambda: Guard(raises=True))
    _reads: list[Read] = field(default_factory=list)

    def watch(
        self,
        model: Any,
        optimizers: Any = None,
        *,
        name: str | None = None,
        scaler: Any = None,
        sharded: bool = False,
        rank: int = 0,
        **choice: Any,
    ) -> Watch:
        """Watch a model with one optimizer, several by name, or those that are found; every step unless said."""
        if optimizers is not None and not isinstance(optimizers, Mapping):
            optimizers = {"0": optimizers}
        surroundings = Surroundings(
            guard=self.guard,
            emit=self.readings.append,
            say=self.said.append,
            on_layers=lambda watch, layers, activations: self.layers.append((layers, activations)),
            on_step=self.done.append,
            rank=rank,
        )
        return Watch(
            model,
            optimizers,
            surroundings,
            choice=Choice(**{"every": 1, **choice}),
            name=name,
            scaler=scaler,
            sharded=sharded,
        )

    @property
    def reads(self) -> list[Read]:
        """All readings, each read once."""
        while len(self._reads) < len(self.readings):
            assert self.readings[len(self._reads)].ready()
            self._reads.append(self.readings[len(self._reads)].read())
        return self._reads

    def values(self, name: str, layer: str | None = None, **others: str) -> list[float]:
        """The points, or totals, of one series, in order."""
        wanted = {**({} if layer is None else {"layer": layer}), **others}
        return [
            sample.value
            for read in self.reads
            for sample in (*read.points, *read.counters)
            if sample.name == name and dict(sample.attributes) == wanted
        ]

    def layers_of(self, name: str) -> list[str]:
        """The layers that a metric has points or distributions of."""
        found = [
            one.attributes
            for read in self.reads
            for one in (*read.points, *read.counters, *read.distributions)
            if one.name == name
        ]
        return list(dict.fromkeys(str(dict(of)["layer"]) for of in found if "layer" in dict(of)))

    def distribution(self, name: str, layer: str, sampling: int = -1) -> HistogramValue:
        """One distribution as a sampling left it."""
        (found,) = [
            one.value
            for one in self.reads[sampling].distributions
            if one.name == name and dict(one.attributes)["layer"] == layer
        ]
        return found


@pytest.fixture
def sampled() -> Any:
    """Fails the test that leaves a replaced function of torch's behind."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    before = torch_functions()
    yield Sampled()
    assert torch_functions() == before
    assert model_patches._listeners == []


def torch_functions() -> dict[str, Any]:
    """The functions of torch's that a watch replaces while it is there."""
    clip = sys.modules["torch.nn.utils.clip_grad"]
    return {
        "inner": clip._clip_grads_with_norm_,
        "clip": clip.clip_grad_norm_,
        "value": clip.clip_grad_value_,
        "outer": torch.nn.utils.clip_grads_with_norm_,
        "outer value": torch.nn.utils.clip_grad_value_,
        "scaler": torch.amp.GradScaler.__dict__["step"],
        "global hooks": dict(sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks),
    }


def hooks_of(model: Any, *optimizers: Any) -> list[str]:
    """Names of all hooks that stand on a model, its parameters and optimizers."""
    found = []
    for name, module in model.named_modules():
        for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            found += [f"{name}{kind}"] * len(getattr(module, kind))
    for name, parameter in model.named_parameters():
        found += [f"{name}"] * len(getattr(parameter, "_post_accumulate_grad_hooks", None) or ())
        found += [f"{name}"] * len(parameter._backward_hooks or ())
    for optimizer in optimizers:
        for kind in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
            found += [kind] * len(getattr(optimizer, kind))
    return found


def norm(tensors: Any) -> float:
    """The 2-norm of all tensors together, in 64 bits."""
    return float(torch.cat([tensor.detach().double().reshape(-1) for tensor in tensors]).norm())


def network(*sizes: int, activation: Callable[[], Any] | None = None) -> Any:
    """Linear layers with activations between them."""
    layers: list[Any] = []
    for inputs, outputs in pairwise(sizes):
        layers += [torch.nn.Linear(inputs, outputs), (activation or torch.nn.ReLU)()]
    return torch.nn.Sequential(*layers[:-1])


def train_step(model: Any, optimizer: Any, inputs: Any, targets: Any, *, clip: float | None = None) -> float:
    """One plain step of regression; return the norm that clipping gave."""
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs), targets).backward()
    total = 0.0
    if clip is not None:
        total = float(torch.nn.utils.clip_grad_norm_(model.parameters(), clip))
    optimizer.step()
    return total
