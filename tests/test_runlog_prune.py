"""Pruning removes what the rules name, says why, and never touches a run that somebody writes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from runlog_lines import SECOND, START_NS, FakeProcesses, make_run

from otel_train.clock import iso
from otel_train.errors import ConfigError
from otel_train.runlog import prune
from otel_train.runlog.folder import RunFolder
from otel_train.runlog.lock import WriterLock
from otel_train.runlog.prune import apply, folder_bytes, plan_prune

DAY = 86_400
NOW = START_NS + 100 * DAY * SECOND


def run_id(day: int) -> str:
    return f"run-{day:03d}"


def make(root: Path, *days: int, **fields: Any) -> None:
    """Finished runs, each so many days after the first possible one."""
    for day in days:
        time = iso(START_NS + day * DAY * SECOND)
        row = {"status": "finished", "started": time, "ended": time, "created": time, **fields}
        folder = make_run(root, run_id(day), **row)
        (folder.artifacts() / "ballast").write_bytes(bytes(10_000))


def names(paths: Any) -> list[str]:
    return [path.name for path in paths]


def plan(root: Path, **rules: Any) -> prune.PrunePlan:
    return plan_prune(root, now_ns=NOW, processes=FakeProcesses(), **rules)


def removed(found: prune.PrunePlan) -> list[str]:
    return [path.name for path, _, _ in found.remove]


def test_keep_last_keeps_the_newest(tmp_path: Path) -> None:
    """Three of five stay; the oldest goes first; the sizes are those of the folders."""
    make(tmp_path, 1, 2, 3, 4, 5)
    found = plan(tmp_path, keep_last=3)
    assert removed(found) == [run_id(1), run_id(2)]
    assert found.remove[0][1] == "not among the 3 newest"
    assert found.remove[0][2] == folder_bytes(tmp_path / run_id(1))
    assert found.remove_bytes + found.kept_bytes == folder_bytes(tmp_path)
    assert sorted(names(found.kept)) == [run_id(3), run_id(4), run_id(5)]
    assert plan(tmp_path, keep_last=0).kept == []


@pytest.mark.parametrize(
    "content", ['{"info": {"run_id": "x"}}', "no JSON", "[1]", '{"format": null}', '{"run_id": "other"}']
)
def test_folders_of_other_tools_are_left_alone(tmp_path: Path, content: str) -> None:
    """A run.json alone does not make a run: with a wrong root nobody loses his data."""
    make(tmp_path, 1)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "run.json").write_text(content)
    found = plan(tmp_path, keep_last=0)
    assert (removed(found), names(found.foreign)) == ([run_id(1)], ["theirs"])


def test_a_run_whose_description_is_damaged_is_still_a_run(tmp_path: Path) -> None:
    """Its folders of attempts and ranks tell whose it is."""
    make(tmp_path, 1)
    RunFolder(tmp_path / run_id(1)).rank_folder(1, 0)
    (tmp_path / run_id(1) / "run.json").write_text("{")
    found = plan(tmp_path, keep_last=0)
    assert (removed(found), found.foreign) == ([run_id(1)], [])


def test_older_than_looks_at_the_last_sign_of_life(tmp_path: Path) -> None:
    """Ninety days are more than thirty, ten are not."""
    make(tmp_path, 10, 69, 71, 90)
    found = plan(tmp_path, older_than_s=30 * DAY)
    assert removed(found) == [run_id(10), run_id(69)]
    assert found.remove[0][1] == "older than 30 days (90 days)"


def test_the_newest_are_safe_from_every_rule(tmp_path: Path) -> None:
    """With keep_last, age and size take only from the others."""
    make(tmp_path, 1, 2, 3)
    assert removed(plan(tmp_path, keep_last=2, older_than_s=DAY)) == [run_id(1)]
    assert removed(plan(tmp_path, keep_last=2, older_than_s=99.5 * DAY)) == []
    assert removed(plan(tmp_path, keep_last=1, max_size=0)) == [run_id(1), run_id(2)]


def test_max_size_takes_the_oldest_until_it_fits(tmp_path: Path) -> None:
    """No more than needed."""
    make(tmp_path, 1, 2, 3, 4)
    one = folder_bytes(tmp_path / run_id(1))
    found = plan(tmp_path, max_size=2 * one + 100)
    assert removed(found) == [run_id(1), run_id(2)]
    assert found.kept_bytes <= 2 * one + 100
    assert removed(plan(tmp_path, max_size=4 * one + 100)) == []


def test_a_plan_alone_changes_nothing_and_applying_it_does(tmp_path: Path) -> None:
    """Planned runs are gone, the others as they were, nothing is left behind, progress is told."""
    make(tmp_path, 1, 2, 3)
    found = plan(tmp_path, keep_last=1)
    assert sorted(names(tmp_path.iterdir())) == [run_id(1), run_id(2), run_id(3)]
    told: list[tuple[int, int]] = []
    result = apply(found, NOW, FakeProcesses(), lambda done, total: told.append((done, total)))
    assert names(tmp_path.iterdir()) == [run_id(3)]
    assert (names(result.removed), result.removed_bytes) == ([run_id(1), run_id(2)], found.remove_bytes)
    assert (result.left_running, result.failed) == ([], [])
    assert told == [(0, 2), (1, 2), (2, 2)]


def test_a_running_run_is_never_planned(tmp_path: Path) -> None:
    """Locked, or its process alive: named as running, whatever the rules say."""
    make(tmp_path, 1, 2)
    make(tmp_path, 3, status="running", ended=None)
    lock = WriterLock(RunFolder(tmp_path / run_id(1)).rank_folder(1, 0))
    assert lock.acquire()
    found = plan_prune(tmp_path, now_ns=NOW, max_size=0, processes=FakeProcesses(alive=True))
    assert removed(found) == [run_id(2)]
    assert sorted(names(found.skipped_running)) == [run_id(1), run_id(3)]
    lock.release()


def test_a_run_that_goes_on_between_plan_and_removal_is_left(tmp_path: Path) -> None:
    """It was resumed after the plan was shown: it is looked at once more."""
    make(tmp_path, 1, 2)
    found = plan(tmp_path, keep_last=0)
    lock = WriterLock(RunFolder(tmp_path / run_id(1)).rank_folder(2, 0))
    assert lock.acquire()
    result = apply(found, NOW, FakeProcesses())
    assert (names(result.removed), names(result.left_running)) == ([run_id(2)], [run_id(1)])
    assert names(tmp_path.iterdir()) == [run_id(1)]
    lock.release()


def test_a_run_that_goes_on_in_the_very_moment_of_removal_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is taken between the last look and the move: the folder returns to its place, whole."""
    make(tmp_path, 1)
    found = plan(tmp_path, keep_last=0)
    before = folder_bytes(tmp_path / run_id(1))
    lock = WriterLock(RunFolder(tmp_path / run_id(1)).rank_folder(1, 0))
    real = prune.run_status

    def late(folder: RunFolder, now_ns: int, processes: Any) -> Any:
        status = real(folder, now_ns, processes)
        if not lock.held:
            assert lock.acquire()
        return status

    monkeypatch.setattr(prune, "run_status", late)
    result = apply(found, NOW, FakeProcesses())
    assert (result.removed, names(result.left_running)) == ([], [run_id(1)])
    assert names(tmp_path.iterdir()) == [run_id(1)]
    assert folder_bytes(tmp_path / run_id(1)) >= before
    lock.release()


