"""Counting a run in the stores: what agrees, what is missing, what cannot be asked; against made-up servers."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_train.cli.main import main
from otel_train.clock import NS_PER_S
from otel_train.export.verify import TEMPO_QUIET_S, Stores, Verdict, expected_of
from otel_train.otlp.from_sdk import metrics_line
from otel_train.record.entries import Sample
from otel_train.testing import ManualClock
from tests.otlp_server import OtlpServer, free_port
from tests.runs import RUN_ID, START_NS, RunBuilder


class StoreServer:
    """Answers Prometheus', Loki's and Tempo's queries from what it is given."""

    def __init__(self) -> None:
        self.points: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}
        self.records = 0
        # What a range of Loki has; and what the next asks for its count give, before it is `records`.
        self.lines: list[tuple[int, str]] = []
        self.counts: list[int] = []
        self.traces: dict[str, list[tuple[str, str]]] = {}
        self.queries: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                status, body = outer.answer(parts.path, {key: value[0] for key, value in parse_qs(parts.query).items()})
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        self.queries.append(query.get("query", path))
        if path == "/api/v1/query":
            match = re.match(r'count_over_time\(\{__name__="(\w+)",run_id="([\w-]+)"\}\[\d+s\]\)', query["query"])
            assert match is not None, query
            result = [
                {"metric": {**dict(labels), "run_id": match[2], "job": "digits", "dl_rank": "0"}, "value": [1, str(n)]}
                for (name, labels), n in self.points.items()
                if name == match[1]
            ]
            return 200, {"status": "success", "data": {"resultType": "vector", "result": result}}
        if path == "/loki/api/v1/query":
            count = self.counts.pop(0) if self.counts else self.records
            result = [{"metric": {}, "value": [1, str(count)]}] if count else []
            return 200, {"status": "success", "data": {"resultType": "vector", "result": result}}
        if path == "/loki/api/v1/query_range":
            rows = [row for row in self.lines if int(query["start"]) <= row[0] < int(query["end"])]
            page = [[str(at_ns), line] for at_ns, line in rows[: int(query["limit"])]]
            result = [{"stream": {"service_name": "digits"}, "values": page}] if page else []
            return 200, {"status": "success", "data": {"resultType": "streams", "result": result}}
        trace_id = path.rpartition("/")[2]
        if trace_id not in self.traces:
            return 404, {"error": "trace not found"}
        blocks = [
            {
                "resource": {"attributes": [{"key": "run_id", "value": {"stringValue": run_id}}]},
                "scopeSpans": [{"spans": [{"spanId": base64.b64encode(bytes.fromhex(span_id)).decode()}]}],
            }
            for run_id, span_id in self.traces[trace_id]
        ]
        return 200, {"trace": {"resourceSpans": blocks}}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def store() -> Iterator[StoreServer]:
    made = StoreServer()
    yield made
    made.close()


def a_run(root: Path) -> RunBuilder:
    """Five points of the loss in four milliseconds, one reading of energy, two records, a span."""
    builder = RunBuilder(root).attempt()
    builder.log({"loss": [5.0, 4.0, 3.0, 2.0, 1.0]}, times_s=[1.0, 1.0002, 2.0, 3.0, 4.0])
    builder.samples(5.0, [Sample("hw.energy", 10, (("hw.id", "GPU-1"),))])
    builder.record("one").record("two", at_s=2.0)
    return builder.span("step", 1.0, 2.0, span_id=0x11).end()


def fill(store: StoreServer) -> None:
    """Have the store hold all of `a_run`."""
    store.points = {
        ("train_loss", (("split", "train"),)): 4,
        ("hw_energy_joules_total", (("hw_id", "GPU-1"),)): 1,
    }
    store.records = 2
    store.traces = {f"{7:032x}": [(RUN_ID, f"{0x11:016x}")]}


def verify(path: Path, store: StoreServer) -> list[Verdict]:
    return Stores(store.url, store.url, store.url, wait=lambda _: None).verify(path)


def test_a_run_log_is_counted_as_the_stores_keep_it(root: Path) -> None:
    """Points within one millisecond are one for Prometheus; names and labels are spelled as it spells them."""
    expected = expected_of(a_run(root).path)
    assert dict(expected.points) == {
        ("train_loss", (("split", "train"),)): 4,
        ("hw_energy_joules_total", (("hw_id", "GPU-1"),)): 1,
    }
    assert expected.records == 2
    assert expected.spans == {f"{7:032x}": {f"{0x11:016x}"}}


def test_what_other_instruments_record_is_spelled_as_prometheus_does(root: Path) -> None:
    """A histogram by bounds is counted by its count; lists are JSON, whole numbers have no point, no name is empty."""
    meter = MeterProvider(metric_readers=[reader := InMemoryMetricReader()], shutdown_on_exit=False).get_meter("mine")
    meter.create_histogram("latency", unit="ms").record(3, {"sizes": [1, 2], "share": 2.0, "on": True, "率": "x"})
    data = reader.get_metrics_data()
    assert data is not None
    run = RunBuilder(root).attempt()
    (run.folder.rank_folder(1, 0) / "metrics.000001.jsonl").write_bytes(metrics_line(data))
    labels = (("key__", "x"), ("on", "true"), ("share", "2"), ("sizes", "[1,2]"))
    assert dict(expected_of(run.path).points) == {("latency_milliseconds_count", labels): 1}


