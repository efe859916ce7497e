"""Health of whole runs, by the public interface and on disk: planted faults are said once, good runs are silent."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from otel_train.clock import NS_PER_S
from otel_train.record.digest import Digested
from otel_train.record.entries import Sample
from otel_train.record.steps import TimedLoop
from otel_train.runlog.reader import RunReader
from otel_train.runlog.recorder import Recorder, RunTrace
from otel_train.runlog.watcher import Finding
from otel_train.testing import ManualClock, Recorded, recorded
from otel_train.watch.health import Health
from otel_train.watch.thresholds import Thresholds
from tests.recording import Recording
from tests.runs import RunBuilder
from tests.scripts import Scripts

Start = Callable[..., Any]


def health(record: Recorded) -> list[tuple[str, Any, Any, bool]]:
    """Return name, step, value and whether it is over, of each health event."""
    return [
        (
            event.event.removeprefix("health."),
            event.attributes.get("dl.step"),
            event.attributes.get("value"),
            "cleared" in event.attributes,
        )
        for event in record.logs
        if event.event.startswith("health.")
    ]


# The whole way --------------------------------------------------------------------------------------------------------


def test_a_plateau_is_in_the_run_log_with_value_and_threshold(start: Start) -> None:
    """200 steps without improvement, as the user asked: an event, the value of that moment, and the thresholds."""
    run = start(alerts={"plateau_steps": 200})
    for _ in run.steps(range(600)):
        run.log({"loss": 0.5})
    run.finish()
    record = recorded(run)
    # The windows are of ten steps: the first ends with step 9.
    assert health(record) == [("plateau", 209, 200, False)]
    event = record.event("health.plateau")
    assert event.level == "WARN"
    assert event.attributes["threshold"] == 200
    assert event.attributes["metric"] == "train.loss"
    assert event.entry.trace_id != 0
    assert 200 in [point.value for point in record.named("dl.steps_since_improvement")]
    thresholds = {point.attributes["alert"]: point.value for point in record.named("dl.alert.threshold")}
    assert len(thresholds) == 23
    assert thresholds["plateau"] == 200
    assert thresholds["overfit"] == 0.1


def test_the_console_shows_it(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """Who watches the terminal reads the sentence, and that it is over."""
    run = start(alerts={"plateau_steps": 100}, console="pretty")
    for step in run.steps(range(200)):
        run.log({"loss": 0.5 if step < 150 else 0.1})
    run.finish()
    lines = [line for line in capsys.readouterr().err.splitlines() if "health" in line]
    assert len(lines) == 2
    assert "Loss stands still (train loss): 100 steps at step 104; threshold 100" in lines[0]
    assert "at step 154; is over" in lines[1]


def test_thresholds_come_from_the_environment_too(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """As name=number pairs; one that is off is infinite."""
    monkeypatch.setenv("OTEL_TRAIN_ALERTS", "plateau_steps=500, overfit_gap=off")
    run = start()
    run.finish()
    thresholds = {point.attributes["alert"]: point.value for point in recorded(run).named("dl.alert.threshold")}
    assert (thresholds["plateau"], thresholds["overfit"]) == (500, math.inf)


def test_overfitting_and_an_exploding_gradient_are_said_once(start: Start) -> None:
    """Validation leaves training behind in the third epoch of ten steps; the gradient bursts in the fourth."""
    run = start()
    for epoch in run.epochs(5):
        for step in run.steps(range(10)):
            bursts = epoch == 3 and step in (4, 5, 6, 7)
            run.log({"loss": 1.0, "grad_norm": 99.0 if bursts else 3.0})
        run.log({"val/loss": 1.0 if epoch < 2 else 1.5})
    run.finish()
    told = health(recorded(run))
    onsets = [row[:3] for row in told if not row[3]]
    assert sorted(onsets) == [("gradient_exploding", 36, 33.0), ("overfit", 29, 0.5)]
    # Its end is seen at the next look, within half a second.
    assert [(name, value) for name, _, value, over in told if over] == [("gradient_exploding", 1.0)]


def test_a_nan_is_said_once_and_stops_nothing_else(start: Start) -> None:
    """The event of values that are not finite is the one that there was; NaN is never an improvement."""
    run = start(alerts={"plateau_steps": 100})
    for step in run.steps(range(300)):
        run.log({"loss": math.nan if step >= 100 else 1.0 / (1 + step)})
    run.finish()
    # The best window ends with step 99; windows of NaN follow.
    assert sorted(health(recorded(run))) == [("nonfinite", 100, "NaN", False), ("plateau", 199, 100, False)]


def test_a_run_that_has_just_begun_is_silent(start: Start) -> None:
    """One step, one value of each."""
    run = start()
    for _ in run.steps(range(1)):
        run.log({"loss": 2.3, "grad_norm": 1.0})
    run.log({"val_loss": 9.9})
    run.finish()
    assert health(recorded(run)) == []


def test_a_resumed_run_measures_the_gap_by_its_first_beginning(start: Start) -> None:
    """Attempt 1 begins at 2.0; attempt 2 with a loss of 0.1 and 0.2 on validation is no overfit."""
    first = start()
    for _ in first.steps(range(10)):
        first.log({"loss": 2.0})
    first.log({"val_loss": 2.0})
    for _ in first.steps(range(1)):
        first.log({"loss": 1.0})
    first.finish()
    assert recorded(first).info["health"] == {"first_losses": {"train.loss": 2.0}}
    second = start(resume=first.id)
    for _ in second.steps(range(10)):
        second.log({"loss": 0.1})
    second.log({"val_loss": 0.2})
    for _ in second.steps(range(1)):
        second.log({"loss": 0.1})
    second.finish()
    assert health(recorded(second)) == []
    alone = start()
    for _ in alone.steps(range(10)):
        alone.log({"loss": 0.1})
    alone.log({"val_loss": 0.2})
    for _ in alone.steps(range(1)):
        alone.log({"loss": 0.1})
    alone.finish()
    assert [name for name, *_ in health(recorded(alone))] == ["overfit"]


@pytest.mark.slow
def test_ranks_watch_what_is_theirs(scripts: Scripts) -> None:
    """The loss that rank 0 stores is watched there; rank 1 gives only its own limits of a stall and a hang."""
    text = """
        import otel_train
        run = otel_train.init(alerts={"plateau_steps": 100})
        for step in run.steps(range(300)):
            run.log({"loss": 1.0})
        run.finish()
    """
    processes = [
        scripts.popen(text, env={"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": "29511"}) for rank in (0, 1)
    ]
    ended = [scripts.end(process) for process in processes]
    assert [script.code for script in ended] == [0, 0], [script.errors for script in ended]
    record = recorded(ended[0].path)
    assert health(record) == [("plateau", 104, 100, False)]
    given = {(point.rank, point.attributes["alert"]) for point in record.named("dl.alert.threshold")}
    assert {alert for rank, alert in given if rank == 1} == {"stalled", "hung"}
    assert len(given) == 25


@pytest.mark.slow
def test_a_healthy_model_on_real_data_is_silent(start: Start) -> None:
    """Softmax regression on handwritten digits until it fits training well: nothing is wrong with it."""
    np = pytest.importorskip("numpy")
    datasets = pytest.importorskip("sklearn.datasets")
    pixels, labels = datasets.load_digits(return_X_y=True)
    pixels = pixels / 16
    order = np.random.default_rng(0).permutation(len(pixels))
    pixels, labels = pixels[order], labels[order]
    weights = np.zeros((64, 10))

    def loss_and_gradient(x: Any, y: Any) -> tuple[float, Any]:
        scores = x @ weights
        scores -= scores.max(axis=1, keepdims=True)
        shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        loss = -float(np.log(shares[np.arange(len(y)), y]).mean())
        shares[np.arange(len(y)), y] -= 1
        return loss, x.T @ shares / len(y)

    draw = np.random.default_rng(1)
    run = start()
    for _ in run.epochs(40):
        for batch in run.steps(np.split(draw.permutation(1_408), 44)):
            loss, gradient = loss_and_gradient(pixels[batch], labels[batch])
            weights -= 0.5 * gradient
            run.log({"loss": loss, "grad_norm": float(np.linalg.norm(gradient))})
        run.log({"loss": loss_and_gradient(pixels[1_408:], labels[1_408:])[0]}, split="val")
    run.finish()
    record = recorded(run)
    assert record.values("loss", "val")[-1] < 0.2
    assert health(record) == []


# What the run does beside training ------------------------------------------------------------------------------------


def test_what_is_no_training_step_is_known(start: Start, tmp_path: Path) -> None:
    """A loop, an evaluation within it, phases and a checkpoint by their names, stages with and without steps."""
    run = start()
    doing = run.activity.elsewhere
    assert doing() == "outside of the loop"
    for _ in run.steps(range(2)):
        assert doing() == ""
        for _ in run.steps(range(1), split="val"):
            assert doing() == "evaluation"
        with run.phase("model_forward"):
            assert doing() == ""
        with run.phase("eval_step"):
            assert doing() == "eval_step"
        run.save_checkpoint(tmp_path / "m.pkl", {}, save=lambda obj, path: Path(path).write_text(doing()))
        assert doing() == ""
    assert (tmp_path / "m.pkl").read_text() == "checkpoint"
    with run.stage("prepare"):
        assert doing() == "stage"
    with run.stage("experiment 7"):
        assert doing() == "stage"
        for _ in run.steps(range(1)):
            assert doing() == ""
        assert doing() == "outside of the loop"
        with run.stage("report"):
            assert doing() == "stage"
    with run.stage("fine-tune"):
        assert doing() == "outside of the loop"
    run.finish()


def test_a_phase_of_another_thread_counts(start: Start) -> None:
    """A checkpoint that a thread writes while the loop waits for it."""
    run = start()
    inside, done = threading.Event(), threading.Event()

    def write() -> None:
        with run.phase("checkpoint"):
            inside.set()
            done.wait(10)

    thread = threading.Thread(target=write)
    for _ in run.steps(range(1)):
        thread.start()
        assert inside.wait(10)
        assert run.activity.elsewhere() == "checkpoint"
        done.set()
        thread.join()
        assert run.activity.elsewhere() == ""
    run.finish()


# The writer and its watcher -------------------------------------------------------------------------------------------


class Written(Recording):
    """A run's folder, its writer on a clock that is moved by hand, and its watcher."""

    def __init__(self, root: Path, watcher: Any = None) -> None:
        super().__init__()
        self.clock = ManualClock(wall_ns=1_800_000_000 * NS_PER_S, mono_ns=500 * NS_PER_S)
        self.builder = RunBuilder(root).attempt()
        self.loop = TimedLoop(self.log)
        self.health = Health(Thresholds(), self.digest)
        self.recorder = Recorder(
            self.builder.folder.rank_folder(1, 0),
            {"run_id": self.builder.run_id},
            self.buffer,
            self.digest,
            RunTrace(1, 2),
            version="test",
            clock=self.clock,
            new_watcher=lambda: watcher or self.health,
        )

    def step(self, number: int, took_s: float) -> None:
        fetch_ns = self.clock.mono_ns()
        self.clock.advance(took_s)
        self.buffer.extend((self.loop, number, None, fetch_ns, fetch_ns, self.clock.mono_ns()))

    def events(self) -> list[tuple[str, Any, bool]]:
        reader = RunReader(self.builder.path)
        return [
            (entry.event_name, entry.attributes["value"], "cleared" in entry.attributes)
            for entry, _ in reader.logs()
            if entry.event_name.startswith("health.")
        ]

    def samples(self, name: str) -> list[float | None]:
        return [point.value for point, _ in RunReader(self.builder.path).points() if point.name == name]

    def stop(self) -> None:
        self.recorder.stop(self.clock.mono_ns() + 5 * NS_PER_S, "finished")


