"""The direct mode's sending: official exporters carry every item as it is, and each that is lost is counted."""

from __future__ import annotations

import logging
import math
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from otlp_oracle import message
from otlp_servers import Certificates
from protobuf_receiver import Answer, GrpcReceiver, HttpReceiver, Received

from otel_train import __version__
from otel_train.clock import mono_ns
from otel_train.errors import ConfigError
from otel_train.export.destination import GRPC, HTTP_PROTOBUF, Destination
from otel_train.export.direct import UNREADABLE, DirectExport
from otel_train.export.metrics_to_sdk import SentPoint, read_points
from otel_train.export.milliseconds import HOLD_NS, Milliseconds
from otel_train.export.official import OfficialExporter, direct_destinations
from otel_train.otlp.decode import MetricPoint
from otel_train.otlp.encode import LineEncoder
from otel_train.otlp.from_sdk import metrics_line
from otel_train.otlp.histogram import Exemplar, ExponentialHistogram, HistogramData
from otel_train.record.entries import (
    SPAN_FLAGS_REMOTE,
    Column,
    LogEntry,
    Sample,
    SpanEntry,
    SpanEvent,
    SpanLink,
)
from otel_train.runlog.accounting import Accounting
from otel_train.runlog.memory_lines import MERGED, NO_ENDPOINT, NO_ROOM, NOT_SENT, REFUSED, MemoryWriter
from otel_train.runlog.ring import LineRing

START_NS = 1_700_000_000_000_000_000
RESOURCE = {"run_id": "20260101-000000-abcdefgh", "service.name": "digits", "run_attempt": 1}
ENCODER = LineEncoder(RESOURCE, __version__)
SIGNALS = ("metrics", "logs", "traces")
S = 1_000_000_000


class Direct:
    """A run's memory and what sends it to a receiver."""

    def __init__(self, url: str, protocol: str = HTTP_PROTOBUF, *, max_bytes: int = 16 << 20, **about: Any) -> None:
        self.ring = LineRing(max_bytes)
        self.writers = {signal: MemoryWriter(signal, self.ring) for signal in SIGNALS}
        about = {"timeout_s": 2.0, **about}
        destinations = [
            Destination(signal, url if protocol == GRPC else f"{url}/v1/{signal}", protocol, **about)
            for signal in SIGNALS
        ]
        self.export = DirectExport(
            {made.signal: OfficialExporter(made) for made in destinations},
            self.writers,
            addresses={made.signal: made.shown_url for made in destinations},
            jitter=lambda: 0.0,
        )

    def write(self, signal: str, line: bytes, items: int) -> None:
        self.writers[signal].write(line, items)

    def gauges(self, times_ms: list[float], values: list[float], name: str = "train.loss", items: int = -1) -> None:
        times = [START_NS + round(ms * 1_000_000) for ms in times_ms]
        line = ENCODER.points([Column(name, times, values, (("split", "train"),))])
        self.write("metrics", line, len(values) if items < 0 else items)

    def logs(self, *texts: str) -> None:
        self.write("logs", ENCODER.logs([record(text) for text in texts]), len(texts))

    def end(self, timeout_s: float = 10.0) -> bool:
        return self.export.end(mono_ns() + int(timeout_s * S))

    def account(self) -> dict[str, Any]:
        """What the run's own account would say: recorded items, and lost ones by cause, of each signal with any."""
        accounting = Accounting()
        for signal, writer in self.writers.items():
            accounting.recorded[signal] = writer.items_written
            for cause, items in writer.losses(ended=True).items():
                accounting.set_dropped(signal, cause, items)
        told = accounting.to_dict()
        return {"recorded": {key: count for key, count in told["recorded"].items() if count}, "lost": told["dropped"]}


def record(text: str) -> LogEntry:
    return LogEntry(time_ns=START_NS, severity_number=9, severity_text="INFO", body=text)


@pytest.fixture(params=[HTTP_PROTOBUF, GRPC])
def receiver(request: pytest.FixtureRequest) -> Iterator[Received]:
    with HttpReceiver() if request.param == HTTP_PROTOBUF else GrpcReceiver() as made:
        made.protocol = request.param
        yield made


