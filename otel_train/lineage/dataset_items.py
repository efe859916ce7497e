"""Reads a few spread items of a map-style data set, for their form and a sampled checksum, and leaves no trace."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from otel_train import clock
from otel_train.lineage.array_hashing import is_array, is_tensor, sequence_checksum
from otel_train.lineage.hashing import spread

MAX_ITEMS = 32
# Items may come from a slow disk or a decoder: what was read by then is enough.
MAX_READ_S = 2.0


def describe_items(
    data: Any, size: int, mono_ns: Callable[[], int] = clock.mono_ns, *, known: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return ``shape``, ``dtype`` and ``checksum`` as far as at most 32 items of `data` tell; else ``notes``.

    Items that differ between two readings (random transforms) have no checksum. Random states of Python, NumPy and
    torch are as before afterwards. Raises what the data set raises.
    """
    if size < 1:
        return {"notes": ["it is empty"]}
    found: dict[str, Any] = {}
    deadline_ns = mono_ns() + int(MAX_READ_S * clock.NS_PER_S)
    digest = hashlib.sha256(f"data set of {size}\n".encode())
    read = items = 0
    with random_states_kept():
        first = data[0]
        for key, value in _form(first).items():
            if key not in known:
                found[key] = value
        one = sequence_checksum([first])
        if one.value != sequence_checksum([data[0]]).value:
            return found | {"notes": ["no checksum: its items differ from reading to reading (random transforms)"]}
        for position in spread(size, 1, MAX_ITEMS):
            item = one if position == 0 else sequence_checksum([data[position]])
            digest.update(f"{position}:{item.value}\n".encode())
            read += item.bytes_read
            items += 1
            if mono_ns() > deadline_ns:
                # How far it came depends on the disk, so it is no checksum.
                return found | {"notes": [f"no checksum: {items} items took over {MAX_READ_S:.0f} s to read"]}
    how = f"its length and {items} of {size} items, evenly spaced"
    total = read * size // items
    entry = {"algorithm": "sha256", "value": digest.hexdigest(), "bytes_read": read, "whole": items == size}
    return found | {"checksum": entry | {"how": how, "size": total}}


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Put the random states of Python, NumPy and torch (host) back to what they were."""
    python = random.getstate()
    numpy = getattr(sys.modules.get("numpy"), "random", None)
    numpy_state = numpy.get_state() if numpy is not None else None
    torch = sys.modules.get("torch")
    torch_state = torch.get_rng_state() if torch is not None and hasattr(torch, "get_rng_state") else None
    try:
        yield
    finally:
        random.setstate(python)
        if numpy is not None:
            numpy.set_state(numpy_state)
        if torch_state is not None and torch is not None:
            torch.set_rng_state(torch_state)


def _form(item: Any) -> dict[str, Any]:
    """Return shape and dtype of the first array in an item: a sample, or a tuple or mapping that begins with it."""
    if isinstance(item, dict):
        item = next(iter(item.values()), None)
    if isinstance(item, (list, tuple)) and item:
        item = item[0]
    if is_tensor(item) or is_array(item):
        shape = [int(length) for length in item.shape]
        return {"shape": shape, "dtype": str(item.dtype).removeprefix("torch.")}
    return {}
