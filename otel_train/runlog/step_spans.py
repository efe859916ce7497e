"""Makes spans of sampled and remarkable steps, in traces of bounded length that are linked to the run's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from otel_train.record.batches import BatchFacts, described
from otel_train.record.digest import StepFacts
from otel_train.record.entries import AttributeValue, SpanEntry, SpanLink
from otel_train.record.ids import new_span_id, new_trace_id
from otel_train.semconv import DATA_SAMPLE_COUNT, DATA_SAMPLES, DATA_WORKER, EPOCH, LOADER, PHASE, SPLIT, STEP

# Tempo takes a trace as one unit, with a default limit of about 10,000 spans.
SPANS_PER_TRACE = 1000
# Of one step: a loader that groups batches may have fetched many for it. Each has a span and at most four parts.
MOST_BATCHES: Final = 20
SPANS_OF_A_BATCH: Final = 5


class StepSpans:
    """Spans made by hand: a third of the cost of the SDK's, on a thread that shares the interpreter with training."""

    def __init__(self, run_trace_id: int, run_span_id: int) -> None:
        self._link = SpanLink(trace_id=run_trace_id, span_id=run_span_id)
        self._trace_id = 0
        self._left = 0

    def spans(self, facts: StepFacts, offset_ns: int) -> list[SpanEntry]:
        """Return the step's span, first, and those of its wait for data, of its phases and of its batches."""
        batches = facts.batches[-MOST_BATCHES:]
        most_phases = SPANS_PER_TRACE - 2 - SPANS_OF_A_BATCH * len(batches)
        count = 2 + len(facts.phases) + SPANS_OF_A_BATCH * len(batches)
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
        parts = [("data_wait", facts.fetch_ns, facts.ready_ns), *facts.phases[:most_phases]]
        spans = [step] + [
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
        for batch in batches:
            spans += self._batch(batch, facts.step, step_id, offset_ns)
        return spans

    def _batch(self, batch: BatchFacts, step: int, step_id: int, offset_ns: int) -> Iterator[SpanEntry]:
        """Give the span of a batch, from its worker's start to training's taking it, and those of its parts.

        Samples are fetched and augmented in turns: two spans, one after the other, show the sums of each.
        """
        batch_id = new_span_id()
        attributes: dict[str, AttributeValue] = {STEP: step}
        if batch.loader:
            attributes[LOADER] = batch.loader
        if batch.worker >= 0:
            attributes[DATA_WORKER] = batch.worker
        indices = described(batch.index)
        if isinstance(indices, list) and indices:
            attributes[DATA_SAMPLES] = indices
        if batch.samples >= 0:
            attributes[DATA_SAMPLE_COUNT] = batch.samples
        places = [("batch", batch.start_ns, batch.taken_ns, batch_id, step_id), *_parts(batch, batch_id)]
        for name, start_ns, end_ns, span_id, parent_id in places:
            yield SpanEntry(
                name=name,
                trace_id=self._trace_id,
                span_id=span_id,
                parent_span_id=parent_id,
                start_ns=start_ns + offset_ns,
                end_ns=end_ns + offset_ns,
                attributes=attributes if name == "batch" else {STEP: step},
            )


def _parts(batch: BatchFacts, batch_id: int) -> Iterator[tuple[str, int, int, int, int]]:
    """Give name, start, end, id and parent of what a batch's time went into."""
    fetched_ns = batch.collate_ns or batch.end_ns
    augment_ns = max(batch.augment_ns, 0)
    parts = [("fetch", batch.start_ns, fetched_ns - augment_ns)]
    if batch.augment_ns >= 0:
        parts.append(("augment", fetched_ns - augment_ns, fetched_ns))
    if batch.collate_ns:
        parts.append(("collate", batch.collate_ns, batch.end_ns))
    if batch.worker >= 0:
        parts.append(("queue", batch.end_ns, batch.taken_ns))
    for name, start_ns, end_ns in parts:
        yield name, start_ns, end_ns, new_span_id(), batch_id
