"""From a step that falls ill, through SDK, Collector, Prometheus, Alertmanager, to a webhook: once, soon, resolved."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from otel_train.runlog.reader import RunReader
from tests.stack import stores
from tests.stack.asking import get_json, wait_for
from tests.stack.expected import expected_of
from tests.stack.trained import environment, push, run_folder
from tests.stack.webhook import Notification
from tests.stack.whole_stack import Stack

SCRIPT = Path(__file__).parent / "ill_script.py"
LIMIT_S = 30.0
ILL = ("plateau", "overfit", "nonfinite", "stalled")


@dataclass
class Patient:
    """One training and its folder."""

    folder: Path
    process: subprocess.Popen[str]
    run_id: str

    def onset_s(self, condition: str) -> float | None:
        """When the run itself found the condition (unix time), from its log; None while it has not."""
        logs = RunReader(run_folder(self.folder)).logs()
        times = [
            entry.time_ns / 1e9
            for entry, _ in logs
            if entry.event_name == f"health.{condition}" and not (entry.attributes or {}).get("cleared")
        ]
        assert len(times) <= 1, "told more than once"
        return times[0] if times else None

    def end(self) -> None:
        """Let it come to its end, which must be a good one."""
        (self.folder / "stop").touch()
        output, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, output


class Cable:
    """Stands between a training and the Collector, and can be pulled: then nothing gets through, nor in again."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        self._target = (where.hostname, where.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._plugged = True
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if not self._plugged:
                near.close()
                continue
            far = socket.create_connection(self._target)
            self._open += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=_copy, args=(source, target), daemon=True).start()

    def pull(self) -> None:
        """Cut what is connected, and let nothing in."""
        self._plugged = False
        for one in self._open:
            _shut(one)
        self._open.clear()

    def plug(self) -> None:
        """Let it through again."""
        self._plugged = True

    def close(self) -> None:
        """Listen no more."""
        self.pull()
        self._listener.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            target.sendall(data)
    except OSError:
        pass
    _shut(source)
    _shut(target)


def _shut(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    one.close()


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Callable[..., Patient]]:
    """Start a training that falls ill in a way: `train("plateau", endpoint)`."""
    made: list[Patient] = []

    def start(kind: str, endpoint: str, *thresholds: str) -> Patient:
        folder = tmp_path / kind
        folder.mkdir()
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), kind, *thresholds],
            cwd=folder,
            env=environment(OTEL_TRAIN_DIR=str(folder / "runs"), OTEL_EXPORTER_OTLP_ENDPOINT=endpoint),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        made.append(Patient(folder, process, process.stdout.readline().strip()))
        return made[-1]

    yield start
    for patient in made:
        if patient.process.poll() is None:
            patient.process.kill()
        patient.process.communicate()


@pytest.mark.timeout(400)
def test_an_ill_training_is_told_within_half_a_minute_once_and_when_it_is_well_again(
    stack: Stack, train: Callable[..., Patient]
) -> None:
    """Plateau, overfit, NaN and stall of real trainings; the healthy one beside them is silent."""
    patients = {kind: train(kind, stack.collector.url) for kind in (*ILL, "healthy")}
    took_s: dict[str, float] = {}
    for kind in ILL:
        patient = patients[kind]
        began_s = wait_for(f"{kind} in the run log", partial(patient.onset_s, kind), 60.0)
        told = wait_for(
            f"{kind} at the webhook",
            partial(_about, stack, patient),
            60.0,
            every_s=0.2,
        )
        took_s[kind] = told[0].received_s - began_s
    assert {kind: seconds for kind, seconds in took_s.items() if not 0 < seconds < LIMIT_S} == {}
    time.sleep(15)  # three evaluations: a second notification would have come
    assert {kind: _history(stack, patient) for kind, patient in patients.items()} == {
        **{kind: [(kind, "firing")] for kind in ILL},
        "healthy": [],
    }
    for patient in patients.values():
        (patient.folder / "well").touch()
    for kind in ILL:
        run_id = patients[kind].run_id
        wait_for(f"{kind} to be over", partial(stack.webhook.alerts, run_id, "resolved"), 180.0)
    for patient in patients.values():
        patient.end()
    time.sleep(15)  # three evaluations: a second notification would have come
    assert {kind: _history(stack, patient) for kind, patient in patients.items()} == {
        **{kind: [(kind, "firing"), (kind, "resolved")] for kind in ILL},
        "healthy": [],
    }


