"""Data loaders watched by a run: what its run log has of their batches, faults and deaths, and what is left of us."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch.utils.data import DataLoader

import otel_train
from otel_train.record.batches import BatchFacts
from otel_train.record.digest import StepFacts
from otel_train.runlog.step_spans import MOST_BATCHES, SPANS_PER_TRACE, StepSpans
from otel_train.testing import recorded
from tests.loader_data import Fails, Rows
from tests.scripts import Scripts

Start = Callable[..., Any]


def test_each_batch_is_points_at_its_step(start: Start) -> None:
    """By `run.steps` alone: whole, fetch and collate of four batches in two epochs, at the steps 0 to 3."""
    run = start()
    for _ in run.epochs(2):
        for batch in run.steps(DataLoader(Rows(4), batch_size=2)):
            run.log({"loss": batch.mean()})
    run.finish()
    record = recorded(run)
    for part in ("fetch", "collate", "batch"):
        points = record.named(f"dl.data.{part}.time")
        assert [(point.step, point.epoch) for point in points] == [(0, 0), (1, 0), (2, 1), (3, 1)], part
        assert all(0 < point.value < 10 for point in points)
    assert record.named("dl.data.queue.time") == record.named("dl.data.augment.time") == []


def test_a_setting_switches_it_off_in_loops_and_disabled_runs_watch_nothing(
    start: Start, root: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it only the wait is known; asked for by hand it is done all the same."""
    run = start(watch_loaders=False)
    loader: Any = DataLoader(Rows(4), batch_size=2)
    list(run.steps(loader))
    assert run.watch_data(loader) is loader
    list(run.steps(loader))
    run.unwatch(loader)
    assert "_get_iterator" not in vars(loader)
    run.finish()
    record = recorded(run)
    assert len(record.named("dl.data.wait.time")) == 4
    assert [point.step for point in record.named("dl.data.batch.time")] == [2, 3]
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    disabled = otel_train.init()
    assert disabled.watch_data(loader, name="x") is loader
    assert "_get_iterator" not in vars(loader)
    disabled.finish()


def test_a_loaders_exception_is_one_event_with_the_samples(start: Start) -> None:
    """In a loop of the run, in one by hand, and of an iterable that is no loader: each is told once, and passes."""
    run = start()
    broken = Rows(8, transform=Fails("raise", 5))
    with pytest.raises(ValueError, match="row 5 is broken"):
        list(run.steps(DataLoader(broken, batch_size=4)))
    with pytest.raises(ValueError, match="row 5 is broken"):
        list(run.watch_data(DataLoader(broken, batch_size=4), name="mine"))

    def items() -> Iterator[int]:
        yield 1
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        list(run.steps(items()))
    with pytest.raises(OSError, match="disk gone"):
        list(run.steps(run.watch_data(items())))
    run.finish()
    events = recorded(run).events("health.data_loading")
    assert [event.body for event in events] == [
        "the data loader raised ValueError at sample 5: row 5 is broken",
        "the data loader raised ValueError at sample 5: row 5 is broken",
        "the data loader raised OSError: disk gone",
        "the data loader raised OSError at its batch number 1, counted from 0: disk gone",
    ]
    attributes = events[1].attributes
    assert attributes["dl.data.samples"] == [4, 5, 6, 7]
    assert attributes["dl.data.sample"] == 5
    assert attributes["loader"] == "mine"
    assert attributes["exception.type"] == "ValueError"
    assert "raise ValueError" in attributes["exception.stacktrace"]
    assert events[0].level == "ERROR"
    assert events[0].attributes["dl.step"] == 0


def test_the_end_of_a_run_lets_go_of_its_loaders(start: Start) -> None:
    """No hook is left, the loader goes on, and a later run watches it again."""
    loader: Any = DataLoader(Rows(4), batch_size=2)
    first = start()
    assert first.watch_data(loader) is loader
    list(loader)
    first.finish()
    assert "_get_iterator" not in vars(loader)
    assert len(list(loader)) == 2
    second = start()
    list(second.steps(loader))
    second.finish()
    assert len(recorded(first).named("dl.data.batch.time")) == 2
    assert len(recorded(second).named("dl.data.batch.time")) == 2


def test_augmentation_is_a_public_name() -> None:
    """The documented ways of saying what is augmentation."""
    flip = otel_train.augmentation(lambda row: row + 1)
    with otel_train.augmentation():
        assert flip(1) == 2


# Spans ---------------------------------------------------------------------------------------------------------------


def facts(*batches: BatchFacts, phases: int = 0) -> StepFacts:
    parts = [(f"phase {number}", 200, 205) for number in range(phases)]
    return StepFacts("train", 3, None, 100, 150, 400, parts, "slow", batches=batches)


def test_a_step_has_a_span_for_each_batch_with_what_its_time_went_into() -> None:
    """A batch of worker 1 made from 20 to 90, of which 30 in transforms and 10 to collate, and taken at 140."""
    batch = BatchFacts(1, 20, 80, 90, 30, 4, 16, 2, 110, 140, "mine", [7, 9])
    step, *spans = StepSpans(7, 8).spans(facts(batch), 1_000)
    (one,) = [span for span in spans if span.name == "batch"]
    assert (one.start_ns, one.end_ns, one.parent_span_id) == (1_020, 1_140, step.span_id)
    assert one.attributes == {
        "dl.step": 3,
        "loader": "mine",
        "dl.data.worker": 1,
        "dl.data.samples": [7, 9],
        "dl.data.sample_count": 2,
    }
    parts = [span for span in spans if span.parent_span_id == one.span_id]
    assert [(part.name, part.start_ns, part.end_ns) for part in parts] == [
        ("fetch", 1_020, 1_050),
        ("augment", 1_050, 1_080),
        ("collate", 1_080, 1_090),
        ("queue", 1_090, 1_140),
    ]
    assert {span.trace_id for span in spans} == {step.trace_id}
    assert len({span.span_id for span in (step, *spans)}) == len(spans) + 1