def lines() -> dict[str, list[bytes]]:
    """Lines of every kind of item that a run records."""
    histogram = ExponentialHistogram()
    for value in (0.001, 0.5, 0.5, 80.0):
        histogram.record(value, Exemplar(time_ns=START_NS + 7, value=value, trace_id=5, span_id=6))
    value, exemplars = histogram.snapshot()
    duration = HistogramData(
        name="dl.step.duration",
        unit="s",
        description="Steps.",
        attributes=(("split", "train"),),
        start_ns=START_NS,
        time_ns=START_NS + 9,
        value=value,
        exemplars=exemplars,
    )
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("user.library", "3")
    meter.create_histogram("latency", unit="ms", explicit_bucket_boundaries_advisory=[1.0, 5.0]).record(3.0, {"a": 1})
    meter.create_up_down_counter("queue").add(-4)
    instruments = reader.get_metrics_data()
    assert instruments is not None
    times = [START_NS + number for number in (1_000_000, 2_000_001, 3_000_003, 4_000_000)]
    logs = [
        LogEntry(
            time_ns=START_NS + 1,
            observed_time_ns=START_NS + 2,
            severity_number=17,
            severity_text="ERROR",
            body={"nested": {"list": [1, 2.5, "three", True]}, "bytes": b"\x00\xff"},
            attributes={"dl.step": 3, "texts": ["a", "b"], "share": 0.5, "map": {"k": 1}},
            event_name="health.nonfinite",
            trace_id=0x1234,
            span_id=0x56,
            flags=1,
            dropped_attributes=2,
        ),
        LogEntry(
            time_ns=START_NS + 3, severity_number=0, severity_text="", body="plain", scope="lib", scope_version="1"
        ),
    ]
    spans = [
        SpanEntry(
            name="step",
            trace_id=0xABC,
            span_id=0xDEF,
            parent_span_id=0x123,
            start_ns=START_NS,
            end_ns=START_NS + 5,
            kind=3,
            attributes={"dl.step": 3, "ok": True},
            events=[SpanEvent(time_ns=START_NS + 1, name="began", attributes={"n": 1}, dropped_attributes=1)],
            links=[
                SpanLink(trace_id=0x77, span_id=0x88, attributes={"why": "run"}),
                SpanLink(trace_id=0x99, span_id=0xAA, flags=SPAN_FLAGS_REMOTE, dropped_attributes=3),
            ],
            status_code=2,
            status_message="bad",
            trace_state="a=1,b=2",
            flags=SPAN_FLAGS_REMOTE,
            dropped_attributes=4,
            dropped_events=5,
            dropped_links=6,
        ),
        SpanEntry(name="plain", trace_id=1, span_id=2, start_ns=START_NS, end_ns=START_NS + 1, scope="lib"),
    ]
    return {
        "metrics": [
            ENCODER.points(
                [
                    Column(
                        "train.loss", times, [0.5, math.nan, math.inf, -math.inf], (("split", "train"),), "", "loss"
                    ),
                    Column("train.count", times, [1, 2, 3, 2**62], (), "1"),
                ]
            ),
            ENCODER.samples(START_NS + 8, START_NS, [Sample("dl.nonfinite", 3, (("metric", "train.loss"),))]),
            ENCODER.samples(START_NS + 8, START_NS, [Sample("system.memory.usage", 1 << 40)]),
            ENCODER.histograms([duration]),
            metrics_line(instruments, RESOURCE),
        ],
        "logs": [ENCODER.logs(logs)],
        "traces": [ENCODER.spans(spans)],
    }


def metric_items(requests: list[Any]) -> list[bytes]:
    """Each point with its surroundings, one message an item, in an order of its own."""
    found = []
    for request in requests:
        for block in request.resource_metrics:
            for scope in block.scope_metrics:
                for metric in scope.metrics:
                    kind = metric.WhichOneof("data")
                    for point in getattr(metric, kind).data_points:
                        single = type(request)()
                        outer = single.resource_metrics.add(resource=block.resource)
                        inner = outer.scope_metrics.add(scope=scope.scope)
                        alone = inner.metrics.add()
                        alone.CopyFrom(metric)
                        del getattr(alone, kind).data_points[:]
                        getattr(alone, kind).data_points.append(point)
                        found.append(single.SerializeToString(deterministic=True))
    return sorted(found)


