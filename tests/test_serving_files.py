"""The files of a run through the local page: listed, saved, never shown, and none from outside its folder."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from otel_train.view.serving.run_files import list_files, open_file
from tests.runs import RUN_ID, RunBuilder
from tests.serving import Served, serve_in_thread

HOSTILE = '<img src=x onerror=alert(1)>\n"quote".html'
NOT_UTF8 = b"caf\xe9-\xff.txt"
SECRET = b"of somebody else"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with files of hostile names, and links that lead outside of it."""
    root = tmp_path_factory.mktemp("runs")
    builder = RunBuilder(root).attempt().log({"loss": [2.0, 1.0]}, steps=[0, 1]).end()
    (root / "secret.txt").write_bytes(SECRET)
    other = RunBuilder(root, "20260131-120000-aaaaaaaa").attempt().end()
    artifacts = builder.folder.artifacts()
    (artifacts / HOSTILE).write_bytes(b"<script>alert(1)</script>")
    (artifacts / os.fsdecode(NOT_UTF8)).write_bytes(b"not UTF-8")
    (artifacts / "empty").write_bytes(b"")
    (artifacts / "large.bin").write_bytes(bytes(range(256)) * 4096)
    (artifacts / "own.lock").write_bytes(b"x")
    (artifacts / "half.tmp").write_bytes(b"x")
    (artifacts / ".hidden").write_bytes(b"x")
    (artifacts / "outside.txt").symlink_to(root / "secret.txt")
    (artifacts / "outside").symlink_to(root)
    (artifacts / "neighbour").symlink_to(other.path)
    (artifacts / "inside.json").symlink_to(builder.path / "run.json")
    (artifacts / "circle").symlink_to(artifacts)
    (artifacts / "broken").symlink_to(artifacts / "nothing")
    os.mkfifo(artifacts / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        # A socket's path may have 100 characters: bound by a relative one.
        before = os.open(".", os.O_RDONLY)
        os.chdir(artifacts)
        try:
            made.bind("socket")
        finally:
            os.fchdir(before)
            os.close(before)
    return builder.path


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with serve_in_thread(folder.parent) as served:
        yield served


def test_the_files_are_listed_with_size_and_time(served: Served, folder: Path) -> None:
    """All regular files, and links within the folder; none that is hidden, half written, a lock or outside."""
    listed = {item["path"]: item for item in served.get(f"api/run/{RUN_ID}/files").json}
    assert set(listed) == {
        "run.json",
        "attempt-1/rank-0/metrics.000001.jsonl",
        f"artifacts/{HOSTILE}",
        "artifacts/caf\ufffd-\ufffd.txt",
        "artifacts/empty",
        "artifacts/large.bin",
        "artifacts/inside.json",
    }
    assert listed["artifacts/large.bin"]["bytes"] == 1 << 20
    os.utime(folder / "artifacts" / "empty", ns=(0, 1_769_860_800_123_456_789))
    again = {item["path"]: item for item in served.get(f"api/run/{RUN_ID}/files").json}
    assert again["artifacts/empty"]["changed"] == "2026-01-31T12:00:00.123456Z"


def test_each_listed_file_is_saved_as_it_is(served: Served, folder: Path) -> None:
    """By the address that the list gives, whatever the name; as bytes to save, in a sandbox, with its own name."""
    for item in served.get(f"api/run/{RUN_ID}/files").json:
        answer = served.get(f"api/run/{RUN_ID}/file?{item['query']}")
        assert answer.status == 200, item
        assert len(answer.body) == item["bytes"]
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-disposition"].startswith("attachment; ")
    large = served.get(f"api/run/{RUN_ID}/file?path=artifacts/large.bin").body
    assert large == (folder / "artifacts" / "large.bin").read_bytes()
    latin = served.get(f"api/run/{RUN_ID}/file?path=artifacts/{quote(NOT_UTF8)}")
    assert latin.body == b"not UTF-8"
    assert latin.headers["content-disposition"].endswith("filename*=UTF-8''caf%E9-%FF.txt")
    hostile = served.get(f"api/run/{RUN_ID}/file?path=artifacts/{quote(HOSTILE)}")
    assert hostile.body == b"<script>alert(1)</script>"
    assert "\n" not in hostile.headers["content-disposition"]
    assert 'filename="_img_src_x_onerror_alert_1____quote_.html"' in hostile.headers["content-disposition"]


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "artifacts/../../secret.txt",
        "..%2Fsecret.txt",
        "%2e%2e/secret.txt",
        "..%5Csecret.txt",
        "%252e%252e%252fsecret.txt",
        "{root}/secret.txt",
        "/etc/passwd",
        "//etc/passwd",
        "artifacts/outside.txt",
        "artifacts/outside/secret.txt",
        "artifacts/neighbour/run.json",
        "artifacts//empty",
        "./run.json",
        "artifacts",
        "artifacts/",
        "",
        "artifacts/pipe",
        "artifacts/socket",
        "artifacts/broken",
        "artifacts/nothing",
        "artifacts/empty%00.txt",
        "run.json/x",
        "a" * 5000,
    ],
)
def test_paths_outside_of_the_run_are_refused(served: Served, folder: Path, path: str) -> None:
    """Whatever the spelling, and also by links; folders, pipes and sockets are no files to save."""
    asked = path.format(root=quote(str(folder.parent)))
    answer = served.get(f"api/run/{RUN_ID}/file?path={asked}")
    assert answer.status == 404
    assert SECRET not in answer.body
    assert "has no file" in answer.json["error"]["message"]


