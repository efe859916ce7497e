"""Present values on a port: scraped over HTTP and read by prometheus-client's parser, they are what was recorded."""

from __future__ import annotations

import math
import os
import socket
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import metrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

import otel_train
import otel_train.testing
from otel_train.errors import ConfigError
from otel_train.export.pull import PROMOTED, PresentValues, classic_buckets
from otel_train.otlp.histogram import ExponentialHistogram
from otel_train.otlp.prometheus_names import known_name
from otel_train.record.entries import Column, Sample
from otel_train.record.histogram_value import HistogramValue
from otel_train.semconv import METRICS
from tests.scripts import Scripts

Start = Callable[..., Any]
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def scrape(port: int | None, accept: str = "text/plain") -> tuple[str, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode(), answer.headers["Content-Type"]


def samples(text: str, parse: Callable[[str], Any] = parse_text) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Labels and value of each sample, by name."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in parse(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_scrape_gives_the_last_value_of_every_series(start: Start) -> None:
    """Loss by split, step, epoch, state, step times: names and labels are those of the OTLP path."""
    run = start(prometheus_port=0, name="small", project="digits")
    for _ in run.epochs(2):
        for batch in run.steps(range(10)):
            run.log({"loss": 1.0 / (batch + 1)})
    run.log({"val/loss": math.nan, "lr": 0.125})
    assert run.flush()
    found = samples(scrape(run.session.prometheus.port)[0])
    common = {"run_id": run.id, "run_name": "small", "service_name": "digits", "dl_rank": "0", "run_attempt": "1"}
    for name, of_name in found.items():
        for labels, _ in of_name:
            assert common.items() <= labels.items(), name
    losses = {labels.get("split"): value for labels, value in found["train_loss"]}
    assert losses["train"] == 1.0 / 10
    assert math.isnan(losses["val"])
    assert [value for _, value in found["train_lr"]] == [0.125]
    assert {labels["split"]: value for labels, value in found[known_name("dl.step")] if "split" in labels}[
        "train"
    ] == 19
    assert {value for _, value in found[known_name("dl.epoch")]} == {1.0}
    assert {labels["state"]: value for labels, value in found["dl_run_state"]}["running"] == 1.0
    assert [value for _, value in found["dl_step_duration_seconds_count"]] == [20.0]
    assert found["dl_step_time_seconds"][0][1] > 0
    assert found["dl_nonfinite_total"][0][1] == 1.0
    assert found["target_info"][0][0]["telemetry_distro_name"] == "otel-train"
    assert abs(found["dl_run_heartbeat_seconds"][0][1] - time.time()) < 60


def test_the_page_is_valid_in_both_forms(start: Start) -> None:
    """Prometheus asks for OpenMetrics, whose parser is strict; both give the same values."""
    run = start(prometheus_port=0)
    for step in range(3):
        run.log({"loss": float(step), "odd name/ü": 2.0}, step=step)
    assert run.flush()
    port = run.session.prometheus.port
    text, kind = scrape(port, OPENMETRICS)
    assert kind.startswith("application/openmetrics-text")
    strict = samples(text, parse_openmetrics)
    assert [value for _, value in strict["train_loss"]] == [2.0]
    # A heartbeat may come between the two.
    moving = ("dl_run_", "otel_train_", "dl_step_", "dl_alert_")
    names = {name for name in samples(scrape(port)[0]) if not name.startswith(moving)}
    assert names == {name for name in strict if not name.startswith(moving)}


def test_a_restarted_value_replaces_the_former(start: Start) -> None:
    """What is served is the present: a later point of a series takes the place of the earlier one."""
    run = start(prometheus_port=0)
    for value in (3.0, 1.0, 2.0):
        run.log({"loss": value})
        assert run.flush()
        found = samples(scrape(run.session.prometheus.port)[0])
        assert [entry for _, entry in found["train_loss"]] == [value]


def test_instruments_of_the_metrics_api_are_served_too(start: Start) -> None:
    """Counters, gauges and histograms by bounds, in the run's labels."""
    run = start(prometheus_port=0)
    meter = metrics.get_meter("mine")
    meter.create_counter("pull.jobs", unit="{job}").add(3, {"kind": "a"})
    meter.create_histogram("pull.latency", unit="s", explicit_bucket_boundaries_advisory=[1.0, 5.0]).record(3.0)
    run.session.surroundings.collect()
    assert run.flush()
    found = samples(scrape(run.session.prometheus.port)[0])
    assert [(labels["kind"], value) for labels, value in found["pull_jobs_total"]] == [("a", 3.0)]
    buckets = {labels["le"]: value for labels, value in found["pull_latency_seconds_bucket"]}
    assert buckets == {"1.0": 0.0, "5.0": 1.0, "+Inf": 1.0}
    assert found["pull_latency_seconds_sum"][0][1] == 3.0


def test_the_port_is_free_again_after_the_end(start: Start) -> None:
    """Nothing listens any more, so that the next run can."""
    port = free_port()
    for _ in range(2):
        run = start(prometheus_port=port)
        assert run.session.prometheus.port == port
        assert "target_info" in scrape(port)[0]
        run.finish()
        with pytest.raises(OSError, match="refused"):
            scrape(port)


def test_a_port_that_is_taken_costs_nothing_else(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """A restart, or a second run on a machine: it is said with port and fix, the run records all the same."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        port = other.getsockname()[1]
        run = start(prometheus_port=port)
        run.log({"loss": 1.0})
        run.finish()
    assert f"prometheus_port={port}: 127.0.0.1:{port} cannot be listened on" in caplog.text
    assert "choose a port that is free" in caplog.text
    notices = [log.body for log in otel_train.testing.recorded(run).events("otel_train.notice")]
    assert any(f"prometheus_port={port}" in str(body) for body in notices)
    assert otel_train.testing.recorded(run).values("loss") == [1.0]


@pytest.mark.parametrize("port", [-1, 65_536, "x", 1.5, True])
def test_what_is_no_port_is_refused(port: object) -> None:
    """ConfigError names argument, value and fix."""
    with pytest.raises(ConfigError) as caught:
        otel_train.init(prometheus_port=port)
    assert (caught.value.field, caught.value.value) == ("prometheus_port", port)


def test_a_missing_package_is_said_with_its_extra(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """prometheus-client is an extra."""
    monkeypatch.setattr("otel_train.run.prometheus.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'otel-train\[prometheus\]'"):
        start(prometheus_port=0)


def test_host_and_port_by_variables(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_TRAIN_PROMETHEUS_HOST opens it to others, which nothing else does."""
    monkeypatch.setenv("OTEL_TRAIN_PROMETHEUS_PORT", "0")
    run = start()
    assert run.session.prometheus._server._server.server_address[0] == "127.0.0.1"
    run.finish()
    monkeypatch.setenv("OTEL_TRAIN_PROMETHEUS_HOST", "127.0.0.2")
    run = start()
    assert run.session.prometheus._server._server.server_address[0] == "127.0.0.2"


@pytest.mark.slow
def test_each_local_rank_has_a_port_of_its_own(scripts: Scripts) -> None:
    """The base port and the local rank's number: one scrape target for each."""
    base = free_port()
    text = """
    import time, urllib.request, otel_train
    run = otel_train.init(log_ranks="all")
    run.log({"loss": 1.0})
    run.flush()
    port = run.session.prometheus.port
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    (line,) = [line for line in page.splitlines() if line.startswith("train_loss{")]
    print(port, line)
    run.finish()
    """
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "29511"}
    processes = [
        scripts.popen(
            text, env={**shared, "RANK": str(r), "LOCAL_RANK": str(r), "OTEL_TRAIN_PROMETHEUS_PORT": str(base)}
        )
        for r in range(2)
    ]
    for rank, process in enumerate(processes):
        ended = scripts.end(process)
        assert ended.code == 0, ended.errors
        port, line = ended.output.split(" ", 1)
        assert int(port) == base + rank
        assert f'dl_rank="{rank}"' in line


@pytest.mark.slow
def test_a_forked_child_does_not_keep_the_port(scripts: Scripts) -> None:
    """A worker that outlives the run holds no listening socket: the next run has its port."""
    port = free_port()
    text = f"""
    import os, time, otel_train
    run = otel_train.init(prometheus_port={port})
    pid = os.fork()
    if not pid:
        time.sleep(5)  # the child outlives the look at its port
        os._exit(0)
    run.finish()
    again = otel_train.init(prometheus_port={port})
    print(again.session.prometheus.port)
    again.finish()
    os.kill(pid, 9)
    """
    ended = scripts(text)
    assert ended.code == 0, ended.errors
    assert ended.output.split() == [str(port)]


# Without a server ----------------------------------------------------------------------------------------------------


def collected(values: PresentValues) -> dict[str, Any]:
    return {family.name: family for family in values.collect()}


def test_every_metric_of_ours_is_spelled_as_the_otlp_path_spells_it() -> None:
    """Name by name over the whole table, so that one dashboard serves both ways."""
    values = PresentValues({"run_id": "r"})
    numbers = [metric for metric in METRICS.values() if metric.kind != "histogram"]
    values.readings(0, [Sample(metric.name, 1) for metric in numbers])
    shown = {sample.name for family in values.collect() for sample in family.samples}
    assert shown - {"target_info"} == {known_name(metric.name) for metric in numbers}


def test_labels_are_those_that_the_shipped_prometheus_promotes() -> None:
    """Its configuration and this list agree."""
    yaml = pytest.importorskip("yaml")
    path = os.path.join(os.path.dirname(__file__), "..", "deploy", "prometheus", "prometheus.yml")
    with open(path, encoding="utf-8") as file:
        shipped = yaml.safe_load(file)["otlp"]["promote_resource_attributes"]
    assert set(shipped) == set(PROMOTED)


def test_series_with_other_labels_stand_in_one_family() -> None:
    """A label that only some have is empty for the others, which Prometheus takes for absent."""
    values = PresentValues({"run_id": "r"})
    values.points([Column("train.x", [1, 2], [1.0, 2.0]), Column("train.x", [3], [3.0], (("split", "val"),))])
    rows = [(sample.labels, sample.value) for sample in collected(values)["train_x"].samples]
    assert rows == [({"run_id": "r", "split": ""}, 2.0), ({"run_id": "r", "split": "val"}, 3.0)]


def test_a_points_own_attribute_wins_over_the_resources() -> None:
    """No label may stand twice."""
    values = PresentValues({"run_id": "r", "host.name": "a"})
    values.points([Column("train.x", [1], [1.0], (("host.name", "b"),))])
    (sample,) = collected(values)["train_x"].samples
    assert sample.labels == {"host_name": "b", "run_id": "r"}


finite = st.floats(min_value=1e-6, max_value=1e6)


@given(st.lists(st.one_of(finite, st.just(0.0)), min_size=1, max_size=60), st.sampled_from(["s", ""]))
def test_buckets_count_what_is_below_their_bounds(recorded: list[float], unit: str) -> None:
    """Coarsening loses no value and puts none on the wrong side of a bound, but for values at the very bound."""
    histogram = ExponentialHistogram()
    for value in recorded:
        histogram.record(value)
    state, _ = histogram.snapshot()
    buckets = classic_buckets(state, unit)
    assert buckets[-1] == ("+Inf", len(recorded))
    bounds = [float(bound) for bound, _ in buckets]
    assert bounds == sorted(set(bounds))
    for bound, (_, count) in zip(bounds[:-1], buckets[:-1], strict=True):
        below = sum(value <= bound * (1 - 1e-9) for value in recorded)
        upto = sum(value <= bound * (1 + 1e-9) for value in recorded)
        assert below <= count <= upto
    if unit == "s" and state.scale is not None and state.scale >= 1:
        assert bounds[0] <= 0.002
        assert bounds[-2] >= 3600


def test_bounds_of_seconds_stay_the_same_whatever_comes() -> None:
    """A bucket that comes later has no past that a rate could be taken of."""
    histogram = ExponentialHistogram()
    seen = []
    for value in (0.5, 0.002, 900.0):
        histogram.record(value)
        seen.append([bound for bound, _ in classic_buckets(histogram.snapshot()[0], "s")])
    assert seen[0] == seen[1] == seen[2]


def test_a_histogram_without_values_is_one_empty_bucket() -> None:
    """It is valid as it is."""
    assert classic_buckets(HistogramValue(count=0, sum=0.0), "") == [("+Inf", 0)]
    assert classic_buckets(HistogramValue(count=2, sum=-3.0, scale=0, negative_counts=(2,)), "") == [
        ("0.0", 2),
        ("+Inf", 2),
    ]
