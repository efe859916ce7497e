"""Makes spans of sampled and remarkable steps, in traces of bounded length that are linked to the run's."""

from __future__ import annotations

from otel_train.record.digest import StepFacts
from otel_train.record.entries import AttributeValue, SpanEntry, SpanLink
from otel_train.record.ids import new_span_id, new_trace_id
from otel_train.semconv import EPOCH, PHASE, SPLIT, STEP

# Tempo takes a trace as one unit, with a default limit of about 10,000 spans.
SPANS_PER_TRACE = 1000


class StepSpans:
    """Spans made by hand: a third of the cost of the SDK's, on a thread that shares the interpreter with training."""

    def __init__(self, run_trace_id: int, run_span_id: int) -> None:
        self._link = SpanLink(trace_id=run_trace_id, span_id=run_span_id)
        self._trace_id = 0
        self._left = 0

    def spans(self, facts: StepFacts, offset_ns: int) -> list[SpanEntry]:
        """Return the step's span, first, and those of its wait for data and of its phases."""
        count = 2 + len(facts.phases)
        if self._left < count:
            self._trace_id = new_trace_id()
            self._left = SPANS_PER_TRACE
        self._left -= count
        attributes: dict[str, AttributeValue] = {
            STEP: facts.step,
            SPLIT: facts.split,
            "dl.sampled_because": facts.remarkable,
        }
        if facts.epoch is not None:
            attributes[EPOCH] = facts.epoch
        step_id = new_span_id()
        step = SpanEntry(
            name="step",
            trace_id=self._trace_id,
            span_id=step_id,
            start_ns=facts.fetch_ns + offset_ns,
            end_ns=facts.end_ns + offset_ns,
            attributes=attributes,
            links=(self._link,),
        )
        parts = [("data_wait", facts.fetch_ns, facts.ready_ns), *facts.phases[: SPANS_PER_TRACE - 2]]
        return [step] + [
            SpanEntry(
                name=name,
                trace_id=self._trace_id,
                span_id=new_span_id(),
                parent_span_id=step_id,
                start_ns=start_ns + offset_ns,
                end_ns=end_ns + offset_ns,
                attributes={PHASE: name, STEP: facts.step},
            )
            for name, start_ns, end_ns in parts
        ]