@pytest.mark.parametrize(
    "run_id",
    ["..", ".", "%2e%2e", "..%2F..%2Fetc", "%2Fetc", "%00", ".hidden", f"{RUN_ID}%2F..", f"..%2f{RUN_ID}", "a" * 3000],
)
def test_only_ids_that_the_root_holds_are_runs(served: Served, run_id: str) -> None:
    """No path, however it is spelled, is an id."""
    for path in (
        f"run/{run_id}",
        f"api/run/{run_id}",
        f"api/run/{run_id}/files",
        f"api/run/{run_id}/file?path=run.json",
    ):
        answer = served.get(path)
        assert answer.status == 404, path
        assert b"small-net" not in answer.body


def test_a_linked_run_is_a_run(tmp_path: Path) -> None:
    """A root may be made of links to runs elsewhere; the files are those of the run's own folder."""
    builder = RunBuilder(tmp_path / "disk").attempt().end()
    root = tmp_path / "runs"
    root.mkdir()
    (root / "linked").symlink_to(builder.path)
    with serve_in_thread(root) as served:
        assert [item["path"] for item in served.get("api/run/linked/files").json] == ["run.json"]
        assert served.get("api/run/linked/file?path=run.json").status == 200


def test_a_link_that_changes_meanwhile_is_not_followed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the opening a file may have become a link to another."""
    victim = folder / "artifacts" / "victim"
    victim.write_bytes(b"own")
    before = os.stat
    swapped: list[bool] = []

    def stat_then_swap(path: object, *arguments: object, **options: object) -> os.stat_result:
        found = before(path, *arguments, **options)  # type: ignore[call-overload]
        if str(path).endswith("victim") and not swapped:
            swapped.append(True)
            victim.unlink()
            victim.symlink_to(folder.parent / "secret.txt")
        return found  # type: ignore[no-any-return]

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", stat_then_swap)
        assert open_file(folder, "artifacts/victim") is None
    assert swapped
    victim.unlink()


def test_a_very_large_folder_is_cut_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond the limit is counted."""
    monkeypatch.setattr("otel_train.view.serving.run_files.MOST_FILES", 3)
    for number in range(5):
        (tmp_path / f"file-{number}").write_bytes(b"x" * number)
    listing = list_files(tmp_path)
    assert [(item["path"], item["bytes"]) for item in listing.files] == [("file-0", 0), ("file-1", 1), ("file-2", 2)]
    assert listing.left_out == 2
