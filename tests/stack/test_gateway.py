"""The gateway's own work: what it removes, renames, sorts, archives and refuses, seen at the stores behind it."""

from __future__ import annotations

import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_train.runlog.reader import RunReader
from tests.stack import telemetry
from tests.stack.asking import get, wait_for
from tests.stack.fake_store import FakeStore, attributes, value_of
from tests.stack.programs import COLLECTOR
from tests.stack.servers import Agent, Collector

RUN_ID = "20260101-000000-aaaaaaaa"


@pytest.fixture
def store() -> Iterator[FakeStore]:
    """One store for all three signals."""
    made = FakeStore()
    yield made
    made.close()


@pytest.fixture
def gateway(run_server: Callable[..., Any], store: FakeStore, tmp_path: Path) -> Collector:
    """The shipped gateway before that store."""
    made: Collector = run_server(
        lambda: Collector(tmp_path / "gateway", prometheus=store.url, loki=store.url, tempo=store.url)
    )
    return made


def test_secrets_are_masked_by_their_shape_and_harmless_keys_stay(gateway: Collector, store: FakeStore) -> None:
    """Tokens in bodies, attributes and resources become ****, while num_memory_tokens and use_cls_token are kept."""
    secrets = {
        "argv": "--api-key sk-FAKE1aaaaBBBBccccDDDD --num_memory_tokens 16",
        "remote": "https://u:FAKEPAT2@git.example/a/b.git",
        "db": "postgres://u:FAKE4@h/db",
        "token_url": "https://FAKE9aaaaaaaaaaaaaaa@git.example/a.git",
        "hf": "hf_FAKE3abcdefghijklmnop",
        "header": "authorization: Bearer FAKE5abc.def",
    }
    harmless = {
        "use_cls_token": True,
        "num_memory_tokens": 16,
        "ssh": "ssh://git@git.example/a.git",
        "note": "task-force",
    }
    body = telemetry.records(RUN_ID, [f"login with ghp_FAKE6{'x' * 30} done"], **secrets, **harmless)
    assert telemetry.send(gateway.url, "logs", body)[0] == 200
    nested = telemetry.encoder(RUN_ID, token="xoxb-FAKE7-aaaaaaaaaaaa").logs(
        [
            telemetry.LogEntry(
                time_ns=telemetry.START_NS,
                severity_number=9,
                severity_text="INFO",
                body={"deep": {"key": "glpat-FAKE8aaaaaaaaaaaaaaaa", "layers": 12}},
            )
        ]
    )
    assert telemetry.send(gateway.url, "logs", nested)[0] == 200
    found = wait_for("both records", lambda: rows if len(rows := list(store.records())) == 2 else None)
    assert all(b"FAKE" not in posted.body for posted in store.accepted)
    texts = {value_of(record.body) for _, record in found if isinstance(value_of(record.body), str)}
    assert texts == {"login with **** done"}
    kept = next(attributes(record.attributes) for _, record in found if record.attributes)
    assert {key: kept[key] for key in harmless} == harmless
    assert kept["argv"] == "--api-key **** --num_memory_tokens 16"
    assert kept["remote"] == "https****git.example/a/b.git"
    assert kept["db"] == "postgres****h/db"
    (deep,) = (value_of(record.body) for _, record in found if isinstance(value_of(record.body), dict))
    assert deep == {"deep": {"key": "****", "layers": 12}}


