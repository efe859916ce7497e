"""Watches what activation modules give out: its mean, its deviation, and the units that give nothing but zero.

The hooks are there only while a window is open. Calls count that belong to training: the model is in training mode and
gradients are enabled. Seen are modules (`nn.ReLU`, `nn.GELU` …), not functions that a `forward` calls
(`torch.relu`, `F.gelu`), and nothing within compiled code.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from otel_train.watch.model_hooks import Hook
from otel_train.watch.model_layers import grouped, named_modules
from otel_train.watch.model_sampling import Sampling

# By the end of a class's name, in lower case; those of torch and of other libraries.
ACTIVATIONS: Final = (
    *("relu", "relu6", "gelu", "silu", "swish", "mish", "tanh", "sigmoid", "softplus", "softsign", "elu", "selu"),
    *("celu", "hardtanh", "threshold", "shrink", "activation", "sin", "snake"),
)
# They give exactly zero, and nothing below it, for whatever is too small: only of these a unit can be dead.
# A leaky ReLU, a GELU or an ELU always lets a gradient through.
ZEROING: Final = frozenset({"relu", "relu6", "relusquaredactivation", "squaredrelu", "relu2", "thresholdedrelu"})
# Layers that tell along which dimension the units of what follows lie: of convolutions along the channels.
CHANNELS_FIRST: Final = ("conv", "batchnorm", "instancenorm", "groupnorm")
FEATURES_LAST: Final = ("linear", "layernorm", "rmsnorm", "embedding")


@dataclass(slots=True)
class _Seen:
    """What one activation module gave out in this window."""

    counts: list[int] = field(default_factory=list)
    means: list[Any] = field(default_factory=list)
    # Norms of the distance from the mean.
    spreads: list[Any] = field(default_factory=list)
    # By (module, call within a pass, number of units): the greatest output of each unit.
    units: dict[tuple[str, int, int], Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ActivationLabels:
    """Which modules are watched, under which labels; `groups` as in `Layers`."""

    labels: tuple[str, ...]
    groups: dict[str, int]


class Activations:
    """The windows of one model; for the thread that trains."""

    def __init__(self, guard: Callable[[str], AbstractContextManager[None]]) -> None:
        self.guard = guard
        self._handles: list[Any] = []
        self._seen: dict[str, _Seen] = {}
        self._calls: dict[str, int] = {}
        # Weakly: the run keeps us, and a model must be free to go.
        self._root: Callable[[], Any] = lambda: None
        self._rooted = False
        self._spatial: int | None = None
        self.labels = ActivationLabels((), {})

    @property
    def open(self) -> bool:
        """Whether a window is open."""
        return bool(self._handles)

    def begin(self, model: Any) -> None:
        """Open a window: from here on what the model's activations give out counts."""
        self.end()
        self._root = weakref.ref(model)
        modules = dict(named_modules(model))
        chosen = {name: module for name, module in modules.items() if is_activation(module)}
        zeroing = {name for name, module in chosen.items() if type(module).__name__.lower() in ZEROING}
        if not chosen:
            # Functions make the activations here, which nobody sees: the layers' own outputs are the next best thing.
            chosen = {
                name: module
                for name, module in modules.items()
                if not module._modules and any(one is not None for one in module._parameters.values())
            }
        label_of = grouped(list(chosen))
        labels = tuple(dict.fromkeys(label_of.values()))
        groups: dict[str, int] = {}
        if len(labels) < len(chosen):
            for label in label_of.values():
                groups[label] = groups.get(label, 0) + 1
        self.labels = ActivationLabels(labels, groups)
        self._handles.append(model.register_forward_pre_hook(Hook(self._pass_begins)))
        if zeroing:
            for module in modules.values():
                spatial = _spatial_of(module)
                if spatial is not None:
                    self._handles.append(module.register_forward_hook(Hook(_Layout(self, spatial))))
        for name, module in chosen.items():
            hook = _Output(self, name, label_of[name], zeroing=name in zeroing)
            self._handles.append(module.register_forward_hook(Hook(hook)))

    def again(self) -> None:
        """Forget what this window saw so far: its step was not done."""
        self._seen.clear()
        self._calls.clear()

    def end(self) -> None:
        """Close the window, and take the hooks away."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        self.again()
        self._root = lambda: None
        self._rooted = False
        self._spatial = None

    def collect(self, sampling: Sampling) -> bool:
        """Put what the window saw into a sampling, and close it; False where it saw nothing though it looked."""
        try:
            self._put(sampling)
            return bool(self._seen) or not self.labels.labels
        finally:
            self.end()

    def _put(self, sampling: Sampling) -> None:
        torch = sys.modules["torch"]
        number = {label: place for place, label in enumerate(self.labels.labels)}
        means: dict[Any, list[tuple[int, int, Any, Any]]] = {}
        dead: dict[Any, list[tuple[int, int, Any]]] = {}
        for label, seen in self._seen.items():
            layer = number[label]
            for count, mean, spread in zip(seen.counts, seen.means, seen.spreads, strict=True):
                means.setdefault(mean.device, []).append((layer, count, mean, spread))
            for (_, _, units), greatest in seen.units.items():
                # Not "at most zero": NaN is no sign of death.
                dead.setdefault(greatest.device, []).append((layer, units, (greatest == 0).sum()))
        for rows in means.values():
            values = torch.stack([row[2] for row in rows] + [row[3] for row in rows])
            sampling.put("activation", [(layer, count) for layer, count, _, _ in rows], values)
        for found in dead.values():
            sampling.put("dead", [(layer, units) for layer, units, _ in found], torch.stack([n for _, _, n in found]))

    # Hooks ---------------------------------------------------------------------------------------------------------

    def _pass_begins(self, *_: Any) -> None:
        if not sys.modules["torch"].compiler.is_compiling():
            self._rooted = True
            self._calls.clear()

    def _counts(self) -> bool:
        """Tell whether the present call belongs to training."""
        root = self._root()
        return root is not None and root.training and sys.modules["torch"].is_grad_enabled()

    def note_layout(self, spatial: int, output: Any) -> None:
        """Note the layer that came last: over how many dimensions its units are spread."""
        # -1: all but those of samples and channels.
        self._spatial = output.dim() - 2 if spatial < 0 else spatial

    def take(self, name: str, label: str, output: Any, *, zeroing: bool) -> None:
        """Count one output of one module."""
        torch = sys.modules["torch"]
        if not self._counts() or not torch.is_tensor(output) or not output.is_floating_point() or not output.numel():
            return
        # Within vmap, grad and the like of torch.func: such a tensor must not outlive its transformation.
        if is_transformed(output):
            return
        if output.is_cuda and torch.cuda.is_current_stream_capturing():
            return
        kind = output.device.type
        # Made only where it is needed: it costs as much as the mean of a small output.
        exact = torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()
        with torch.no_grad(), exact:
            values = output.detach()
            values = getattr(values, "_local_tensor", values)
            wide = values if values.dtype in (torch.float32, torch.float64) else values.float()
            mean = wide.mean()
            # Before anything is noted: here a device may have no memory left.
            spread = torch.linalg.vector_norm(wide - mean)
            seen = self._seen.setdefault(label, _Seen())
            seen.counts.append(wide.numel())
            seen.means.append(mean)
            seen.spreads.append(spread)
            if zeroing:
                self._take_units(name, seen, values)

    def _take_units(self, name: str, seen: _Seen, values: Any) -> None:
        dim = self._unit_dim(values.dim())
        others = [place for place in range(values.dim()) if place != dim]
        greatest = (values.amax(others) if others else values.clone()).reshape(-1)
        # A module may be called several times in one pass, each time as another layer.
        call = self._calls.get(name, 0)
        self._calls[name] = call + 1
        key = (name, call if self._rooted else 0, greatest.numel())
        known = seen.units.get(key)
        seen.units[key] = greatest if known is None else known.maximum(greatest)

    def _unit_dim(self, dims: int) -> int:
        """Return the dimension along which the units lie: channels after a convolution, else features, the last."""
        if self._spatial is None:
            return 1 if dims >= 4 else dims - 1
        return max(0, dims - 1 - self._spatial)


class _Layout:
    """Hook of a layer that says how the units lie."""

    __slots__ = ("_activations", "_spatial")

    def __init__(self, activations: Activations, spatial: int) -> None:
        self._activations = activations
        self._spatial = spatial

    def __call__(self, module: Any, arguments: Any, output: Any) -> None:
        if sys.modules["torch"].compiler.is_compiling():
            return
        if sys.modules["torch"].is_tensor(output):
            self._activations.note_layout(self._spatial, output)


class _Output:
    """Hook of an activation module."""

    __slots__ = ("_activations", "_label", "_name", "_zeroing")

    def __init__(self, activations: Activations, name: str, label: str, *, zeroing: bool) -> None:
        self._activations = activations
        self._name = name
        self._label = label
        self._zeroing = zeroing

    def __call__(self, module: Any, arguments: Any, output: Any) -> None:
        if sys.modules["torch"].compiler.is_compiling():
            return
        with self._activations.guard("watch"):
            self._activations.take(self._name, self._label, output, zeroing=self._zeroing)


def is_transformed(tensor: Any) -> bool:
    """Tell whether a tensor stands for others within a transformation of torch.func; one of a torch without them no."""
    functorch = getattr(sys.modules["torch"]._C, "_functorch", None)
    tells = getattr(functorch, "is_functorch_wrapped_tensor", None)
    return tells is not None and bool(tells(tensor))


def is_activation(module: Any) -> bool:
    """Tell whether a module is an activation: one without modules of its own, by the name of its class."""
    return not module._modules and type(module).__name__.lower().endswith(ACTIVATIONS)


def _spatial_of(module: Any) -> int | None:
    """Return over how many dimensions a layer's units are spread: -1 where its input says so, None where unknown."""
    name = type(module).__name__.lower()
    if any(kind in name for kind in CHANNELS_FIRST):
        return int(name[-2]) if name.startswith(("conv", "lazyconv")) and name.endswith(("1d", "2d", "3d")) else -1
    return 0 if any(kind in name for kind in FEATURES_LAST) else None
