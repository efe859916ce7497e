"""Checksums of arrays, tensors and sequences in memory, without copying what is large.

An array's checksum covers its dtype, its shape and its elements in C order, so a NumPy array, a torch tensor and a
transposed view with the same elements have the same one.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from otel_train.lineage.hashing import MIB, Checksum, Digest, spread

# An array up to this size is hashed whole: about a quarter of a second.
WHOLE_ARRAY_BYTES = 256 * MIB
ARRAY_SAMPLE_BLOCKS = 64
ARRAY_SAMPLE_BLOCK_BYTES = 256 << 10
# What of a CUDA tensor is copied to the host at most.
DEVICE_SAMPLE_BLOCKS = 16
DEVICE_SAMPLE_BLOCK_BYTES = 64 << 10
WHOLE_SEQUENCE_ITEMS = 100_000
SEQUENCE_SAMPLE_ITEMS = 10_000
_MAX_DEPTH = 6
_PLAIN: tuple[Any, ...] = (bool, int, float, complex)


class NoBytesError(ValueError):
    """A value has no bytes that would be the same tomorrow (objects, iterators, tensors without data)."""


def is_tensor(value: object) -> bool:
    """Tell a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None)
    return isinstance(kind, type) and isinstance(value, kind)


def is_array(value: object) -> bool:
    """Tell a NumPy array (subclasses and memory maps too), without importing NumPy."""
    numpy = sys.modules.get("numpy")
    kind = getattr(numpy, "ndarray", None)
    return isinstance(kind, type) and isinstance(value, kind)


def array_checksum(
    array: Any,
    *,
    whole_bytes: int = WHOLE_ARRAY_BYTES,
    blocks: int = ARRAY_SAMPLE_BLOCKS,
    block_bytes: int = ARRAY_SAMPLE_BLOCK_BYTES,
) -> Checksum:
    """Return the SHA-256 of an array's or tensor's dtype, shape and elements; a sample of blocks above `whole_bytes`.

    Tensors on a device are always sampled. Raises NoBytesError where the elements are objects or there is no data.
    """
    if is_tensor(array):
        return _tensor_checksum(array, whole_bytes, blocks, block_bytes)
    if is_array(array):
        return _numpy_checksum(array, whole_bytes, blocks, block_bytes)
    parts = _sparse_parts(array)
    if parts is not None:
        return _combined([array_checksum(part) for part in parts], f"the parts of a {type(array).__name__}")
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(array, "__array__"):
        converted = numpy.asarray(array)
        if is_array(converted):
            return _numpy_checksum(converted, whole_bytes, blocks, block_bytes)
    raise NoBytesError(f"{type(array).__name__} is neither an array nor a tensor")