def test_a_batch_made_in_training_has_no_worker_and_no_queue() -> None:
    """Nor augmentation where none was seen; of an item of another iterable only the fetch is known."""
    single = BatchFacts(-1, 20, 80, 90, -1, 0, 0, 2, 20, 90, "", [7, 9])
    other = BatchFacts(-1, 20, 0, 90, -1, 0, 0, -1, 20, 90, "", None)
    spans = StepSpans(7, 8).spans(facts(single, other), 0)
    assert [span.name for span in spans] == ["step", "data_wait", "batch", "fetch", "collate", "batch", "fetch"]
    assert spans[2].attributes == {"dl.step": 3, "dl.data.samples": [7, 9], "dl.data.sample_count": 2}
    assert spans[5].attributes == {"dl.step": 3}


def test_a_step_of_very_many_batches_and_phases_stays_within_a_trace() -> None:
    """Only the last batches are spans, and phases give way: never more than a trace may have."""
    batch = BatchFacts(0, 20, 80, 90, 5, 0, 0, 2, 110, 140, "", [1])
    makes = StepSpans(7, 8)
    spans = makes.spans(facts(*[batch] * 500, phases=5_000), 0)
    assert len(spans) == SPANS_PER_TRACE
    assert sum(span.name == "batch" for span in spans) == MOST_BATCHES
    assert makes.spans(facts(batch), 0)[0].trace_id != spans[0].trace_id


# Whole programs ------------------------------------------------------------------------------------------------------

DIES = """
import os, signal, sys, time, warnings
import torch, otel_train
torch.set_num_threads(1)
warnings.simplefilter("ignore")

class Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.transform = self.augment
    def __len__(self):
        return 40
    def augment(self, index):
        time.sleep(0.001)
        if index == 22 and sys.argv[1] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if index == 22 and sys.argv[1] == "raise":
            raise ValueError("row 22 is broken")
        return torch.tensor(float(index))
    def __getitem__(self, index):
        return self.transform(index)

if __name__ == "__main__":
    with otel_train.init(step_span_every=1) as run:
        loader = torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=2, multiprocessing_context="fork")
        for batch in run.steps(loader):
            run.log({"loss": batch.mean()})
            if sys.argv[1] == "kill" and batch[0] == 8:
                time.sleep(30)
"""


@pytest.mark.slow
def test_a_run_names_the_worker_that_raised_and_has_spans_of_the_batches(scripts: Scripts) -> None:
    """Row 22 is in the sixth batch, the third of worker 1; the five before are spans with worker and rows."""
    ended = scripts(DIES, "raise")
    assert ended.code == 1
    assert "ValueError: Caught ValueError in DataLoader worker process 1." in ended.errors
    record = recorded(ended.path)
    event = record.event("health.data_loading")
    assert event.attributes["dl.data.worker"] == 1
    assert event.attributes["dl.data.sample"] == 22
    assert event.attributes["dl.data.samples"] == [20, 21, 22, 23]
    assert "row 22 is broken" in event.attributes["exception.stacktrace"]
    assert event.body.endswith("at sample 22: row 22 is broken")
    assert record.events("data.worker_died") == []
    assert record.info["status"] == "failed"
    batches = record.spans_of("batch")
    assert [span.attributes["dl.data.samples"] for span in batches] == [
        list(range(first, first + 4)) for first in range(0, 20, 4)
    ]
    assert [span.attributes["dl.data.worker"] for span in batches] == [0, 1, 0, 1, 0]
    for name in ("fetch", "augment", "collate", "queue"):
        assert len(record.spans_of(name)) == 5, name
    steps = {span.entry.span_id for span in record.spans_of("step")}
    assert {span.entry.parent_span_id for span in batches} == steps
    for augment in record.spans_of("augment"):
        assert augment.entry.end_ns - augment.entry.start_ns >= 4_000_000
    workers = {dict(point.attributes)["worker"] for point in record.named("dl.data.worker.batch.time")}
    assert workers == {0, 1}


@pytest.mark.slow
def test_a_run_names_the_worker_that_was_killed_while_training_was_busy(scripts: Scripts) -> None:
    """Killed at row 22 in the midst of a long step: worker, process, rows and signal are in the run log."""
    ended = scripts(DIES, "kill")
    assert ended.code == 1
    assert ended.seconds < 30
    record = recorded(ended.path)
    event = record.event("data.worker_died")
    assert event.level == "ERROR"
    assert event.attributes["dl.data.worker"] == 1
    assert event.attributes["dl.data.worker.exit"] == "SIGKILL"
    assert event.attributes["dl.data.sample"] == 22
    assert event.attributes["dl.data.samples"] == [20, 21, 22, 23]
    assert f"(pid {event.attributes['dl.data.worker.pid']})" in event.body
    assert record.info["status"] == "failed"
    # torch's own words, by which of its two ways it was the first to see it.
    assert re.search("is killed by signal: Killed|exited unexpectedly", record.info["attempts"][0]["reason"])
