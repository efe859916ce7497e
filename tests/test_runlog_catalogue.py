"""Runs are found by what people type, and listed with what is known of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from runlog_lines import RUN_ID, START_NS, FakeProcesses, make_run

from otel_train.clock import from_iso
from otel_train.errors import RunNotFoundError
from otel_train.runlog.catalogue import find_run, list_runs

OTHER = "20260102-000000-bbbbbbbb"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two runs, a foreign folder, a file and a removed run's remains."""
    make_run(tmp_path, RUN_ID, created="2026-01-01T00:00:00.000000Z", run_name="baseline")
    make_run(tmp_path, OTHER, created="2026-01-02T00:00:00.000000Z", run_name="wide")
    (tmp_path / "notes").mkdir()
    (tmp_path / "file.txt").write_text("x")
    (tmp_path / ".pruned-x" / "attempt-1").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("reference", "run_id"),
    [
        (RUN_ID, RUN_ID),
        ("20260101", RUN_ID),
        ("20260102-000000-b", OTHER),
        ("baseline", RUN_ID),
        ("wide", OTHER),
        ("latest", OTHER),
    ],
)
def test_a_run_is_found(root: Path, reference: str, run_id: str) -> None:
    """By id, by a prefix that only it has, by name, or as the latest."""
    assert find_run(root, reference) == root / run_id


def test_a_run_is_found_by_its_path(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absolute, relative, or as a folder of the working directory, whatever the root is."""
    assert find_run("/nowhere", str(root / RUN_ID)) == root / RUN_ID
    monkeypatch.chdir(root.parent)
    assert find_run("nowhere", f"{root.name}{os.sep}{OTHER}") == Path(root.name) / OTHER
    monkeypatch.chdir(root)
    assert find_run("nowhere", OTHER) == Path(OTHER)


def test_what_several_runs_could_be_is_asked_back(root: Path) -> None:
    """A prefix or a name of two is no run: both are named."""
    with pytest.raises(RunNotFoundError, match=re.escape(f"{RUN_ID}, {OTHER}; use one id")):
        find_run(root, "2026")
    make_run(root, "20260103-000000-cccccccc", run_name="wide")
    with pytest.raises(RunNotFoundError, match="'wide' could mean 2 runs"):
        find_run(root, "wide")


def test_a_run_that_is_not_there_is_told_with_what_comes_near(root: Path) -> None:
    """A slip of a key is seen at once; an empty reference is none."""
    with pytest.raises(RunNotFoundError, match=r"no run 'basline' in .*; near it: baseline"):
        find_run(root, "basline")
    with pytest.raises(RunNotFoundError):
        find_run(root, "")
    for slip, near in (("Wid", "wide"), ("line", "baseline"), (RUN_ID[:-1] + "x", f"{RUN_ID}, {OTHER}")):
        with pytest.raises(RunNotFoundError, match=rf"near it: {near}$"):
            find_run(root, slip)
    # What is like nothing is told as much, and which run came last.
    with pytest.raises(RunNotFoundError, match=rf"no run 'adamw' in .*; the newest is {OTHER} \(wide\)$"):
        find_run(root, "adamw")
    with pytest.raises(RunNotFoundError, match=r"there is no run in .*nowhere, which is not there"):
        find_run(root / "nowhere", "latest")
    with pytest.raises(RunNotFoundError, match=r"there is no run in .*notes$"):
        find_run(root / "notes", "latest")


def test_runs_are_listed_newest_first(root: Path) -> None:
    """Id, name, project, state and problem of each; folders of others are passed over; progress is told."""
    (root / RUN_ID / "run.json").write_bytes(b"{")
    os.utime(root / RUN_ID, ns=(START_NS, START_NS))
    told: list[tuple[int, int]] = []
    runs = list_runs(root, START_NS, FakeProcesses(), lambda done, total: told.append((done, total)))
    rows = [(run.run_id, run.run_name, run.project, run.status.state, bool(run.problem)) for run in runs]
    assert rows == [(OTHER, "wide", "digits", "lost", False), (RUN_ID, "", "", "running", True)]
    assert "run.json is damaged" in runs[1].problem
    assert told == [(0, 2), (1, 2), (2, 2)]
    assert list_runs(root / "nowhere") == []


def test_runs_without_run_json_are_sorted_by_the_time_in_their_ids(root: Path) -> None:
    """An archive has none, and its folders were all changed by the copying; a name without a time has that one."""
    for number, name in enumerate((OTHER, RUN_ID, "mine")):
        if name == "mine":
            make_run(root, name)
        (root / name / "run.json").unlink()
        os.utime(root / name, ns=(START_NS + number, START_NS + number))
    runs = list_runs(root, START_NS, FakeProcesses())
    assert [(run.run_id, run.created_ns) for run in runs] == [
        (OTHER, from_iso("2026-01-02T00:00:00Z")),
        (RUN_ID, from_iso("2026-01-01T00:00:00Z")),
        ("mine", START_NS + 2),
    ]
    assert find_run(root, "latest") == root / OTHER


@pytest.fixture
def shared(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same root as a user sees it who may look into neither the newest run nor a foreign folder."""
    private = [root / OTHER, root / "notes"]
    root.chmod(0o755)
    for path in private:
        path.chmod(0)
    # A user who may do everything becomes another for as long; from here on paths above are of no concern.
    monkeypatch.chdir(root)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65_534)
    try:
        yield Path()
    finally:
        if is_root:
            os.seteuid(0)
        for path in private:
            path.chmod(0o755)


def test_a_folder_that_is_private_hides_no_run(shared: Path) -> None:
    """One that is called as a run is listed with what is wrong; another, such as lost+found, is passed over."""
    mine, private = list_runs(shared, START_NS, FakeProcesses()), find_run(shared, "latest")
    assert [(run.run_id, run.run_name) for run in mine] == [(OTHER, ""), (RUN_ID, "baseline")]
    assert mine[0].problem.endswith(f"{OTHER}/run.json cannot be read: Permission denied")
    assert private == shared / OTHER
    assert find_run(shared, "baseline") == shared / RUN_ID
