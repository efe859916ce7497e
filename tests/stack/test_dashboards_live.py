"""The dashboards over the whole stack: a real training sends itself through the Collector, and every panel is asked.

Panels that a training of this kind leaves empty stand in a table with the reason; all others must have data. Stores
whose program is missing are left out, with their panels.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pytest

from otel_train.runlog.catalogue import list_runs
from tests.stack import grafana_links
from tests.stack.asking import free_port, get_json, wait_for
from tests.stack.grafana_panels import NAMES, Answer, Board, Span, Stores, read
from tests.stack.grafana_server import Grafana
from tests.stack.processes import ServerProcess
from tests.stack.programs import REPOSITORY
from tests.stack.servers import Alertmanager, Collector, Loki, MissingProgramError, Prometheus, Tempo

GPU = "needs a GPU"
ALERT = "needs an alert that fires"
FAULT = "needs something that is refused, lost or failed"
MINUTE = "needs more than a minute of training"
SCALER = "needs a loss scaler"
RANKS = "needs several ranks"
WORKERS = "needs loader workers"
# Panels of the digits example that are empty, by dashboard and title, with the reason.
EMPTY = {
    ("runs", "GPUs busy"): GPU,
    ("runs", "Alerts that fired"): ALERT,
    ("runs", "Latest errors"): "needs a record of an error",
    ("run", "Values are not finite"): FAULT,
    ("run", "Training waits for data"): MINUTE,
    ("run", "GPU idles"): GPU,
    ("run", "GPU is hot"): GPU,
    ("run", "GPU is slowed down"): GPU,
    ("run", "GPU memory errors"): GPU,
    ("run", "GPU memory"): GPU,
    ("run", "GPU power"): GPU,
    ("run", "GPU clock"): GPU,
    ("run", "GPU traffic"): GPU,
    ("run", "Warnings and errors"): "needs a record of a warning",
    ("run", "Health"): "needs a condition that begins",
    ("run", "Time left"): "is known while the run goes on",
    ("run", "Memory grows without end"): MINUTE,
    ("internals", "Gradients that were not finite"): FAULT,
    ("internals", "Loss scale"): SCALER,
    ("internals", "Skipped optimizer steps"): SCALER,
    ("internals", "The loss scaler skips most steps"): SCALER,
    ("internals", "Batch time by worker"): WORKERS,
    ("internals", "Tokens a second"): "needs a model of text",
    ("internals", "Model FLOP utilisation"): GPU,
    ("internals", "Device memory"): GPU,
    ("internals", "Allocator retries"): GPU,
    ("internals", "Growth of that memory"): MINUTE,
    ("ranks", "Own work of a step"): RANKS,
    ("ranks", "A rank is slower than the others"): RANKS,
    ("ranks", "Ranks that hung or were lost"): FAULT,
    ("compare", "GPUs busy"): GPU,
    ("ranks", "GPUs busy, spread"): GPU,
    ("ranks", "GPU busy"): GPU,
    ("ranks", "GPU memory"): GPU,
    ("ranks", "GPU temperature"): GPU,
    ("ranks", "Warnings and errors of all ranks"): "needs a record of a warning",
    ("pipeline", "Sent again"): FAULT,
    ("pipeline", "Not delivered"): FAULT,
    ("pipeline", "Alertmanager: notifications"): ALERT,
    ("pipeline", "Alertmanager: alerts"): ALERT,
    ("pipeline", "Prometheus: disk"): "needs hours, until the first block is written",
}
# Of the example that is trained.
STAGES = {"preprocess", "train", "evaluate"}
# Their panels ask another program for its own metrics.
OF_PROGRAMS = {"Loki": "loki", "Tempo": "tempo"}


@dataclass
class Live:
    """The stores, and what was sent to them."""

    stores: Stores
    span: Span
    run_id: str
    alertmanager: str
    folder: Path


def train(folder: Path, endpoint: str) -> str:
    """Train the digits example as a user would, and return the run's id; it sends itself."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "PYTEST_"))}
    environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_TRAIN_DIR": str(folder / "runs"), "OTEL_TRAIN_GIT": "0"}
    example = REPOSITORY / "examples" / "digits.py"
    arguments = ["--epochs", "8", "--delay", "0.1", "--output", str(folder / "models")]
    done = subprocess.run(
        [sys.executable, str(example), *arguments], env=environ, cwd=folder, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    (run,) = list_runs(folder / "runs")
    return run.run_id


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """The stack with a run that has just ended. Loki and Tempo are part of it where their programs are there."""
    folder = tmp_path_factory.mktemp("stack")
    with ExitStack() as stack:

        def started(server: ServerProcess) -> ServerProcess:
            stack.callback(server.kill)
            server.start()
            return server

        def optional(make: type[Loki] | type[Tempo], name: str) -> Loki | Tempo | None:
            try:
                server = make(folder / name)
            except MissingProgramError:
                return None
            started(server)
            return server

        try:
            loki, tempo = optional(Loki, "loki"), optional(Tempo, "tempo")
            telemetry_port = free_port()
            alertmanager = Alertmanager(folder / "alertmanager")
            started(alertmanager)
            parts = {
                "collector:8888": f"127.0.0.1:{telemetry_port}",
                "alertmanager:9093": f"127.0.0.1:{alertmanager.port}",
                # Rates need two of them.
                "scrape_interval: 15s": "scrape_interval: 1s",
            }
            parts |= {"loki:3100": f"127.0.0.1:{loki.port}"} if loki else {}
            parts |= {"tempo:3200": f"127.0.0.1:{tempo.port}"} if tempo else {}
            prometheus = Prometheus(folder / "prometheus", parts)
            started(prometheus)
            collector = Collector(
                folder / "collector",
                prometheus=prometheus.otlp_url,
                loki=loki.otlp_url if loki else None,
                tempo=tempo.otlp_url if tempo else None,
                telemetry_port=telemetry_port,
            )
            started(collector)
        except MissingProgramError as reason:
            pytest.skip(str(reason))
        begins_ms = int(time.time() * 1000)
        run_id = train(folder, collector.url)
        stores = Stores(prometheus.url, loki.url if loki else None, tempo.url if tempo else None)
        live = Live(stores, Span(begins_ms, int(time.time() * 1000) + 5000), run_id, alertmanager.url, folder)
        wait_for("the end of the run", lambda: has_arrived(live), timeout_s=120, every_s=1)
        yield live


def has_arrived(live: Live) -> bool:
    """Tell whether the last word on the run is in each store."""
    state = f'last_over_time(dl_run_state{{run_id="{live.run_id}",state="finished"}}[10m]) == 1'
    if not get_json(f"{live.stores.prometheus}/api/v1/query", {"query": state})["data"]["result"]:
        return False
    answers = {answer.title: answer for answer in asked("run", live, "loki", "tempo")}
    if live.stores.tempo is not None and not stage_names(answers["Stages"]) >= STAGES:
        return False
    return live.stores.loki is None or "run.end" in event_names(answers["Life of the run"])


def stage_names(answer: Answer) -> set[str]:
    """Return the names of the spans that a search found."""
    return {span["name"] for trace in answer.data for spans in trace["spanSets"] for span in spans["spans"]}


def event_names(answer: Answer) -> set[str]:
    """Return the names of the events among log records."""
    return {stream["stream"]["event_name"] for stream in answer.data}


def asked(name: str, live: Live, *kinds: str) -> list[Answer]:
    """Return the answers to the queries of a dashboard for the run that was sent, to all stores or to these."""
    chosen = {"run_id": live.run_id} if name in ("run", "ranks") else {}
    return list(Board(name, live.stores, live.span, chosen).ask(kinds or ("prometheus", "loki", "tempo")))


def titles_of(name: str) -> set[str]:
    """Return the titles of a dashboard's panels, also of those whose store is not there."""
    pages = [json.loads((REPOSITORY / "grafana" / "dashboards" / f"{name}.json").read_text(encoding="utf-8"))]
    titles: set[str] = set()
    for page in pages:
        titles.add(page.get("title", ""))
        pages.extend(page.get("panels", []))
    return titles


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
def test_every_panel_has_data_for_a_real_training_or_says_why_not(name: str, live: Live) -> None:
    """A panel is empty only for a reason that stands in the table; a threshold's line alone is no data."""
    items: dict[str, int] = {}
    for answer in asked(name, live):
        if not (answer.title in OF_PROGRAMS and live.stores.address(OF_PROGRAMS[answer.title]) is None):
            # Lines of thresholds are there without any value.
            own = 0 if "dl_alert_threshold" in answer.query else answer.items
            items[answer.title] = items.get(answer.title, 0) + own
    empty = {title for title, count in items.items() if not count}
    reasons = {title for board, title in EMPTY if board == name}
    assert reasons <= titles_of(name), "the table names a panel that there is not"
    assert empty - reasons == set()


@pytest.mark.timeout(300)
def test_the_run_has_its_life_in_the_logs_and_each_record_its_trace(live: Live) -> None:
    """The lifecycle panel has start, stages, checkpoint and end, each with the id of a trace."""
    if live.stores.loki is None:
        pytest.skip("no loki")
    (answer,) = (answer for answer in asked("run", live, "loki") if answer.title == "Life of the run")
    streams = [stream["stream"] for stream in answer.data]
    assert {"run.start", "stage.start", "stage.end", "checkpoint.saved", "model.best", "run.end"} <= event_names(answer)
    assert all(len(stream["trace_id"]) == 32 for stream in streams)
    marks = {mark.title: mark for mark in Board("run", live.stores, live.span, {"run_id": live.run_id}).marks()}
    assert marks["Events"].items == answer.items


@pytest.mark.timeout(300)
def test_stages_and_steps_are_found_in_tempo(live: Live) -> None:
    """The tables have the three stages, and steps whose number is that of the run."""
    if live.stores.tempo is None:
        pytest.skip("no tempo")
    announced = {f"{stage} (started)" for stage in STAGES}

    def found() -> bool:
        answers = {answer.title: answer for answer in asked("run", live, "tempo")}
        whole = stage_names(answers["Stages"]) == STAGES and stage_names(answers["Begun"]) >= announced
        return whole and answers["Steps"].items >= 1

    # While Tempo hands a trace over from memory to a block, a search may miss a part of it.
    wait_for("the stages and steps of the run", found, timeout_s=60, every_s=1)


@pytest.mark.timeout(300)
def test_from_a_point_to_its_trace_to_its_logs_and_metrics(live: Live) -> None:
    """An exemplar of the step time names a trace in Tempo; its span's links give records and points of that time."""
    stores = live.stores
    if stores.tempo is None or stores.loki is None:
        pytest.skip("no tempo or no loki")
    median = next(answer for answer in asked("run", live, "prometheus") if answer.title == "Step time")
    parameters = {"query": median.query, "start": live.span.from_ms / 1000, "end": live.span.to_ms / 1000}
    (series, *_) = get_json(f"{stores.prometheus}/api/v1/query_exemplars", parameters)["data"]
    label = grafana_links.sources()["prometheus"]["jsonData"]["exemplarTraceIdDestinations"][0]["name"]
    trace_id = series["exemplars"][0]["labels"][label]
    spans = grafana_links.spans_of_trace(stores.tempo, trace_id)
    step = next(span for span in spans if span["name"] == "step")
    assert step["tags"]["run_id"] == live.run_id

    begins_ns, ends_ns = int(step["startTimeUnixNano"]), int(step["endTimeUnixNano"])
    lines = {"query": grafana_links.logs_of_span(step, trace_id), "limit": 100}
    lines |= {"start": begins_ns - 2 * 10**9, "end": ends_ns + 2 * 10**9}
    found = get_json(f"{stores.loki}/loki/api/v1/query_range", lines)["data"]["result"]
    assert found
    assert {stream["stream"]["run_id"] for stream in found} == {live.run_id}

    around = {"start": begins_ns / 1e9 - 120, "end": ends_ns / 1e9 + 120, "step": 1}
    links = grafana_links.metrics_of_span(step)
    counts = {
        name: len(get_json(f"{stores.prometheus}/api/v1/query_range", {"query": query, **around})["data"]["result"])
        for name, query in links.items()
    }
    assert {name for name, count in counts.items() if not count} <= {"GPU utilisation"}


@pytest.mark.timeout(300)
def test_from_a_log_record_to_its_trace(live: Live) -> None:
    """The label that the derived field reads names a trace of this run in Tempo."""
    if live.stores.tempo is None or live.stores.loki is None:
        pytest.skip("no tempo or no loki")
    (records,) = (answer for answer in asked("run", live, "loki") if answer.title == "Life of the run")
    label = grafana_links.sources()["loki"]["jsonData"]["derivedFields"][0]["matcherRegex"]
    traces = {stream["stream"][label] for stream in records.data}
    assert len(traces) > 1
    for trace_id in traces:
        spans = grafana_links.spans_of_trace(live.stores.tempo, trace_id)
        assert {span["tags"]["run_id"] for span in spans} == {live.run_id}


@pytest.mark.timeout(300)
def test_from_a_step_on_the_axis_to_the_spans_around_it(live: Live) -> None:
    """The search that a point by step links to finds spans of steps within a hundred of it."""
    if live.stores.tempo is None:
        pytest.skip("no tempo")
    panel = next(panel for panel in read("run")["panels"] if panel["type"] == "trend")
    url = panel["fieldConfig"]["defaults"]["links"][0]["url"]
    filled = {"run_id": live.run_id, "__data.fields.step": "150", "tempo": "tempo", "__from": "0", "__to": "1"}
    panes = json.loads(unquote(re.sub(r"\$\{([^}]+)\}", lambda match: filled[match[1]], url.split("panes=")[1])))
    (query,) = panes["steps"]["queries"]
    parameters = {"q": query["query"] + " | select(span.dl.step)", "limit": query["limit"], "spss": query["spss"]}
    parameters |= {"start": live.span.from_ms // 1000, "end": live.span.to_ms // 1000 + 1}
    traces = get_json(f"{live.stores.tempo}/api/search", parameters)["traces"]
    steps = {
        int(grafana_links.tags(span["attributes"])["dl.step"])
        for trace in traces
        for spans in trace["spanSets"]
        for span in spans["spans"]
    }
    assert steps
    assert all(50 <= step <= 250 for step in steps)


@pytest.mark.timeout(600)
def test_grafana_has_the_dashboards_and_answers_as_the_stores_do(live: Live) -> None:
    """Each dashboard is provisioned as committed, and each query that a store has data for gives rows there too."""
    try:
        server = Grafana(live.folder / "grafana", live.stores, live.alertmanager)
    except MissingProgramError as reason:
        pytest.skip(str(reason))
    try:
        server.start()
        server.wait_ready(timeout_s=120)
        for name in NAMES:
            committed = read(name)
            there = wait_for(committed["title"], lambda uid=committed["uid"]: server.board(uid), timeout_s=60)
            assert there["meta"]["provisioned"] is True
            assert [panel["id"] for panel in there["dashboard"]["panels"]] == [p["id"] for p in committed["panels"]]
            targets = {
                (panel["id"], target["refId"]): target
                for panel in committed["panels"]
                for target in panel.get("targets", ())
            }
            missing = [
                answer.place
                for answer in asked(name, live)
                if answer.items
                and not server.rows_of(answer, targets[answer.panel, answer.letter], live.span.from_ms, live.span.to_ms)
            ]
            assert missing == []
    finally:
        server.kill()
