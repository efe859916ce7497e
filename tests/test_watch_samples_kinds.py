"""The forms in which a batch may come, and what is found in each: pictures, arrays, texts, token ids, tables."""

from __future__ import annotations

import csv
import json
import math
import statistics
from collections import UserDict
from typing import Any

import numpy as np
import pytest
import torch

from otel_train.watch.samples_batch import Found, find
from otel_train.watch.samples_plain import PlainSpread, TableSpread, measure_lists, measure_table
from tests.test_watch_samples import events, points, read_back


class Picture:
    """As much of an image of Pillow as a check asks of it."""

    def __init__(self, mode: str, width: int, height: int, data: bytes) -> None:
        self.mode, self.size, self._data = mode, (width, height), data

    def getbands(self) -> tuple[str, ...]:
        return tuple(self.mode)

    def tobytes(self) -> bytes:
        return self._data

    def convert(self, mode: str) -> Picture:
        assert (self.mode, mode) == ("P", "RGB")
        return Picture("RGB", *self.size, bytes(value for index in self._data for value in (index, 0, 0)))


class Frame:
    """As much of a data frame of pandas as a check asks of it."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self._columns = columns
        self.columns = list(columns)
        self.iloc = self

    def itertuples(self) -> Any:
        return zip(*self._columns.values(), strict=True)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, place: Any) -> Any:
        rows, columns = place
        if isinstance(columns, int):
            return np.array(self._columns[self.columns[columns]], dtype=object)[rows]
        return Frame({name: self._columns[name][rows] for name in self.columns[columns]})


HF = UserDict(pixel_values=torch.rand(4, 3, 8, 8), labels=torch.arange(4))
LM = UserDict(input_ids=torch.ones(4, 9, dtype=torch.int64), labels=torch.ones(4, 9, dtype=torch.int64))
RGB = Picture("RGB", 3, 2, bytes(range(18)))


@pytest.mark.parametrize(
    ("batch", "kind", "size", "labels"),
    [
        (torch.rand(4, 3, 8, 8), "image", 4, False),
        (np.zeros((4, 8, 8, 3), np.uint8), "image", 4, False),
        (np.zeros((4, 8, 8), np.uint8), "image", 4, False),
        (torch.rand(4, 28, 28), "array", 4, False),
        (torch.rand(4, 5), "array", 4, False),
        (torch.rand(4), "array", 4, False),
        (torch.ones(4, 9, dtype=torch.int64), "tokens", 4, False),
        ((torch.rand(4, 3, 8, 8), torch.arange(4)), "image", 4, True),
        ([torch.rand(4, 3, 8, 8), torch.arange(4)], "image", 4, True),
        ([torch.rand(4, 3, 8, 8)], "image", 4, False),
        ((torch.rand(4, 3, 8, 8), torch.rand(4, 1, 8, 8)), "image", 4, False),
        ((torch.rand(4, 7), torch.rand(4, 7)), "array", 4, False),
        ((["a", "b"], torch.arange(2)), "text", 2, True),
        ([torch.rand(3, 8, 8), torch.rand(3, 9, 9), torch.rand(3, 7, 7)], "image", 3, False),
        (((torch.rand(3, 8, 8), torch.rand(3, 9, 9)), ({"boxes": 1}, {"boxes": 2})), "image", 2, False),
        (HF, "image", 4, True),
        (LM, "tokens", 4, False),
        ({"image": [RGB, RGB], "label": [1, 2]}, "image", 2, True),
        ({"x": torch.rand(4, 5), "y": torch.arange(4)}, "array", 4, True),
        ({"signal": torch.rand(4, 5, 6)}, "array", 4, False),
        ({"age": [1, 2, 3], "city": ["a", "b", "c"]}, "table", 3, False),
        ({"age": torch.arange(3), "income": np.arange(3.0)}, "table", 3, False),
        ([{"age": 1, "label": 0}, {"age": 2, "label": 1}], "table", 2, True),
        (
            [{"pixel_values": torch.rand(3, 8, 8), "label": 7}, {"pixel_values": torch.rand(3, 8, 8), "label": 8}],
            "image",
            2,
            True,
        ),
        ([{"image": RGB}, {"image": RGB}], "image", 2, False),
        (Frame({"age": [1, 2], "target": [0, 1]}), "table", 2, True),
        (["a", None, "c"], "text", 3, False),
        (("a", "b"), "text", 2, False),
        (np.array(["a", "b"]), "text", 2, False),
        ([[1, 2, 3], [4, 5]], "tokens", 2, False),
        ([RGB, RGB, RGB], "image", 3, False),
    ],
    ids=lambda value: None,
)
def test_what_a_batch_holds_is_found_out(batch: Any, kind: str, size: int, labels: bool) -> None:
    """Kind, number of samples, and whether labels of single samples are among it."""
    found = find(batch, None, None)
    assert isinstance(found, Found), found
    assert (found.kind, found.size, found.labels is not None) == (kind, size, labels)


@pytest.mark.parametrize(
    ("batch", "kind"),
    [
        (torch.rand(4, 5), "text"),
        (torch.rand(4, 5), "table"),
        (torch.rand(4, 5), "tokens"),
        (["a", "b"], "image"),
        (["a", "b"], "table"),
        ([{"a": 1}], "image"),
        ([[1, 2], [3]], "array"),
    ],
    ids=lambda value: None,
)
def test_a_kind_that_does_not_fit_is_said(batch: Any, kind: str) -> None:
    """A sentence that names the kind, in place of a fault."""
    found = find(batch, None, kind)
    assert isinstance(found, str)
    assert repr(kind) in found


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (lambda: torch.zeros(2, 3, device="meta"), "a tensor that is meta is not checked"),
        (
            lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
            "a tensor that is nested is not checked",
        ),
        (lambda: np.zeros((2, 3), dtype=np.longdouble), f"an array of {np.dtype(np.longdouble)} is not checked"),
    ],
    ids=["meta", "nested", "longdouble"],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_numbers_that_cannot_be_read_are_said(batch: Any, said: str) -> None:
    """A sentence, in place of a fault: of no value, of no common shape, of no number that Python has."""
    if np.dtype(np.longdouble).itemsize == 8:
        pytest.skip("long doubles are doubles here")
    assert find(batch(), None, None) == said


def test_texts_are_measured_by_their_lengths() -> None:
    """Nine texts: two equal pairs, two empty ones, one of spaces, one of one letter, one missing."""
    texts = ["hello", "hello", "", "", "aaa", "  ", "a longer one", None, "last"]
    found = measure_lists(texts, PlainSpread(), None)
    lengths = [len(text) for text in texts if text is not None]
    assert found.values["mean"] == statistics.fmean(lengths)
    assert found.values["std"] == pytest.approx(statistics.pstdev(lengths))
    assert found.values["duplicate"] == 4 / 9
    assert found.values["constant"] == 4 / 9
    assert found.values["nonfinite"] == 1 / 9
    assert found.values["saturated"] == 3 / 8  # two of length 0, one of the greatest
    assert found.more == {"empty": 3 / 9, "range": [0.0, 12.0]}


def test_texts_drift_by_their_lengths() -> None:
    """The same lengths are no drift; lengths that never were are all of it."""
    spread = PlainSpread()
    short, long = ["x" * length for length in range(10, 30)], ["x" * length for length in range(100, 120)]
    assert measure_lists(short, spread, None).drift is None
    assert measure_lists(short, spread, None).drift == pytest.approx(0.0)
    assert measure_lists(long, spread, None).drift == pytest.approx(1.0)


def test_tables_are_measured_by_rows_and_columns() -> None:
    """Four rows: one with a missing cell, one with NaN, two equal; two constant columns of five."""
    columns = {
        "age": [30, 41, 30, 30],
        "income": [1.0, math.nan, 2.0, 1.0],
        "city": ["Ulm", "Bonn", None, "Ulm"],
        "country": ["DE"] * 4,
        "empty": [None] * 4,
    }
    found = measure_table({name: cells for name, cells in columns.items() if name != "empty"}, 4, TableSpread())
    assert found.values == {"nonfinite": 2 / 4, "constant": 1 / 4, "duplicate": 2 / 4}
    assert found.more["missing_cells"] == 2 / 16
    assert found.more["constant_columns"] == ["country"]
    whole = measure_table(columns, 4, TableSpread())
    assert whole.values["constant"] == 2 / 5
    assert whole.values["nonfinite"] == 1.0


def test_a_table_drifts_by_its_worst_column() -> None:
    """One of three columns moves; its name is in the event."""
    spread, random = TableSpread(), np.random.default_rng(2)

    def table(shift: float) -> dict[str, list[Any]]:
        return {
            "a": random.normal(size=400).tolist(),
            "b": (random.normal(size=400) + shift).tolist(),
            "c": random.choice(["x", "y"], size=400).tolist(),
        }

    assert measure_table(table(0), 400, spread).drift is None
    assert measure_table(table(0), 400, spread).drift < 0.05
    moved = measure_table(table(4), 400, spread)
    assert moved.more["drift_column"] == "b"
    assert moved.drift > 0.7


def test_kept_texts_and_rows_hide_secrets(start: Any) -> None:
    """Texts pass the run's redactor, cells too, by their column's name as well."""
    run = start()
    run.check_samples(["say api_key=abcdef123456", "plain"], every=1)
    rows = [
        {"user": "ann", "password": "hunter2", "note": "token: abcdef99"},
        {"user": "bob", "password": "x", "note": None},
    ]
    run.check_samples(rows, every=1, split="val")
    path = run.path
    run.finish()
    found = read_back(path)
    files = events(found)[0]["files"]
    assert [(path / name).read_text() for name in files] == ["say api_key=[redacted]", "plain"]
    (name,) = events(found, "val")[0]["files"]
    table = list(csv.reader((path / name).read_text().splitlines()))
    assert table == [
        ["row", "user", "password", "note"],
        ["1", "bob", "[redacted]", ""],
        ["0", "ann", "[redacted]", "token: [redacted]"],
    ]
    assert "hunter2" not in "".join(file.read_text() for file in path.rglob("*.json"))


def test_token_ids_become_text_where_the_user_says_how(start: Any) -> None:
    """Without `decode` ids as numbers, padding left out; a decoder that fails is said, and the ids stand."""
    run = start()
    ids = torch.tensor([[4, 5, 6, 0], [7, 8, 9, 1]])
    batch = {"input_ids": ids, "attention_mask": (ids > 0).long()}
    run.check_samples(batch, every=1)
    run.check_samples(batch, every=1, split="val", decode=lambda ids: "-".join(f"w{number}" for number in ids))
    run.check_samples([[1, 2], [3, 4, 5]], every=1, split="test", decode=lambda ids: {}[0])
    path = run.path
    run.finish()
    found = read_back(path)

    def kept(split: str) -> list[str]:
        return [(path / name).read_text() for name in events(found, split)[0]["files"]]

    assert kept("train") == ["4 5 6", "7 8 9 1"]
    assert kept("val") == ["w4-w5-w6", "w7-w8-w9-w1"]
    assert kept("test") == ["1 2", "3 4 5"]
    assert points(found, "dl.samples.mean") == {0: 3.5}
    assert points(found, "dl.samples.mean", split="test") == {0: 2.5}


def test_pictures_of_different_shapes_are_one_batch(start: Any) -> None:
    """Each value counts once; a constant one, one with NaN and two equal ones among five."""
    run = start()
    random = torch.Generator().manual_seed(6)
    batch = [torch.rand(3, 8, width, generator=random) for width in (8, 9, 8, 10, 8)]
    batch[1].fill_(0.5)
    batch[2] = batch[0].clone()
    batch[3][0, 0, 0] = math.nan
    run.check_samples(batch, every=1, value_range=(0, 1))
    path = run.path
    run.finish()
    found = read_back(path)
    values = [value for image in batch for value in image.reshape(-1).tolist() if math.isfinite(value)]
    assert points(found, "dl.samples.mean")[0] == pytest.approx(statistics.fmean(values), rel=1e-6)
    assert points(found, "dl.samples.std")[0] == pytest.approx(statistics.pstdev(values), rel=1e-6)
    (event,) = events(found)
    assert (event["constant"], event["nonfinite"], event["duplicate"], event["samples"]) == (0.2, 0.2, 0.4, 5)
    described = json.loads((path / event["files"][0]).with_name("check.json").read_text())
    assert [one["row"] for one in described["kept"]] == [3, 1, 0, 2]


def test_images_of_pillow_are_read_whole(start: Any) -> None:
    """Mean over RGB, over grey, and over a palette, which becomes RGB; the kept files have the same pixels."""
    run = start()
    run.check_samples([RGB, Picture("RGB", 3, 2, bytes(18))], every=1)
    run.check_samples([Picture("L", 2, 2, bytes([0, 10, 20, 255]))], every=1, split="val")
    run.check_samples([Picture("P", 1, 2, bytes([9, 60]))], every=1, split="test")
    path = run.path
    run.finish()
    found = read_back(path)
    assert points(found, "dl.samples.mean") == {0: sum(range(18)) / 36}
    assert points(found, "dl.samples.mean", split="val") == {0: 285 / 4}
    assert points(found, "dl.samples.saturated", split="val") == {0: 2 / 4}
    assert points(found, "dl.samples.mean", split="test") == {0: 69 / 6}


def test_only_so_much_of_a_whole_data_set_is_looked_at(start: Any) -> None:
    """Of 20,000 rows the first 16,384 are measured; labels for all of them are accepted."""
    run = start()
    rows = np.concatenate((np.zeros((16_384, 2)), np.ones((3_616, 2))))
    run.check_samples(rows, labels=np.arange(20_000) % 3, every=1)
    path = run.path
    run.finish()
    found = read_back(path)
    assert points(found, "dl.samples.mean") == {0: 0.0}
    assert events(found)[0]["samples"] == 16_384
