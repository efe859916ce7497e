"""What stores cannot take as it was recorded, pushed to the real ones: all around it arrives, and it is counted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_train.clock import NS_PER_S, SYSTEM
from otel_train.lineage.run_id import new_run_id
from otel_train.otlp.encode import LineEncoder
from otel_train.record.digest import StepFacts
from otel_train.record.entries import Column, LogEntry
from otel_train.runlog.step_spans import SPANS_PER_TRACE, StepSpans
from tests.runs import RunBuilder
from tests.stack import stores
from tests.stack.asking import get_json, wait_for
from tests.stack.trained import push
from tests.stack.whole_stack import Stack

DAY_NS = 86_400 * NS_PER_S
STEPS = 10_000


class Run(RunBuilder):
    """A run of a minute ago, written by hand; its ranks share the instance id, as copied containers may."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, new_run_id(SYSTEM))
        self.attempt().end()
        self.began_ns = time.time_ns() // NS_PER_S * NS_PER_S - 60 * NS_PER_S

    def encoder(self, attempt: int, rank: int) -> LineEncoder:
        """Return the encoder of one rank."""
        resource = {"service.name": "limits", "service.instance.id": "the-same", "run_id": self.run_id}
        return LineEncoder({**resource, "run_name": "limits", "run_attempt": attempt, "dl.rank": rank}, "0.1.0")

    def push(self, stack: Stack, *arguments: str, code: int = 0) -> dict[str, Any]:
        """Push it to the gateway, and return the account by signal."""
        done = push(self.path, "--endpoint", stack.collector.url, "--json", *arguments)
        assert done.returncode == code, done.stdout + done.stderr
        account: dict[str, Any] = json.loads(done.stdout)["runs"][0]["signals"]
        return account


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run to be written."""
    return Run(tmp_path / "runs")


@pytest.fixture
def records(stack: Stack, run: Run) -> Callable[[int], list[tuple[int, str, dict[str, str]]]]:
    """Wait for so many records in Loki, and return all that it has."""
    if stack.loki is None:
        pytest.skip(stack.missing["loki"])
    url = stack.loki.url

    def found(count: int) -> list[tuple[int, str, dict[str, str]]]:
        def ask() -> list[tuple[int, str, dict[str, str]]]:
            return stores.records_of(url, run.run_id, "limits", run.began_ns - 20 * DAY_NS, time.time_ns())

        wait_for(f"{count} records", lambda: len(ask()) >= count, 60.0, every_s=1.0)
        return ask()

    return found


def entry(body: str, time_ns: int, observed_ns: int = 0, **attributes: Any) -> LogEntry:
    return LogEntry(
        time_ns=time_ns,
        observed_time_ns=observed_ns,
        severity_number=9,
        severity_text="INFO",
        body=body,
        attributes=attributes,
    )


def test_a_record_with_a_huge_attribute_costs_none_of_its_neighbours(
    stack: Stack, run: Run, records: Callable[[int], list[tuple[int, str, dict[str, str]]]]
) -> None:
    """Ten records, one with 80,000 bytes in one attribute: ten in Loki, the one cut below its limit and marked."""
    entries = [entry(f"record {number}", run.began_ns + number) for number in range(9)]
    entries.append(entry("the configuration", run.began_ns + 9, config="x" * 80_000, seed=7))
    run.lines("logs", run.encoder(1, 0).logs(entries))
    account = run.push(stack)["logs"]
    assert (account["sent"], account["refused"]) == (10, 0)
    found = {line: labels for _, line, labels in records(10)}
    assert set(found) == {*(f"record {number}" for number in range(9)), "the configuration"}
    large = found["the configuration"]
    assert large["config"].endswith("[cut, 80,000 bytes in all]")
    assert sum(len(name) + len(value.encode()) for name, value in large.items()) < 65_536
    assert large["seed"] == "7"
    index = get_json(f"{stack.loki.url if stack.loki else ''}/loki/api/v1/labels")["data"]
    assert not {"run_id", "config", "trace_id", "service_instance_id"} & set(index)


def test_records_over_the_age_are_counted_and_the_fresh_ones_arrive(
    stack: Stack, run: Run, records: Callable[[int], list[tuple[int, str, dict[str, str]]]]
) -> None:
    """60 fresh, 40 of ten days ago, one without a time, in one request: 61 in Loki, 40 told as too old, code 3."""
    entries = [entry(f"fresh {number}", run.began_ns + number) for number in range(60)]
    entries += [entry(f"old {number}", run.began_ns - 10 * DAY_NS + number) for number in range(40)]
    entries.append(entry("timeless", 0, run.began_ns + NS_PER_S))
    run.lines("logs", run.encoder(1, 0).logs(entries))
    account = run.push(stack, "--max-log-age", "7d", code=3)["logs"]
    assert (account["sent"], account["aged"], account["refused"]) == (61, 40, 0)
    found = records(61)
    assert len(found) == 61
    assert {line: at for at, line, _ in found}["timeless"] == run.began_ns + NS_PER_S


def test_points_within_a_millisecond_and_ranks_with_one_instance_id(stack: Stack, run: Run) -> None:
    """3, 2, 1 at 0.2, 0.5 and 0.9 ms on two ranks: 1 of each rank is in Prometheus, four are merged, none refused."""
    for rank, factor in ((0, 1.0), (1, 10.0)):
        times = [run.began_ns + offset_ns for offset_ns in (200_000, 500_000, 900_000)]
        column = Column("train.loss", times, [3.0 * factor, 2.0 * factor, factor], (("split", "train"),))
        run.lines("metrics", run.encoder(1, rank).points([column]), rank=rank)
    account = run.push(stack)["metrics"]
    assert (account["sent"] - account["added"], account["merged"], account["refused"]) == (2, 4, 0)

    def values() -> dict[str, list[Any]]:
        found = stores.points_of(stack.prometheus.url, run.run_id)
        return {
            dict(labels)["dl_rank"]: list(points.values())
            for (name, labels), points in found.items()
            if name == "train_loss"
        }

    wait_for("both ranks", lambda: len(values()) == 2, 30.0)
    assert values() == {"0": [1.0], "1": [10.0]}


@pytest.mark.timeout(400)
def test_forty_thousand_spans_of_steps_stay_within_the_limits_of_a_trace(stack: Stack, run: Run) -> None:
    """No trace passes a thousand spans, Tempo refuses none, and every single one can be read under the run's id."""
    if stack.tempo is None:
        pytest.skip(stack.missing["tempo"])
    makes, encoder = StepSpans(7, 8), run.encoder(1, 0)
    wanted: dict[str, set[str]] = {}
    for step in range(STEPS):
        begin_ns = step * 1_000_000
        phases = [(name, begin_ns + 100, begin_ns + 900) for name in ("model_forward", "model_backward")]
        spans = makes.spans(
            StepFacts("train", step, 1, begin_ns, begin_ns + 90, begin_ns + 990, phases, ""), run.began_ns
        )
        for span in spans:
            wanted.setdefault(f"{span.trace_id:032x}", set()).add(f"{span.span_id:016x}")
        run.lines("traces", encoder.spans(spans))
    assert max(map(len, wanted.values())) <= SPANS_PER_TRACE
    account = run.push(stack)["traces"]
    assert (account["sent"], account["refused"]) == (4 * STEPS, 0)
    url = stack.tempo.url
    times = run.began_ns, run.began_ns + STEPS * 1_000_000

    def found() -> dict[str, set[str]]:
        return {trace: set(spans) for trace, spans in stores.spans_of(url, run.run_id, *times).items()}

    wait_for("all spans", lambda: found() == wanted, 120.0, every_s=2.0)
