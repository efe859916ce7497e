"""Checks of samples in a run: every value of batches with planted faults, against a computation that is not ours."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.datasets
import torch
from scipy.spatial.distance import jensenshannon

from otel_train.clock import wall_ns
from otel_train.errors import ConfigError
from otel_train.view.reading import read_run
from otel_train.view.run_data import RunData

SHIFTED_FROM = 8
CHECKS = 12


def read_back(path: Path) -> RunData:
    return read_run(path, wall_ns())


def points(run: RunData, name: str, split: str = "train", **attributes: str) -> dict[int, float]:
    """Return the values of one metric by step."""
    for item in run.series():
        series = item.series
        rest = {key: value for key, value in series.attributes if key != "split"}
        if series.name == name and series.split == split and rest == attributes:
            return {int(step): value for step, value in zip(series.steps, series.values, strict=True)}
    return {}


def events(run: RunData, split: str = "train") -> list[dict[str, Any]]:
    """Return the attributes of the checks' events, by time."""
    rows = [row.entry for row in run.logs.rows() if row.entry.event_name == "samples.checked"]
    return [dict(entry.attributes) for entry in rows if entry.attributes["split"] == split]


def digits(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return batches (32, 1, 8, 8) of the handwritten digits with faults; from one on darker, and mostly of class 7."""
    images, labels = sklearn.datasets.load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    order = np.random.default_rng(3).permutation(len(images))
    batches = []
    for number in range(count):
        rows = order[number * 32 : number * 32 + 32]
        if number >= SHIFTED_FROM:
            rows = np.concatenate((order[np.isin(order, np.flatnonzero(labels == 7))][:24], rows[:8]))
        batch, target = images[rows].copy(), labels[rows]
        if number >= SHIFTED_FROM:
            batch = (batch * 0.6).astype(np.float32)
        batch[4, 0, 2:4] = 1.0  # saturated
        batch[7] = 0.25  # constant
        batch[9, 0, 5, 5] = np.nan
        batch[11, 0, 0, 0] = np.inf
        batch[20] = batch[21] = batch[3]  # three equal ones
        batches.append((torch.from_numpy(batch), torch.from_numpy(target)))
    return batches


@pytest.fixture(scope="module")
def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return digits(CHECKS)


@pytest.fixture
def checked(start: Any, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> RunData:
    """A run that has checked every batch, at steps 0 to 11."""
    run = start()
    for images, labels in run.steps(batches):
        run.check_samples(images, labels=labels, every=1, value_range=(0, 1), classes=10, keep=4)
    path = run.path
    run.finish()
    return read_back(path)


def flat(images: torch.Tensor) -> list[list[float]]:
    return [[float(value) for value in image.reshape(-1)] for image in images]


def test_moments_are_of_the_finite_values(checked: RunData, batches: list[Any]) -> None:
    """Mean and deviation by Python's own statistics, NaN and infinity left out."""
    means, deviations = points(checked, "dl.samples.mean"), points(checked, "dl.samples.std")
    assert sorted(means) == list(range(CHECKS))
    for step, (images, _) in enumerate(batches):
        finite = [value for row in flat(images) for value in row if math.isfinite(value)]
        assert means[step] == pytest.approx(math.fsum(finite) / len(finite), rel=1e-12)
        assert deviations[step] == pytest.approx(statistics.pstdev(finite), rel=1e-12)


def test_ends_constant_nonfinite_and_equal_samples_are_counted(checked: RunData, batches: list[Any]) -> None:
    """Two of 32 are not finite, one is constant, four are alike; the ends are counted one by one."""
    saturated = points(checked, "dl.samples.saturated")
    for step, (images, _) in enumerate(batches):
        rows = flat(images)
        ends = sum(value <= 0 or value >= 1 for row in rows for value in row)
        assert saturated[step] == ends / 2048
        assert points(checked, "dl.samples.nonfinite")[step] == 2 / 32
        assert points(checked, "dl.samples.constant")[step] == sum(len(set(row)) == 1 for row in rows) / 32 == 1 / 32
        duplicates = sum(rows.count(row) > 1 for row in rows if not any(map(math.isnan, row)))
        assert points(checked, "dl.samples.duplicate")[step] == duplicates / 32
    assert points(checked, "dl.samples.duplicate")[0] == 3 / 32


def bins(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    return np.bincount(np.searchsorted(edges, values, side="left"), minlength=len(edges) + 1)


def test_drift_is_the_divergence_from_the_first_five_checks(checked: RunData, batches: list[Any]) -> None:
    """By SciPy's distance over bins that NumPy makes; the first check has nothing to differ from."""
    values = [images.numpy()[np.isfinite(images.numpy())].astype(float) for images, _ in batches]
    first = values[0]
    tenths = np.arange(1, 10) / 10
    even = first.min() + (first.max() - first.min()) * tenths
    ends = [np.nextafter(np.float32(first.min()), np.float32(-1)), first.max()]
    edges = np.sort(np.concatenate((ends, np.quantile(first, tenths, method="lower"), even))).astype(np.float32)
    drift = points(checked, "dl.samples.drift")
    assert sorted(drift) == list(range(1, CHECKS))
    for step in range(1, CHECKS):
        window = sum(bins(part, edges) for part in values[: min(step, 5)])
        expected = jensenshannon(bins(values[step], edges), window, base=2) ** 2
        assert drift[step] == pytest.approx(expected, rel=1e-9, abs=1e-12)
    usual = max(drift[step] for step in range(1, SHIFTED_FROM))
    assert usual < 0.02
    assert min(drift[step] for step in range(SHIFTED_FROM, CHECKS)) > 0.1 > 5 * usual


def test_classes_have_their_shares_also_where_none_is_left(checked: RunData, batches: list[Any]) -> None:
    """All ten from the start; class 7 has three quarters of the batch in the end, and the drift says so."""
    for step, (_, labels) in enumerate(batches):
        listed = labels.tolist()
        for label in range(10):
            share = points(checked, "dl.samples.class.share", **{"class": str(label)})[step]
            assert share == pytest.approx(listed.count(label) / 32)
    drift = points(checked, "dl.samples.class.drift")
    assert max(drift[step] for step in range(1, SHIFTED_FROM)) < 0.1
    assert min(drift[step] for step in range(SHIFTED_FROM, CHECKS)) > 0.2


def test_the_event_names_values_and_files(checked: RunData) -> None:
    """Each check is an event at its step; the worst samples are kept: two not finite, the constant, a duplicate."""
    found = events(checked)
    assert [one["dl.step"] for one in found] == list(range(CHECKS))
    last = found[-1]
    assert (last["kind"], last["samples"], last["nonfinite"], last["range"]) == ("image", 32, 2 / 32, [0.0, 1.0])
    assert last["files"] == [f"artifacts/samples/train/step-000000011/{number}.png" for number in range(4)]
    described = json.loads((checked.path / last["files"][0]).with_name("check.json").read_text())
    kept = [(one["row"], one["faults"]) for one in described["kept"]]
    assert kept == [(9, ["non-finite"]), (11, ["non-finite"]), (7, ["constant"]), (3, ["duplicate"])]
    assert all((checked.path / name).is_file() for name in last["files"])


def test_the_first_check_and_the_newest_nine_are_kept(checked: RunData) -> None:
    """Of twelve checks those of steps 1 and 2 gave way."""
    names = sorted(folder.name for folder in (checked.path / "artifacts/samples/train").iterdir())
    assert names == [f"step-{step:09d}" for step in (0, *range(3, 12))]


def test_one_call_in_so_many_is_a_check(start: Any) -> None:
    """Calls 0, 3 and 6 of each split: the splits count by themselves."""
    run = start()
    for step in range(8):
        run.log({"loss": 1.0}, step=step)
        run.check_samples(torch.full((2, 3), float(step)), every=3)
        if step % 2:
            run.check_samples(torch.zeros(2, 3), every=3, split="valid")
    path = run.path
    run.finish()
    found = read_back(path)
    assert points(found, "dl.samples.mean") == {0: 0.0, 3: 3.0, 6: 6.0}
    assert list(points(found, "dl.samples.mean", split="val")) == [1, 7]


def test_without_a_range_its_ends_are_those_of_the_first_five_checks(start: Any) -> None:
    """Batches whose range grows: in the window each counts against the range so far, then against the window's."""
    run = start()
    for step in range(8):
        run.log({"loss": 1.0}, step=step)
        run.check_samples(torch.tensor([[0.0, 1.0, 2.0, step + 3.0]]), every=1)
    path = run.path
    run.finish()
    saturated = points(read_back(path), "dl.samples.saturated")
    # Least and greatest of each batch are at the ends; from step 5 on the greatest lies beyond 7.
    assert saturated == dict.fromkeys(range(8), 0.5)
    run = start()
    for step, top in enumerate([8.0, 4.0, 4.0, 4.0, 4.0, 4.0, 9.0]):
        run.log({"loss": 1.0}, step=step)
        run.check_samples(torch.tensor([[0.0, 1.0, 2.0, top]]), every=1)
    path = run.path
    run.finish()
    saturated = points(read_back(path), "dl.samples.saturated")
    assert saturated == {0: 0.5, 1: 0.25, 2: 0.25, 3: 0.25, 4: 0.25, 5: 0.25, 6: 0.5}


def test_eight_bit_values_have_their_range(start: Any) -> None:
    """Of 0 and 255 each counts, whatever the batch holds."""
    run = start()
    pixels = np.full((2, 4, 4, 3), 100, np.uint8)
    pixels[0, 0] = 255
    pixels[1, 0, 0, 0] = 0
    run.check_samples(pixels, every=1)
    path = run.path
    run.finish()
    found = read_back(path)
    assert points(found, "dl.samples.saturated") == {0: 13 / 96}
    assert events(found)[0]["range"] == [0.0, 255.0]


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("every", {"every": 0}),
        ("every", {"every": -3}),
        ("every", {"every": 2.5}),
        ("keep", {"keep": -1}),
        ("keep", {"keep": 33}),
        ("kind", {"kind": "video"}),
        ("split", {"split": ""}),
        ("value_range", {"value_range": (1, 0)}),
        ("value_range", {"value_range": 5}),
        ("value_range", {"value_range": (0, math.nan)}),
        ("classes", {"classes": 0}),
        ("classes", {"classes": "abc"}),
        ("decode", {"decode": "utf-8"}),
        ("labels", {"labels": torch.zeros(3, dtype=torch.int64)}),
        ("labels", {"labels": [1, 2, 3, 4, 5]}),
        ("labels", {"labels": 4}),
    ],
)
def test_wrong_arguments_are_refused_at_the_call(start: Any, field: str, arguments: dict[str, Any]) -> None:
    """The error names the field and the fix; a later right call works."""
    run = start()
    with pytest.raises(ConfigError) as caught:
        run.check_samples(torch.rand(4, 5), **arguments)
    assert caught.value.field == field
    run.check_samples(torch.rand(4, 5), every=1)
    path = run.path
    run.finish()
    assert list(points(read_back(path), "dl.samples.mean")) == [0]


