"""Counts a run in Prometheus, Loki and Tempo by its id, and says what differs from the run log.

Prometheus keeps one point of a series a millisecond, so that is how the run log is counted for it. End marks are not
counted anywhere: Prometheus leaves them out of its ranges.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import urllib3

from otel_train.clock import NS_PER_S, SYSTEM, Clock, sleep
from otel_train.otlp.decode import Series
from otel_train.otlp.prometheus_names import label_name, prometheus_name
from otel_train.record.entries import AttributeValue
from otel_train.runlog.reader import RunReader

NS_PER_MS: Final = 1_000_000
TIMEOUT_S: Final = 30.0
MOST_DIFFERENCES: Final = 20
ASK_AGAIN_S: Final = 0.5
# Tempo 3.0.3 loses spans of a trace that is read by its id while a part of it is in memory only. A trace is handed
# over when nothing came for 5 s, looked for every 5 s; so it is left alone that long, before each look.
TEMPO_QUIET_S: Final = 11.0
# Loki's own limit.
PAGE: Final = 5_000
# What tells attempts and ranks apart; a Prometheus that does not promote it still counts right in the sum.
_JOB_LABELS: Final = frozenset({"__name__", "job", "instance", "exported_job", "exported_instance"})
RUN_STATE: Final = prometheus_name("dl.run.state")

SeriesKey = tuple[str, tuple[tuple[str, str], ...]]


class StoreFault(Exception):  # noqa: N818 - says what happened
    """A store cannot be asked, or does not answer as it should; the text says why."""


@dataclass(slots=True)
class Expected:
    """What the run log holds: points by series, records, and span ids by trace."""

    points: Counter[SeriesKey] = field(default_factory=Counter)
    records: int = 0
    spans: dict[str, set[str]] = field(default_factory=dict)
    first_ns: int = 0
    last_ns: int = 0
    resource_labels: frozenset[str] = frozenset()

    def see(self, time_ns: int) -> None:
        """Widen the time of the run."""
        self.first_ns = min(self.first_ns, time_ns) if self.first_ns else time_ns
        self.last_ns = max(self.last_ns, time_ns)


@dataclass(slots=True)
class Verdict:
    """What one store holds of one run. `fault` says why it could not be asked."""

    store: str
    url: str
    signal: str
    expected: int
    found: int = 0
    differences: list[str] = field(default_factory=list)
    fault: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the store holds what the run log holds."""
        return not self.differences and not self.fault


