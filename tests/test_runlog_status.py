"""How a run is: from its files, its lock, its process, its last sign of life; never from hope."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import pytest
from runlog_lines import RUN_ID, SECOND, START_NS, FakeProcesses, attempt_row, line, log_line, make_run

from otel_train.runlog.compress import compress_file
from otel_train.runlog.folder import RunFolder
from otel_train.runlog.lock import WriterLock
from otel_train.runlog.processes import Processes
from otel_train.runlog.status import Status, last_lines, run_status

NOW = START_NS + 1_000 * SECOND


def status(folder: RunFolder, now_ns: int = NOW, **machine: Any) -> Status:
    return run_status(folder, now_ns, FakeProcesses(**machine))


@pytest.mark.parametrize("state", ["finished", "failed", "interrupted", "killed"])
def test_an_ended_run_is_what_it_says(tmp_path: Path, state: str) -> None:
    """State, reason, code and time of the end, whatever lives on this machine."""
    folder = make_run(tmp_path, status=state, ended="2023-11-14T22:15:00.000000Z", reason="because", exit_code=3)
    found = status(folder, alive=True)
    assert (found.state, found.reason, found.exit_code, found.attempt) == (state, "because", 3, 1)
    assert found.since_ns == START_NS + 100 * SECOND
    assert not found.is_running


def test_a_locked_run_is_running(tmp_path: Path) -> None:
    """Somebody holds the lock: running since its start, on whatever host, however old its last line."""
    folder = make_run(tmp_path, host="elsewhere")
    lock = WriterLock(folder.rank_folder(1, 0))
    assert lock.acquire()
    found = status(folder, NOW + 86_400 * SECOND)
    assert (found.state, found.since_ns, found.last_seen_ns) == ("running", START_NS, START_NS + 2)
    lock.release()
    assert status(folder).state == "lost"


def test_a_living_process_without_a_lock_is_running(tmp_path: Path) -> None:
    """Where the file system has no locks the process itself counts."""
    assert status(make_run(tmp_path), alive=True).state == "running"


def test_a_dead_process_on_this_host_is_lost_at_once(tmp_path: Path) -> None:
    """A second after its last line: no minute of waiting, since the last point."""
    found = status(make_run(tmp_path), START_NS + SECOND)
    assert (found.state, found.reason) == ("lost", "process 4242 is gone and wrote no end")
    assert found.since_ns == START_NS + 2


def test_a_restarted_machine_has_lost_its_runs(tmp_path: Path) -> None:
    """Another process may have the same id by now."""
    found = status(make_run(tmp_path), alive=True, boot="boot-2")
    assert (found.state, found.reason) == ("lost", "the machine was restarted")


@pytest.mark.parametrize(("silent_s", "state"), [(0, "running"), (59, "running"), (61, "lost")])
def test_a_run_of_another_host_is_judged_by_its_last_sign_of_life(tmp_path: Path, silent_s: int, state: str) -> None:
    """A minute without a line, and it is lost; when lines come again it is running again."""
    folder = make_run(tmp_path, host="elsewhere")
    found = status(folder, START_NS + 2 + silent_s * SECOND)
    assert found.state == state
    if state == "lost":
        assert found.reason == "no sign of life from elsewhere for 61 seconds"
        (folder.rank_folder(1, 0) / "logs.000001.jsonl").write_bytes(
            log_line("back", time_ns=START_NS + silent_s * SECOND)
        )
        assert status(folder, START_NS + silent_s * SECOND).state == "running"


def test_long_silences_are_told_in_days(tmp_path: Path) -> None:
    """Nobody reads 250,000 seconds."""
    found = status(make_run(tmp_path, host="elsewhere"), START_NS + 3 * 86_400 * SECOND)
    assert found.reason == "no sign of life from elsewhere for 3 days"


@pytest.mark.parametrize(("before", "now", "said"), [(0, 1, True), (2, 2, False), (None, 5, False), (0, None, False)])
def test_kills_for_memory_are_said(tmp_path: Path, before: int | None, now: int | None, said: bool) -> None:
    """Where the cgroup's count of kills rose since the start, the reason tells it, with both numbers."""
    found = status(make_run(tmp_path, oom_kill_at_start=before, cgroup="/job"), oom=now)
    assert found.state == "lost"
    assert ("out of memory" in found.reason) == said
    if said:
        assert found.reason.endswith("(oom_kill rose from 0 to 1)")


def test_an_end_in_the_log_counts_though_run_json_does_not_know(tmp_path: Path) -> None:
    """Killed between the last line and the description: ended all the same, gzipped log or not."""
    folder = make_run(tmp_path)
    end = log_line("end", "run.end", START_NS + 5 * SECOND, status="failed", reason="ValueError: no", exit_code=1)
    (folder.rank_folder(1, 0) / "logs.000001.jsonl").write_bytes(log_line("x") + end + log_line("after"))
    found = status(folder)
    assert (found.state, found.reason, found.exit_code) == ("failed", "ValueError: no", 1)
    assert found.since_ns == START_NS + 5 * SECOND


def test_the_newest_attempt_counts(tmp_path: Path) -> None:
    """A failed first attempt and a running second one: running; the order in run.json does not matter."""
    folder = make_run(tmp_path, status="failed", ended="2023-11-14T22:15:00.000000Z")
    folder.create_attempt()
    folder.update(lambda document: document["attempts"].insert(0, attempt_row(attempt=2)))
    found = status(folder, alive=True)
    assert (found.state, found.attempt) == ("running", 2)


