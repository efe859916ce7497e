"""A data set's record has the right size, classes and checksum, whatever the data set is kept in."""

from __future__ import annotations

import enum
import hashlib
import json
import math
import random
import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from otel_train.lineage.array_hashing import array_checksum
from otel_train.lineage.datasets import describe_dataset
from otel_train.lineage.files import add_checksums


@pytest.fixture(scope="module")
def digits():
    return load_digits()


def numpy_counts(labels) -> dict[str, int]:
    values, counts = np.unique(np.asarray(labels), return_counts=True)
    return {str(value): int(count) for value, count in zip(values, counts, strict=True)}


def test_the_classes_of_the_digits_are_those_that_numpy_counts(digits):
    """Array, list, tensor and Bunch all give numpy.unique's counts, in the order of the labels."""
    expected = numpy_counts(digits.target)
    for labels in (digits.target, digits.target.tolist(), torch.from_numpy(digits.target), list(digits.target)):
        record = describe_dataset("digits", digits.data, labels=labels)
        assert record["classes"] == expected
        assert list(record["classes"]) == [str(digit) for digit in range(10)]
        assert (record["size"], record["class_count"], record["shape"], record["dtype"]) == (1797, 10, [64], "float64")
        assert "problems" not in record
    record = describe_dataset("digits", digits)
    assert record["classes"] == expected
    assert record["labels"]["from"] == "target"
    assert record["size"] == 1797


def test_the_checksum_is_that_of_the_array(digits):
    """The same data have the same checksum, one changed pixel another."""
    record = describe_dataset("digits", digits.data, labels=digits.target)
    assert record["checksum"] == array_checksum(digits.data).to_dict()
    assert record["label_checksum"]["value"] == array_checksum(digits.target).value
    changed = digits.data.copy()
    changed[100, 3] += 1
    assert describe_dataset("digits", changed)["checksum"]["value"] != record["checksum"]["value"]


def test_every_record_is_strict_json(digits):
    """Nothing of NumPy or torch is left in a record, and no bare NaN."""
    records = [
        describe_dataset("a", digits, dropped={"blank": np.int64(2)}, sampling="shuffled"),
        describe_dataset("b", TensorDataset(torch.ones(3, 2), torch.tensor([1.0, math.nan, 3.0])), labels=None),
        describe_dataset("c", {"train": digits.data, "test": [1.5]}, labels={"train": digits.target}),
    ]
    for record in records:
        assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_float_labels_are_a_range_and_no_classes():
    """Targets of a regression have minimum, mean and maximum over the finite ones, and are said to be no classes."""
    for labels in (
        [0.5, 1.5, 4.0, math.nan],
        np.array([0.5, 1.5, 4.0, np.nan]),
        torch.tensor([0.5, 1.5, 4.0, math.nan]),
    ):
        record = describe_dataset("r", [1, 2, 3, 4], labels=labels)
        assert "classes" not in record
        summary = record["labels"]
        assert (summary["min"], summary["mean"], summary["max"]) == (0.5, 2.0, 4.0)
        assert (summary["count"], summary["nonfinite"]) == (4, 1)
        assert "not classes" in summary["form"]


def test_texts_missing_labels_and_enumerations_are_counted_by_name():
    """None and NaN beside texts are missing labels; members of an enumeration go by their names."""
    record = describe_dataset("t", list(range(6)), labels=["cat", "dog", "cat", None, math.nan, "bird"])
    assert record["classes"] == {"bird": 1, "cat": 2, "dog": 1}
    assert record["labels"]["missing"] == 2
    colour = enum.Enum("colour", ["RED", "BLUE"])
    assert describe_dataset("e", labels=[colour.RED, colour.BLUE, colour.RED])["classes"] == {"BLUE": 1, "RED": 2}
    assert describe_dataset("o", labels=np.array(["a", "b", "a"], dtype=object))["classes"] == {"a": 2, "b": 1}
    assert describe_dataset("b", labels=[True, False, True])["classes"] == {"False": 1, "True": 2}
    assert describe_dataset("u", labels=np.array(["x", "y", "x"]))["classes"] == {"x": 2, "y": 1}


