"""Checksums equal those of the system's tools, say what they cover, and cost no copy."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_train.lineage.array_hashing import (
    NoBytesError,
    _device_checksum,
    array_checksum,
    sequence_checksum,
    value_checksum,
)
from otel_train.lineage.hash_pool import HashPool, PoolClosedError
from otel_train.lineage.hashing import file_checksum, folder_checksum, path_checksum, spread


def test_a_files_checksum_is_what_sha256sum_prints(tmp_path):
    """A whole file's value equals hashlib's and that of sha256sum."""
    path = tmp_path / "data.bin"
    content = bytes(range(256)) * 9000
    path.write_bytes(content)
    checksum = file_checksum(path)
    assert checksum.value == hashlib.sha256(content).hexdigest()
    assert (checksum.size, checksum.bytes_read, checksum.whole, checksum.files) == (2304000, 2304000, True, 0)
    if shutil.which("sha256sum"):
        printed = subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True).stdout
        assert printed.split()[0] == checksum.value


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="compares with the sha256sum command")
def test_a_folders_checksum_is_that_of_the_sorted_list_of_sha256sum(tmp_path):
    """The documented shell pipeline gives the same value, with odd names and folders that sort between files."""
    for name in ("a/b.txt", "a-b.txt", "a.txt", "ab/c/d.bin", "back\\slash", "line\nbreak", "ä.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")
    (tmp_path / "empty folder").mkdir()
    pipeline = "find . -type f -printf '%P\\0' | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"
    printed = subprocess.run(["sh", "-c", pipeline], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    checksum = folder_checksum(tmp_path)
    assert checksum.value == printed.split()[0]
    assert checksum.files == 7
    assert checksum.size == sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())


def test_a_sample_says_that_it_is_one_and_notices_a_change_in_a_sampled_block(tmp_path):
    """First and last block and the size are covered; a byte between the blocks is not, and `whole` says so."""
    path = tmp_path / "large.bin"
    content = bytearray(os.urandom(100_000))
    sample = {"whole_bytes": 1000, "blocks": 4, "block_bytes": 100}

    def checksum_of(changed_at: int | None = None, length: int = 100_000) -> str:
        altered = bytearray(content[:length])
        if changed_at is not None:
            altered[changed_at] ^= 1
        path.write_bytes(altered)
        return file_checksum(path, **sample).value

    original = checksum_of()
    checksum = file_checksum(path, **sample)
    assert (checksum.whole, checksum.bytes_read, checksum.size) == (False, 400, 100_000)
    assert "sample of 4 blocks of 100 bytes" in checksum.how
    offsets = spread(100_000, 100, 4)
    assert offsets == [0, 33300, 66600, 99900]
    for offset in offsets:
        assert checksum_of(offset) != original
        assert checksum_of(offset + 99) != original
    assert checksum_of(20_000) == original
    assert checksum_of(length=99_999) != original
    assert checksum_of() == original


def test_a_large_folder_is_sampled_over_the_contents_laid_end_to_end(tmp_path):
    """Names, sizes and sampled blocks count; a file that no block touches does not."""
    for number in range(10):
        (tmp_path / f"{number}.bin").write_bytes(bytes([number]) * 1000)
    sample = {"whole_bytes": 100, "blocks": 3, "block_bytes": 10}
    original = folder_checksum(tmp_path, **sample)
    assert (original.whole, original.bytes_read, original.size, original.files) == (False, 25, 10_000, 10)
    assert spread(10_000, 10, 3) == [0, 4995, 9990]
    (tmp_path / "4.bin").write_bytes(b"\4" * 995 + b"changed"[:5])
    assert folder_checksum(tmp_path, **sample).value != original.value
    (tmp_path / "4.bin").write_bytes(b"\4" * 1000)
    (tmp_path / "2.bin").write_bytes(b"\xff" * 1000)
    assert folder_checksum(tmp_path, **sample).value == original.value
    (tmp_path / "2.bin").rename(tmp_path / "2b.bin")
    assert folder_checksum(tmp_path, **sample).value != original.value


def test_a_folder_with_too_many_files_is_listed_in_part_and_says_so(tmp_path):
    """The bound on the number of files makes the checksum a sample."""
    for number in range(5):
        (tmp_path / str(number)).write_text("x")
    checksum = folder_checksum(tmp_path, max_files=3)
    assert (checksum.whole, checksum.files) == (False, 3)
    assert "more than 3 files" in checksum.how


def test_leftovers_named_to_be_skipped_do_not_count(tmp_path):
    """A compiled file beside the code does not change the code's checksum."""
    (tmp_path / "code.py").write_text("x = 1\n")
    before = folder_checksum(tmp_path, skip={"__pycache__"}).value
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "code.pyc").write_text("y")
    assert folder_checksum(tmp_path, skip={"__pycache__"}).value == before
    assert folder_checksum(tmp_path).value != before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes in the file system")
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    """Opening a pipe would block for ever."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        path_checksum(tmp_path / "pipe")


def test_a_link_in_a_circle_does_not_trap_the_walk(tmp_path):
    """Links to folders are not entered, links to files count by their content."""
    (tmp_path / "a").write_text("x")
    (tmp_path / "circle").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "b").symlink_to(tmp_path / "a")
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    assert folder_checksum(tmp_path).files == 2


def test_arrays_and_tensors_of_the_same_elements_have_the_same_checksum():
    """The definition is dtype, shape and elements in C order, whatever keeps them."""
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    expected = hashlib.sha256(b"array of float32 (4, 6)\n" + array.tobytes()).hexdigest()
    assert array_checksum(array).value == expected
    assert array_checksum(np.asfortranarray(array)).value == expected
    assert array_checksum(torch.from_numpy(array)).value == expected
    assert array_checksum(torch.from_numpy(array.T.copy()).T).value == expected
    assert array_checksum(torch.from_numpy(array).requires_grad_()).value == expected
    assert array_checksum(array.T).value != expected
    assert array_checksum(array.reshape(6, 4)).value != expected
    assert array_checksum(array.astype(np.float64)).value != expected
    assert array_checksum(array).to_dict() == {
        "algorithm": "sha256",
        "value": expected,
        "bytes_read": 96,
        "whole": True,
        "how": "dtype, shape and all elements",
        "size": 96,
    }


@given(
    shape=st.lists(st.integers(0, 5), max_size=4),
    dtype=st.sampled_from(["f4", ">f8", "i2", "?", "c16", "U3", "S5", "M8[s]", "f2", [("a", "i4"), ("b", "f8")]]),
    step=st.sampled_from([1, 2, -1]),
)
@settings(max_examples=60, deadline=None)
def test_strided_arrays_hash_like_their_copies(shape, dtype, step):
    """Any layout of any dtype equals its C-ordered copy, also when it is sampled."""
    count = int(np.prod(shape)) if shape else 1
    array = np.frombuffer(os.urandom(count * np.dtype(dtype).itemsize), dtype=np.uint8).view(dtype).reshape(shape)
    if array.ndim:
        array = array[..., ::step].T
    for options in ({}, {"whole_bytes": 0, "blocks": 2, "block_bytes": 16}):
        assert array_checksum(array, **options) == array_checksum(
            np.ascontiguousarray(array).reshape(array.shape), **options
        )


def test_tensors_of_narrow_types_and_views_hash_like_their_copies():
    """bfloat16 has no NumPy counterpart; conjugate views and expanded tensors have lazy or repeated memory."""
    tensor = torch.arange(12).reshape(3, 4)
    for one in (
        tensor.to(torch.bfloat16).T,
        torch.randn(3, 3, dtype=torch.complex64).conj().T,
        tensor[:1].expand(5, 4),
    ):
        assert array_checksum(one).value == array_checksum(one.clone(memory_format=torch.contiguous_format)).value
    assert array_checksum(tensor[:, ::2], whole_bytes=0, blocks=2, block_bytes=16).whole is False
    assert array_checksum(torch.zeros(0, 3)).size == 0
    assert array_checksum(torch.tensor(3.0)).bytes_read == 4


def test_a_large_array_is_sampled_without_a_copy():
    """The peak of what is allocated stays far below the array, and a change in a sampled block shows."""
    array = np.zeros(8_000_000, dtype=np.float64)
    view = array.reshape(4000, 2000).T
    tracemalloc.start()
    whole = array_checksum(array)
    sampled = array_checksum(view, whole_bytes=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20
    assert (whole.whole, whole.bytes_read) == (True, 64_000_000)
    assert (sampled.whole, sampled.bytes_read, sampled.size) == (False, 64 * (256 << 10), 64_000_000)
    array[-1] = 1.0
    assert array_checksum(view, whole_bytes=1 << 20).value != sampled.value


def test_what_has_no_stable_bytes_is_refused_with_the_reason():
    """Object addresses, tensors without data and iterators are never hashed."""
    with pytest.raises(NoBytesError, match="meta device"):
        array_checksum(torch.zeros(3, device="meta"))
    with pytest.raises(NoBytesError, match="neither an array nor a tensor"):
        value_checksum(iter([1, 2]))
    with pytest.raises(NoBytesError, match="a object has no bytes"):
        sequence_checksum([object()])
    with pytest.raises(NoBytesError, match="more than one dimension"):
        array_checksum(np.array([[None]], dtype=object))


def test_sequences_tell_types_and_borders_apart():
    """Items do not run together, and 1, 1.0, True and "1" are four values."""
    values = [
        sequence_checksum(items).value
        for items in ([1], [1.0], [True], ["1"], [None], [b"1"], ["ab", "c"], ["a", "bc"], [["a"], "bc"], [{"a": 1}])
    ]
    assert len(set(values)) == len(values)
    assert sequence_checksum([np.float64(0.5), np.int64(3)]).value == sequence_checksum([0.5, 3]).value
    assert sequence_checksum(["a"]).value == hashlib.sha256(b"sequence of 1\nstr:1:a").hexdigest()


def test_a_long_sequence_is_sampled_and_says_so():
    """Length, first and last item always count."""
    items = [f"text {number}" for number in range(30_000)]
    sampled = sequence_checksum(items, whole_items=10)
    assert sequence_checksum(items).whole
    assert not sampled.whole
    assert sampled.how == "the length and a sample of 10000 of 30000 items, first and last included"
    for changed in ([*items, "end"], ["first", *items[1:]], [*items[:-1], "last"]):
        assert sequence_checksum(changed, whole_items=10).value != sampled.value


def test_sparse_tensors_and_mappings_have_checksums_of_their_parts():
    """Order of the parts and their names count."""
    sparse = torch.eye(3).to_sparse()
    assert value_checksum(sparse).value == value_checksum(torch.eye(3).to_sparse()).value
    assert value_checksum({"a": [1], "b": [2]}).value != value_checksum({"a": [2], "b": [1]}).value
    assert value_checksum({"a": np.zeros(2)}).whole


def test_the_pool_runs_calls_in_order_on_one_daemon_thread():
    """Results, errors and callbacks arrive; the thread starts with the first call."""
    pool = HashPool(name="test-hash")
    assert pool.pending == 0
    assert "test-hash" not in {thread.name for thread in threading.enumerate()}
    seen: list[tuple[object, object]] = []
    first = pool.submit(lambda: threading.current_thread(), then=lambda value, error: seen.append((value, error)))
    failing = pool.submit(lambda: 1 / 0, then=lambda value, error: seen.append((value, type(error))))
    thread = first.result(10)
    assert (thread.name, thread.daemon) == ("test-hash", True)
    with pytest.raises(ZeroDivisionError):
        failing.result(10)
    assert pool.wait(10)
    assert seen == [(thread, None), (None, ZeroDivisionError)]
    assert pool.close(1.0) == 0
    thread.join(10)
    assert not thread.is_alive()


def test_closing_the_pool_keeps_its_deadline_and_counts_what_did_not_end():
    """A call that hangs does not hold up the end; what waited behind it is told so, and nothing is taken any more."""
    pool, release, started = HashPool(), threading.Event(), threading.Event()
    hanging = pool.submit(lambda: (started.set(), release.wait(30)))
    waiting = pool.submit(lambda: 1)
    started.wait(10)
    assert pool.close(0.01) == 2
    with pytest.raises(PoolClosedError):
        waiting.result(0)
    with pytest.raises(PoolClosedError):
        pool.submit(lambda: 2).result(0)
    with pytest.raises(TimeoutError):
        hanging.result(0)
    release.set()
    hanging.result(10)


def test_a_faulty_callback_does_not_end_the_pools_thread():
    """What comes after it is still hashed."""
    pool = HashPool()
    pool.submit(lambda: 1, then=lambda value, error: 1 / 0)
    assert pool.submit(lambda: 2).result(10) == 2
    assert pool.close(5) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_an_empty_pool_that_works():
    """The parent's pending call stays the parent's; the child's own call runs on a thread of its own."""
    pool, release = HashPool(), threading.Event()
    parents = pool.submit(lambda: release.wait(30))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if pool.pending == 0 and pool.submit(lambda: 7).result(10) == 7 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    release.set()
    assert parents.result(10) is True
    assert pool.close(5) == 0