def test_stores_that_hold_everything_agree(root: Path, store: StoreServer) -> None:
    """Each store's count is the run log's."""
    fill(store)
    verdicts = verify(a_run(root).path, store)
    assert [(item.store, item.expected, item.found, item.agrees) for item in verdicts] == [
        ("Prometheus", 5, 5, True),
        ("Loki", 2, 2, True),
        ("Tempo", 1, 1, True),
    ]


def test_what_is_missing_is_named_by_series_and_trace(root: Path, store: StoreServer) -> None:
    """One point, one record and one span short: each is told where it is."""
    fill(store)
    store.points[("train_loss", (("split", "train"),))] = 3
    store.records = 1
    store.traces = {f"{7:032x}": [("20250101-000000-zzzzzzzz", f"{0x11:016x}")]}
    verdicts = verify(a_run(root).path, store)
    assert [item.differences for item in verdicts] == [
        ["train_loss{split='train'}: 3 of 4 points"],
        ["1 of 2 log records"],
        [f"trace {7:032x}: 0 of 1 spans"],
    ]


def test_too_much_is_told_too(root: Path, store: StoreServer) -> None:
    """A store that holds more than the run log has something of another origin under this run id."""
    fill(store)
    store.points[("train_loss", (("split", "val"),))] = 2
    (metrics, _, _) = verify(a_run(root).path, store)
    assert metrics.differences == ["train_loss{split='val'}: 2 of 0 points"]


def test_what_is_on_its_way_is_waited_for(root: Path, store: StoreServer) -> None:
    """A store that gets more from ask to ask is asked on; one that stands still is given its patience, and no more."""
    fill(store)
    clock = ManualClock()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock.advance(seconds)

    stores = Stores(store.url, store.url, store.url, clock=clock, wait=wait)
    path = a_run(root).path
    store.counts = [0, 0, 1, 1]
    assert [item.agrees for item in stores.verify(path, patience_s=1.0)] == [True, True, True]
    # Four times for Loki; then Tempo, which is left alone for so long before its traces are read.
    assert waits == [0.5, 0.5, 0.5, 0.5, TEMPO_QUIET_S - 2.0]
    store.records = 1
    waits.clear()
    assert [item.differences for item in stores.verify(path, patience_s=3.0)][1] == ["1 of 2 log records"]
    assert waits == [0.5] * 6 + [TEMPO_QUIET_S - 3.0]


def test_a_trace_is_not_read_while_it_may_be_arriving(root: Path, store: StoreServer) -> None:
    """Tempo loses spans of a trace that is read too early: not before the quiet time, and not again before another."""
    fill(store)
    clock = ManualClock()
    asked: list[tuple[float, int]] = []
    begun_ns = clock.mono_ns()

    def wait(seconds: float) -> None:
        clock.advance(seconds)
        asked.append(((clock.mono_ns() - begun_ns) / NS_PER_S, sum("traces" in query for query in store.queries)))

    store.traces.clear()
    stores = Stores(store.url, store.url, store.url, clock=clock, wait=wait)
    verdict = stores.verify(a_run(root).path, patience_s=20.0)[2]
    assert verdict.differences
    assert asked == [(11.0, 0), (22.0, 1), (33.0, 2)]
    assert sum("traces" in query for query in store.queries) == 3


def test_a_record_that_was_sent_twice_is_one(root: Path, store: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loki counts it twice until it is flushed: then records are read, page after page, and each counts once."""
    monkeypatch.setattr("otel_train.export.verify.PAGE", 2)
    fill(store)
    path = a_run(root).path
    store.records = 3
    store.lines = [(START_NS + NS_PER_S, "one"), (START_NS + 2 * NS_PER_S, "two")]
    assert verify(path, store)[1].agrees
    store.lines.append((START_NS + 3 * NS_PER_S, "of nobody"))
    assert verify(path, store)[1].differences == ["3 of 2 log records"]


def test_a_store_that_is_not_there_is_told_and_the_others_are_asked(root: Path, store: StoreServer) -> None:
    """Nobody listens where Loki should be."""
    fill(store)
    stores = Stores(store.url, f"http://127.0.0.1:{free_port()}", store.url, wait=lambda _: None)
    verdicts = stores.verify(a_run(root).path)
    assert [item.agrees for item in verdicts] == [True, False, True]
    assert verdicts[1].fault.startswith("not reachable")


def test_push_verify_prints_the_table_and_its_code_says_whether_all_agree(
    root: Path, store: StoreServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code 0 and `same` three times where all agree; code 3 and the difference where one does not."""
    monkeypatch.setattr("otel_train.export.verify.TEMPO_QUIET_S", 0.1)
    a_run(root)
    fill(store)
    places = ["--prometheus", store.url, "--loki", store.url, "--tempo", store.url, "--verify"]
    with OtlpServer().start() as server:
        assert main(["push", "latest", "--endpoint", server.url, *places]) == 0
        assert capsys.readouterr().out.count("same") == 3
        store.records = 0
        assert main(["push", "latest", "--endpoint", server.url, *places, "--patience", "0.1s"]) == 3
        assert "differs: 0 of 2 log records" in capsys.readouterr().out
