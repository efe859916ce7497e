"""Training through outages: each part of the way is taken away, and nothing that was recorded is lost.

Outages last some seconds where an operator's last minutes: sender and queues do the same for either, since their pauses
between tries end at 15 s or less, and each outage here is longer than the first pauses and ends between two tries.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stack import stores
from tests.stack.asking import wait_for
from tests.stack.expected import Expected, lines
from tests.stack.servers import Collector, Loki, Prometheus
from tests.stack.trained import Trained, environment, push, run_folder
from tests.stack.whole_stack import Stack

SCRIPT = Path(__file__).parent / "drill_script.py"
OUTAGE_S = 12.0


class Training:
    """The drill's script, running."""

    def __init__(self, folder: Path, *, rate: int = 200, most: int | None = None, **variables: str) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        arguments = [str(rate), *([str(most)] if most else [])]
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *arguments],
            cwd=folder,
            env=environment(OTEL_TRAIN_DIR=str(folder / "runs"), **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.run_id = self.process.stdout.readline().strip()
        if not self.run_id:
            raise AssertionError(self.process.communicate()[1])

    def go_on(self, seconds: float) -> None:
        """Let it train for a time."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return
        raise AssertionError(f"the training ended by itself: {self.process.communicate()}")

    def end(self) -> Trained:
        """Let it come to its end, which must be a good one."""
        (self.folder / "stop").touch()
        output, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, errors
        return Trained(run_folder(self.folder), 0, output + errors)

    def kill(self) -> Trained:
        """End it by SIGKILL."""
        self.process.kill()
        output, errors = self.process.communicate(timeout=10)
        return Trained(run_folder(self.folder), self.process.returncode, output + errors)


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Callable[..., Training]]:
    """Start a training: `train(OTEL_EXPORTER_OTLP_ENDPOINT=…)`."""
    started: list[Training] = []

    def start(**options: Any) -> Training:
        started.append(Training(tmp_path / f"training-{len(started)}", **options))
        return started[-1]

    yield start
    for training in started:
        if training.process.poll() is None:
            training.process.kill()
        training.process.communicate()


@pytest.fixture
def gateway(run_server: Callable[..., Any], stack: Stack, tmp_path: Path) -> Callable[..., Collector]:
    """Make a gateway of this drill's own, with queues of its own, before the shared stores."""

    def make(start: bool = True, **stores_of_its_own: Any) -> Collector:
        addresses = {
            "prometheus": stack.prometheus.otlp_url,
            "loki": stack.loki.otlp_url if stack.loki else None,
            "tempo": stack.tempo.otlp_url if stack.tempo else None,
        }
        made: Collector = run_server(
            lambda: Collector(tmp_path / "gateway", **(addresses | stores_of_its_own)), start=start
        )
        return made

    return make


def deliver(run: Trained, gateway: Collector) -> None:
    """Send what a run could not send before its end; nothing of it may be refused."""
    done = push(run.path, "--endpoint", gateway.url, "--patience", "30s")
    assert done.returncode == 0, done.stdout + done.stderr


def assert_all_there(
    run: Trained,
    stack: Stack,
    prometheus: Prometheus | None = None,
    loki: Loki | None = None,
    at_least: int = 1_000,
    old: bool = False,
) -> Expected:
    """Compare each point, record and span with the stores; AssertionError counts and names what is missing."""
    expected = run.expected()
    assert expected.point_count >= at_least
    url = (prometheus or stack.prometheus).url

    def missing() -> list[str]:
        return stores.differences(expected, stores.points_of(url, run.run_id))

    _until(lambda: not missing(), 60)
    told = missing()
    assert not told, f"{len(told)} of {expected.point_count} points differ:\n" + "\n".join(told[:10])
    times = [record[0] for record in expected.records]
    loki = loki or stack.loki
    if loki is not None:
        wanted = Counter(map(stores.comparable, expected.records))

        def lost() -> Counter[Any]:
            if old:
                stores.flush_loki(loki.url)
            return wanted - Counter(
                stores.found_records(stores.records_of(loki.url, run.run_id, "drill", min(times), max(times)))
            )

        _until(lambda: not lost(), 60)
        assert not lost(), f"{sum(lost().values())} of {len(expected.records)} records lost: {list(lost())[:3]}"
    if stack.tempo is not None:
        tempo = stack.tempo.url

        def unseen() -> set[str]:
            found = stores.spans_of(tempo, run.run_id, min(times), max(times))
            return expected.span_ids - {span for members in found.values() for span in members}

        # Old ones are searched for in finished blocks only: made after 30 s, seen after 30 more.
        _until(lambda: not unseen(), 150 if old else 90)
        assert not unseen(), f"{len(unseen())} of {len(expected.span_ids)} spans lost"
    return expected


def _until(done: Callable[[], bool], timeout_s: float) -> None:
    """Wait for something, without complaint where it does not come: the caller says what is missing."""
    try:
        wait_for("it", done, timeout_s, every_s=1.0)
    except AssertionError:
        return


def test_a_collector_that_is_absent_at_the_start(
    train: Callable[..., Training], gateway: Callable[..., Collector], stack: Stack
) -> None:
    """The Collector comes seconds after the training: what was recorded before reaches the stores without a restart."""
    collector = gateway(start=False)
    training = train(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
    training.go_on(5)
    collector.start()
    training.go_on(5)
    run = training.end()
    deliver(run, collector)
    assert_all_there(run, stack)


def test_a_collector_that_stops_in_the_middle(
    train: Callable[..., Training], gateway: Callable[..., Collector], stack: Stack
) -> None:
    """Stopped and started again while the training goes on: no point, record or span is lost, the run ends well."""
    collector = gateway()
    training = train(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
    training.go_on(3)
    collector.stop()
    training.go_on(OUTAGE_S)
    collector.start()
    training.go_on(3)
    run = training.end()
    deliver(run, collector)
    assert_all_there(run, stack, at_least=10_000)


def test_a_collector_killed_with_a_full_queue(
    train: Callable[..., Training],
    gateway: Callable[..., Collector],
    run_server: Callable[..., Any],
    stack: Stack,
    tmp_path: Path,
) -> None:
    """With Prometheus away all points lie in the queue; kill -9 of the Collector costs none of them."""
    prometheus: Prometheus = run_server(lambda: Prometheus(tmp_path / "prometheus"), start=False)
    collector = gateway(prometheus=prometheus.otlp_url)
    training = train(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
    training.go_on(6)
    collector.kill()
    training.go_on(1)
    collector.start()
    training.go_on(1)
    run = training.end()
    deliver(run, collector)
    collector.kill()
    collector.start()
    prometheus.start()
    assert_all_there(run, stack, prometheus=prometheus)


def test_a_prometheus_that_is_away(
    train: Callable[..., Training],
    gateway: Callable[..., Collector],
    run_server: Callable[..., Any],
    stack: Stack,
    tmp_path: Path,
) -> None:
    """Prometheus is killed, stays away, and comes back with the data it had: the Collector hands over the rest."""
    prometheus: Prometheus = run_server(lambda: Prometheus(tmp_path / "prometheus"))
    collector = gateway(prometheus=prometheus.otlp_url)
    training = train(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
    training.go_on(3)
    prometheus.kill()
    training.go_on(OUTAGE_S)
    prometheus.start()
    training.go_on(2)
    prometheus.restart()
    training.go_on(2)
    run = training.end()
    deliver(run, collector)
    assert_all_there(run, stack, prometheus=prometheus, at_least=10_000)


def test_a_loki_that_is_away(
    train: Callable[..., Training],
    gateway: Callable[..., Collector],
    run_server: Callable[..., Any],
    stack: Stack,
    tmp_path: Path,
) -> None:
    """Loki is killed and comes back: all records arrive, and metrics and spans did not wait for it."""
    if stack.loki is None:
        pytest.skip(stack.missing["loki"])
    loki: Loki = run_server(lambda: Loki(tmp_path / "loki"))
    collector = gateway(loki=loki.otlp_url)
    training = train(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
    training.go_on(3)
    loki.kill()
    training.go_on(OUTAGE_S)
    run = training.end()
    deliver(run, collector)
    expected = run.expected()
    wait_for(
        "the metrics, without Loki",
        lambda: not stores.differences(expected, stores.points_of(stack.prometheus.url, run.run_id)),
        timeout_s=30,
        every_s=1.0,
    )
    loki.start()
    assert_all_there(run, stack, loki=loki)


def test_a_training_that_is_killed_and_pushed(
    train: Callable[..., Training], gateway: Callable[..., Collector], stack: Stack
) -> None:
    """After kill -9 `push` sends what the dead process had written and not sent; the run counts as lost."""
    collector = gateway(start=False)
    training = train(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
    training.go_on(4)
    run = training.kill()
    collector.start()
    deliver(run, collector)
    expected = assert_all_there(run, stack)
    assert run.sent("metrics")["sent"] - run.sent("metrics")["added"] == expected.point_count


def test_a_push_that_is_interrupted_and_repeated_twice(
    train: Callable[..., Training],
    gateway: Callable[..., Collector],
    run_server: Callable[..., Any],
    stack: Stack,
    tmp_path: Path,
) -> None:
    """Killed in the middle, where a full queue holds it; the second push sends the rest, the third finds nothing."""
    training = train(rate=2_000, most=4_000)
    assert training.process.wait(60) == 0
    run = training.end()
    total = run.expected().point_count
    small = tmp_path / "small.yaml"
    small.write_text("exporters: {otlp_http/prometheus: {sending_queue: {queue_size: 12000}}}\n")
    prometheus: Prometheus = run_server(lambda: Prometheus(tmp_path / "prometheus"), start=False)
    collector = gateway(prometheus=prometheus.otlp_url, more=[small])
    command = [sys.executable, "-m", "otel_train.cli.main", "push", str(run.path), "--endpoint", collector.url]
    first = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wait_for("a part to be acknowledged", lambda: run.sent("metrics").get("sent", 0) > 0)
    assert first.poll() is None
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    assert run.sent("metrics")["sent"] < total
    prometheus.start()
    deliver(run, collector)
    sent = {name: run.sent(name) for name in ("metrics", "logs", "traces")}
    assert sent["metrics"]["sent"] - sent["metrics"]["added"] == total
    third = push(run.path, "--endpoint", collector.url)
    assert third.returncode == 0, third.stderr
    assert {name: run.sent(name) for name in sent} == sent
    assert_all_there(run, stack, prometheus=prometheus, at_least=15_000)


def test_a_finished_run_of_three_days_ago(
    train: Callable[..., Training], gateway: Callable[..., Collector], stack: Stack
) -> None:
    """Pushed beside a live run of the same project: points, records and spans of three days ago, none refused."""
    old = train(rate=1_000, most=500)
    assert old.process.wait(60) == 0
    run = old.end()
    shift(run.path, -3 * 86_400)
    collector = gateway()
    live = train(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
    live.go_on(2)
    deliver(run, collector)
    assert run.sent("logs")["refused"] == run.sent("metrics")["refused"] == 0
    ended = live.end()
    deliver(ended, collector)
    assert_all_there(run, stack, old=True)
    assert_all_there(ended, stack)


def shift(folder: Path, seconds: int) -> None:
    """Move a finished run in time: every time in its log, by so many seconds."""
    pattern = re.compile(rb'("(?:start|end|observed)?[tT]imeUnixNano":")(\d+)"')

    def moved(match: re.Match[bytes]) -> bytes:
        return b'%s%d"' % (match[1], int(match[2]) + seconds * 1_000_000_000)

    for path in folder.glob("attempt-*/rank-*/*.jsonl*"):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        data = pattern.sub(moved, data)
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    assert time.time() - min(_times(folder)) > 0.9 * abs(seconds)


def _times(folder: Path) -> Iterator[float]:
    for request in lines(folder, "logs"):
        text = json.dumps(request)
        yield from (int(found) / 1e9 for found in re.findall(r'"timeUnixNano": "(\d+)"', text))
