"""A run without a folder in a real Prometheus: its points, its end, and the same names by scraping as by sending."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import otel_train
from tests.stack.asking import free_port, get_json, wait_for
from tests.stack.servers import Prometheus

STEPS = 200


@pytest.fixture
def prometheus(run_server: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The shipped Prometheus, which also scrapes the port that a run listens on."""
    port = free_port()
    monkeypatch.setenv("OTEL_TRAIN_PROMETHEUS_PORT", str(port))

    def make() -> Prometheus:
        made = Prometheus(tmp_path / "prometheus")
        path = tmp_path / "prometheus" / "configuration" / "prometheus.yml"
        job = f"""
  - job_name: scraped
    scrape_interval: 1s
    convert_classic_histograms_to_nhcb: true
    static_configs:
      - targets: ["127.0.0.1:{port}"]
"""
        text = path.read_text()
        assert "\nscrape_configs:\n" in text
        path.write_text(text.replace("\nscrape_configs:\n", f"\nscrape_configs:{job}", 1))
        return made

    server = run_server(make)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{server.otlp_url}/v1/metrics")
    return server


def ask(server: Any, query: str, **about: Any) -> list[Any]:
    found: list[Any] = get_json(f"{server.url}/api/v1/query", {"query": query, **about})["data"]["result"]
    return found


def test_sent_and_scraped_values_meet_under_the_same_names(prometheus: Any) -> None:
    """Every point with its value in the store, NaN among them; the scrape shows the same series; the end ends them."""
    with otel_train.init(dir=False, git=False, name="both") as run:
        for step in run.steps(range(STEPS)):
            run.log({"loss": math.nan if step == 7 else 1 / (step + 1)})
            time.sleep(0.004)  # a millisecond for each
        assert run.flush(10)
        sent = f'{{run_id="{run.id}",job!="scraped"}}'
        scraped = f'{{run_id="{run.id}",job="scraped"}}'
        wait_for("the scraped loss", lambda: ask(prometheus, f"train_loss{scraped} == {1 / STEPS}"))
        names = {
            job: {row["metric"]["__name__"] for row in ask(prometheus, f"last_over_time({selector}[5m])")}
            for job, selector in (("sent", sent), ("scraped", scraped))
        }
        assert {"train_loss", "dl_step", "dl_run_state", "dl_step_time_seconds"} <= names["sent"] & names["scraped"]
        # By now a heartbeat may have come that no scrape has seen, or the other way round; and Prometheus' own of it.
        assert {name for name in names["sent"] if name.startswith(("train_", "dl_step"))} <= names["scraped"]
        median = f"histogram_quantile(0.5, dl_step_duration_seconds{scraped})"
        (row,) = wait_for("the median by scraping", lambda: ask(prometheus, median))
        assert 0.001 < float(row["value"][1]) < 1
    everything = wait_for(
        "the run's end", lambda: ask(prometheus, f'dl_run_state{{run_id="{run.id}",job!="scraped"}}[10m]')
    )
    assert {row["metric"]["state"]: row["values"][-1][1] for row in everything} == {
        "running": "0",
        **dict.fromkeys(("failed", "interrupted", "killed", "lost"), "0"),
        "finished": "1",
    }
    (series,) = ask(prometheus, f"train_loss{sent}[10m]")
    values = [float(value) for _, value in series["values"]]
    assert [value for value in values if not math.isnan(value)] == [1 / (s + 1) for s in range(STEPS) if s != 7]
    assert math.isnan(values[7])
    # Nothing of it is there now; what it was stays.
    gone = wait_for("the marks of the end", lambda: not ask(prometheus, f"dl_run_heartbeat_seconds{sent}") or None)
    assert gone
    left = {row["metric"]["__name__"] for row in ask(prometheus, sent)}
    # What rules make of it lives by itself.
    assert {name for name in left if ":" not in name and not name.startswith("ALERTS")} <= {"target_info"}