def test_a_stall_is_written_while_it_lasts(tmp_path: Path) -> None:
    """Steps of 3 s, then none: after 121 s the event is on disk with the value; the next step ends it."""
    run = Written(tmp_path)
    for number in range(10):
        run.step(number, 3.0)
    assert run.recorder.flush()
    run.clock.advance(119)
    assert run.recorder.flush()
    assert run.events() == []
    run.clock.advance(2)
    assert run.recorder.flush()
    assert run.events() == [("health.stalled", 121.0, False)]
    run.clock.advance(60)
    assert run.recorder.flush()
    assert run.samples("dl.step.age") == [0.0, 119.0, 121.0, 181.0]
    assert set(run.samples("dl.alert.threshold")) >= {120.0}
    run.step(10, 0.0)
    assert run.recorder.flush()
    assert run.events() == [("health.stalled", 121.0, False), ("health.stalled", 0.0, True)]
    run.stop()


def test_a_clock_that_is_set_makes_no_stall(tmp_path: Path) -> None:
    """An hour forward on the wall is no hour without a step."""
    run = Written(tmp_path)
    for number in range(10):
        run.step(number, 1.0)
    assert run.recorder.flush()
    run.clock.set_wall(run.clock.wall_ns() + 3_600 * NS_PER_S)
    run.clock.advance(20)
    assert run.recorder.flush()
    run.stop()
    assert run.events() == []