def test_metrics_of_megatron_get_the_names_of_otel_train(gateway: Collector, store: FakeStore) -> None:
    """`nemo.run.id` becomes run_id, and each megatron.training metric the name that dashboards and rules ask for."""
    gauges = {
        "megatron.training.loss": 2.5,
        "megatron.training.grad_norm": 0.75,
        "megatron.training.tokens_per_sec": 18500.0,
        "megatron.training.learning_rate": 3e-4,
        "megatron.training.throughput_tflops": 312.0,
        "rl.kl_divergence": 0.01,
    }
    time = str(telemetry.START_NS)
    metrics: list[dict[str, Any]] = [
        {"name": name, "gauge": {"dataPoints": [{"timeUnixNano": time, "asDouble": value}]}}
        for name, value in gauges.items()
    ]
    metrics.append(
        {
            "name": "megatron.training.step_duration_ms",
            "unit": "ms",
            "histogram": {
                "aggregationTemporality": 2,
                "dataPoints": [
                    {
                        "startTimeUnixNano": time,
                        "timeUnixNano": time,
                        "count": "2",
                        "sum": 900.0,
                        "explicitBounds": [250, 500],
                        "bucketCounts": ["0", "2", "0"],
                    }
                ],
            },
        }
    )
    resource = {"attributes": [{"key": "nemo.run.id", "value": {"stringValue": "job-7"}}]}
    body = {"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": metrics}]}]}
    assert telemetry.send(gateway.url, "metrics", body)[0] == 200
    found = wait_for("the metrics", lambda: rows if len(rows := list(store.metrics())) == 7 else None)
    assert {row["run_id"] for row, _ in found} == {row["run_name"] for row, _ in found} == {"job-7"}
    values = {metric.name: metric.gauge.data_points[0] for _, metric in found if metric.HasField("gauge")}
    assert {name: point.as_double for name, point in values.items()} == {
        "train.loss": 2.5,
        "dl.grad.norm": 0.75,
        "dl.job.tokens_per_second": 18500.0,
        "train.learning_rate": 3e-4,
        "train.throughput_tflops": 312.0,
        "rl.kl_divergence": 0.01,
    }
    assert attributes(values["train.loss"].attributes) == {"split": "train"}
    (duration,) = (metric for _, metric in found if metric.HasField("histogram"))
    assert (duration.name, duration.unit) == ("dl.step.duration", "s")
    point = duration.histogram.data_points[0]
    assert (point.sum, list(point.explicit_bounds), list(point.bucket_counts)) == (0.9, [0.25, 0.5], [0, 2, 0])


def test_what_has_no_run_id_passes_as_it_came(gateway: Collector, store: FakeStore) -> None:
    """A producer that knows no runs is not refused, not renamed, and not archived."""
    point = {"timeUnixNano": str(telemetry.START_NS), "asDouble": 1.0}
    body = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "x", "gauge": {"dataPoints": [point]}}]}]}]}
    assert telemetry.send(gateway.url, "metrics", body)[0] == 200
    ((resource, metric),) = wait_for("the metric", lambda: list(store.metrics()))
    assert (resource, metric.name) == ({}, "x")
    assert telemetry.send(gateway.url, "metrics", telemetry.gauge(RUN_ID, [1]))[0] == 200
    wait_for("the archive", lambda: (gateway.archive / RUN_ID).exists())
    assert [path.name for path in gateway.archive.iterdir()] == [RUN_ID]


def test_a_delta_counter_arrives_cumulative(gateway: Collector, store: FakeStore) -> None:
    """Prometheus refuses a request for one delta point: 3 and then 4 arrive as 3 and 7."""
    for number, value in enumerate([3, 4]):
        start, time = (str(telemetry.START_NS + (number + offset) * 1_000_000_000) for offset in (0, 1))
        point = {"startTimeUnixNano": start, "timeUnixNano": time, "asInt": str(value)}
        data = {"aggregationTemporality": 1, "isMonotonic": True, "dataPoints": [point]}
        body = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "hits", "sum": data}]}]}]}
        assert telemetry.send(gateway.url, "metrics", body)[0] == 200
    found = wait_for(
        "both points",
        lambda: (
            rows
            if len(rows := [point for _, metric in store.metrics() for point in metric.sum.data_points]) == 2
            else None
        ),
    )
    assert [int(point.as_int or point.as_double) for point in found] == [3, 7]
    assert {metric.sum.aggregation_temporality for _, metric in store.metrics()} == {2}


def test_a_run_can_be_read_from_the_archive(gateway: Collector, store: FakeStore) -> None:
    """The archive is a run folder: points, records and spans lie under run, attempt and rank, also after a restart."""
    ranks = {rank: telemetry.encoder(RUN_ID, run_attempt=2, **{"dl.rank": rank}) for rank in (0, 1)}
    column = telemetry.Column("train.loss", [telemetry.START_NS], [0.5], (("split", "train"),))
    for rank, encoder in ranks.items():
        assert telemetry.send(gateway.url, "metrics", encoder.points([column]))[0] == 200, rank
    assert telemetry.send(gateway.url, "logs", telemetry.records(RUN_ID, ["one"]))[0] == 200
    assert telemetry.send(gateway.url, "traces", telemetry.spans(RUN_ID, [("load", {})]))[0] == 200
    folder = gateway.archive / RUN_ID
    files = ["attempt-1/rank-0/logs", "attempt-1/rank-0/traces", "attempt-2/rank-0/metrics", "attempt-2/rank-1/metrics"]
    wait_for("four files", lambda: all((folder / f"{name}.000001.jsonl").exists() for name in files))
    gateway.restart()
    assert telemetry.send(gateway.url, "logs", telemetry.records(RUN_ID, ["two"]))[0] == 200
    logs = folder / f"{files[0]}.000001.jsonl"
    wait_for("the second record", lambda: len(logs.read_text().splitlines()) == 2)
    reader = RunReader(folder)
    assert [(point.name, point.value, context.rank) for point, context in reader.points(attempt=2)] == [
        ("train.loss", 0.5, 0),
        ("train.loss", 0.5, 1),
    ]
    assert [entry.body for entry, _ in reader.logs()] == ["one", "two"]
    assert [span.name for span, _ in reader.spans()] == ["load"]
    assert not reader.damage


