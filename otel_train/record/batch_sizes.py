"""Finds out how many samples and tokens a batch has: the way there is found once, then it is one look a batch.

Only shapes and lengths are read, which the host knows: no value, so nothing waits for a device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final, TypeAlias

# A number of samples, or numbers of samples and tokens.
Size: TypeAlias = "int | tuple[int | None, int | None] | None"
Look: TypeAlias = Callable[[Any], Size]

# What the tokens of a text are called in a batch; padding is among them, since the model computes it too.
TOKEN_KEY: Final = "input_ids"
MOST_DEPTH: Final = 4


def not_found_yet(batch: Any) -> Size:
    """Stand in for the look at a batch until one was seen; raises LookupError, so that the way is looked for."""
    raise LookupError("no batch was seen yet")


def way_to_size(batch: Any) -> Look | None:
    """Return what reads the size of batches that look like this one, None where nothing tells it.

    A tensor or array has as many samples as its first dimension; a tuple or list those of its first part that tells,
    a list within it as many as it has items, and a list of samples that were not put together likewise; a mapping
    those of its `input_ids`, whose elements are tokens, else of the first value that tells.
    """
    found = _search(batch, 0)
    if found is None:
        return None
    keys, measure = found
    if not keys:
        return measure
    if len(keys) > 1:

        def look_deep(batch: Any) -> Size:
            for key in keys:
                batch = batch[key]
            return measure(batch)

        return look_deep
    (key,) = keys
    # The most frequent ways without a second call.
    if measure is _first_dimension:
        return lambda batch: batch[key].shape[0]
    if measure is _rows_of_tokens:
        return _rows_of_tokens_in
    return lambda batch: measure(batch[key])


def size_of(batch: Any) -> tuple[int | None, int | None]:
    """Return samples and tokens of one batch, None for what it does not tell."""
    look = way_to_size(batch)
    return split_size(None if look is None else look(batch))


def split_size(size: Size) -> tuple[int | None, int | None]:
    """Return what a look gave as samples and tokens."""
    return size if type(size) is tuple else (size, None)  # type: ignore[return-value]


def _search(part: Any, depth: int) -> tuple[tuple[Any, ...], Look] | None:
    if depth > MOST_DEPTH or isinstance(part, str | bytes):
        return None
    if _dimensions(part):
        return (), _first_dimension
    if isinstance(part, Mapping):
        return _in_mapping(part, depth)
    # A packed sequence is a tuple, too, whose first part is all time steps of all samples in one.
    if isinstance(part, tuple | list) and part and not hasattr(part, "batch_sizes"):
        return _in_sequence(part, depth)
    return None


def _in_mapping(part: Mapping[Any, Any], depth: int) -> tuple[tuple[Any, ...], Look] | None:
    tokens = part.get(TOKEN_KEY)
    if tokens is not None and _dimensions(tokens):
        dimensions = _dimensions(tokens)
        return (TOKEN_KEY,), _packed_tokens if dimensions == 1 else _rows_of_tokens if dimensions == 2 else _tokens
    for key, value in part.items():
        found = _search(value, depth + 1)
        if found is not None:
            return (key, *found[0]), found[1]
    return None


def _in_sequence(part: Any, depth: int) -> tuple[tuple[Any, ...], Look] | None:
    if isinstance(part, list) and _are_samples(part):
        return (), len
    if depth and not isinstance(part[0], Mapping) and not all(_dimensions(one) for one in part):
        # A column of what cannot be stacked: texts, say.
        return (), len
    if depth and len({_shape(one) for one in part}) > 1:
        # Samples of their own sizes, such as pictures for detection.
        return (), len
    for index, one in enumerate(part):
        found = _search(one, depth + 1)
        if found is not None:
            return (index, *found[0]), found[1]
    return None


def _are_samples(part: list[Any]) -> bool:
    """Tell whether a list holds whole samples: mappings, tuples, or tensors whose first dimensions differ."""
    if all(isinstance(one, Mapping | tuple) for one in part):
        return True
    firsts = {shape[0] for one in part if (shape := _shape(one))}
    return len(firsts) > 1 and all(_dimensions(one) for one in part)


def _shape(part: Any) -> tuple[int, ...]:
    try:
        shape = tuple(part.shape)
    except Exception:  # noqa: BLE001 - whatever has no shape has none
        return ()
    return shape if all(isinstance(size, int) for size in shape) else ()


def _dimensions(part: Any) -> int:
    return len(_shape(part))


def _first_dimension(part: Any) -> Size:
    return part.shape[0]  # type: ignore[no-any-return]


def _rows_of_tokens(part: Any) -> Size:
    samples, length = part.shape
    return samples, samples * length


def _rows_of_tokens_in(batch: Any) -> Size:
    samples, length = batch[TOKEN_KEY].shape
    return samples, samples * length


def _tokens(part: Any) -> Size:
    shape = part.shape
    return shape[0], prod(shape)


def _packed_tokens(part: Any) -> Size:
    """Count the tokens of samples laid end to end: how many samples they are nobody knows."""
    return None, part.shape[0]