def test_a_run_that_ended_after_a_long_pause_is_silent(tmp_path: Path) -> None:
    """The end is no stall, and gives no age any more."""
    run = Written(tmp_path)
    for number in range(10):
        run.step(number, 1.0)
    run.recorder.flush()
    ages = run.samples("dl.step.age")
    run.clock.advance(3_600)
    run.stop()
    assert run.events() == []
    assert run.samples("dl.step.age") == ages


class Faulty:
    """A watcher that fails at everything."""

    def take(self, digested: Digested) -> None:
        raise RuntimeError("take")

    def readings(self, time_ns: int, samples: Sequence[Sample]) -> None:
        raise RuntimeError("readings")

    def settle(self, wall_ns: int, mono_ns: int, *, ended: bool) -> list[Finding]:
        raise RuntimeError("settle")

    def heartbeat(self, *, ended: bool) -> list[Sample]:
        raise RuntimeError("heartbeat")


def test_a_watcher_that_fails_costs_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Points, readings and heartbeats are written, and the fault is said once."""
    run = Written(tmp_path, Faulty())
    for value in range(5):
        run.log.log({"loss": float(value)})
        run.recorder.emit_samples(7, [Sample("system.cpu.utilization", 0.5)])
        assert run.recorder.flush()
    run.stop()
    assert len(run.samples("train.loss")) == len(run.samples("system.cpu.utilization")) == 5
    assert run.samples("dl.run.heartbeat") != []
    said = [record.getMessage() for record in caplog.records]
    assert said == ["watching the run: RuntimeError: take; it goes on"]