def test_wrong_labels_are_refused_in_production_too(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard that swallows our faults lets the user's through."""
    run = start()
    monkeypatch.setattr(run.guard, "_raises", False)
    with pytest.raises(ConfigError):
        run.check_samples(torch.rand(4, 5), labels=[1, 2])
    run.finish()


@pytest.mark.parametrize(
    "batch",
    [
        None,
        7,
        object(),
        "a text",
        torch.tensor(3.0),
        torch.zeros(0, 3),
        torch.zeros(3, 0),
        [torch.zeros(3, 0, 2)] * 3,
        [],
        {},
        {"a": 1},
        iter([1]),
        [object()],
    ],
    ids=lambda value: repr(value).partition(" at 0x")[0],
)
def test_a_batch_that_cannot_be_checked_is_said_once(start: Any, batch: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Training goes on; the log has one line for two calls."""
    run = start()
    with caplog.at_level("WARNING", logger="otel_train"):
        run.check_samples(batch, every=1)
        run.check_samples(batch, every=1)
    path = run.path
    run.finish()
    assert len([record for record in caplog.records if "check_samples" in record.message]) == 1
    assert events(read_back(path)) == []


def test_a_batch_without_any_finite_value_has_no_mean(start: Any) -> None:
    """All NaN: no mean, no range, no drift, but the share that says why; the next batch sets the bins."""
    run = start()
    for step, value in enumerate([math.nan, 1.0, 1.0]):
        run.log({"loss": 1.0}, step=step)
        run.check_samples(torch.arange(8.0).reshape(2, 4) * value, every=1)
    path = run.path
    run.finish()
    found = read_back(path)
    assert points(found, "dl.samples.nonfinite")[0] == 1.0
    assert 0 not in points(found, "dl.samples.mean")
    assert 0 not in points(found, "dl.samples.saturated")
    assert points(found, "dl.samples.drift") == {2: 0.0}


def test_more_classes_than_a_hundred_end_in_other(start: Any) -> None:
    """The hundred most frequent of the first batch keep their names: 300 samples of 150 classes, some twice."""
    run = start()
    labels = [*range(150), *range(100), *range(50)]
    run.check_samples(torch.rand(300, 2), labels=labels, every=1)
    path = run.path
    run.finish()
    found = read_back(path)
    shares = {
        str(item.series.attribute("class")): item.series.values[0]
        for item in found.series()
        if item.series.name == "dl.samples.class.share"
    }
    assert len(shares) == 101
    assert (shares["0"], shares["99"], shares["other"]) == (3 / 300, 2 / 300, 50 / 300)
    assert math.fsum(shares.values()) == pytest.approx(1.0)


def test_class_names_come_from_the_user(start: Any) -> None:
    """A list by number, a mapping by label; secrets in them are hidden as everywhere."""
    run = start()
    run.check_samples(torch.rand(4, 2), labels=[0, 1, 1, 1], classes=["cat", "dog", "owl"], every=1)
    run.check_samples(
        torch.rand(4, 2), labels=["x", "y", "y", "y"], classes={"x": "token=abcdef1234"}, every=1, split="val"
    )
    path = run.path
    run.finish()
    found = read_back(path)
    assert events(found)[0]["class_shares"] == {"cat": 0.25, "dog": 0.75, "owl": 0.0}
    assert events(found, "val")[0]["class_shares"] == {"token=[redacted]": 0.25, "y": 0.75}


def test_quantities_are_no_classes(start: Any) -> None:
    """Targets of a regression give no shares; soft labels give theirs; 0.0 and 1.0 are classes."""
    run = start()
    run.check_samples((torch.rand(3, 2), torch.tensor([0.5, 1.25, 3.0])), every=1)
    run.check_samples(torch.rand(2, 2), labels=torch.tensor([[0.25, 0.75], [1.0, 0.0]]), every=1, split="val")
    run.check_samples((torch.rand(2, 2), torch.tensor([0.0, 1.0])), every=1, split="test")
    path = run.path
    run.finish()
    found = read_back(path)
    assert "class_shares" not in events(found)[0]
    assert events(found, "val")[0]["class_shares"] == {"0": 0.625, "1": 0.375}
    assert events(found, "test")[0]["class_shares"] == {"0": 0.5, "1": 0.5}


def test_the_batch_may_be_overwritten_after_the_call(start: Any) -> None:
    """What was checked is what was in it at the call, also in the kept files."""
    run = start()
    batch = torch.full((2, 3), 2.0)
    texts = ["one", "two"]
    run.check_samples(batch, every=1)
    run.check_samples(texts, every=1, split="val")
    batch.fill_(9.0)
    texts[:] = ["", ""]
    path = run.path
    run.finish()
    found = read_back(path)
    assert points(found, "dl.samples.mean") == {0: 2.0}
    assert json.loads((path / events(found)[0]["files"][0]).read_text()) == [2.0, 2.0, 2.0]
    assert (path / events(found, "val")[0]["files"][0]).read_text() == "one"


def test_random_states_and_gradients_are_left_alone(start: Any) -> None:
    """The next random numbers are the same with and without a check; the batch keeps its gradient function."""
    run = start()
    torch.manual_seed(5)
    np.random.seed(5)
    batch = (torch.rand(4, 6, requires_grad=True) * 2).requires_grad_()
    expected = torch.get_rng_state(), np.random.get_state()[1].copy()
    run.check_samples((batch, torch.arange(4)), every=1)
    assert torch.equal(torch.get_rng_state(), expected[0])
    assert np.array_equal(np.random.get_state()[1], expected[1])
    assert batch.grad_fn is not None
    run.finish()


def test_without_a_folder_values_are_recorded_and_no_file(start: Any, tmp_path: Path, caplog: Any) -> None:
    """`dir=False`: nothing is written anywhere, which is said once."""
    run = start(dir=False, endpoint="http://127.0.0.1:9")
    with caplog.at_level("WARNING", logger="otel_train"):
        for _ in range(3):
            run.check_samples(torch.rand(2, 3), every=1)
        run.session.flush(2.0, send=False)
    run.finish()
    assert len([record for record in caplog.records if "keeps no samples" in record.message]) == 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_nothing_is_kept_where_nothing_is_asked_for(start: Any) -> None:
    """`keep=0` records the values alone."""
    run = start()
    run.check_samples(torch.rand(2, 3), every=1, keep=0)
    path = run.path
    run.finish()
    assert "files" not in events(read_back(path))[0]
    assert not (path / "artifacts/samples").exists()


def test_a_full_disk_costs_the_files_alone(start: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A folder that cannot be made: the values stand, the loss is said once."""
    run = start()
    (run.path / "artifacts").mkdir(exist_ok=True)
    (run.path / "artifacts" / "samples").write_text("in the way")
    with caplog.at_level("WARNING", logger="otel_train"):
        run.check_samples(torch.rand(2, 3), every=1)
        run.flush()
    path = run.path
    run.finish()
    assert len(points(read_back(path), "dl.samples.mean")) == 1
    assert len([record for record in caplog.records if "could not be kept" in record.message]) == 1


IN_A_JOB = """
import torch, otel_train
run = otel_train.init(project="job", git=False, sample_machine=False, log_ranks={log_ranks!r})
for number in run.steps(range(2)):
    run.check_samples(torch.full((2, 3), float(run.rank)), every=1)
run.finish()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("log_ranks", "folders"), [("main", ["train"]), ("all", ["rank-1", "train"])])
def test_each_rank_records_its_own_samples(scripts: Any, log_ranks: str, folders: list[str]) -> None:
    """Values of both ranks; files of rank 0, of the other only where every rank stores what it logs."""
    environments = [{"RANK": str(r), "WORLD_SIZE": "2", "LOCAL_RANK": str(r), "MASTER_PORT": "29501"} for r in (1, 0)]
    started = [scripts.popen(IN_A_JOB.format(log_ranks=log_ranks), env=one) for one in environments]
    ended = [scripts.end(process) for process in started]
    assert [script.code for script in ended] == [0, 0], [script.errors for script in ended]
    path = ended[0].path
    means = {
        item.series.rank: list(item.series.values)
        for item in read_back(path).series()
        if item.series.name == "dl.samples.mean"
    }
    assert means == {0: [0.0, 0.0], 1: [1.0, 1.0]}
    assert sorted(folder.name for folder in (path / "artifacts/samples").iterdir()) == folders


WITHOUT_LIBRARIES = """
import sys, otel_train
run = otel_train.init(git=False, sample_machine=False)
run.check_samples(["one", "two", ""], labels=["a", "b", "b"], every=1)
run.check_samples([{"age": 1}, {"age": None}], every=1, split="val")
run.flush()
print(sorted({"torch", "numpy", "pandas", "PIL"} & set(sys.modules)))
run.finish()
"""


@pytest.mark.slow
def test_texts_and_tables_need_no_library(scripts: Any) -> None:
    """Nothing is imported that the program has not imported itself, and both are checked."""
    ended = scripts(WITHOUT_LIBRARIES)
    assert (ended.code, ended.output.strip()) == (0, "[]"), ended.errors
    found = read_back(ended.path)
    assert points(found, "dl.samples.constant") == {0: 1 / 3}
    assert points(found, "dl.samples.nonfinite", split="val") == {0: 1 / 2}