ONE_AFTER_THE_OTHER = """
import os, time, otel_train
for name in ("first", "second"):
    with otel_train.init("ill", name=name, git=False, console="off") as run:
        print(run.id, flush=True)
        for step in run.steps(range(40 if name == "first" else 1_000_000)):
            if os.path.exists("stop"):
                break
            run.log({"loss": 1.0 / (step + 1)})
            time.sleep(0.02)  # the pace of a training
"""


def test_a_run_that_ended_is_not_running_though_its_process_lives_on(stack: Stack, tmp_path: Path) -> None:
    """Of two runs in one process the first is over at once: not among those that run, no value now, kept in history."""
    process = subprocess.Popen(
        [sys.executable, "-c", ONE_AFTER_THE_OTHER],
        cwd=tmp_path,
        env=environment(OTEL_EXPORTER_OTLP_ENDPOINT=stack.collector.url),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        first, second = process.stdout.readline().strip(), process.stdout.readline().strip()

        def now(metric: str) -> set[str]:
            query = {"query": f'{metric}{{run_id=~"{first}|{second}"}}'}
            found = get_json(f"{stack.prometheus.url}/api/v1/query", query)["data"]["result"]
            return {series["metric"]["run_id"] for series in found}

        wait_for("the second run to run", lambda: second in now("run:running"), 60.0)
        wait_for("the second alone", lambda: now("run:running") == now("train_loss") == {second}, 20.0)
        kept = stores.points_of(stack.prometheus.url, first)
        (losses,) = (points for (name, _), points in kept.items() if name == "train_loss")
        assert list(losses.values())[-1] == 1.0 / 40
        (tmp_path / "stop").touch()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
    assert stack.webhook.alerts(first) == []


@pytest.mark.timeout(400)
def test_a_training_that_is_cut_off_is_lost_until_its_data_flows_again(
    stack: Stack, train: Callable[..., Patient]
) -> None:
    """It trains on without a network: told as lost, then taken back; the stores have no hole."""
    cable = Cable(stack.collector.url)
    patient = train("healthy", cable.url, "lost_s=20")
    running = {"query": f'run:running{{run_id="{patient.run_id}"}}'}

    def runs() -> bool:
        return bool(get_json(f"{stack.prometheus.url}/api/v1/query", running)["data"]["result"])

    wait_for("the run to run", runs, 60.0)
    cable.pull()
    wait_for("the run to be lost", lambda: stack.webhook.alerts(patient.run_id, "firing"), 120.0)
    assert patient.process.poll() is None
    cable.plug()
    wait_for("the run to be back", lambda: stack.webhook.alerts(patient.run_id, "resolved"), 120.0)
    assert runs()
    patient.end()
    path = run_folder(patient.folder)
    assert push(path, "--endpoint", stack.collector.url).returncode == 0
    cable.close()
    expected = expected_of(path)
    wait_for(
        "all points",
        lambda: not stores.differences(expected, stores.points_of(stack.prometheus.url, patient.run_id)),
        60.0,
        every_s=1.0,
    )
    assert _history(stack, patient) == [("lost", "firing"), ("lost", "resolved")]


def _about(stack: Stack, patient: Patient) -> list[Notification]:
    return [
        notification
        for notification in stack.webhook.notifications
        if any(alert["labels"].get("run_id") == patient.run_id for alert in notification.alerts)
    ]


def _history(stack: Stack, patient: Patient) -> list[tuple[str, str]]:
    """What was told about a run, in the order of arrival."""
    return [(alert["labels"]["condition"], alert["status"]) for alert in stack.webhook.alerts(patient.run_id)]