def test_class_names_are_used_and_an_absent_class_shows_as_zero():
    """Names by index or by mapping; a class without a sample is worth seeing."""
    assert describe_dataset("n", labels=[0, 1, 1], classes=["no", "yes", "maybe"])["classes"] == {
        "no": 1,
        "yes": 2,
        "maybe": 0,
    }
    assert describe_dataset("m", labels=[7, 9], classes={7: "seven", 9: "nine"})["classes"] == {"seven": 1, "nine": 1}
    record = describe_dataset("d", labels=[0, 1], classes=["same", "same"])
    assert record["classes"] == {"same": 1, "same (1)": 1}


def test_many_classes_are_bounded_with_the_rest_summed_up():
    """The thousand most frequent are kept; ids are told apart from classes."""
    labels = np.repeat(np.arange(1500), 2)
    labels[:4] = 1499
    record = describe_dataset("many", labels=labels)
    assert record["class_count"] == 1498
    assert len(record["classes"]) == 1000
    assert record["classes"]["1499"] == 6
    assert record["classes_rest"] == {"classes": 498, "samples": 996}
    assert sum(record["classes"].values()) + 996 == 3000
    ids = describe_dataset("ids", labels=list(range(250_000)))
    assert "classes" not in ids
    assert ids["problems"] == ["no classes: over 200000 distinct labels are ids or texts, not classes"]


def test_one_column_a_class_is_read_as_classes():
    """Zeros and ones in columns are multi-label or one-hot; other labels of this shape are not counted."""
    one_hot = np.eye(3, dtype=int)[[0, 2, 2, 1]]
    record = describe_dataset("h", labels=one_hot, classes=["a", "b", "c"])
    assert record["classes"] == {"a": 1, "b": 1, "c": 2}
    assert record["labels"]["form"] == "one column a class"
    assert describe_dataset("k", labels=np.array([[1], [2], [1]]))["classes"] == {"1": 2, "2": 1}
    masks = describe_dataset("m", labels=np.full((2, 4, 4), 3))
    assert masks["problems"] == ["no classes: labels of shape (2, 4, 4) are not counted; give one label a sample"]


def test_dropped_samples_are_counted_with_their_reasons():
    """A number or a mapping; anything else is said and left out."""
    assert describe_dataset("a", [1], dropped=3)["dropped"] == {"total": 3}
    record = describe_dataset("a", [1], dropped={"blank": 2, "duplicate": 5})
    assert record["dropped"] == {"total": 7, "reasons": {"blank": 2, "duplicate": 5}}
    for wrong in (-1, "many", {"blank": 1.5}, True):
        record = describe_dataset("a", [1], dropped=wrong)
        assert "dropped" not in record
        assert record["problems"] == [f"dropped={wrong!r} is neither a count nor a mapping of reasons to counts"]


def test_a_loader_tells_its_data_set_and_its_sampling(digits):
    """The loader is not iterated; its sampler and batch size are the sampling unless the user says otherwise."""
    data_set = TensorDataset(torch.from_numpy(digits.data), torch.from_numpy(digits.target))
    record = describe_dataset("train", DataLoader(data_set, batch_size=32, shuffle=True, drop_last=True))
    assert record["sampling"] == "RandomSampler, batches of 32, last incomplete batch left out"
    assert (record["size"], record["shape"]) == (1797, [64])
    assert record["classes"] == numpy_counts(digits.target)
    assert record["checksum"]["whole"]
    assert describe_dataset("train", DataLoader(data_set), sampling="by hand")["sampling"] == "by hand"