def test_every_item_arrives_as_the_message_that_its_line_is(receiver: Received) -> None:
    """NaN, infinities, 64-bit integers, times to the nanosecond, exemplars, links, events, ids, what was dropped."""
    direct = Direct(receiver.url, receiver.protocol)
    sent = lines()
    for signal, of_signal in sent.items():
        for line in of_signal:
            direct.write(signal, line, 0)
    direct.export.start()
    assert direct.end()
    wanted = [message(line) for line in sent["metrics"]]
    for request in wanted:
        for block in request.resource_metrics:
            # The SDK's scopes have a schema of their own; here none has one.
            assert not block.schema_url
    arrived = receiver.of("metrics")
    without_marks = [item for item in metric_items(arrived) if b"\x02\x00\x00\x00\x00\x00\xf0\x7f" not in item]
    without_marks = [item for item in without_marks if b"dl.step.duration" not in item or b"P\x01" not in item[-40:]]
    assert without_marks == metric_items(wanted)
    (logs,) = receiver.of("logs")
    assert (
        logs.resource_logs[0].scope_logs[0].log_records[0]
        == (message(sent["logs"][0]).resource_logs[0].scope_logs[0].log_records[0])
    )
    assert logs == message(sent["logs"][0])
    (traces,) = receiver.of("traces")
    assert traces == message(sent["traces"][0])


def test_each_series_ends_once_one_millisecond_after_its_last_point(receiver: Received) -> None:
    """A number's mark has the bits of Prometheus' stale marker, a histogram's the flag of OTLP.

    A histogram by bounds has no mark: zero counts would look like a restart.
    """
    direct = Direct(receiver.url, receiver.protocol)
    for line in lines()["metrics"]:
        direct.write("metrics", line, 0)
    direct.export.start()
    assert direct.end()
    ends = {(end.name, tuple(sorted(end.attributes.items()))): end.time_ns for end in receiver.ends()}
    assert len(receiver.ends()) == len(ends)
    assert ends[("train.loss", (("split", "train"),))] == START_NS + 4_000_000 + 1_000_000
    assert ends[("dl.step.duration", (("split", "train"),))] == START_NS + 9 + 1_000_000
    assert {name for name, _ in ends} == {
        "train.loss",
        "train.count",
        "dl.nonfinite",
        "system.memory.usage",
        "dl.step.duration",
        "queue",
    }


def test_points_within_a_millisecond_are_merged_and_counted(receiver: Received) -> None:
    """The last one wins, NaN over all, whatever line they came in; times are those of the winners."""
    direct = Direct(receiver.url, receiver.protocol)
    direct.gauges([0.1, 0.2, 1.1], [1.0, 2.0, 3.0])
    direct.gauges([1.2, 2.0, 2.5, 2.6, 3.0], [4.0, math.nan, 5.0, 6.0, 7.0])
    direct.gauges([0.1, 0.2], [8.0, 9.0], name="dl.step", items=0)
    direct.export.start()
    assert direct.end()
    points = receiver.points("train.loss")
    assert [(point.time_ns - START_NS, str(point.value)) for point in points] == [
        (200_000, "2.0"),
        (1_200_000, "4.0"),
        (2_000_000, "nan"),
        (3_000_000, "7.0"),
    ]
    assert receiver.values("dl.step") == [9.0]
    assert direct.account() == {"recorded": {"metrics": 4}, "lost": {"metrics": {MERGED: 4}}}


def test_an_overflow_of_the_memory_is_counted_to_the_item() -> None:
    """While the server is away the oldest give way: what arrives and what was lost add up to all."""
    with HttpReceiver() as receiver:
        receiver.answer = lambda signal, request: Answer(503)
        direct = Direct(receiver.url, max_bytes=20_000, timeout_s=0.5)
        direct.export.start()
        written = 0
        for number in range(40):
            count = 5 + number % 7
            times = [float(number * 100 + place) for place in range(count)]
            direct.gauges(times, [float(number)] * count)
            direct.logs(*(f"{number}/{place}" for place in range(3)))
            written += count
        receiver.wait_for(lambda: len(receiver.refused) >= 2)
        receiver.answer = lambda signal, request: Answer()
        assert direct.end()
        account = direct.account()
        lost = account["lost"]
        assert lost["metrics"][NO_ROOM] > 0
        assert account["recorded"]["metrics"] + lost["metrics"][NO_ROOM] == written
        assert account["recorded"]["logs"] + lost["logs"][NO_ROOM] == 120
        assert len(receiver.values("train.loss")) == account["recorded"]["metrics"]
        assert len(receiver.bodies()) == account["recorded"]["logs"]
        # The newest are there.
        assert receiver.values("train.loss")[-1] == 39.0
        assert receiver.bodies()[-1] == "39/2"


