"""Says of a batch that failed where it was made, and which samples it was made of."""

from __future__ import annotations

from collections.abc import Sequence

from otel_train.record.batches import described
from otel_train.record.entries import AttributeValue
from otel_train.semconv import (
    DATA_BATCH_ORDINAL,
    DATA_SAMPLE,
    DATA_SAMPLE_COUNT,
    DATA_SAMPLE_ORDINAL,
    DATA_SAMPLES,
    DATA_WORKER,
    DATA_WORKER_EXIT,
    DATA_WORKER_PID,
    LOADER,
)
from otel_train.watch.loader_iterators import BatchAt, Death
from otel_train.watch.loader_worker import NO_WORKER

# Of indices that a sentence gives.
MOST_SAID = 8


def attributes_of(at: BatchAt, loader: str) -> dict[str, AttributeValue]:
    """Return what is known, as attributes of an event."""
    found: dict[str, AttributeValue] = {LOADER: loader} if loader else {}
    if at.worker != NO_WORKER:
        found[DATA_WORKER] = at.worker
    if at.pid is not None:
        found[DATA_WORKER_PID] = at.pid
    if at.batch >= 0:
        found[DATA_BATCH_ORDINAL] = at.batch
    indices = described(at.index)
    if isinstance(indices, list) and indices:
        found[DATA_SAMPLES] = indices
        found[DATA_SAMPLE_COUNT] = len(at.index) if isinstance(at.index, Sequence) else 1
        if 0 <= at.at < len(indices):
            found[DATA_SAMPLE] = indices[at.at]
        elif at.at >= 0 and isinstance(at.index, Sequence) and at.at < len(at.index):
            found[DATA_SAMPLE] = _first(described([at.index[at.at]]))
        elif len(indices) == 1:
            found[DATA_SAMPLE] = indices[0]
    elif at.at >= 0 and at.samples >= 0:
        found[DATA_SAMPLE_ORDINAL] = at.samples + at.at
    elif at.index is None and at.samples >= 0:
        # One sample a batch, without indices.
        found[DATA_SAMPLE_ORDINAL] = at.samples
    return found


def place_of(attributes: dict[str, AttributeValue]) -> str:
    """Return the same in words: `in worker 1 (pid 77) at sample 13`; "" where nothing is known."""
    words = []
    said = {key: str(value) for key, value in attributes.items()}
    if DATA_WORKER in said:
        pid = f" (pid {said[DATA_WORKER_PID]})" if DATA_WORKER_PID in said else ""
        words.append(f"in worker {said[DATA_WORKER]}{pid}")
    samples = attributes.get(DATA_SAMPLES)
    if DATA_SAMPLE in said:
        words.append(f"at sample {said[DATA_SAMPLE]}")
    elif DATA_SAMPLE_ORDINAL in said:
        words.append(f"at its sample number {said[DATA_SAMPLE_ORDINAL]}, counted from 0")
    elif isinstance(samples, list):
        rest = ", …" if len(samples) > MOST_SAID else ""
        words.append(f"at the batch of samples {', '.join(str(one) for one in samples[:MOST_SAID])}{rest}")
    elif DATA_BATCH_ORDINAL in said:
        words.append(f"at its batch number {said[DATA_BATCH_ORDINAL]}, counted from 0")
    return " ".join(words)


def told_of(death: Death, loader: str) -> tuple[str, dict[str, AttributeValue]]:
    """Return body and attributes of the event of a worker that is gone."""
    attributes = attributes_of(death.at, loader)
    known = {key: value for key, value in attributes.items() if key not in (DATA_WORKER, DATA_WORKER_PID)}
    place = place_of(known) or "between two batches"
    killer = ", which is also how the kernel ends a process for lack of memory" if death.how == "SIGKILL" else ""
    batches = "batch was" if death.waiting == 1 else "batches were"
    more = f"; {death.waiting} more {batches} asked of it" if death.waiting else ""
    name = f" of {loader}" if loader else ""
    body = f"worker {death.at.worker} (pid {death.at.pid}){name} is gone by {death.how}{killer}, {place}{more}"
    return body, {**attributes, DATA_WORKER_EXIT: death.how}


def _first(values: AttributeValue) -> AttributeValue:
    return values[0] if isinstance(values, list) and values else str(values)