def test_a_subset_counts_its_own_samples_and_differs_by_its_indices(digits):
    """Size and classes are those of the chosen samples; the checksum covers data and choice."""
    data_set = TensorDataset(torch.from_numpy(digits.data), torch.from_numpy(digits.target))
    first, second = Subset(data_set, list(range(900))), Subset(data_set, range(900, 1797))
    records = [describe_dataset("s", one) for one in (first, second)]
    assert [record["size"] for record in records] == [900, 897]
    assert records[0]["classes"] == numpy_counts(digits.target[:900])
    assert records[1]["classes"] == numpy_counts(digits.target[900:])
    assert records[0]["checksum"]["value"] != records[1]["checksum"]["value"]
    both = describe_dataset("c", ConcatDataset([first, second]))
    assert both["size"] == 1797
    assert [part["size"] for part in both["parts"].values()] == [900, 897]


def test_splits_are_parts_with_records_of_their_own(digits):
    """A mapping of splits sums their sizes and takes labels by the same names."""
    record = describe_dataset(
        "digits",
        {"train": digits.data[:1000], "val": digits.data[1000:]},
        labels={"train": digits.target[:1000], "val": digits.target[1000:-1]},
    )
    assert record["size"] == 1797
    assert record["parts"]["train"]["classes"] == numpy_counts(digits.target[:1000])
    assert record["problems"] == ["val: 796 labels for 797 samples"]
    columns = describe_dataset("columns", {"pixels": digits.data, "digit": digits.target})
    assert "size" not in columns
    assert columns["parts"]["digit"]["size"] == 1797


def test_an_iterable_data_set_and_an_iterator_are_never_consumed():
    """What has no length says so and keeps all its items."""

    class Stream(IterableDataset):
        def __iter__(self):
            raise AssertionError("it was iterated")

    for stream in (Stream(), DataLoader(Stream(), batch_size=4)):
        record = describe_dataset("stream", stream)
        assert "size" not in record
        assert record["notes"][0] == "size unknown: Stream has no length, and is not read to find it"
        assert "problems" not in record
    items = iter([1, 2, 3])
    record = describe_dataset("items", items, labels=iter([0, 1]))
    assert list(items) == [1, 2, 3]
    assert record["problems"] == [
        "no classes: labels of type list_iterator are not counted; give a list, an array or a tensor"
    ]


def test_a_map_style_data_set_is_read_at_32_spread_items_at_most():
    """Form and checksum come from these; the first is read twice to see whether items repeat."""
    read: list[int] = []

    class Squares(Dataset):
        def __len__(self):
            return 1000

        def __getitem__(self, index):
            read.append(index)
            return torch.full((2, 3), index), index

    record = describe_dataset("squares", Squares())
    assert (record["size"], record["shape"], record["dtype"]) == (1000, [2, 3], "int64")
    assert record["checksum"]["whole"] is False
    assert record["checksum"]["how"] == "its length and 32 of 1000 items, evenly spaced"
    assert len(read) == 33
    assert {0, 999} <= set(read)
    assert describe_dataset("squares", Squares())["checksum"] == record["checksum"]


def test_random_transforms_have_no_checksum_and_leave_the_random_states_alone():
    """A run with telemetry draws the same random numbers as one without."""

    class Augmented(Dataset):
        def __len__(self):
            return 10

        def __getitem__(self, index):
            return torch.rand(2) + np.random.rand() + random.random()

    torch.manual_seed(1)
    np.random.seed(2)
    random.seed(3)
    expected = (torch.rand(1).item(), np.random.rand(), random.random())
    torch.manual_seed(1)
    np.random.seed(2)
    random.seed(3)
    record = describe_dataset("augmented", Augmented())
    assert (torch.rand(1).item(), np.random.rand(), random.random()) == expected
    assert record["notes"] == ["no checksum: its items differ from reading to reading (random transforms)"]
    assert record["shape"] == [2]