def test_a_run_id_cannot_leave_the_archive(gateway: Collector, store: FakeStore) -> None:
    """Path signs in a foreign run id become underscores."""
    assert telemetry.send(gateway.url, "metrics", telemetry.gauge("../../etc/x=1", [1]))[0] == 200
    wait_for("the archive", lambda: gateway.archive.exists() and list(gateway.archive.iterdir()))
    assert [path.name for path in gateway.archive.iterdir()] == ["__.._etc_x_1"]


def test_an_archive_that_cannot_be_written_does_not_stop_the_stores(
    run_server: Callable[..., Any], store: FakeStore, tmp_path: Path
) -> None:
    """Where the archive's folder is a file, every point still reaches the store once, and the loss is counted."""
    gateway: Collector = run_server(
        lambda: Collector(tmp_path / "gateway", prometheus=store.url, loki=store.url, tempo=store.url), start=False
    )
    gateway.archive.write_text("not a folder")
    gateway.start()
    assert telemetry.send(gateway.url, "metrics", telemetry.gauge(RUN_ID, range(100)))[0] == 200
    wait_for("100 points", lambda: sum(store.values("train.loss").values()) == 100)
    wait_for(
        "the count of what the archive lost",
        lambda: (
            'otelcol_exporter_send_failed_metric_points_total{exporter="otlp_http/archive"'
            in get(gateway.telemetry_url).decode()
        ),
    )
    assert set(store.values("train.loss").values()) == {1}


def test_only_spans_of_stages_become_stage_metrics(
    run_server: Callable[..., Any], store: FakeStore, tmp_path: Path
) -> None:
    """A stage counts once with its duration; its announcement, steps and other spans do not."""
    often = tmp_path / "often.yaml"
    often.write_text("connectors: {spanmetrics/stages: {metrics_flush_interval: 1s}}\n")
    gateway: Collector = run_server(
        lambda: Collector(tmp_path / "gateway", prometheus=store.url, tempo=store.url, more=[often])
    )
    rows: list[tuple[str, dict[str, Any]]] = [
        ("load", {"dl.stage": "load"}),
        ("load", {"dl.stage": "load", "dl.announces": "00000000000000ff"}),
        ("step", {"dl.step": 7}),
        ("checkpoint", {"dl.stage": "load"}),
    ]
    assert telemetry.send(gateway.url, "traces", telemetry.spans(RUN_ID, rows))[0] == 200

    def found() -> dict[str, tuple[dict[str, Any], Any]]:
        """The last of each metric; a counter begins with a point of zero."""
        last = {metric.name: (resource, metric) for resource, metric in store.metrics()}
        counted = "dl.stage.calls" in last and last["dl.stage.calls"][1].sum.data_points[0].as_int
        return last if counted else {}

    metrics = wait_for("the stage metrics", found, timeout_s=60)
    assert set(metrics) == {"dl.stage.calls", "dl.stage.duration"}
    resource, calls = metrics["dl.stage.calls"]
    assert resource["run_id"] == RUN_ID
    (point,) = calls.sum.data_points
    assert attributes(point.attributes) == {"span.name": "load", "status.code": "STATUS_CODE_UNSET"}
    assert point.as_int == 1
    duration = metrics["dl.stage.duration"][1]
    assert duration.unit == "s"
    assert duration.exponential_histogram.data_points[0].sum == 1.0
    assert len({span.span_id for _, span in store.spans()}) == 4