def test_an_attempt_that_run_json_does_not_know_yet(tmp_path: Path) -> None:
    """Its folder is there, its row is not (a full disk): the old attempt's end is not the run's."""
    folder = make_run(tmp_path, status="finished", ended="2023-11-14T22:15:00.000000Z")
    path = folder.rank_folder(folder.create_attempt(), 0)
    (path / "metrics.000001.jsonl").write_bytes(line(1, time_ns=NOW))
    assert (status(folder, NOW + SECOND).state, status(folder, NOW + SECOND).attempt) == ("running", 2)
    assert status(folder, NOW + 100 * SECOND).state == "lost"


@pytest.mark.parametrize(
    "content", [b"", b'{"format": 1, "run', b'{"format": 1, "run_id": "x", "attempts": [5, null]}']
)
def test_a_damaged_description_leaves_the_lines(tmp_path: Path, content: bytes) -> None:
    """Without host and process the last sign of life decides."""
    folder = make_run(tmp_path)
    (folder.path / "run.json").write_bytes(content)
    assert status(folder, START_NS + 10 * SECOND).state == "running"
    assert status(folder, START_NS + 100 * SECOND).reason == "no sign of life for 100 seconds"


def test_a_run_of_which_nothing_is_known_has_not_been_silent_since_1970(tmp_path: Path) -> None:
    """Nothing was seen of it, so there is no time since when; what is wrong is said instead."""
    (tmp_path / "run.json").write_text("{", encoding="utf-8")
    found = status(RunFolder(tmp_path))
    assert (found.state, found.since_ns, found.last_seen_ns) == ("lost", 0, 0)
    assert found.reason == "run.json is missing or damaged, and nothing was recorded"
    (tmp_path / "attempt-1").mkdir()
    assert status(RunFolder(tmp_path)).reason == "nothing was recorded"


def test_a_cut_or_foreign_tail_does_not_hide_the_last_time(tmp_path: Path) -> None:
    """The last whole line counts; where there is none, when the file was changed."""
    folder = make_run(tmp_path, host="elsewhere")
    path = folder.rank_folder(1, 0) / "metrics.000001.jsonl"
    with path.open("ab") as file:
        file.write(b"\x00\x00\n" + line(9)[:40])
    assert status(folder).last_seen_ns == START_NS + 2
    path.write_bytes(b"nothing\n")
    os.utime(path, ns=(NOW, NOW))
    assert status(folder).last_seen_ns == NOW


def test_a_run_that_never_wrote_is_judged_by_its_start(tmp_path: Path) -> None:
    """No line yet: running for a minute on another host, then lost since its start."""
    folder = make_run(tmp_path, lines=0, host="elsewhere")
    assert status(folder, START_NS + 30 * SECOND).state == "running"
    found = status(folder, START_NS + 90 * SECOND)
    assert (found.state, found.since_ns) == ("lost", START_NS)


def test_this_very_process_is_found_alive(tmp_path: Path) -> None:
    """With the real machine: our own run is running, and lost when the row names a process that is gone."""
    processes = Processes()
    pid = os.getpid()
    row = {
        "host": processes.host(),
        "boot_id": processes.boot_id(),
        "pid": pid,
        "process_start": processes.started(pid),
    }
    folder = make_run(tmp_path, **row)
    assert run_status(folder.path, NOW).state == "running"
    folder.update(lambda document: document["attempts"][0].update(process_start=1.0))
    assert run_status(tmp_path / RUN_ID, NOW).state == "lost"


@pytest.mark.parametrize("seed", range(8))
def test_the_last_lines_are_those_of_the_file(tmp_path: Path, seed: int) -> None:
    """Backwards, whatever their lengths are beside the pieces that are read, without what is cut or foreign."""
    random = Random(seed)
    lines = []
    for number in range(200):
        kind = random.random()
        filler = "x" * random.choice([0, 1, 50, 16_000, 16_384, 70_000])
        lines.append(b"\x00nothing" if kind < 0.1 else f'{{"a":{number},"b":"{filler}"}}'.encode())
    path = tmp_path / "logs.000001.jsonl"
    path.write_bytes(b"\n".join(lines) + random.choice([b"\n", b"", b'\n{"cut']))
    data = path.read_bytes()
    inside = [line for line in lines if line.startswith(b"{") and len(data) - data.index(line[:12]) <= 4 << 20]
    assert list(last_lines(path)) == inside[::-1]
    assert list(last_lines(path, b'"a":1,')) == [line for line in inside if line.startswith(b'{"a":1,')]
    assert list(last_lines(tmp_path / "nowhere")) == []


def test_the_last_lines_of_a_gzipped_segment(tmp_path: Path) -> None:
    """The last ten, backwards."""
    path = tmp_path / "logs.000001.jsonl"
    path.write_bytes(b"".join(b'{"a":%d}\n' % number for number in range(20)))
    gzipped = compress_file(path)
    assert gzipped is not None
    assert list(last_lines(gzipped)) == [b'{"a":%d}' % number for number in range(19, 9, -1)]
    assert list(last_lines(gzipped, b":1")) == [b'{"a":%d}' % number for number in range(19, 9, -1)]
    assert list(last_lines(gzipped, b":15")) == [b'{"a":15}']


def test_of_an_ended_run_no_line_is_read(tmp_path: Path) -> None:
    """Its end is its last sign of life: a list of a thousand runs need not unpack a thousand logs."""
    folder = make_run(tmp_path, status="finished", ended="2023-11-14T22:15:00.000000Z")
    (folder.rank_folder(1, 0) / "logs.000001.jsonl").write_bytes(log_line("late", time_ns=NOW))
    assert status(folder).last_seen_ns == status(folder).since_ns == START_NS + 100 * SECOND
