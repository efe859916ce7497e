"""Turns kept pictures of any layout and range of values into bytes of pixels, eight bits a channel."""

from __future__ import annotations

from typing import Any, Final

from otel_train.watch.samples_batch import CHANNELS
from otel_train.watch.samples_library import is_tensor

# Pixels of a side at most; of larger pictures every second, third … pixel is kept.
MOST_SIDE: Final = 512
# What is no number is drawn in a colour that hardly any picture has.
NO_NUMBER: Final = (255, 0, 255)


def layout_of(shape: tuple[int, ...], *, channels_first: bool) -> str:
    """Return how one sample lies: "hw", "chw" or "hwc"; what has no channels where they belong is "hw" or "other"."""
    if len(shape) == 2:
        return "hw"
    if len(shape) != 3:
        return "other"
    first, last = shape[0] in CHANNELS, shape[2] in CHANNELS
    if first and (channels_first or not last):
        return "chw"
    return "hwc" if last else "other"


def shrunk(array: Any, layout: str) -> Any:
    """Return samples (n, …) of this layout with at most `MOST_SIDE` pixels a side, as a view."""
    if layout == "other":
        return array
    height, width = array.shape[2:4] if layout == "chw" else array.shape[1:3]
    step = max(1, -(-max(height, width) // MOST_SIDE))
    return array[:, :, ::step, ::step] if layout == "chw" else array[:, ::step, ::step]


def picture_range(
    dtype: str, seen: tuple[float, float] | None, given: tuple[float, float] | None
) -> tuple[float, float]:
    """Return which values are drawn black and white: the range given, that of the type, else the usual one they are in.

    The usual ones are 0 to 1, -1 to 1 and 0 to 255; values that fit into none are drawn from their least to greatest.
    """
    if given is not None:
        return given
    if dtype == "uint8":
        return 0.0, 255.0
    if seen is None or dtype == "bool":
        return 0.0, 1.0
    for low, high in ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0)):
        if low <= seen[0] and seen[1] <= high:
            return low, high
    return seen


def pixels(array: Any, layout: str, low: float, high: float) -> tuple[int, int, int, bytes]:
    """Return width, height, channels and the pixels row by row of one sample on the host; values beyond are cut."""
    if is_tensor(array):
        return _torch_pixels(array, layout, low, high)
    import numpy as np

    if layout == "chw":
        array = array.transpose(1, 2, 0)
    elif layout == "hw":
        array = array[:, :, None]
    height, width, channels = array.shape
    values = array.astype(np.float64)
    finite = np.isfinite(values)
    scaled = (np.where(finite, values, low) - low) * (255.0 / ((high - low) or 1.0))
    result = np.clip(np.rint(scaled), 0, 255).astype(np.uint8)
    if not finite.all():
        if channels == 1:
            result, finite, channels = np.repeat(result, 3, axis=2), np.repeat(finite, 3, axis=2), 3
        result[~finite.all(axis=2), :3] = NO_NUMBER
    return width, height, channels, result.tobytes()


def _torch_pixels(tensor: Any, layout: str, low: float, high: float) -> tuple[int, int, int, bytes]:
    """Do the same where there is no NumPy."""
    if layout == "chw":
        tensor = tensor.permute(1, 2, 0)
    elif layout == "hw":
        tensor = tensor[:, :, None]
    height, width, channels = tensor.shape
    values = tensor.double()
    finite = values.isfinite()
    scaled = (values.where(finite, values.new_tensor(low)) - low) * (255.0 / ((high - low) or 1.0))
    result = scaled.round().clamp(0, 255)
    if not bool(finite.all()):
        if channels == 1:
            result, finite, channels = result.repeat(1, 1, 3), finite.repeat(1, 1, 3), 3
        result[~finite.all(dim=2), :3] = result.new_tensor(NO_NUMBER)
    return width, height, channels, bytes(int(value) for value in result.reshape(-1).tolist())