def test_a_server_that_comes_back_gets_everything_once(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is lost or doubled by an outage, and the user reads of it once, in our words."""
    caplog.set_level(logging.DEBUG)
    with HttpReceiver() as receiver:
        port = receiver.port
        receiver.answer = lambda signal, request: Answer(503, text="starting")
        direct = Direct(receiver.url, timeout_s=0.3)
        direct.export.start()
        direct.gauges([float(ms) for ms in range(100)], [float(ms) for ms in range(100)])
        receiver.wait_for(lambda: len(receiver.refused) >= 3)
        receiver.answer = lambda signal, request: Answer()
        assert direct.end()
        assert port == receiver.port
        assert receiver.values("train.loss") == [float(ms) for ms in range(100)]
        assert direct.account() == {"recorded": {"metrics": 100}, "lost": {}}
    said = [record for record in caplog.records if record.name.startswith(("otel_train", "opentelemetry"))]
    warnings = [record.getMessage() for record in said if record.levelno >= logging.WARNING]
    assert len(warnings) == 1, warnings
    assert "metrics cannot be sent to" in warnings[0]
    assert "503" in warnings[0]
    assert "starting" in warnings[0]


@pytest.mark.parametrize("protocol", [HTTP_PROTOBUF, GRPC])
def test_one_bad_item_does_not_stop_the_rest(protocol: str) -> None:
    """What a server refuses is found by halves; it alone is lost, and counted."""

    def answer(signal: str, request: Any) -> Answer:
        bad = signal == "logs" and b"poison" in request.SerializeToString()
        return Answer(400, grpc.StatusCode.INVALID_ARGUMENT, "bad record") if bad else Answer()

    with HttpReceiver(answer) if protocol == HTTP_PROTOBUF else GrpcReceiver(answer) as receiver:
        direct = Direct(receiver.url, protocol)
        texts = [f"good {number}" for number in range(49)]
        direct.logs(*texts[:30], "poison", *texts[30:])
        direct.export.start()
        assert direct.end()
        assert receiver.bodies() == texts
        assert direct.account() == {"recorded": {"logs": 49}, "lost": {"logs": {REFUSED: 1}}}
        # By halves: some fourteen requests for fifty records, not fifty.
        assert len(receiver.requests) + len(receiver.refused) <= 16


@pytest.mark.parametrize("protocol", [HTTP_PROTOBUF, GRPC])
def test_what_no_exporter_can_encode_is_lost_alone(protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    """A number beyond 64 bits, which the run log itself never writes: the rest of its request arrives."""
    with HttpReceiver() if protocol == HTTP_PROTOBUF else GrpcReceiver() as receiver:
        direct = Direct(receiver.url, protocol)
        line = ENCODER.logs([record(f"good {number}") for number in range(9)])
        assert line.count(b'"severityNumber":9,') == 9
        broken = line.replace(b'"severityNumber":9,', b'"flags":"99999999999999999999999",', 1)
        broken = broken.replace(b'"timeUnixNano":"1700000000000000000"', b'"timeUnixNano":"99999999999999999999999"', 1)
        direct.write("logs", broken, 9)
        direct.export.start()
        assert direct.end()
        assert receiver.bodies() == [f"good {number}" for number in range(1, 9)]
        assert direct.account() == {"recorded": {"logs": 8}, "lost": {"logs": {REFUSED: 1}}}
    assert "refuses 1 of logs" in caplog.text


def test_what_is_no_line_is_lost_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever got into the memory: it is counted, and what follows is sent."""
    with HttpReceiver() as receiver:
        direct = Direct(receiver.url)
        direct.write("logs", b'{"resourceLogs":[{"cut', 3)
        direct.logs("good")
        direct.export.start()
        assert direct.end()
        assert receiver.bodies() == ["good"]
        assert direct.account() == {"recorded": {"logs": 1}, "lost": {"logs": {UNREADABLE: 3}}}
    assert "cannot be read and is lost" in caplog.text


def test_what_a_partial_success_rejects_is_counted_as_refused(caplog: pytest.LogCaptureFixture) -> None:
    """The server took the request and said that it left out two records."""
    with HttpReceiver(lambda signal, request: Answer(rejected=2 * (signal == "logs"), text="too old")) as receiver:
        direct = Direct(receiver.url)
        direct.logs("a", "b", "c", "d", "e")
        direct.export.start()
        assert direct.end()
        assert direct.account() == {"recorded": {"logs": 3}, "lost": {"logs": {REFUSED: 2}}}
    assert "refuses 2 of logs: too old" in caplog.text


@pytest.mark.parametrize("protocol", [HTTP_PROTOBUF, GRPC])
@pytest.mark.alone
def test_a_black_hole_holds_the_end_no_longer_than_its_time(protocol: str) -> None:
    """Nothing answers: the end comes in time, and every item is counted as not sent."""
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(8)
        url = f"http://127.0.0.1:{hole.getsockname()[1]}"
        direct = Direct(url, protocol, timeout_s=3.0)
        direct.export.start()
        direct.gauges([1.0, 2.0], [1.0, 2.0])
        direct.logs("a")
        direct.write("traces", lines()["traces"][0], 2)
        time.sleep(1.2)  # until the threads hang in their first requests
        direct.gauges([3.0], [3.0])
        began_s = time.monotonic()
        assert not direct.end(1.0)
        assert time.monotonic() - began_s < 1.6
        assert direct.account() == {
            "recorded": {},
            "lost": {"metrics": {NOT_SENT: 3}, "logs": {NOT_SENT: 1}, "traces": {NOT_SENT: 2}},
        }


def test_a_request_that_outlasts_the_end_changes_the_account_no_more() -> None:
    """What was counted as not sent stays so, though its answer comes at last."""
    release = []

    def answer(signal: str, request: Any) -> Answer:
        until_s = time.monotonic() + 10
        while not release and time.monotonic() < until_s:
            time.sleep(0.01)
        return Answer()

    with HttpReceiver(answer) as receiver:
        direct = Direct(receiver.url, timeout_s=5.0)
        direct.export.start()
        direct.logs("late")
        assert not direct.end(0.4)
        release.append(True)
        receiver.wait_for(lambda: "late" in receiver.bodies())
        time.sleep(0.1)  # for the thread to hear of it
        assert direct.account() == {"recorded": {}, "lost": {"logs": {NOT_SENT: 1}}}


def test_flush_has_everything_sent_and_says_so(receiver: Received) -> None:
    """Also the newest millisecond, which else waits for a moment; a server that is away makes it False."""
    direct = Direct(receiver.url, receiver.protocol)
    direct.export.start()
    direct.gauges([1.0, 2.0], [1.0, 2.0])
    direct.logs("a")
    assert direct.export.flush(10.0)
    assert receiver.values("train.loss") == [1.0, 2.0]
    assert receiver.bodies() == ["a"]
    # What comes later for a millisecond that has left gives way.
    direct.gauges([2.3, 3.0], [9.0, 3.0])
    assert direct.end()
    assert receiver.values("train.loss") == [1.0, 2.0, 3.0]
    assert direct.account() == {"recorded": {"metrics": 3, "logs": 1}, "lost": {"metrics": {MERGED: 1}}}


def test_flush_is_false_while_nobody_answers() -> None:
    """The caller learns that its points are not there."""
    with HttpReceiver(lambda signal, request: Answer(503)) as receiver:
        direct = Direct(receiver.url, timeout_s=0.3)
        direct.export.start()
        direct.gauges([1.0], [1.0])
        assert not direct.export.flush(1.0)
        direct.end(0.1)


def test_long_records_are_sent_in_several_requests() -> None:
    """A line of 200 tracebacks of 30 KB would be more than a gRPC server takes."""
    with GrpcReceiver() as receiver:
        direct = Direct(receiver.url, GRPC)
        texts = [f"{number:03d}" + "x" * 30_000 for number in range(200)]
        direct.logs(*texts)
        direct.export.start()
        assert direct.end()
        assert [body[:3] for body in receiver.bodies()] == [f"{number:03d}" for number in range(200)]
        assert max(request.ByteSize() for request in receiver.of("logs")) < 4 << 20
        assert direct.account() == {"recorded": {"logs": 200}, "lost": {}}


def test_a_signal_without_an_endpoint_takes_no_room() -> None:
    """Its lines are counted and dropped at once: in the ring they would push out the others."""
    ring = LineRing()
    writers = {signal: MemoryWriter(signal, ring) for signal in SIGNALS}
    DirectExport({}, writers, addresses={})
    writers["traces"].write(lines()["traces"][0], 2)
    assert ring.bytes == 0
    assert writers["traces"].losses(ended=True) == {NO_ENDPOINT: 2}


def test_headers_and_compression_reach_the_server(receiver: Received) -> None:
    """A token goes along, in the names and forms of each protocol."""
    direct = Direct(receiver.url, receiver.protocol, headers={"authorization": "Bearer s3cret"}, compression="gzip")
    direct.logs("a" * 10_000)
    direct.export.start()
    assert direct.end()
    assert receiver.bodies() == ["a" * 10_000]
    assert [headers["authorization"] for headers in receiver.headers] == ["Bearer s3cret"]
    if receiver.protocol == HTTP_PROTOBUF:
        assert receiver.headers[0]["content-encoding"] == "gzip"
        assert int(receiver.headers[0]["content-length"]) < 1000


@pytest.mark.parametrize("protocol", [HTTP_PROTOBUF, GRPC])
def test_certificates_prove_both_sides(protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of a private authority that wants a client's certificate takes everything; without one, nothing."""
    certificates = Certificates.make(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    # The machine's own bundle does not know the authority: what the variable of OTLP names counts.
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.setenv(name, Certificates.make(other).ca_pem)
    kind = HttpReceiver if protocol == HTTP_PROTOBUF else GrpcReceiver
    with kind(certificates=certificates) as receiver:
        known = {"certificate": certificates.ca_pem, "timeout_s": 1.0}
        stranger = Direct(receiver.url, protocol, **known)
        stranger.logs("stranger")
        stranger.export.start()
        assert not stranger.end(1.0)
        client = {"client_key": certificates.client_key, "client_certificate": certificates.client_pem}
        direct = Direct(receiver.url, protocol, **known, **client)
        direct.logs("friend")
        direct.export.start()
        assert direct.end()
        assert receiver.bodies() == ["friend"]
        assert stranger.account() == {"recorded": {}, "lost": {"logs": {NOT_SENT: 1}}}


def test_a_wrong_token_keeps_the_data_and_tells_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    """401 judges nothing of the data: it waits, and the advice names the variable; the token itself is not shown."""
    with HttpReceiver(lambda signal, request: Answer(401, text="who?")) as receiver:
        direct = Direct(receiver.url, headers={"authorization": "Bearer s3cret"})
        direct.logs("a")
        direct.export.start()
        receiver.wait_for(lambda: len(receiver.refused) >= 2)
        receiver.answer = lambda signal, request: Answer()
        assert direct.end()
        assert receiver.bodies() == ["a"]
    assert "OTEL_EXPORTER_OTLP_HEADERS" in caplog.text
    assert "s3cret" not in caplog.text


def test_the_exporters_own_words_of_other_threads_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """A user's own exporter still says what fails."""
    with HttpReceiver() as receiver:
        Direct(receiver.url).export.end(mono_ns())
    logging.getLogger("opentelemetry.exporter.otlp.proto.http.metric_exporter").error("mine")
    assert "mine" in caplog.text


# Merging, with made-up times ---------------------------------------------------------------------------------------


def point(ms: float, value: float, name: str = "train.loss", *, counted: bool = True, **labels: str) -> SentPoint:
    made = MetricPoint(name, "", "", "gauge", tuple(labels.items()), START_NS + round(ms * 1_000_000), value)
    return SentPoint(made, {}, counted=counted)


def values(points: Iterator[SentPoint]) -> list[float | int | None]:
    return [sent.point.value for sent in points]


def test_the_newest_millisecond_waits_for_a_moment() -> None:
    """It is given with the next one, or when the moment is over."""
    merge = Milliseconds()
    assert values(merge.take([point(1, 1.0), point(2, 2.0)], now_ns=0)) == [1.0]
    assert values(merge.release(HOLD_NS // 2 - HOLD_NS)) == []
    assert values(merge.take([point(2.5, 3.0)], now_ns=HOLD_NS)) == []
    assert values(merge.release(0)) == [3.0]
    assert merge.merged == 1
    assert values(merge.release()) == []


def test_names_that_a_store_spells_alike_are_one_series() -> None:
    """`train.a_b` and `train.a.b` share their milliseconds; other labels are another series."""
    merge = Milliseconds()
    given = [point(1, 1.0, "train.a_b"), point(1, 2.0, "train.a.b"), point(1, 3.0, "train.a_b", split="val")]
    assert values(merge.take(given, now_ns=0)) == []
    assert sorted(values(merge.release())) == [2.0, 3.0]  # type: ignore[type-var]
    assert merge.merged == 1


def test_of_two_columns_the_later_time_stays() -> None:
    """A step's own point ends it, the next step's loss follows in the same millisecond: the step is the loss's."""
    merge = Milliseconds()
    count = 200
    losses = [point(ms + 0.5, float(ms)) for ms in range(count)]
    ends = [point(ms + 0.4, float(ms - 1)) for ms in range(1, count)]
    assert values(merge.take([*losses, *ends], now_ns=0)) == [float(ms) for ms in range(count - 1)]
    assert values(merge.release()) == [float(count - 1)]
    assert merge.merged == count - 1


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([1.0, math.nan, 2.0], "nan"),
        ([math.nan, math.inf], "inf"),
        ([1.0, math.inf, math.nan, 2.0], "nan"),
        ([-math.inf, 1.0], "-inf"),
        ([1.0, 2.0, 1.0], "1.0"),
    ],
)
def test_which_point_of_a_millisecond_stays(given: list[float], kept: str) -> None:
    """The last, but one that is not finite over all that are; the last by its time, whatever is read first."""
    merge = Milliseconds()
    later = [point(1 + place / 10, value) for place, value in enumerate(given)]
    assert values(merge.take(reversed(later), now_ns=0)) == []
    assert [str(value) for value in values(merge.release())] == [kept]
    merge = Milliseconds()
    assert values(merge.take([point(1, value) for value in given], now_ns=0)) == []
    assert [str(value) for value in values(merge.release())] == [kept]
    assert merge.merged == len(given) - 1


def test_points_that_cross_keep_their_times_and_never_double() -> None:
    """Two threads log one metric: an older millisecond is given at once, and a second point of it gives way."""
    merge = Milliseconds()
    assert values(merge.take([point(4, 4.0), point(5, 5.0)], now_ns=0)) == [4.0]
    assert values(merge.take([point(3, 3.0)], now_ns=0)) == [3.0]
    assert values(merge.take([point(3.2, 9.0), point(4.9, 9.0), point(6, 6.0)], now_ns=0)) == [5.0]
    assert merge.merged == 2
    marks = list(merge.end_marks())
    assert [mark.point.time_ns for mark in marks] == [START_NS + 6_000_000]


def test_readings_of_the_machine_are_merged_and_not_counted() -> None:
    """The account is of the user's points."""
    merge = Milliseconds()
    assert values(merge.take([point(1, 1.0, counted=False), point(1.5, 2.0, counted=False)], now_ns=0)) == []
    assert merge.merged == 0
    assert values(merge.release()) == [2.0]


def test_a_summary_becomes_the_series_that_prometheus_makes_of_it() -> None:
    """The SDK has no class for one; sum, count and quantiles keep their names."""
    line = (
        b'{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"size","unit":"By","summary":{"dataPoints":['
        b'{"timeUnixNano":"5","count":"3","sum":6.5,"quantileValues":[{"quantile":0.5,"value":2.0}]}]}}]}]}]}\n'
    )
    found = [(sent.point.name, sent.point.unit, sent.point.value, sent.point.attributes) for sent in read_points(line)]
    assert found == [
        ("size_sum", "", 6.5, ()),
        ("size_count", "", 3, ()),
        ("size", "", 2.0, (("quantile", "0.5"),)),
    ]


# Where to --------------------------------------------------------------------------------------------------------


def test_the_protocol_is_protobuf_unless_grpc_is_asked_for() -> None:
    """The official exporters speak no JSON, which is else the default; a signal's own variable counts."""
    environ = {"OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "grpc", "OTEL_TRACES_EXPORTER": "none"}
    found = direct_destinations(environ, "http://collector:4318")
    assert {made.signal: (made.protocol, made.url) for made in found} == {
        "metrics": (HTTP_PROTOBUF, "http://collector:4318/v1/metrics"),
        "logs": (GRPC, "http://collector:4318"),
    }
    assert found.traces is None


def test_without_an_endpoint_there_is_nothing_to_start() -> None:
    """Nothing would be kept: the error says what is missing."""
    with pytest.raises(ConfigError, match="nothing would be kept") as caught:
        direct_destinations({}, None)
    assert (caught.value.field, caught.value.value) == ("dir", False)


def test_a_missing_package_is_said_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The official exporters are an extra."""
    monkeypatch.setattr("otel_train.export.official.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'otel-train\[otlp\]'"):
        direct_destinations({}, "http://collector:4318")