def expected_of(path: Path) -> Expected:
    """Read a run log, and count what stores are to hold of it."""
    reader = RunReader(path)
    expected = Expected()
    times: dict[SeriesKey, set[tuple[int, int, int]]] = {}
    resources: set[str] = set()
    for series, context in reader.series():
        resources |= {label_name(name) for name in context.resource}
        key = (_stored_name(series), _labels(dict(series.attributes)))
        seen = times.setdefault(key, set())
        for number, time_ns in enumerate(series.times_ns):
            if series.flags and series.flags[number] & 1:
                continue
            seen.add((context.attempt, context.rank, time_ns // NS_PER_MS))
            expected.see(time_ns)
    expected.points = Counter({key: len(seen) for key, seen in times.items() if seen})
    expected.resource_labels = frozenset(resources)
    records: set[Any] = set()
    for entry, context in reader.logs():
        expected.see(entry.time_ns or entry.observed_time_ns)
        text = json.dumps([entry.body, dict(entry.attributes)], sort_keys=True, default=str)
        records.add((context.attempt, context.rank, entry.time_ns or entry.observed_time_ns, entry.severity_text, text))
    expected.records = len(records)
    for span, _ in reader.spans():
        expected.spans.setdefault(f"{span.trace_id:032x}", set()).add(f"{span.span_id:016x}")
    return expected


def _stored_name(series: Series) -> str:
    """Return the name by which to count a series: what has bounds or quantiles is several in Prometheus."""
    name = prometheus_name(series.name, series.unit, series.kind)
    return f"{name}_count" if series.histograms and series.histograms[0].scale is None else name


def _labels(attributes: Mapping[str, AttributeValue]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((label_name(name), _label_value(value)) for name, value in attributes.items() if value != ""))


def _label_value(value: AttributeValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    if isinstance(value, (tuple, list)):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return str(value)


class Stores:
    """The three stores, by their addresses. Nothing is written to them."""

    def __init__(
        self,
        prometheus: str,
        loki: str,
        tempo: str,
        *,
        timeout_s: float = TIMEOUT_S,
        clock: Clock = SYSTEM,
        wait: Callable[[float], None] = sleep,
    ) -> None:
        self._clock = clock
        self._wait = wait
        self._begun_ns = clock.mono_ns()
        self.prometheus = prometheus.rstrip("/")
        self.loki = loki.rstrip("/")
        self.tempo = tempo.rstrip("/")
        self._pool = urllib3.PoolManager(retries=False, timeout=timeout_s)

    def verify(self, path: Path, *, patience_s: float = 0.0) -> list[Verdict]:
        """Return for each store what it holds of a run; takes at least `TEMPO_QUIET_S` where there are spans.

        What was acknowledged a moment ago is still on its way there: a store that differs is asked again for as long as
        what it holds grows, and `patience_s` longer.
        """
        self._begun_ns = self._clock.mono_ns()
        expected = expected_of(path)
        stores = (
            ("Prometheus", self.prometheus, "metrics", expected.points.total(), self._ask_prometheus, ASK_AGAIN_S),
            ("Loki", self.loki, "logs", expected.records, self._ask_loki, ASK_AGAIN_S),
            ("Tempo", self.tempo, "traces", sum(map(len, expected.spans.values())), self._ask_tempo, TEMPO_QUIET_S),
        )
        return [
            self._settled(
                partial(Verdict, name, url, signal, count), partial(ask, path.name, expected), patience_s, again_s
            )
            for name, url, signal, count, ask, again_s in stores
        ]

    def _settled(
        self, blank: Callable[[], Verdict], ask: Callable[[Verdict], None], patience_s: float, again_s: float
    ) -> Verdict:
        most, grown_ns = -1, self._clock.mono_ns()
        while True:
            verdict = blank()
            try:
                ask(verdict)
            except StoreFault as fault:
                verdict.fault = str(fault)
                return verdict
            now_ns = self._clock.mono_ns()
            if verdict.found > most:
                most, grown_ns = verdict.found, now_ns
            if verdict.agrees or now_ns - grown_ns >= patience_s * NS_PER_S:
                return verdict
            self._wait(again_s)

    # Prometheus ------------------------------------------------------------------------------------------------------

    def _ask_prometheus(self, run_id: str, expected: Expected, verdict: Verdict) -> None:
        found: Counter[SeriesKey] = Counter()
        at_s, range_s = _range(expected)
        for name in sorted({name for name, _ in expected.points}):
            query = f'count_over_time({{__name__="{name}",run_id="{run_id}"}}[{range_s}s])'
            answer = self._get(f"{self.prometheus}/api/v1/query", {"query": query, "time": at_s})
            for item in _result(answer):
                labels = tuple(
                    sorted(
                        (label, value)
                        for label, value in item["metric"].items()
                        if label not in _JOB_LABELS and label not in expected.resource_labels
                    )
                )
                found[(name, labels)] += int(float(item["value"][1]))
        verdict.found = found.total()
        for key in sorted({*expected.points, *found}):
            wanted, there = expected.points[key], found[key]
            # A lost run has got its last state from whoever found it.
            if wanted != there and not (key[0] == RUN_STATE and there > wanted):
                verdict.differences.append(f"{_series_text(key)}: {there:,} of {wanted:,} points")

    # Loki ------------------------------------------------------------------------------------------------------------

    def _ask_loki(self, run_id: str, expected: Expected, verdict: Verdict) -> None:
        at_s, range_s = _range(expected)
        query = f'sum(count_over_time({{service_name=~".+"}} | run_id="{run_id}" [{range_s}s]))'
        answer = self._get(f"{self.loki}/loki/api/v1/query", {"query": query, "time": f"{at_s}"})
        verdict.found = sum(int(float(item["value"][1])) for item in _result(answer))
        if verdict.found > expected.records:
            # A record that was sent twice is counted twice until it is flushed, though it is there once.
            verdict.found = self._list_loki(run_id, expected)
        if verdict.found != expected.records:
            verdict.differences.append(f"{verdict.found:,} of {expected.records:,} log records")

    def _list_loki(self, run_id: str, expected: Expected) -> int:
        """Count records by reading them all, a page after the other."""
        found: set[str] = set()
        query = {"query": f'{{service_name=~".+"}} | run_id="{run_id}"', "limit": PAGE, "direction": "forward"}
        start_ns = expected.first_ns
        while True:
            around = {"start": start_ns, "end": expected.last_ns + 1}
            answer = self._get(f"{self.loki}/loki/api/v1/query_range", {**query, **around})
            rows = [
                (int(value[0]), json.dumps([item["stream"], value[:2]], sort_keys=True))
                for item in _result(answer)
                for value in item["values"]
            ]
            before = len(found)
            found.update(row for _, row in rows)
            # The next page begins with the last time of this one, of which there may be more.
            if len(rows) < PAGE or len(found) == before:
                return len(found)
            start_ns = max(at_ns for at_ns, _ in rows)

    # Tempo -----------------------------------------------------------------------------------------------------------

    def _ask_tempo(self, run_id: str, expected: Expected, verdict: Verdict) -> None:
        quiet_s = TEMPO_QUIET_S - (self._clock.mono_ns() - self._begun_ns) / NS_PER_S
        if expected.spans and quiet_s > 0:
            self._wait(quiet_s)
        for trace_id, spans in expected.spans.items():
            answer = self._get(f"{self.tempo}/api/v2/traces/{trace_id}", {}, missing={})
            there = set(_spans_of(answer, run_id)) & spans
            verdict.found += len(there)
            if there != spans:
                verdict.differences.append(f"trace {trace_id}: {len(there):,} of {len(spans):,} spans")

    def _get(self, url: str, query: Mapping[str, Any], missing: Any = None) -> Any:
        """Return the JSON of an answer; StoreFault where there is none."""
        try:
            address = f"{url}?{urlencode(query)}" if query else url
            answer = self._pool.request("GET", address, headers={"Accept": "application/json"})
        except urllib3.exceptions.HTTPError as fault:
            raise StoreFault(f"not reachable: {_short(fault)}") from None
        if answer.status == 404 and missing is not None:
            return missing
        if answer.status != 200:
            raise StoreFault(f"answers {answer.status}: {answer.data[:200].decode('utf-8', 'replace').strip()}")
        try:
            return json.loads(answer.data)
        except ValueError:
            raise StoreFault("answers no JSON: is this its address?") from None


def _range(expected: Expected) -> tuple[int, int]:
    """Return a moment behind the run's end, in whole seconds, and how far to look back from there."""
    at_s = expected.last_ns // NS_PER_S + 2
    return at_s, at_s - expected.first_ns // NS_PER_S + 2


def _result(answer: Any) -> list[Any]:
    try:
        result: list[Any] = answer["data"]["result"]
    except (KeyError, TypeError):
        raise StoreFault("answers in another form: is this its address?") from None
    return result


def _spans_of(answer: Any, run_id: str) -> Iterator[str]:
    trace = answer.get("trace") or answer if isinstance(answer, Mapping) else {}
    for block in trace.get("resourceSpans") or trace.get("batches") or ():
        attributes = block.get("resource", {}).get("attributes", ())
        if not any(item.get("key") == "run_id" and item["value"].get("stringValue") == run_id for item in attributes):
            continue
        for scope in block.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                yield _hex(str(span.get("spanId", "")))


def _hex(span_id: str) -> str:
    """Return a span id in hex: Tempo writes base64, OTLP JSON hex."""
    if len(span_id) == 16:
        return span_id.lower()
    try:
        return base64.b64decode(span_id, validate=True).hex()
    except (binascii.Error, ValueError):
        return span_id


def _series_text(key: SeriesKey) -> str:
    name, labels = key
    return f"{name}{{{','.join(f'{label}={value!r}' for label, value in labels)}}}"


def _short(fault: Exception) -> str:
    reason = getattr(fault, "reason", None) or fault
    text = str(reason)
    return text.partition(": ")[2] or text
