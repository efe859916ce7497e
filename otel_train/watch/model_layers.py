"""Lists what of a model is watched: its parameters by layer, each once, in at most 64 layers or blocks of layers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final

MOST_LAYERS: Final = 64
# Names that wrappers put between a model and its own: torch.compile, FSDP and activation checkpointing.
WRAPPERS: Final = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
# These hold the model as their only child, `module`.
PARALLEL: Final = frozenset({"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel"})
ROOT: Final = "(model)"


@dataclass(frozen=True, slots=True)
class Watched:
    """One parameter that this process holds (a part of), and the number of its layer."""

    parameter: Any
    layer: int


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of one moment. `groups` says of each label how many layers it stands for; empty where each is one."""

    labels: tuple[str, ...]
    parameters: tuple[Watched, ...]
    groups: dict[str, int] = field(default_factory=dict)
    frozen: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[tuple[int, bool], ...]:
        """What differs where another parameter is there, or is frozen."""
        return tuple((id(one.parameter), one.parameter.requires_grad) for one in self.parameters)

    def without_parameters(self) -> Layers:
        """Return the same without the parameters, which must be free to go with their model."""
        return Layers(self.labels, (), self.groups, self.frozen)


def survey(model: Any, *, most: int = MOST_LAYERS) -> Layers:
    """Return the layers of a model: the modules that own parameters, in order of definition.

    A parameter that several modules share counts once, for the first of them. Parameters without a size yet (those of
    lazy modules) and those on the meta device are left out until they have values.
    """
    owned: list[tuple[Any, str]] = []
    seen: set[int] = set()
    for name, module in named_modules(model):
        for parameter in module._parameters.values():
            if parameter is None or id(parameter) in seen or not _has_values(parameter):
                continue
            seen.add(id(parameter))
            owned.append((parameter, name))
    names = list(dict.fromkeys(name for _, name in owned))
    labels_of = grouped(names, most)
    labels = tuple(dict.fromkeys(labels_of[name] for name in names))
    number = {label: place for place, label in enumerate(labels)}
    groups: dict[str, int] = {}
    if len(labels) < len(names):
        for name in names:
            groups[labels_of[name]] = groups.get(labels_of[name], 0) + 1
    trained = {labels_of[name] for parameter, name in owned if parameter.requires_grad}
    return Layers(
        labels,
        tuple(Watched(parameter, number[labels_of[name]]) for parameter, name in owned),
        groups,
        tuple(label for label in labels if label not in trained),
    )


def named_modules(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield a model's modules with the names that they have without wrappers; the model itself is `(model)`."""
    inner = model
    while True:
        children = inner._modules
        if "_orig_mod" in children:
            inner = children["_orig_mod"]
        elif type(inner).__name__ in PARALLEL and "module" in children:
            inner = children["module"]
        else:
            break
    for name, module in inner.named_modules():
        parts = [part for part in name.split(".") if part not in WRAPPERS]
        yield ".".join(parts) or ROOT, module


def _has_values(parameter: Any) -> bool:
    if parameter.device.type == "meta":
        return False
    lazy = getattr(sys.modules.get("torch.nn.parameter"), "is_lazy", None)
    if lazy is not None and lazy(parameter):
        return False
    return bool(parameter.is_floating_point() or parameter.is_complex())


# Grouping ------------------------------------------------------------------------------------------------------------


def grouped(names: Sequence[str], most: int = MOST_LAYERS) -> dict[str, str]:
    """Return the label of each name; no more labels than `most`.

    Where there are too many names they are cut after a number among their parts, the innermost first
    (`encoder.layers.3.attention.query` becomes `encoder.layers.3`), then neighbours are put together
    (`encoder.layers.0-3`), then parts are cut from the end.
    """
    if len(set(names)) <= most:
        return {name: name for name in names}
    numbers = max((sum(part.isdigit() for part in name.split(".")) for name in names), default=0)
    for kept in range(numbers, 0, -1):
        labels = {name: _cut_after_number(name, kept) for name in names}
        if len(set(labels.values())) <= most:
            return labels
    labels = {name: _cut_after_number(name, 1) if numbers else name for name in names}
    depth = max(label.count(".") + 1 for label in labels.values())
    for parts in range(depth, 0, -1):
        cut = {name: ".".join(label.split(".")[:parts]) for name, label in labels.items()}
        ranges = _ranges(list(dict.fromkeys(cut.values())), most)
        if ranges is not None:
            return {name: ranges[label] for name, label in cut.items()}
    return _in_order(list(dict.fromkeys(names)), most)


def _cut_after_number(name: str, kept: int) -> str:
    parts = name.split(".")
    places = [place for place, part in enumerate(parts) if part.isdigit()]
    return name if len(places) < kept else ".".join(parts[: places[kept - 1] + 1])


def _ranges(labels: Sequence[str], most: int) -> dict[str, str] | None:
    """Return labels with neighbouring numbers under one parent put together; None where that does not suffice."""
    by_parent: dict[str, list[str]] = {}
    for label in labels:
        parent, _, last = label.rpartition(".")
        by_parent.setdefault(parent if last.isdigit() else f"{label} ", []).append(label)
    longest = max(len(members) for members in by_parent.values())
    for together in range(1, longest + 1):
        if sum(ceil(len(members) / together) for members in by_parent.values()) > most:
            continue
        merged: dict[str, str] = {}
        for members in by_parent.values():
            for start in range(0, len(members), together):
                part = members[start : start + together]
                last = part[-1].rpartition(".")[2]
                merged |= dict.fromkeys(part, part[0] if len(part) == 1 else f"{part[0]}-{last}")
        return merged
    return None


def _in_order(names: Sequence[str], most: int) -> dict[str, str]:
    together = ceil(len(names) / most)
    merged: dict[str, str] = {}
    for start in range(0, len(names), together):
        part = names[start : start + together]
        merged |= dict.fromkeys(part, part[0] if len(part) == 1 else f"{part[0]} to {part[-1]}")
    return merged
