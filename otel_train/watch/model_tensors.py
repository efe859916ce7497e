"""Takes norms of many tensors at once, of a sharded one those of the part held here; waits for no device."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

# Below and above this a sum of squares in 32 bits loses what it is made of: such a norm is taken again in 64.
SMALLEST_NORM: Final = 1e-15
LARGEST_NORM: Final = 1e15
NARROW: Final = frozenset({"torch.float16", "torch.bfloat16", "torch.float32", "torch.float64"})


@dataclass(frozen=True, slots=True)
class Norms:
    """Norms on one device: `vector[i]` is that of the tensor at `places[i]`."""

    places: Sequence[int]
    vector: Any


def local(tensor: Any) -> Any | None:
    """Return what can be counted of a tensor, without its graph; None where reading it would wait for the device.

    Of a sharded tensor this process's part, of a sparse one its values, of a complex one both parts.
    """
    tensor = tensor.detach()
    if is_sharded(tensor):
        tensor = tensor._local_tensor
    if tensor.is_sparse:
        if tensor.device.type != "cpu":
            return None
        tensor = tensor.coalesce().values()
    if tensor.layout != _torch().strided:
        return None
    if tensor.is_complex():
        tensor = _torch().view_as_real(tensor.resolve_conj())
    return tensor if str(tensor.dtype) in NARROW else tensor.float()


def is_sharded(tensor: Any) -> bool:
    """Tell whether a tensor is a DTensor."""
    return hasattr(tensor, "_local_tensor") and hasattr(tensor, "placements")


def has_shards(parameters: Sequence[Any]) -> bool:
    """Tell whether any of them is held in parts by several processes."""
    return any(is_sharded(one) and any(place.is_shard() for place in one.placements) for one in parameters)


def counts_here(parameter: Any, rank: int) -> bool:
    """Tell whether this process counts its part: of copies only the first does, so that squares add up to the whole."""
    if not is_sharded(parameter):
        return rank == 0
    coordinate = parameter.device_mesh.get_coordinate()
    if coordinate is None:
        return False
    return all(at == 0 or place.is_shard() for at, place in zip(coordinate, parameter.placements, strict=True))


def norms_of(tensors: Sequence[Any]) -> list[Norms]:
    """Return the 2-norm of each tensor: one pass and one vector for each device.

    On the CPU in 32 bits, which is five times as quick as 64; a norm that is too small or too large for that is taken
    again. Devices that have 64 bits take them at once, since nothing may look at what comes out.
    """
    torch = _torch()
    by_device: dict[Any, list[int]] = {}
    for place, tensor in enumerate(tensors):
        by_device.setdefault(tensor.device, []).append(place)
    found = []
    for device, places in by_device.items():
        here = [tensors[place] for place in places]
        vector = _norms(torch, device.type, here)
        if device.type == "cpu":
            for i, norm in enumerate(vector.tolist()):
                if not SMALLEST_NORM < norm < LARGEST_NORM:
                    vector[i] = torch.linalg.vector_norm(here[i], dtype=torch.float64)
        found.append(Norms(places, vector))
    return found


def _norms(torch: Any, kind: str, tensors: Sequence[Any]) -> Any:
    wide = torch.float32 if kind in ("cpu", "mps") else torch.float64
    groups: dict[Any, list[int]] = {}
    for place, tensor in enumerate(tensors):
        groups.setdefault(tensor.dtype, []).append(place)
    norms: list[Any] = [None] * len(tensors)
    for dtype, places in groups.items():
        here = [tensors[place] for place in places]
        kept = torch.float64 if dtype == torch.float64 else wide
        for place, norm in zip(places, torch._foreach_norm(here, 2, dtype=kept), strict=True):
            norms[place] = norm
    stacked = norms if len(groups) == 1 else [norm.to(torch.float64 if kind != "mps" else wide) for norm in norms]
    vector = torch.stack(stacked)
    return vector if kind == "mps" else vector.to(torch.float64)


def _torch() -> Any:
    return sys.modules["torch"]