def test_slow_items_end_the_reading_after_two_seconds():
    """By the given clock; what was read by then is no checksum, since how far it came is chance."""
    now = [0]

    class Slow(Dataset):
        def __len__(self):
            return 100

        def __getitem__(self, index):
            now[0] += 300_000_000
            return index

    record = describe_dataset("slow", Slow(), mono_ns=lambda: now[0])
    assert "checksum" not in record
    assert record["notes"] == ["no checksum: 6 items took over 2 s to read"]


def test_a_data_set_that_raises_is_recorded_as_far_as_it_goes():
    """The user's data set may raise anything; the record says it and nothing escapes."""

    class Broken:
        def __len__(self):
            raise RuntimeError("no connection")

        def __getitem__(self, index):
            raise KeyError(index)

    record = describe_dataset("broken", Broken())
    assert record["problems"] == ["size unknown: its length raised RuntimeError: no connection"]

    class Unreadable(Broken):
        def __len__(self):
            return 3

    assert describe_dataset("unreadable", Unreadable())["notes"] == ["no checksum: KeyError: 0"]
    assert describe_dataset(3, object())["name"] == "3"


def test_files_are_listed_with_their_checksums_now_or_later(tmp_path):
    """The same value as hashlib's; put off, the record is marked and completed by a second call."""
    path = tmp_path / "digits.csv"
    path.write_text("1,2,3\n")
    expected = hashlib.sha256(b"1,2,3\n").hexdigest()
    record = describe_dataset("digits", path)
    assert record["files"][0]["checksum"]["value"] == expected
    later = describe_dataset("digits", [[1]], path="digits.csv", base=tmp_path, hash_now=False)
    assert later["pending"] is True
    assert "checksum" not in later["files"][0]
    completed = add_checksums(later)
    assert completed["files"][0]["checksum"]["value"] == expected
    assert completed["files"][0]["path"] == "digits.csv"
    assert "pending" not in completed
    assert later["pending"] is True


def test_a_missing_file_is_said_and_not_raised(tmp_path):
    """The record names the file and the reason."""
    record = describe_dataset("digits", path=tmp_path / "nothing.csv")
    assert record["problems"] == [f"{tmp_path / 'nothing.csv'}: cannot be read: No such file or directory"]


def test_lists_of_paths_are_files_and_lists_of_texts_are_samples(tmp_path):
    """Texts count as paths only where such files exist."""
    paths = []
    for number in range(3):
        path = tmp_path / f"{number}.txt"
        path.write_text(str(number))
        paths.append(path)
    record = describe_dataset("images", paths)
    assert (record["size"], len(record["files"])) == (3, 3)
    assert describe_dataset("images", [str(path) for path in paths])["files"] == record["files"]
    texts = describe_dataset("texts", ["good film", "bad film"], labels=[1, 0])
    assert "files" not in texts
    assert texts["size"] == 2
    assert texts["checksum"]["whole"]


def test_very_many_paths_are_one_entry_with_all_names_and_some_contents(tmp_path):
    """Bounded: 32 files are read; a changed first file or a renamed one shows."""
    paths = []
    for number in range(1100):
        path = tmp_path / f"{number:04}.txt"
        path.write_text(str(number))
        paths.append(path)
    entry = describe_dataset("images", paths)["files"][0]
    assert (entry["kind"], entry["files"], entry["path"]) == ("list", 1100, str(tmp_path))
    assert entry["checksum"]["whole"] is False
    paths[0].write_text("changed")
    assert describe_dataset("images", paths)["files"][0]["checksum"]["value"] != entry["checksum"]["value"]


class Column:
    """A column as pandas has them: to_numpy, dtype, length."""

    def __init__(self, values):
        self.values = np.asarray(values)
        self.dtype = self.values.dtype

    def __len__(self):
        return len(self.values)

    def to_numpy(self):
        return self.values


class Table:
    """A table as pandas has them: columns, dtypes, shape, items by name."""

    def __init__(self, **columns):
        self._columns = {name: Column(values) for name, values in columns.items()}
        self.columns = list(columns)
        self.dtypes = {name: column.dtype for name, column in self._columns.items()}
        self.shape = (len(next(iter(self._columns.values()))), len(columns))

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, name):
        return self._columns[name]