def test_what_cannot_be_removed_is_told_and_the_rest_goes(tmp_path: Path) -> None:
    """One run has vanished meanwhile: its failure is named, the next one is removed."""
    make(tmp_path, 1, 2)
    found = plan(tmp_path, keep_last=0)
    shutil.rmtree(tmp_path / run_id(1))
    result = apply(found, NOW, FakeProcesses())
    assert names(result.removed) == [run_id(2)]
    assert [(path.name, reason) for path, reason in result.failed] == [(run_id(1), "No such file or directory")]


def test_remains_of_a_removal_that_was_cut_short_do_not_stand_in_the_way(tmp_path: Path) -> None:
    """They go with the next removal of the same run, and are no run in a list."""
    make(tmp_path, 1)
    (tmp_path / f".pruned-{run_id(1)}" / "attempt-1").mkdir(parents=True)
    result = apply(plan(tmp_path, keep_last=0), NOW, FakeProcesses())
    assert names(result.removed) == [run_id(1)]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        ({}, "prune"),
        ({"keep_last": -1}, "keep_last"),
        ({"older_than_s": -5.0}, "older_than_s"),
        ({"max_size": -1}, "max_size"),
    ],
)
def test_rules_that_make_no_sense_are_refused(tmp_path: Path, rules: dict[str, Any], field: str) -> None:
    """No rule at all would remove nothing or everything; a negative one is a slip."""
    with pytest.raises(ConfigError) as caught:
        plan(tmp_path, **rules)
    assert caught.value.field == field
