"""Names what otel-train counts of its own work."""

from __future__ import annotations

from typing import Final

from otel_train.semconv.attributes import OUTCOME, SIGNAL
from otel_train.semconv.metric import Metric

OWN_METRICS: Final = (
    # Own accounting.
    Metric("otel_train.points", "{point}", "counter", "Points by what became of them.", ("outcome",)),
    Metric("otel_train.logs", "{record}", "counter", "Log records by what became of them.", ("outcome",)),
    Metric("otel_train.spans", "{span}", "counter", "Spans by what became of them.", ("outcome",)),
    Metric(
        "otel_train.steps",
        "{step}",
        "counter",
        "Steps by whether they became spans: kept, or thinned by step_span_every.",
        ("outcome",),
    ),
    Metric("otel_train.runlog.size", "By", "gauge", "Bytes this process has in the run's folder."),
    Metric(
        "otel_train.export.items",
        "{item}",
        "counter",
        "Points, log records and spans by what became of them on the way to the first hop.",
        (SIGNAL, OUTCOME),
    ),
    Metric("otel_train.export.queue", "By", "gauge", "Bytes of the run log that no server has acknowledged yet."),
    Metric("otel_train.export.retries", "{request}", "counter", "Requests that were sent again.", (SIGNAL,)),
    Metric("otel_train.doctor", "", "gauge", "What `otel-train doctor` sends to try an endpoint, of no run: always 1."),
)
