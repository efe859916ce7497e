"""Every query of every dashboard is answered by real stores, with the right values for a run whose values are known."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from otel_train.record.entries import Sample
from tests.stack import whole_run
from tests.stack.asking import get_json, post_json, wait_for
from tests.stack.grafana_panels import NAMES, Answer, Board, Span, Stores, rows
from tests.stack.servers import MissingProgramError, Prometheus
from tests.stack.whole_run import RUN_ID, WholeRun

SECOND_ID = "20260303-040404-otherone"
# Its last word is that it runs.
SILENT_ID = "20260303-050505-silentone"
SHARDED_ID = "20260303-020202-sharded0"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus as it is shipped."""
    try:
        server = Prometheus(tmp_path_factory.mktemp("prometheus"))
    except MissingProgramError as reason:
        pytest.skip(str(reason))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def known(prometheus: Prometheus) -> WholeRun:
    """A run of two ranks with every metric, that ended some minutes ago, and two others beside it."""
    begins_ns = (int(time.time()) - 300) * 10**9
    run = WholeRun(begins_ns)
    other = WholeRun(begins_ns, run_id=SECOND_ID, run_name="other run", ranks=1, state="failed", scale=3.0)
    silent = WholeRun(begins_ns, run_id=SILENT_ID, run_name="silent run", ranks=1, state="running", scale=5.0)
    for line in (*run.lines(), run.alert("TrainingPlateau", "warning"), *other.lines(), *silent.lines()):
        status, body = post_json(f"{prometheus.otlp_url}/v1/metrics", line)
        assert status == 200, body
    wait_for(
        "the run to be there",
        lambda: get_json(f"{prometheus.url}/api/v1/label/run_id/values")["data"] == [RUN_ID, SECOND_ID, SILENT_ID],
    )
    return run