def test_a_token_is_asked_for_where_one_is_set(
    run_server: Callable[..., Any], store: FakeStore, tmp_path: Path
) -> None:
    """OTEL_TRAIN_TOKEN alone switches it on: no token or a wrong one is 401, the right one 200."""
    gateway: Collector = run_server(
        lambda: Collector(tmp_path / "gateway", prometheus=store.url, variables={"OTEL_TRAIN_TOKEN": "correct-horse"})
    )
    body = telemetry.gauge(RUN_ID, [1])
    assert telemetry.send(gateway.url, "metrics", body)[0] == 401
    assert telemetry.send(gateway.url, "metrics", body, Authorization="Bearer wrong")[0] == 401
    assert telemetry.send(gateway.url, "metrics", body, Authorization="Bearer correct-horse")[0] == 200
    wait_for("the point", lambda: sum(store.values("train.loss").values()) == 1)


def test_tls_is_spoken_where_a_certificate_is_set(
    run_server: Callable[..., Any], store: FakeStore, tmp_path: Path
) -> None:
    """OTEL_TRAIN_TLS_CERT and _KEY alone switch it on; with a token beside it the right client gets through."""
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout {key} -out {certificate} "
        "-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1",
        shell=True,
        check=True,
        capture_output=True,
    )
    gateway: Collector = run_server(
        lambda: Collector(
            tmp_path / "gateway",
            prometheus=store.url,
            variables={
                "OTEL_TRAIN_TOKEN": "t",
                "OTEL_TRAIN_TLS_CERT": str(certificate),
                "OTEL_TRAIN_TLS_KEY": str(key),
            },
        )
    )
    body = telemetry.gauge(RUN_ID, [1])
    try:
        status, _ = telemetry.send(gateway.url, "metrics", body, Authorization="Bearer t")
    except OSError:  # cut while the body was under way
        status = 400
    assert status == 400, "plain HTTP was taken at a port that is to speak TLS"
    request = urllib.request.Request(
        f"https://127.0.0.1:{gateway.http_port}/v1/metrics",
        body,
        {"Content-Type": "application/json", "Authorization": "Bearer t"},
    )
    trusting = ssl.create_default_context(cafile=str(certificate))
    with urllib.request.urlopen(request, context=trusting, timeout=10) as answer:
        assert answer.status == 200
    wait_for("the point", lambda: sum(store.values("train.loss").values()) == 1)


def test_a_users_own_part_is_merged_beside_the_stack(
    run_server: Callable[..., Any], store: FakeStore, tmp_path: Path
) -> None:
    """The example in extras.yaml, without its comment signs: an exporter of the user's gets what the store gets."""
    own = FakeStore()
    lines = (COLLECTOR / "extras.yaml").read_text().splitlines()
    first = lines.index("# exporters:")
    extras = tmp_path / "extras.yaml"
    text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines[first:-1])
    extras.write_text(text.replace("https://telemetry.example.org:4318", own.url))
    gateway: Collector = run_server(
        lambda: Collector(tmp_path / "gateway", prometheus=store.url, variables={"MY_TOKEN": "mine"}, more=[extras])
    )
    for name in ("digits", "other"):
        body = telemetry.encoder(RUN_ID, **{"service.name": name}).points(
            [telemetry.Column("train.loss", [telemetry.START_NS], [1.0 if name == "digits" else 2.0], ())]
        )
        assert telemetry.send(gateway.url, "metrics", body)[0] == 200
    wait_for("both points", lambda: store.values("train.loss") == {1.0: 1, 2.0: 1})
    wait_for("the user's point", lambda: own.values("train.loss") == {1.0: 1})
    assert own.posted[0].headers["authorization"] == "Bearer mine"
    own.close()


def test_an_agent_adds_the_host_and_keeps_what_the_rank_says(
    run_server: Callable[..., Any], gateway: Collector, store: FakeStore, tmp_path: Path
) -> None:
    """A rank without host.name gets the node's; one that has said its own keeps it."""
    agent: Agent = run_server(lambda: Agent(tmp_path / "agent", gateway.url))
    assert telemetry.send(agent.url, "metrics", telemetry.gauge(RUN_ID, [1]))[0] == 200
    own = telemetry.encoder(RUN_ID, **{"host.name": "node-7"}).points(
        [telemetry.Column("train.loss", [telemetry.START_NS], [2.0], ())]
    )
    assert telemetry.send(agent.url, "metrics", own)[0] == 200
    found = wait_for("both points", lambda: rows if len(rows := list(store.metrics())) == 2 else None)
    hosts = {metric.gauge.data_points[0].as_double: resource["host.name"] for resource, metric in found}
    assert hosts == {1.0: socket.gethostname(), 2.0: "node-7"}
    assert all("os.type" in resource for resource, _ in found)