def test_tables_are_read_by_their_columns():
    """Columns with dtypes, classes of a column, a checksum over all columns."""
    table = Table(height=[1.0, 2.0, 3.0], kind=np.array(["a", "b", "a"], dtype=object))
    record = describe_dataset("table", table, labels=table["kind"])
    assert record["columns"] == {"height": "float64", "kind": "object"}
    assert record["size"] == 3
    assert record["classes"] == {"a": 2, "b": 1}
    other = Table(height=[1.0, 2.0, 4.0], kind=np.array(["a", "b", "a"], dtype=object))
    assert describe_dataset("table", other)["checksum"]["value"] != record["checksum"]["value"]


def test_a_library_with_fingerprints_of_its_own_is_taken_at_its_word():
    """Nothing is read, and the checksum says whose it is."""

    class Fingerprinted:
        _fingerprint = "c0ffee"

        def __len__(self):
            return 5

        def __getitem__(self, index):
            raise AssertionError("it was read")

    checksum = describe_dataset("hub", Fingerprinted())["checksum"]
    assert (checksum["algorithm"], checksum["value"], checksum["whole"]) == ("fingerprint", "c0ffee", False)


def test_torchvision_like_data_sets_bring_labels_and_names_of_classes():
    """`data`, `targets` and `classes` are what such data sets carry."""

    class Clothes(Dataset):
        data = torch.arange(24, dtype=torch.uint8).reshape(6, 2, 2)
        targets = torch.tensor([0, 1, 1, 0, 1, 1])
        classes = ("shirt", "shoe")

        def __len__(self):
            return 6

        def __getitem__(self, index):
            raise AssertionError("no item needs to be read")

    record = describe_dataset("clothes", Clothes())
    assert record["classes"] == {"shirt": 2, "shoe": 4}
    assert (record["shape"], record["dtype"], record["labels"]["from"]) == ([2, 2], "uint8", "targets")
    assert record["checksum"]["how"] == "its data and targets"


def test_tensors_are_counted_without_numpy_too(monkeypatch):
    """The library is no dependency of torch; where it is not loaded, torch counts."""
    labels = torch.tensor([2, 0, 2, 2])
    targets = torch.tensor([0.5, 1.5, math.inf])
    with monkeypatch.context() as patched:
        patched.delitem(sys.modules, "numpy")
        record = describe_dataset("d", torch.zeros(4, 2), labels=labels)
        floats = describe_dataset("f", labels=targets)
        matrix = describe_dataset("m", labels=torch.zeros(2, 2, dtype=torch.long))
    assert record["classes"] == {"0": 1, "2": 3}
    assert "checksum" in record
    assert (floats["labels"]["min"], floats["labels"]["mean"], floats["labels"]["max"]) == (0.5, 1.0, 1.5)
    assert floats["labels"]["nonfinite"] == 1
    assert matrix["problems"] == ["no classes: labels of shape (2, 2) are not counted; give one label a sample"]


def test_labels_that_cannot_be_counted_say_why():
    """Mixed, complex, single and foreign labels are left out with the reason; the record stays."""
    reasons = {
        "labels mix texts and floats": ["a", 0.5],
        "labels of dtype complex128 are not counted": np.array([1j]),
        "labels are one single value": np.array(3),
        "labels of type object are not counted": [object()],
    }
    for reason, labels in reasons.items():
        record = describe_dataset("odd", labels=labels)
        assert record["problems"] == [f"no classes: {reason}"]
    assert describe_dataset("empty", labels=[])["class_count"] == 0
    assert describe_dataset("half", labels=torch.tensor([0.5, 1.5], dtype=torch.bfloat16))["labels"]["mean"] == 1.0
    assert describe_dataset("bytes", labels=[b"a", b"b", b"a"])["classes"] == {"a": 2, "b": 1}
