"""Reads back from Prometheus, Loki and Tempo all that they hold of a run."""

from __future__ import annotations

import base64
import json
import math
import time
from typing import Any

from tests.stack.asking import get, get_json, post, wait_for
from tests.stack.expected import Expected, SeriesKey, Value

_LONG_S = 40 * 86_400


def points_of(url: str, run_id: str) -> dict[SeriesKey, dict[int, Value]]:
    """Return every point of a run in a Prometheus by series and millisecond; end marks are not points."""
    found: dict[SeriesKey, dict[int, Value]] = {}
    query = f'{{run_id="{run_id}"}}[{_LONG_S}s]'
    answer = get_json(f"{url}/api/v1/query", {"query": query, "time": time.time() + 60})
    for series in answer["data"]["result"]:
        labels = dict(series["metric"])
        key = labels.pop("__name__"), frozenset(labels.items())
        points: dict[int, Value] = {_ms(at): float(value) for at, value in series.get("values", [])}
        for at, histogram in series.get("histograms", []):
            points[_ms(at)] = float(histogram["count"]), float(histogram["sum"])
        found[key] = points
    return found


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def same(first: Value | None, second: Value | None) -> bool:
    """Whether two values are the same one, NaN included."""
    if isinstance(first, float) and isinstance(second, float):
        return first == second or (math.isnan(first) and math.isnan(second))
    return first == second


def differences(expected: Expected, found: dict[SeriesKey, dict[int, Value]]) -> list[str]:
    """Return what is missing, wrong, or too much in Prometheus, of the metrics that the run log has.

    Too much is a point that the log does not hold, but for the last word on the run's state, which the sender adds
    where the run could not say it.
    """
    told: list[str] = []
    names = expected.names()
    for key in expected.points.keys() | {key for key in found if key[0] in names}:
        wanted, there = expected.points.get(key, {}), found.get(key, {})
        for time_ms in sorted(wanted.keys() | there.keys()):
            if same(wanted.get(time_ms), there.get(time_ms)):
                continue
            if time_ms not in wanted and key[0] == "dl_run_state" and time_ms > max(wanted, default=0):
                continue
            told.append(f"{key[0]} {sorted(key[1])} at {time_ms}: {wanted.get(time_ms)} is {there.get(time_ms)}")
    return told


def records_of(
    url: str, run_id: str, project: str, first_ns: int, last_ns: int
) -> list[tuple[int, str, dict[str, str]]]:
    """Return every log record of a run in a Loki: time in nanoseconds, line, and all labels and metadata."""
    found: list[tuple[int, str, dict[str, str]]] = []
    query = f'{{service_name="{project}"}} | run_id="{run_id}"'
    start = first_ns
    while True:
        answer = get_json(
            f"{url}/loki/api/v1/query_range",
            {"query": query, "start": start, "end": last_ns + 1, "limit": 5000, "direction": "forward"},
        )
        page = [
            (int(at), line, dict(stream["stream"]))
            for stream in answer["data"]["result"]
            for at, line, *_ in stream["values"]
        ]
        fresh = [row for row in page if row not in found]
        found += fresh
        if len(page) < 5000 or not fresh:
            return sorted(found, key=lambda row: row[0])
        start = max(row[0] for row in page)


def flush_loki(url: str) -> None:
    """Have Loki write its chunks: records of a replayed run are found only afterwards."""
    status, answer = post(f"{url}/flush")
    assert status < 300, answer


def comparable(record: tuple[int, Any, str, str, str]) -> tuple[int, str, str, str, str]:
    """Return an expected record as Loki gives it: a body that is no text is JSON, with its keys in some order."""
    time_ns, body, trace_id, span_id, event = record
    return time_ns, canonical(body), trace_id, span_id, event


def canonical(body: Any) -> str:
    """Return a body, or the line that Loki made of it, in one spelling; numbers in JSON may be written otherwise."""
    if isinstance(body, str):
        if not body.startswith(("{", "[")):
            return body
        try:
            body = json.loads(body)
        except ValueError:
            return body
    return json.dumps(_numbers(body), sort_keys=True)


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _numbers(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_numbers(member) for member in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def found_records(rows: list[tuple[int, str, dict[str, str]]]) -> list[tuple[int, str, str, str, str]]:
    """Return Loki's records in the form of `comparable`."""
    return [
        (at, canonical(line), labels.get("trace_id", ""), labels.get("span_id", ""), labels.get("event_name", ""))
        for at, line, labels in rows
    ]


# Tempo 3.0.3 loses spans of a trace that is read by its id while some of it is in memory and some in a block: what is
# in memory is sorted into the answer in place. A trace leaves memory 5 s after its last span, looked at each 5 s.
_TEMPO_SETTLES_S = 11.0
_tempo_received: dict[str, tuple[float, float]] = {}


def tempo_has_settled(url: str) -> bool:
    """Whether a Tempo has received nothing for so long that all traces are in blocks, and may be read by id."""
    lines = get(f"{url}/metrics").decode().splitlines()
    received = sum(
        float(line.split()[-1]) for line in lines if line.startswith("tempo_distributor_spans_received_total")
    )
    before, since_s = _tempo_received.get(url, (-1.0, 0.0))
    if received != before:
        before, since_s = _tempo_received[url] = received, time.monotonic()
    return time.monotonic() - since_s >= _TEMPO_SETTLES_S


def spans_of(url: str, run_id: str, first_ns: int, last_ns: int) -> dict[str, dict[str, Any]]:
    """Return every span of a run in a Tempo by trace and id: the traces found by run id, then each read whole."""
    wait_for("Tempo to have all in blocks", lambda: tempo_has_settled(url), timeout_s=120, every_s=1.0)
    answer = get_json(
        f"{url}/api/search",
        {
            "q": f'{{ resource.run_id = "{run_id}" }}',
            "start": first_ns // 1_000_000_000 - 60,
            "end": last_ns // 1_000_000_000 + 60,
            "limit": 1000,
        },
    )
    found: dict[str, dict[str, Any]] = {}
    for trace in answer.get("traces", []):
        trace_id = trace["traceID"].zfill(32)
        document = get_json(f"{url}/api/traces/{trace_id}")
        for batch in document.get("batches", document.get("resourceSpans", [])):
            for scope in batch.get("scopeSpans", []):
                for span in scope["spans"]:
                    found.setdefault(trace_id, {})[_hex(span["spanId"])] = span
    return found


def _hex(identifier: str) -> str:
    """Return an id as hex; Tempo's JSON has it in base64."""
    return identifier if len(identifier) == 16 else base64.b64decode(identifier).hex()
