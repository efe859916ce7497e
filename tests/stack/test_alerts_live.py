"""From a step that falls ill, through SDK, Collector, Prometheus, Alertmanager, to a webhook: once, soon, resolved."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from otel_train.runlog.reader import RunReader
from tests.stack.asking import wait_for
from tests.stack.trained import environment, run_folder
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


@pytest.fixture
def patients(stack: Stack, tmp_path: Path) -> Iterator[dict[str, Patient]]:
    """One run for each condition, and a healthy one, all at the same time."""
    made: dict[str, Patient] = {}
    for kind in (*ILL, "healthy"):
        folder = tmp_path / kind
        folder.mkdir()
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), kind],
            cwd=folder,
            env=environment(OTEL_TRAIN_DIR=str(folder / "runs"), OTEL_EXPORTER_OTLP_ENDPOINT=stack.collector.url),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        made[kind] = Patient(folder, process, process.stdout.readline().strip())
    yield made
    for patient in made.values():
        if patient.process.poll() is None:
            patient.process.kill()
        patient.process.communicate()


@pytest.mark.timeout(400)
def test_an_ill_training_is_told_within_half_a_minute_once_and_when_it_is_well_again(
    stack: Stack, patients: dict[str, Patient]
) -> None:
    """Plateau, overfit, NaN and stall of real trainings; the healthy one beside them is silent."""
    took_s: dict[str, float] = {}
    for kind in ILL:
        patient = patients[kind]
        began_s = wait_for(f"{kind} in the run log", lambda patient=patient, kind=kind: patient.onset_s(kind), 60.0)
        told = wait_for(
            f"{kind} at the webhook",
            lambda patient=patient: [one for one in stack.webhook.notifications if _is_about(one, patient.run_id)],
            60.0,
            every_s=0.2,
        )
        took_s[kind] = told[0].received_s - began_s
    print(took_s)
    assert {kind: seconds for kind, seconds in took_s.items() if not 0 < seconds < LIMIT_S} == {}
    time.sleep(15)
    assert {kind: _history(stack, patient) for kind, patient in patients.items()} == {
        **{kind: [(kind, "firing")] for kind in ILL},
        "healthy": [],
    }
    for patient in patients.values():
        (patient.folder / "well").touch()
    for kind in ILL:
        run_id = patients[kind].run_id
        wait_for(f"{kind} to be over", lambda run_id=run_id: stack.webhook.alerts(run_id, "resolved"), 180.0)
    for patient in patients.values():
        (patient.folder / "stop").touch()
        output, _ = patient.process.communicate(timeout=60)
        assert patient.process.returncode == 0, output
    time.sleep(15)
    assert {kind: _history(stack, patient) for kind, patient in patients.items()} == {
        **{kind: [(kind, "firing"), (kind, "resolved")] for kind in ILL},
        "healthy": [],
    }


def _is_about(notification: object, run_id: str) -> bool:
    return any(alert["labels"].get("run_id") == run_id for alert in notification.alerts)  # type: ignore[attr-defined]


def _history(stack: Stack, patient: Patient) -> list[tuple[str, str]]:
    """What was told about a run, in the order of arrival."""
    return [(alert["labels"]["condition"], alert["status"]) for alert in stack.webhook.alerts(patient.run_id)]