def sequence_checksum(items: Sequence[Any], *, whole_items: int = WHOLE_SEQUENCE_ITEMS) -> Checksum:
    """Return the SHA-256 of a list or tuple of plain values, of arrays, and of such lists and mappings.

    Above `whole_items` of the length and evenly spaced items. Raises NoBytesError for other objects.
    """
    digest = hashlib.sha256()
    count = len(items)
    digest.update(f"sequence of {count}\n".encode())
    if count <= whole_items:
        read = sum(_feed_item(digest, item, 0) for item in items)
        return Checksum("sha256", digest.hexdigest(), read, True, f"{count} items", read)
    positions = spread(count, 1, SEQUENCE_SAMPLE_ITEMS)
    read = 0
    for position in positions:
        digest.update(f"{position}:".encode())
        read += _feed_item(digest, items[position], 0)
    how = f"the length and a sample of {len(positions)} of {count} items, first and last included"
    return Checksum("sha256", digest.hexdigest(), read, False, how, read * count // len(positions))


def value_checksum(value: Any) -> Checksum:
    """Return the checksum of any value that has one: array, tensor, table, sequence, mapping, text, bytes, number."""
    if is_tensor(value) or is_array(value) or _sparse_parts(value) is not None:
        return array_checksum(value)
    columns = table_columns(value)
    if columns is not None:
        return mapping_checksum(columns, f"{len(columns)} columns")
    if isinstance(value, Mapping):
        return mapping_checksum(value, f"{len(value)} entries")
    if isinstance(value, (list, tuple, range)):
        return sequence_checksum(value)
    if isinstance(value, (str, bytes, bytearray, int, float, bool)) or value is None:
        digest = hashlib.sha256()
        read = _feed_item(digest, value, 0)
        return Checksum("sha256", digest.hexdigest(), read, True, "the value", read)
    if hasattr(value, "to_numpy"):
        return array_checksum(value.to_numpy())
    return array_checksum(value)


def mapping_checksum(parts: Mapping[Any, Any], how: str) -> Checksum:
    """Return one checksum of named parts, in their order, each with its own."""
    if len(parts) > WHOLE_SEQUENCE_ITEMS:
        raise NoBytesError(f"a mapping of {len(parts)} entries is too large to hash")
    return _combined([value_checksum(part) for part in parts.values()], how, [str(name) for name in parts])


def table_columns(value: Any) -> dict[str, Any] | None:
    """Return the columns of a pandas-like table by name, None where the value is no table."""
    columns = getattr(value, "columns", None)
    if columns is None or not hasattr(value, "dtypes") or not hasattr(value, "shape"):
        return None
    names = list(columns)
    return {str(name): value[name] for name in names[:WHOLE_SEQUENCE_ITEMS]}


def _combined(checksums: Sequence[Checksum], how: str, names: Sequence[str] | None = None) -> Checksum:
    digest = hashlib.sha256()
    for index, checksum in enumerate(checksums):
        name = names[index] if names is not None else str(index)
        digest.update(f"{len(name)}:{name}={checksum.value}\n".encode("utf-8", "surrogatepass"))
    whole = all(checksum.whole for checksum in checksums)
    said = how if whole else f"{how}, in part sampled"
    read = sum(checksum.bytes_read for checksum in checksums)
    return Checksum("sha256", digest.hexdigest(), read, whole, said, sum(checksum.size for checksum in checksums))


def combined_checksum(parts: Mapping[str, Checksum], how: str) -> Checksum:
    """Return one checksum of parts that have theirs already."""
    return _combined(list(parts.values()), how, list(parts))


def _header(dtype: str, shape: Iterable[int]) -> bytes:
    return f"array of {dtype} {tuple(int(length) for length in shape)}\n".encode()


def _hash_blocks(
    header: bytes,
    total: int,
    read: Callable[[int, int], Any],
    whole_bytes: int,
    blocks: int,
    block_bytes: int,
    always_sample: bool = False,
) -> Checksum:
    """Hash what `read(start, stop)` gives: all in pieces, or blocks spread over it."""
    digest = hashlib.sha256(header)
    if total <= blocks * block_bytes or (total <= whole_bytes and not always_sample):
        # Pieces keep copies of non-contiguous arrays small.
        for start in range(0, total, 4 * MIB):
            digest.update(read(start, min(start + 4 * MIB, total)))
        return Checksum("sha256", digest.hexdigest(), total, True, "dtype, shape and all elements", total)
    digest.update(b"sample\n")
    # 16 bytes are the widest element (complex128), so no block begins within one.
    offsets = sorted({offset // 16 * 16 for offset in spread(total, block_bytes, blocks)})
    taken = 0
    for offset in offsets:
        stop = min(offset + block_bytes, total)
        if total - stop < 16:
            stop = total
        digest.update(f"{offset}:".encode())
        digest.update(read(offset, stop))
        taken += stop - offset
    how = f"dtype, shape and a sample of {len(offsets)} blocks of {block_bytes} bytes, first and last included"
    return Checksum("sha256", digest.hexdigest(), taken, False, how, total)


def _numpy_checksum(array: Any, whole_bytes: int, blocks: int, block_bytes: int) -> Checksum:
    # A matrix or masked array would keep its own idea of `reshape`.
    array = sys.modules["numpy"].asarray(array)
    dtype = array.dtype
    if dtype.hasobject:
        if array.ndim == 1:
            return sequence_checksum(array)
        raise NoBytesError("an array of objects in more than one dimension has no bytes to hash")
    name = dtype.str.lstrip("<|=") if dtype.names or dtype.kind in "USVMm" else dtype.name
    if dtype.str.startswith(">"):
        name = f"big-endian {name}"
    if dtype.names:
        name = str(dtype.descr)
    header = _header(name, array.shape)
    if array.flags.c_contiguous:
        flat = memoryview(array.reshape(-1).view("uint8")) if array.nbytes else memoryview(b"")
        return _hash_blocks(
            header, array.nbytes, lambda start, stop: flat[start:stop], whole_bytes, blocks, block_bytes
        )
    size = dtype.itemsize
    elements = array.flat

    def read(start: int, stop: int) -> bytes:
        # Rounded outwards to whole elements, then cut: a slice of `flat` is a small copy in C order.
        first, last = start // size, -(-stop // size)
        return bytes(elements[first:last].tobytes()[start - first * size : stop - first * size])

    return _hash_blocks(header, array.nbytes, read, whole_bytes, blocks, block_bytes)


def _tensor_checksum(tensor: Any, whole_bytes: int, blocks: int, block_bytes: int) -> Checksum:
    torch = sys.modules["torch"]
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return _special_tensor_checksum(tensor, torch)
    if tensor.device.type == "meta":
        raise NoBytesError("a tensor on the meta device has no data")
    with torch.no_grad():
        tensor = tensor.detach().resolve_conj().resolve_neg()
        header = _header(str(tensor.dtype).removeprefix("torch."), tensor.shape)
        total = tensor.numel() * tensor.element_size()
        if tensor.device.type != "cpu":
            return _device_checksum(tensor, torch, header, total)
        if tensor.is_contiguous():
            if total == 0:
                return _hash_blocks(header, 0, lambda start, stop: b"", whole_bytes, blocks, block_bytes)
            # The tensor outlives the view: `tensor` is alive until this function returns.
            flat = memoryview((ctypes.c_ubyte * total).from_address(tensor.data_ptr())).cast("B")
            return _hash_blocks(header, total, lambda start, stop: flat[start:stop], whole_bytes, blocks, block_bytes)
        read = _strided_reader(tensor)
        return _hash_blocks(header, total, read, whole_bytes, blocks, block_bytes)


def _strided_reader(tensor: Any) -> Callable[[int, int], bytes]:
    """Read byte ranges of a non-contiguous CPU tensor in C order by gathering just these elements."""
    torch = sys.modules["torch"]
    size = tensor.element_size()

    def read(start: int, stop: int) -> bytes:
        first, last = start // size, -(-stop // size)
        block = _gather(tensor, torch.arange(first, last)).contiguous()
        length = block.numel() * size
        content = bytes((ctypes.c_ubyte * length).from_address(block.data_ptr()))
        return content[start - first * size : stop - first * size]

    return read


def _gather(tensor: Any, flat_positions: Any) -> Any:
    """Return the elements at positions of C order, whatever the strides are, as a tensor of one dimension."""
    index = []
    rest = flat_positions
    for length in reversed(tensor.shape):
        index.append(rest % length)
        rest = rest // length
    return tensor[tuple(reversed(index))]


def _device_checksum(tensor: Any, torch: Any, header: bytes, total: int) -> Checksum:
    """Sample a tensor on a device: one gather there, one copy of at most a mebibyte."""
    capturing = getattr(getattr(torch, "cuda", None), "is_current_stream_capturing", None)
    if tensor.device.type == "cuda" and capturing is not None and capturing():
        raise NoBytesError("a CUDA graph is being captured; its tensors cannot be read now")
    size = tensor.element_size()
    count = tensor.numel()
    per_block = max(1, DEVICE_SAMPLE_BLOCK_BYTES // size)
    digest = hashlib.sha256(header + b"device sample\n")
    starts = spread(count, per_block, DEVICE_SAMPLE_BLOCKS) if count else []
    taken = 0
    if starts:
        first = torch.tensor(starts, device=tensor.device)
        positions = (first[:, None] + torch.arange(per_block, device=tensor.device)[None, :]).reshape(-1)
        if count < per_block * len(starts):
            positions = torch.arange(count, device=tensor.device)
        block = _gather(tensor, positions).cpu().contiguous() if tensor.ndim else tensor.reshape(1).cpu()
        taken = block.numel() * size
        digest.update((ctypes.c_ubyte * taken).from_address(block.data_ptr()))
    how = f"dtype, shape and a sample of {taken} bytes copied from {tensor.device.type}"
    return Checksum("sha256", digest.hexdigest(), taken, taken == total, how, total)


def _special_tensor_checksum(tensor: Any, torch: Any) -> Checksum:
    if tensor.layout is torch.sparse_coo:
        whole = tensor.detach().coalesce()
        parts = {"indices": array_checksum(whole.indices()), "values": array_checksum(whole.values())}
        return combined_checksum(parts, f"indices and values of a sparse tensor of shape {tuple(tensor.shape)}")
    raise NoBytesError(f"a tensor of layout {tensor.layout} and dtype {tensor.dtype} has no plain bytes")


def _sparse_parts(value: Any) -> list[Any] | None:
    """Return the arrays of a SciPy sparse matrix (CSR, CSC, BSR), None for anything else."""
    if type(value).__module__.partition(".")[0] != "scipy" or not hasattr(value, "indptr"):
        return None
    numpy = sys.modules["numpy"]
    return [value.data, value.indices, value.indptr, numpy.asarray(value.shape)]


def _feed_item(digest: Digest, item: Any, depth: int) -> int:
    """Hash one plain value with its type and length, so that no two lists run together; returns the bytes."""
    if item is None or isinstance(item, (str, bytes, bytearray, int, float, complex)):
        return _feed_text(digest, item)
    if depth > _MAX_DEPTH:
        raise NoBytesError("nested too deeply to hash")
    if isinstance(item, Mapping):
        digest.update(f"mapping of {len(item)}\n".encode())
        return sum(_feed_item(digest, key, depth + 1) + _feed_item(digest, item[key], depth + 1) for key in item)
    if isinstance(item, (list, tuple)):
        digest.update(f"sequence of {len(item)}\n".encode())
        return sum(_feed_item(digest, part, depth + 1) for part in item)
    if is_tensor(item) or is_array(item):
        checksum = array_checksum(item)
        digest.update(checksum.value.encode())
        return checksum.bytes_read
    if hasattr(item, "__fspath__"):
        return _feed_text(digest, item.__fspath__())
    if type(item).__module__ == "numpy" and hasattr(item, "item"):
        return _feed_item(digest, item.item(), depth + 1)
    raise NoBytesError(f"a {type(item).__name__} has no bytes that are the same tomorrow")


def _feed_text(digest: Digest, item: Any) -> int:
    if isinstance(item, (bytes, bytearray)):
        kind, content = "bytes", bytes(item)
    elif isinstance(item, str):
        kind, content = "str", item.encode("utf-8", "surrogatepass")
    elif isinstance(item, float) and math.isnan(item):
        kind, content = "float", b"nan"
    else:
        # The base class's own spelling: a subclass (NumPy's float64 is one) may print itself otherwise.
        plain = next((base for base in _PLAIN if isinstance(item, base)), None)
        kind = plain.__name__ if plain else "None"
        content = (plain.__repr__(item) if plain else "None").encode()
    digest.update(f"{kind}:{len(content)}:".encode())
    digest.update(content)
    return len(content)
