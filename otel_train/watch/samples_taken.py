"""Takes the arrays of a batch as they are to be measured: of one library, bounded, as rows, one a sample."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final

from otel_train.watch.samples_batch import MOST_SAMPLES, is_picture
from otel_train.watch.samples_library import Library, NumpyLibrary, is_tensor, on_host

# Values of one check: a bound on its time and memory; of samples beyond it only the first are measured.
MOST_VALUES: Final = 1 << 24
# Arrays of different shapes in one list, each measured by itself.
MOST_PARTS: Final = 512
PICTURE_MODES: Final = ("L", "RGB", "RGBA")


def quiet(library: Library) -> AbstractContextManager[Any]:
    """Return a block without gradients and without NumPy's warnings of what is measured here on purpose."""
    stack = ExitStack()
    torch = sys.modules.get("torch")
    if torch is not None:
        stack.enter_context(torch.no_grad())
    if isinstance(library, NumpyLibrary):
        stack.enter_context(library.xp.errstate(all="ignore"))
    return stack


def arrays_of(inputs: Any) -> list[Any]:
    """Return one array (samples, …) where all samples have one shape, else an array (1, …) for each sample."""
    if not isinstance(inputs, list):
        return [_bounded(plain(inputs))]
    arrays = [_pixels(item) if is_picture(item) else plain(item) for item in inputs[:MOST_PARTS]]
    arrays = [array.reshape(1) if not array.shape else array for array in arrays]
    room = MOST_VALUES
    kept: list[Any] = []
    for array in arrays:
        room -= math.prod(array.shape)
        if kept and room < 0:
            break
        kept.append(array)
    first = kept[0]
    if len({(tuple(array.shape), str(array.dtype), type(array)) for array in kept}) == 1:
        return [sys.modules["torch"].stack(kept) if is_tensor(first) else sys.modules["numpy"].stack(kept)]
    return [array[None] for array in kept if type(array) is type(first)]


def plain(array: Any) -> Any:
    """Return an array without gradients: a CPU tensor as NumPy's over the same memory, a sharded one's own part."""
    if not is_tensor(array):
        return array
    if hasattr(array, "to_local"):
        array = array.to_local()
    return on_host(array.detach())


def _bounded(array: Any) -> Any:
    values = math.prod(array.shape[1:])
    return array[: max(1, min(MOST_SAMPLES, MOST_VALUES // max(1, values)))]


def _pixels(picture: Any) -> Any:
    numpy = importlib.import_module("numpy")
    if picture.mode not in PICTURE_MODES:
        picture = picture.convert("RGB")
    width, height = picture.size
    pixels = numpy.frombuffer(picture.tobytes(), dtype=numpy.uint8)
    return pixels.reshape((height, width) if picture.mode == "L" else (height, width, len(picture.mode)))


def rows_of(array: Any) -> Any:
    """Return an array as (samples, values), in the order of its memory, so that nothing is copied where that works."""
    if len(array.shape) < 3:
        return array.reshape(array.shape[0], -1)
    strides: Sequence[int] = array.stride() if is_tensor(array) else array.strides
    order = sorted(range(1, len(array.shape)), key=lambda axis: -strides[axis])
    moved = array.permute(0, *order) if is_tensor(array) else array.transpose(0, *order)
    return moved.reshape(array.shape[0], -1)