def span_of(run: WholeRun) -> Span:
    """Return the range that the table of runs gives to the link to a run, and some more."""
    return Span(run.begins_ns // 10**6 - 5000, run.ends_ns // 10**6 + 10_000)


def board(name: str, prometheus: Prometheus, known: WholeRun) -> Board:
    chosen = {"run_id": RUN_ID} if name in ("run", "ranks", "internals") else None
    return Board(name, Stores(prometheus.url), span_of(known), chosen)


def answers_of(name: str, prometheus: Prometheus, known: WholeRun, title: str) -> list[Answer]:
    """Return the answers of the panel with this title."""
    found = [answer for answer in board(name, prometheus, known).ask() if answer.title == title]
    assert found, title
    return found


def value(answer: Answer) -> float:
    """Return the only value of an answer."""
    (series,) = answer.data
    return float(series["value"][1])


@pytest.mark.parametrize("name", [name for name in NAMES if name != "pipeline"])
def test_every_metrics_query_has_data_for_a_run_with_everything(
    name: str, prometheus: Prometheus, known: WholeRun
) -> None:
    """GPUs, two ranks, thresholds and an alert: nothing is left empty but what only some metrics have."""
    answers = list(board(name, prometheus, known).ask())
    empty = {answer.place for answer in answers if not answer.items}
    if name == "run":
        empty -= {"run/Time left/A"}  # the run has ended
        # Of the metrics with a panel each, one has an axis of its own, and none has a key that another one hides.
        empty -= {f"run/{metric}/{letter}" for metric in ("train_loss", "train_lr", "train_reward") for letter in "ABC"}
        empty -= {f"run/{metric} by step/A" for metric in ("train_reward",)}
        empty -= {"run/train_loss by time/B", "run/train_loss by time/C"}
    if name == "compare":
        empty -= {"compare/train_reward by step/B"}
    assert empty == set()
    assert len(answers) > 10


def test_the_table_of_runs_has_a_row_for_each_with_its_values(prometheus: Prometheus, known: WholeRun) -> None:
    """State as a number, range for the link in milliseconds, last step and losses, alerts that fired."""
    table = rows(answers_of("runs", prometheus, known, "Runs"), "run_id")
    assert set(table) == {RUN_ID, SECOND_ID, SILENT_ID}
    row = table[RUN_ID]
    begins_ms, ends_ms = known.begins_ns // 10**6, known.ends_ns // 10**6
    assert row["run_name"] == whole_run.RUN_NAME
    assert row["job"] == whole_run.PROJECT
    assert (row["A"], table[SECOND_ID]["A"], table[SILENT_ID]["A"]) == ("1", "7", "2")
    assert int(row["from_ms"]) == begins_ms - 5000
    assert int(row["until_ms"]) == ends_ms + 15_000
    assert float(row["D"]) == begins_ms
    assert float(row["E"]) == whole_run.LASTS_S
    assert (row["F"], row["G"]) == ("240", "3")
    assert float(row["H"]) == pytest.approx(1 / 240)
    assert float(row["I"]) == pytest.approx(2 / 240)
    assert float(table[SECOND_ID]["H"]) == pytest.approx(3 / 240)
    assert float(row["J"]) == pytest.approx(0.7)
    assert row["K"] == "1"
    assert "K" not in table[SECOND_ID]
    assert float(row["L"]) == 0.5


def test_a_running_run_reaches_to_now_and_a_silent_one_does_not(prometheus: Prometheus, known: WholeRun) -> None:
    """While it runs the link's range ends now; two minutes without a sign of life are no running."""
    middle_ms = (known.begins_ns + known.ends_ns) // 2 // 10**6
    then = Board("runs", Stores(prometheus.url), Span(known.begins_ns // 10**6 - 5000, middle_ms))
    (state, _, until, *_) = [answer for answer in then.ask() if answer.title == "Runs"]
    running = dict.fromkeys((RUN_ID, SECOND_ID, SILENT_ID), "2")
    assert {series["metric"]["run_id"]: series["value"][1] for series in state.data} == running
    assert {series["metric"]["until_ms"] for series in until.data} == {"now"}
    numbers = {answer.title: value(answer) for answer in then.ask() if answer.title in ("Running", "Finished")}
    assert numbers == {"Running": 3, "Finished": 0}

    later = Board(
        "runs", Stores(prometheus.url), Span(known.begins_ns // 10**6 - 5000, known.ends_ns // 10**6 + 130_000)
    )
    table = rows([answer for answer in later.ask() if answer.title == "Runs"], "run_id")
    assert table[SILENT_ID]["A"] == "4"
    assert int(table[SILENT_ID]["until_ms"]) == known.ends_ns // 10**6 + 15_000
    assert next(value(answer) for answer in later.ask() if answer.title == "Running") == 0


def test_counts_of_runs_by_state(prometheus: Prometheus, known: WholeRun) -> None:
    """One finished, one failed, one still runs as far as anybody knows."""
    titles = ("Running", "Finished", "Failed, lost, killed")
    found = {a.title: value(a) for a in board("runs", prometheus, known).ask() if a.title in titles}
    assert found == {"Running": 1, "Finished": 1, "Failed, lost, killed": 1}


def test_the_numbers_of_one_run_are_right(prometheus: Prometheus, known: WholeRun) -> None:
    """State, step, epoch, losses, time, alerts and values that are not finite, of an ended run too."""
    titles = (
        "State",
        "Progress",
        "Step",
        "Epoch",
        "train_loss, training",
        "train_loss, validation",
        "Lasted",
        "Alerts",
    )
    found = {a.title: value(a) for a in board("run", prometheus, known).ask() if a.title in titles}
    assert found == pytest.approx(
        {
            "State": 1,
            "Progress": 0.5,
            "Step": 240,
            "Epoch": 3,
            "train_loss, training": 1 / 240,
            "train_loss, validation": 2 / 240,
            "Lasted": whole_run.LASTS_S,
            "Alerts": 1,
        }
    )


def test_time_left_is_known_while_the_run_goes_on(prometheus: Prometheus, known: WholeRun) -> None:
    """After 30 of 60 s a quarter is done, so three times as long is left; of an ended run nothing is."""
    middle_ms = known.begins_ns // 10**6 + 30_000
    then = Board("run", Stores(prometheus.url), Span(known.begins_ns // 10**6 - 5000, middle_ms), {"run_id": RUN_ID})
    found = {answer.title: value(answer) for answer in then.ask() if answer.title in ("Progress", "Time left")}
    assert found == pytest.approx({"Progress": 0.25, "Time left": 90.0})
    (left,) = answers_of("run", prometheus, known, "Time left")
    assert left.items == 0


def test_values_by_step_stand_beside_their_own_step(prometheus: Prometheus, known: WholeRun) -> None:
    """At each time the loss is that of the step: 1/step in training; validation's is that of its last evaluation."""
    values, step, *_ = answers_of("run", prometheus, known, "train_loss by step")
    steps = {at: float(number) for at, number in step.data[0]["values"]}
    by_split = {series["metric"]["split"]: series["values"] for series in values.data}
    assert set(by_split) == {"train", "val"}
    assert len(by_split["train"]) > 500
    for at, number in by_split["train"]:
        assert float(number) == pytest.approx(1 / steps[at])
    for at, number in by_split["val"]:
        assert float(number) == pytest.approx(2 / (steps[at] // 40 * 40))


def test_a_metric_with_an_axis_of_its_own_is_drawn_by_time(prometheus: Prometheus, known: WholeRun) -> None:
    """It is not mixed with the others, nor left out."""
    first, second, _ = answers_of("run", prometheus, known, "train_reward")
    assert first.items == 0
    assert [series["metric"] for series in second.data] == [{"axis": "frames"}]


def test_thresholds_are_those_of_the_run_and_none_where_a_condition_is_off(
    prometheus: Prometheus, known: WholeRun
) -> None:
    """Each watched panel has its line at the run's own value; +Inf is drawn nowhere."""
    from otel_train.watch.conditions import CONDITIONS

    titles = {condition.title: name for name, condition in CONDITIONS.items()}
    lines = {}
    answers = [answer for name in ("run", "internals", "ranks") for answer in board(name, prometheus, known).ask()]
    for answer in answers:
        if answer.title in titles and "dl_alert_threshold" in answer.query:
            lines[titles[answer.title]] = {float(v) for series in answer.data for _, v in series["values"]}
    assert lines == {name: {float(whole_run.THRESHOLDS[name])} for name in CONDITIONS if name != "failed"}


def test_step_times_have_quantiles_and_exemplars(prometheus: Prometheus, known: WholeRun) -> None:
    """The median of both ranks lies between theirs, and a point of the histogram names its trace."""
    median, *_ = answers_of("run", prometheus, known, "Step time")
    assert all(0.19 < float(number) < 0.26 for series in median.data for _, number in series["values"])
    parameters = {"query": median.query, "start": known.begins_ns / 1e9, "end": known.ends_ns / 1e9}
    found = get_json(f"{prometheus.url}/api/v1/query_exemplars", parameters)["data"]
    traces = {one["labels"]["trace_id"] for series in found for one in series["exemplars"]}
    assert f"{whole_run.TRACE_ID + 5:032x}" in traces


def test_ranks_are_told_apart_and_the_slowest_is_named(prometheus: Prometheus, known: WholeRun) -> None:
    """Rank 1 takes a quarter longer for a step, waits longer, and its GPU is half idle."""
    answers = list(board("ranks", prometheus, known).ask())
    (slowest,) = (answer for answer in answers if answer.title == "Slowest rank")
    assert slowest.data[0]["metric"] == {"dl_rank": "1", "host_name": "node-1"}
    assert value(slowest) == pytest.approx(0.25)
    (imbalance,) = (answer for answer in answers if answer.title == "Imbalance")
    assert value(imbalance) == pytest.approx(0.25)
    table = rows([a for a in answers if a.title == "Ranks" and "by (dl_rank, host_name)" in a.query], "dl_rank")
    assert [table[rank]["host_name"] for rank in "01"] == ["node-0", "node-1"]
    assert [float(table[rank]["C"]) for rank in "01"] == pytest.approx([0.2, 0.25])
    assert [float(table[rank]["D"]) for rank in "01"] == pytest.approx([0.01, 0.03])
    assert [float(table[rank]["E"]) for rank in "01"] == pytest.approx([0.9, 0.5])
    spread = {a.letter: a for a in answers if a.title == "Step time, spread"}
    assert float(spread["A"].data[0]["values"][-1][1]) == pytest.approx(0.2)
    assert float(spread["C"].data[0]["values"][-1][1]) == pytest.approx(0.25)


def test_distributions_are_native_histograms_of_the_chosen_layer(prometheus: Prometheus, known: WholeRun) -> None:
    """Hundred values around zero a second, half of them below: buckets of either sign, and that rate."""
    inside = board("internals", prometheus, known)
    assert inside.values["layer"] == "fc1"
    answers = {answer.title: answer for answer in inside.ask() if "distribution" in answer.query}
    assert set(answers) == {"Weights of fc1", "Gradients of fc1"}
    (series,) = answers["Weights of fc1"].data
    _, last = series["histograms"][-1]
    edges = [(float(low), float(high)) for _, low, high, _ in last["buckets"]]
    assert min(low for low, _ in edges) < -0.4 < 0.4 < max(high for _, high in edges)
    below = sum(float(count) for _, low, high, count in last["buckets"] if float(high) <= 0)
    assert below == pytest.approx(float(last["count"]) / 2, rel=0.01)
    # Of two ranks, over fifteen minutes, of which the run lasted one.
    assert float(last["count"]) == pytest.approx(2 * 100 * whole_run.LASTS_S / 900, rel=0.15)


def test_norms_of_a_model_in_shards_are_added_up(prometheus: Prometheus, known: WholeRun) -> None:
    """Two ranks that hold a part of the model: the panels show the root of the sum of squares, by layer."""
    run = WholeRun(known.begins_ns, run_id=SHARDED_ID, run_name="sharded run")
    for rank, (norm, ratio) in enumerate(((3.0, 0.1), (4.0, 0.2))):
        for line in run.lines_of(
            rank,
            [
                Sample("dl.grad.norm", norm, (("layer", "fc1"), ("part", "shard"))),
                Sample("dl.weight.norm", norm, (("layer", "fc1"), ("part", "shard"))),
                Sample("dl.update.ratio", ratio, (("layer", "fc1"), ("part", "shard"))),
                Sample("dl.run.heartbeat", known.begins_ns / 1e9),
            ],
        ):
            status, body = post_json(f"{prometheus.otlp_url}/v1/metrics", line)
            assert status == 200, body
    inside = Board("internals", Stores(prometheus.url), span_of(known), {"run_id": SHARDED_ID})
    expected = {
        "Gradient norm by layer": 5.0,
        "Weight norm by layer": 5.0,
        # Updates of 0.3 and 0.8 of weights that are 5 long.
        "Update ratio by layer": (0.3**2 + 0.8**2) ** 0.5 / 5,
    }
    found = {answer.title: answer.data for answer in inside.ask() if answer.title in expected}
    for title, value_of_all in expected.items():
        (series,) = found[title]
        assert [float(number) for _, number in series["values"]] == pytest.approx(
            [value_of_all] * len(series["values"])
        ), title


def test_runs_are_compared_by_their_own_steps(prometheus: Prometheus, known: WholeRun) -> None:
    """Step and value of each run at the same times, under one label of its name and id."""
    step, values, *_ = answers_of("compare", prometheus, known, "train_loss by step")
    labels = {f"{whole_run.RUN_NAME} {RUN_ID}", f"other run {SECOND_ID}", f"silent run {SILENT_ID}"}
    assert {series["metric"]["run"] for series in step.data} == labels
    assert all(list(series["metric"]) == ["run"] for series in (*step.data, *values.data))
    steps = {series["metric"]["run"]: dict(series["values"]) for series in step.data}
    for series in values.data:
        scale = {RUN_ID: 1, SECOND_ID: 3, SILENT_ID: 5}[series["metric"]["run"].split()[-1]]
        for at, number in series["values"]:
            assert float(number) == pytest.approx(scale / float(steps[series["metric"]["run"]][at]))


def test_the_first_loss_of_a_counter_counts(prometheus: Prometheus, known: WholeRun) -> None:
    """The Collector's counters of losses appear with their first loss: seven points are seven, not none."""
    time_ns = str(known.ends_ns - 10**9)
    points = [{"startTimeUnixNano": time_ns, "timeUnixNano": time_ns, "asInt": "7"}]
    lost = {"aggregationTemporality": 2, "isMonotonic": True, "dataPoints": points}
    metric = {"name": "otelcol_exporter_send_failed_metric_points", "sum": lost}
    body = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}
    status, answer = post_json(f"{prometheus.otlp_url}/v1/metrics", json.dumps(body))
    assert status == 200, answer
    span = Span(known.begins_ns // 10**6, known.ends_ns // 10**6)

    def not_delivered() -> float:
        answers = Board("pipeline", Stores(prometheus.url), span, None).ask()
        return value(next(answer for answer in answers if answer.title == "Not delivered"))

    wait_for("the loss", not_delivered)
    assert not_delivered() == 7.0


def test_alerts_of_the_run_are_marked(prometheus: Prometheus, known: WholeRun) -> None:
    """The annotation's query gives the alert of this run over the time that it fired."""
    (alerts,) = board("run", prometheus, known).marks()
    (series,) = alerts.data
    assert series["metric"]["alertname"] == "TrainingPlateau"
    assert alerts.query == f'ALERTS{{alertstate="firing",run_id="{RUN_ID}"}}'


def test_variables_have_the_run_its_project_and_its_metrics(prometheus: Prometheus, known: WholeRun) -> None:
    """The newest run comes first; loss is in the foreground; all metrics have a panel."""
    newest = Board("run", Stores(prometheus.url), span_of(known))
    assert newest.values["run_id"] == SILENT_ID
    assert newest.values["project"] == whole_run.PROJECT
    assert newest.values["measure"] == "train_loss"
    assert newest.values["metric"] == ["train_loss", "train_lr", "train_reward"]