def sampled_as_on_a_device(tensor):
    return _device_checksum(tensor, torch, b"header", tensor.numel() * tensor.element_size())


@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_a_tensor_on_a_device_is_sampled_by_one_bounded_gather(layout):
    """At most a mebibyte is copied; first and last elements count, whatever the strides are."""
    tensor = torch.arange(4_000_000, dtype=torch.float32).reshape(2000, 2000)
    if layout == "transposed":
        tensor = tensor.T
    checksum = sampled_as_on_a_device(tensor)
    assert (checksum.bytes_read, checksum.whole, checksum.size) == (1 << 20, False, 16_000_000)
    assert sampled_as_on_a_device(tensor.contiguous()).value == checksum.value
    for row, column in ((0, 0), (1999, 1999)):
        changed = tensor.clone()
        changed[row, column] = -1
        assert sampled_as_on_a_device(changed).value != checksum.value


def test_small_tensors_on_a_device_are_read_whole():
    """Scalars, empty and short ones."""
    for tensor in (torch.tensor(3.0), torch.zeros(0), torch.arange(5), torch.arange(40_000, dtype=torch.float32)):
        checksum = sampled_as_on_a_device(tensor)
        assert (checksum.whole, checksum.bytes_read) == (True, tensor.numel() * tensor.element_size())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_cuda_tensor_is_sampled_from_the_device():
    """The same tensor has the same checksum again, a changed one another, and little is copied."""
    tensor = torch.arange(4_000_000, device="cuda", dtype=torch.float32)
    checksum = array_checksum(tensor)
    assert (checksum.bytes_read, checksum.whole) == (1 << 20, False)
    assert array_checksum(tensor.clone()) == checksum
    tensor[-1] = 0
    assert array_checksum(tensor).value != checksum.value


