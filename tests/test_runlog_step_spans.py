"""Spans of steps, in traces of bounded length."""

from __future__ import annotations

from collections import Counter

from otel_train.record.digest import StepFacts
from otel_train.record.entries import SpanEntry, SpanLink
from otel_train.runlog.step_spans import SPANS_PER_TRACE, StepSpans


def facts(step: int = 3, phases: int = 2, epoch: int | None = 1) -> StepFacts:
    parts = [(f"phase {number}", 200 + 10 * number, 205 + 10 * number) for number in range(phases)]
    return StepFacts("train", step, epoch, 100, 150, 400, parts, "slow")


def test_a_step_is_a_span_with_its_wait_for_data_and_its_phases() -> None:
    """Times are those of the step moved to the wall clock; step, epoch, split and the reason are attributes."""
    step, *parts = StepSpans(7, 8).spans(facts(), 1_000)
    assert (step.name, step.start_ns, step.end_ns, step.parent_span_id) == ("step", 1_100, 1_400, 0)
    assert step.attributes == {"dl.step": 3, "dl.epoch": 1, "split": "train", "dl.sampled_because": "slow"}
    assert [(part.name, part.start_ns, part.end_ns) for part in parts] == [
        ("data_wait", 1_100, 1_150),
        ("phase 0", 1_200, 1_205),
        ("phase 1", 1_210, 1_215),
    ]
    assert parts[1].attributes == {"phase": "phase 0", "dl.step": 3}
    assert {part.parent_span_id for part in parts} == {step.span_id}
    assert {part.trace_id for part in parts} == {step.trace_id}
    assert len({span.span_id for span in (step, *parts)}) == 4


def test_a_step_outside_of_any_epoch_has_no_epoch() -> None:
    """The attribute is left out, not empty."""
    assert "dl.epoch" not in StepSpans(7, 8).spans(facts(epoch=None), 0)[0].attributes


def test_traces_end_at_a_thousand_spans_and_are_linked_to_the_runs() -> None:
    """10,000 steps of four spans are 40 traces with at most 1,000 spans; each step links to the run's span."""
    makes = StepSpans(7, 8)
    spans: list[SpanEntry] = [span for step in range(10_000) for span in makes.spans(facts(step), 0)]
    sizes = Counter(span.trace_id for span in spans)
    assert sorted(sizes.values()) == [1_000] * 40
    assert 7 not in sizes
    assert all(span.links == (SpanLink(trace_id=7, span_id=8),) for span in spans if span.name == "step")


def test_a_step_never_straddles_two_traces() -> None:
    """Steps of 300 spans: three in a trace, since a fourth would not fit."""
    makes = StepSpans(7, 8)
    traces = [{span.trace_id for span in makes.spans(facts(step, phases=298), 0)} for step in range(7)]
    assert [len(trace) for trace in traces] == [1] * 7
    assert traces[0] == traces[1] == traces[2] != traces[3]


def test_a_step_of_very_many_phases_is_cut_to_one_trace() -> None:
    """5,000 phases give 1,000 spans and leave the next step its own trace."""
    makes = StepSpans(7, 8)
    large = makes.spans(facts(phases=5_000), 0)
    assert len(large) == SPANS_PER_TRACE
    assert makes.spans(facts(), 0)[0].trace_id != large[0].trace_id
