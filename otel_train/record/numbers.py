"""Turns what a user logs into plain numbers on the calling thread, so that nothing can change or leak later."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any


class Float32(float):
    """A number that came from a 32-bit (or narrower) float: written in its shortest form that reads back alike."""

    __slots__ = ()


# Types that cannot change after the call and keep nothing alive. NumPy's scalars join when they are first seen.
SAFE: set[type] = {float, int, bool, Float32}

# Which dtype objects are floats of 32 bits or fewer: filled when first seen, since writing out a dtype costs 1 µs.
_NARROW: dict[Any, bool] = {}


def _is_narrow(dtype: Any) -> bool:
    name = str(dtype)
    narrow = name.startswith("torch.") and "float" in name and name != "torch.float64"
    _NARROW[dtype] = narrow
    return narrow


def freeze_tensors(values: Mapping[str, Any]) -> dict[str, float] | None:
    """Return the numbers where every value is a float32 tensor on the CPU, else None.

    The common case in a loop. Their type is known as a whole, so no value needs a mark of its own: half the cost.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    try:
        # Within `try`: another thread may be in the midst of importing torch.
        float32 = torch.float32
        for value in values.values():
            if value.dtype is not float32 or not value.is_cpu:
                return None
        return {key: value.item() for key, value in values.items()}
    except (AttributeError, RuntimeError, ValueError):
        return None


def freeze_all(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the usable numbers by key, and for each refused key the reason.

    Device tensors come back as they are (see `is_device_tensor`); everything else is a number of a type in `SAFE`.
    """
    frozen: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for key, value in values.items():
        kind = type(value)
        if kind in SAFE:
            frozen[key] = value
            continue
        try:
            number = _freeze_tensor(value) if getattr(value, "is_cpu", False) else _freeze_other(value, kind)
        except Exception as fault:  # noqa: BLE001 - one strange value must not cost its neighbours
            number = f"its value cannot be read: {fault}"
        if isinstance(number, str):
            refused[key] = number
        else:
            frozen[key] = number
    return frozen, refused


def _freeze_tensor(value: Any) -> Any:
    try:
        number = value.item()
    except Exception as fault:  # noqa: BLE001 - a tensor subclass may raise anything from its conversion
        return _tensor_reason(value, fault)
    if type(number) is float:
        dtype = value.dtype
        narrow = _NARROW[dtype] if dtype in _NARROW else _is_narrow(dtype)
        return Float32(number) if narrow else number
    return number if type(number) in SAFE else f"a tensor of {value.dtype} is not one real number"


def is_device_tensor(value: object) -> bool:
    """Tell a torch tensor that is not on the CPU, without importing torch."""
    return getattr(value, "is_cpu", None) is False


def _several(what: str, shape: object) -> str:
    return f"{what} of shape {shape} is not one number; log its mean, or each element by its own key"


def _tensor_reason(value: Any, fault: Exception) -> str:
    shape = tuple(getattr(value, "shape", ()))
    if shape and getattr(value, "numel", lambda: 1)() != 1:
        return _several("a tensor", shape)
    return f"its value cannot be read: {fault}"


def _freeze_other(value: Any, kind: type) -> Any:
    """Return a number, a device tensor, or the reason of the refusal as a text."""
    if value is None:
        return "None is not a number; leave the key out where there is no value"
    if isinstance(value, (str, bytes, bytearray, memoryview)):
        return f"a text is not a number ({str(value)[:40]!r}); put texts into the configuration, tags or logs"
    if is_device_tensor(value):
        if value.numel() != 1:
            return _several("a tensor", tuple(value.shape))
        if value.is_complex():
            return "a complex tensor is not one real number"
        return value
    if kind.__module__ == "numpy":
        return _freeze_numpy(value, kind)
    if isinstance(value, (int, float)):
        return float(value) if isinstance(value, float) else int(value)
    # Fractions, Decimals, one-element arrays of other libraries (JAX, CuPy): their own float() decides.
    size = getattr(value, "size", None)
    if isinstance(size, int) and size != 1:
        return _several("an array", getattr(value, "shape", size))
    if kind.__module__.startswith("numpy.ma") and value.mask:
        return "a masked element has no value"
    try:
        return float(value)
    except Exception as fault:  # noqa: BLE001 - a foreign type may raise anything from its conversion
        return f"{kind.__name__} is not a number ({fault})"


def _freeze_numpy(value: Any, kind: type) -> Any:
    if getattr(value, "ndim", 0) or kind.__name__ == "ndarray":
        if value.size != 1:
            return _several("an array", value.shape)
        value = value.reshape(())[()]
        kind = type(value)
        if kind.__module__ != "numpy":  # an array of objects
            return value if kind in SAFE else _freeze_other(value, kind)
    # "f" covers longdouble too: float() keeps its nearest double. Complex, datetime and texts are no measure.
    code = value.dtype.kind
    if code not in "biuf":
        return f"a NumPy {kind.__name__} is not one real number"
    if value.dtype.char == "g":
        return float(value)
    SAFE.add(kind)
    return value