class SparseMatrix:
    """A matrix as SciPy has them."""

    shape = (2, 2)

    def __init__(self, value):
        self.data = np.array([value])
        self.indices = np.array([0])
        self.indptr = np.array([0, 1, 1])


SparseMatrix.__module__ = "scipy.sparse._csr"


def test_sparse_matrices_and_foreign_arrays_have_checksums():
    """The parts of a sparse matrix count; what turns into an array is hashed as that array."""
    assert value_checksum(SparseMatrix(1.0)).value == value_checksum(SparseMatrix(1.0)).value
    assert value_checksum(SparseMatrix(1.0)).value != value_checksum(SparseMatrix(2.0)).value

    class Foreign:
        def __array__(self, dtype=None, copy=None):
            return np.arange(3)

    assert array_checksum(Foreign()).value == array_checksum(np.arange(3)).value
    assert value_checksum(range(3)).value == value_checksum([0, 1, 2]).value


@pytest.mark.slow
def test_hashing_needs_neither_torch_nor_numpy():
    """Importing the room loads neither, and lists and files are hashed without them."""
    script = (
        "import sys\n"
        "from otel_train.lineage import checkpoints, datasets, model_files, stages, chain, chain_text\n"
        "record = datasets.describe_dataset('x', [1, 2], labels=['a', 'b'])\n"
        "assert record['classes'] == {'a': 1, 'b': 1} and 'checksum' in record, record\n"
        "assert not {'torch', 'numpy'} & set(sys.modules), 'a heavy library was imported'\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
