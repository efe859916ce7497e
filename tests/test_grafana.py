"""The dashboards are those of their source, complete, and name nothing that does not exist.

What stores answer to their queries is checked in `tests/stack/test_dashboards.py`.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

pytest.importorskip("grafana_foundation_sdk", reason="grafana-foundation-sdk is not installed")

from grafana.source import fragments, links, names
from grafana.source.__main__ import FOLDER, PAGES
from grafana.source.pages import health
from grafana.source.queries.health import THRESHOLD
from otel_train import semconv
from otel_train.lineage.resource import RESERVED
from otel_train.otlp.prometheus_names import known_name, label_name
from otel_train.view.internals import USUAL_RATIO
from otel_train.watch.conditions import CONDITIONS

ROOT = Path(__file__).parent.parent
PROVISIONING = ROOT / "grafana" / "provisioning"
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "otel_train").rglob("*.py")))
BOARDS: dict[str, dict[str, Any]] = {name: json.loads((FOLDER / name).read_text(encoding="utf-8")) for name in PAGES}
PANELS = [
    pytest.param(board, panel, id=f"{name.removesuffix('.json')}-{panel['id']}")
    for name, board in BOARDS.items()
    for panel in board["panels"]
    if panel["type"] != "row"
]
# Units of their fields come with the data.
WITHOUT_UNIT = {"logs"}
WITH_LEGEND = {"timeseries", "trend", "xychart", "statetimeline"}
# Variables that Grafana fills in by itself.
OF_GRAFANA = {"__range", "__rate_interval", "__from", "__to", "__url_time_range", "__value", "__data"}
WORDS_OF_PROMQL = {"and", "or", "unless", "bool", "offset", "Inf", "NaN"}
PROMQL_LABELS = (
    {label_name(attribute) for metric in semconv.METRICS.values() for attribute in metric.attributes}
    | {label_name(attribute) for attribute in RESERVED | {semconv.HOST_NAME}}
    | set(names.FOREIGN_LABELS)
    # A user's metric may carry these: see record/names.py.
    | {"split", "axis", "key", "__name__"}
)
METRIC_NAMES = {known_name(name) for name in semconv.METRICS} | set(names.FOREIGN_METRICS)
LOG_FIELDS = {"service_name", "run_id", "event_name", "detected_level"}


def targets(board: dict[str, Any], kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the queries of a dashboard's panels and annotations that go to one kind of store."""
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            if target["datasource"]["type"] == kind:
                yield f"{panel['id']} {panel['title']}", target
    for annotation in board["annotations"]["list"]:
        if annotation["datasource"]["type"] == kind:
            yield annotation["name"], annotation["target"]


def promql_of(board: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each PromQL text of a dashboard, those of its variables too."""
    for place, target in targets(board, "prometheus"):
        yield place, target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            inner = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
            assert inner, variable["definition"]
            yield variable["name"], inner[1]
            yield variable["name"], f"count by ({inner[2]}) ({inner[1]})"


def names_in(promql: str) -> tuple[set[str], set[str]]:
    """Return the metrics and the labels that a PromQL text names."""
    labels = set(re.findall(r"([A-Za-z_]\w*)\s*(?:=~|!~|!=|=)\s*\"", promql))
    bare = re.sub(r'"[^"]*"', '""', promql)
    for group in re.findall(r"\b(?:by|on|group_left|group_right|without|ignoring)\s*\(([^)]*)\)", bare):
        labels |= {label.strip() for label in group.split(",") if label.strip()}
    bare = re.sub(r"\b(?:by|on|group_left|group_right|without|ignoring)\s*\([^)]*\)", " ", bare)
    bare = re.sub(r"\{[^}]*\}", "{}", bare)
    bare = re.sub(r"\[[^\]]*\]", "", bare)
    metrics = set(re.findall(r"(?<![\w$])([A-Za-z_:][\w:]*)(?!\w|\s*\()", bare)) - WORDS_OF_PROMQL
    return metrics, labels


def links_of(value: Any) -> Iterator[dict[str, Any]]:
    """Yield each link within a dashboard."""
    if isinstance(value, dict):
        if "url" in value and "title" in value:
            yield value
        for inner in value.values():
            yield from links_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from links_of(inner)


def variables_of(board: dict[str, Any]) -> set[str]:
    return {variable["name"] for variable in board["templating"]["list"]}


@pytest.mark.parametrize("name", PAGES)
def test_committed_dashboards_are_those_of_the_source(name: str) -> None:
    """Whoever changes the source runs `make dashboards`."""
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "run `make dashboards`"


def test_there_is_no_other_dashboard() -> None:
    """A file that nothing makes would never change again."""
    assert {path.name for path in FOLDER.iterdir()} == set(PAGES)
    assert {board["uid"] for board in BOARDS.values()} == {
        links.RUNS,
        links.RUN,
        links.COMPARE,
        links.RANKS,
        links.INTERNALS,
        links.PIPELINE,
    }


@pytest.mark.parametrize("name", PAGES)
def test_dashboards_are_of_the_form_that_file_provisioning_reads(name: str) -> None:
    """The classic form; Grafana gives the number of the database itself."""
    board = BOARDS[name]
    assert board["schemaVersion"] == 42
    assert "id" not in board
    assert board["title"].startswith("otel-train: ")
    assert board["description"].endswith(".")
    assert board["tags"] == ["otel-train"]


@pytest.mark.parametrize("name", PAGES)
def test_panels_have_numbers_of_their_own_and_do_not_overlap(name: str) -> None:
    """They fill the grid of 24 columns from the top; a panel that is repeated has its lines for itself."""
    panels = BOARDS[name]["panels"]
    numbers = [panel["id"] for panel in panels]
    assert len(set(numbers)) == len(numbers)
    assert all(isinstance(number, int) and number > 0 for number in numbers)
    taken: dict[tuple[int, int], int] = {}
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        width = 24 if panel.get("repeat") else place["w"]
        for cell in itertools.product(
            range(place["x"], place["x"] + width), range(place["y"], place["y"] + place["h"])
        ):
            assert taken.setdefault(cell, panel["id"]) == panel["id"], f"{panel['title']} lies upon {taken[cell]}"
    bottom = max(y for _, y in taken) + 1
    assert {y for _, y in taken} == set(range(bottom)), "a line is empty"


@pytest.mark.parametrize(("board", "panel"), PANELS)
def test_each_panel_says_what_it_is(board: dict[str, Any], panel: dict[str, Any]) -> None:
    """Title, description as a sentence, unit, version of its plugin, visible legend, queries with letters."""
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["pluginVersion"] == "12.3.0"
    of_traces = panel["datasource"]["type"] == "tempo"
    if panel["type"] not in WITHOUT_UNIT and not of_traces:
        assert panel["fieldConfig"]["defaults"]["unit"]
    if panel["type"] in WITH_LEGEND:
        assert panel["options"]["legend"]["showLegend"] is True
        assert panel["options"]["legend"]["displayMode"] in ("list", "table")
    letters = [target["refId"] for target in panel["targets"]]
    assert letters == list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: len(letters)])
    assert {target["datasource"]["uid"] for target in panel["targets"]} == {panel["datasource"]["uid"]}
    assert ("repeatDirection" in panel) == ("repeat" in panel)


@pytest.mark.parametrize("name", PAGES)
def test_metrics_and_labels_of_queries_exist(name: str) -> None:
    """Each is in the tables of names, or in the table of what other programs write."""
    unknown = {}
    for place, promql in promql_of(BOARDS[name]):
        metrics, labels = names_in(promql)
        if (metrics - METRIC_NAMES) or (labels - PROMQL_LABELS):
            unknown[place] = (metrics - METRIC_NAMES, labels - PROMQL_LABELS)
    assert unknown == {}


def test_the_search_for_names_finds_those_that_do_not_exist() -> None:
    """The test above could otherwise pass on nothing."""
    promql = (
        'max by (no_label) (no_metric{no_matcher="$x"} > bool 0) * on (no_match) rate(no_counter_total[5m]) > 0 < Inf'
    )
    metrics, labels = names_in(promql)
    assert metrics == {"no_metric", "no_counter_total"}
    assert labels == {"no_label", "no_matcher", "no_match"}


def test_names_that_are_none_are_refused_where_queries_are_made() -> None:
    """A misspelt metric or event fails when the dashboards are built."""
    for wrong in (
        lambda: names.metric("dl.stepp"),
        lambda: names.foreign("upp"),
        lambda: names.events("run.begin"),
        lambda: names.counter("dl.step"),
    ):
        with pytest.raises(KeyError):
            wrong()
    assert names.metric("dl.step.time", names.equal("dl.rank", "0")) == 'dl_step_time_seconds{dl_rank="0"}'


@pytest.mark.parametrize("name", PAGES)
def test_fields_of_log_queries_exist(name: str) -> None:
    """service_name is the index; all else is structured metadata, with dots as underscores."""
    for place, target in targets(BOARDS[name], "loki"):
        logql = target["expr"]
        assert logql.startswith('{service_name=~"$project"} | run_id'), place
        assert set(re.findall(r"(\w+)\s*(?:=~|!=|=)\s*\"", logql)) <= LOG_FIELDS, place
        for pattern in re.findall(r'event_name=~?"([^"]+)"', logql):
            for event in pattern.split("|"):
                if event != "health[.].+":
                    assert event in semconv.EVENTS, place


@pytest.mark.parametrize("name", PAGES)
def test_attributes_and_names_of_trace_queries_exist(name: str) -> None:
    """Each attribute and each name of a span is one that the program writes."""
    for place, target in targets(BOARDS[name], "tempo"):
        traceql = target["query"]
        attributes = re.findall(r"\b(?:span|resource)\.([a-z_.]+[a-z_])", traceql)
        assert attributes, place
        assert [attribute for attribute in attributes if f'"{attribute}"' not in SOURCE] == [], place
        for pattern in re.findall(r'\bname =~? "([^"]+)"', traceql):
            assert [span for span in pattern.split("|") if f'"{span}"' not in SOURCE] == [], place


@pytest.mark.parametrize("name", PAGES)
def test_variables_of_queries_and_links_exist(name: str) -> None:
    """Each is one of the dashboard's, or one that Grafana fills in."""
    board = BOARDS[name]
    known = variables_of(board) | OF_GRAFANA
    text = json.dumps({key: board[key] for key in ("panels", "templating", "annotations", "links")})
    used = set(re.findall(r"\$\{?([A-Za-z_]+)", text)) - {"__all"}
    assert used <= known


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_dashboards_and_panels_that_exist(name: str) -> None:
    """With variables that the target has, and with columns that the row has."""
    by_uid = {board["uid"]: board for board in BOARDS.values()}
    count = 0
    for link in links_of(BOARDS[name]):
        url = link["url"]
        if url.startswith("/explore?"):
            panes = json.loads(unquote(re.sub(r"\$\{[^}]+\}", "1", url.split("panes=")[1])))
            assert panes["steps"]["queries"][0]["queryType"] == "traceql"
            continue
        count += 1
        uid, _, query = url.removeprefix("/d/").partition("?")
        target = by_uid[uid]
        for parameter in query.split("&"):
            key, _, value = parameter.partition("=")
            if key.startswith("var-"):
                assert key.removeprefix("var-") in variables_of(target), url
            elif key == "viewPanel":
                assert int(value.removeprefix("panel-")) in {panel["id"] for panel in target["panels"]}, url
            elif "queryparam" not in key:
                assert key in ("from", "to", "time", "time.window", "${__url_time_range}"), url
    # At least those at the top, to each of the others.
    assert count >= len(BOARDS) - 1


@pytest.mark.parametrize(("board", "panel"), PANELS)
def test_columns_that_links_read_are_in_the_table(board: dict[str, Any], panel: dict[str, Any]) -> None:
    """A field that the table leaves out would leave its placeholder in the address."""
    fields = set(re.findall(r"\$\{__data\.fields\.(\w+)\}", json.dumps(panel)))
    if not fields:
        return
    if panel["type"] == "table":
        (organize,) = (step for step in panel["transformations"] if step["id"] == "organize")
        assert fields <= set(organize["options"]["includeByName"])
        # Renamed fields are found by another name in some versions.
        assert not fields & set(organize["options"]["renameByName"])
    else:
        assert fields == {"step"}
        assert "step" in {target.get("legendFormat") for target in panel["targets"]}


def test_columns_for_links_alone_are_not_shown() -> None:
    """Hidden by the name that this version's table knows, and by that of older ones."""
    (table,) = (panel for panel in BOARDS["runs.json"]["panels"] if panel["title"] == "Runs")
    properties = {o["matcher"]["options"]: o["properties"] for o in table["fieldConfig"]["overrides"]}
    for column in ("from_ms", "until_ms"):
        assert properties[column] == [
            {"id": "custom.hideFrom.viz", "value": True},
            {"id": "custom.hidden", "value": True},
        ]


def test_links_between_runs_carry_the_run_and_its_time() -> None:
    """From the table of all runs to one, over the time that it lasted; from a point to that moment's steps."""
    (table,) = (panel for panel in BOARDS["runs.json"]["panels"] if panel["title"] == "Runs")
    url = next(links_of(table["fieldConfig"]["overrides"]))["url"]
    assert url.startswith(
        "/d/otel-train-run?var-run_id=${__data.fields.run_id}&from=${__data.fields.from_ms}&to=${__data.fields.until_ms}"
    )
    run = {panel["title"]: panel for panel in BOARDS["run.json"]["panels"]}
    steps = run["Steps"]
    for panel in BOARDS["run.json"]["panels"]:
        if panel["type"] == "timeseries":
            first = panel["fieldConfig"]["defaults"]["links"][0]["url"]
            assert "var-run_id=${run_id}&time=${__value.time}&time.window=60000" in first, panel["title"]
            assert f"viewPanel=panel-{steps['id']}" in first
    assert 'name = "step"' in steps["targets"][0]["query"]


def test_each_watched_value_is_drawn_with_its_threshold() -> None:
    """One panel for each condition that has a number; the line is red and dashed."""
    of_boards = {
        "run.json": (*health.LEARNING, *health.GOING_ON, *health.GPUS, *health.HOSTS),
        "internals.json": (*health.OF_THE_MODEL, *health.OF_SAMPLES),
        "ranks.json": health.OF_RANKS,
    }
    panels = {panel["title"]: panel for name in of_boards for panel in BOARDS[name]["panels"]}
    drawn = [name for names in of_boards.values() for name in names]
    assert sorted((*drawn, *health.WITHOUT_A_PANEL)) == sorted(CONDITIONS)
    for name in drawn:
        panel = panels[CONDITIONS[name].title]
        line = panel["targets"][-1]
        assert line["legendFormat"] == THRESHOLD
        assert f'dl_alert_threshold{{run_id="$run_id",alert="{name}"}}' in line["expr"]
        assert known_name(CONDITIONS[name].metric) in "".join(target["expr"] for target in panel["targets"][:-1])
        (override,) = (o for o in panel["fieldConfig"]["overrides"] if o["matcher"]["options"] == THRESHOLD)
        assert {"id": "color", "value": {"mode": "fixed", "fixedColor": "red"}} in override["properties"]
        assert CONDITIONS[name].setting in panel["description"]


def test_every_state_has_a_number_a_name_and_a_colour() -> None:
    """A state that the SDK can write and the dashboards do not know would vanish from the table of runs."""
    assert set(fragments.STATE_CODES) == set(semconv.RUN_STATES)
    codes = [*fragments.STATE_CODES.values(), fragments.SILENT_CODE]
    assert sorted(codes) == list(range(1, len(codes) + 1))
    (state,) = (panel for panel in BOARDS["run.json"]["panels"] if panel["title"] == "State")
    (mapping,) = state["fieldConfig"]["defaults"]["mappings"]
    assert mapping["type"] == "value"
    assert {text["text"] for text in mapping["options"].values()} == {*semconv.RUN_STATES, "silent"}
    assert mapping["options"]["2"] == {"text": "running", "color": "green", "index": 1}


def test_panels_by_step_have_the_form_that_was_seen_to_work() -> None:
    """Trend panels need each step once and in order; several runs are rows of step and value, parted by run."""
    kinds = {}
    for board in BOARDS.values():
        for panel in board["panels"]:
            kinds.setdefault(panel["type"], []).append(panel)
    assert {panel["title"] for panel in kinds["trend"]} == {"$measure by step", "$metric by step"}
    for panel in kinds["trend"]:
        assert [step["id"] for step in panel["transformations"]] == [
            "joinByField",
            "groupBy",
            "sortBy",
            "renameByRegex",
        ]
        grouped = panel["transformations"][1]["options"]["fields"]
        assert grouped["step"] == {"operation": "groupby", "aggregations": []}
        assert set(grouped) == {"step", *semconv.SPLITS, "value"}
        assert panel["options"]["xField"] == "step"
    assert len(kinds["xychart"]) == 2
    for panel in kinds["xychart"]:
        assert [step["id"] for step in panel["transformations"]] == ["merge", "partitionByValues"]
        assert panel["options"]["mapping"] == "auto"
        assert panel["options"]["series"] == [{}]
        assert [target["format"] for target in panel["targets"]] == ["table", "table"]
        assert all("by (run) (label_join(" in target["expr"] for target in panel["targets"])


def test_distributions_are_asked_for_as_heatmaps_of_native_histograms() -> None:
    """Of one layer, which a variable chooses among those that the run has."""
    panels = [panel for board in BOARDS.values() for panel in board["panels"] if panel["type"] == "heatmap"]
    assert [panel["title"] for panel in panels] == ["Weights of $layer", "Gradients of $layer"]
    for panel, metric in zip(panels, ("dl_weight_distribution", "dl_grad_distribution"), strict=True):
        (target,) = panel["targets"]
        assert target["format"] == "heatmap"
        assert f'{metric}{{layer="$layer",run_id="$run_id"}}' in target["expr"]
        assert panel["options"]["calculate"] is False


def test_what_is_usual_of_an_update_is_a_green_area_on_a_logarithmic_axis() -> None:
    """From 0.0003 to 0.003, around the rule of thumb of a thousandth; as in the report."""
    (panel,) = (panel for panel in BOARDS["internals.json"]["panels"] if panel["title"] == "Update ratio by layer")
    defaults = panel["fieldConfig"]["defaults"]
    steps = [(step["value"], step["color"]) for step in defaults["thresholds"]["steps"]]
    assert steps == [(None, "transparent"), (USUAL_RATIO["low"], "green"), (USUAL_RATIO["high"], "transparent")]
    assert defaults["custom"]["thresholdsStyle"] == {"mode": "area"}
    assert defaults["custom"]["scaleDistribution"] == {"type": "log", "log": 10}


def test_every_logged_metric_gets_its_panels() -> None:
    """By time and by step in the dashboard of a run, by step where runs are compared."""
    for name, count in (("run.json", 2), ("compare.json", 1)):
        repeated = [panel for panel in BOARDS[name]["panels"] if panel.get("repeat")]
        assert [panel["repeat"] for panel in repeated] == ["metric"] * count
        (variable,) = (v for v in BOARDS[name]["templating"]["list"] if v["name"] == "metric")
        assert (variable["multi"], variable["includeAll"], variable["refresh"]) == (True, True, 2)
        assert variable["current"]["value"] == ["$__all"]
        assert '__name__=~"train_.+"' in variable["query"]["query"]


def test_alerts_and_events_of_the_run_are_marked() -> None:
    """Alerts as regions while they fire; events of its life and of its health as marks."""
    for name in ("run.json", "ranks.json", "internals.json"):
        found = {mark["name"]: mark for mark in BOARDS[name]["annotations"]["list"]}
        assert set(found) == {"Alerts", "Events", "Health"}
        assert found["Alerts"]["target"]["expr"] == 'ALERTS{alertstate="firing",run_id="$run_id"}'
        assert "checkpoint.saved" in found["Events"]["target"]["expr"]
        assert all(mark["enable"] and "placement" not in mark for mark in found.values())


def test_exemplars_are_asked_for_where_steps_have_traces() -> None:
    """On the native histogram of step durations, which keeps them; gauges lose theirs."""
    asked = [target["expr"] for _, target in targets(BOARDS["run.json"], "prometheus") if target.get("exemplar")]
    assert len(asked) == 1
    assert asked[0].startswith("histogram_quantile(0.5, ")
    assert "dl_step_duration_seconds" in asked[0]


def test_data_sources_lead_from_each_signal_to_the_others() -> None:
    """Exemplar to trace, span to logs and to metrics, log record to trace and to run."""
    text = (PROVISIONING / "datasources" / "otel-train.yaml").read_text(encoding="utf-8")
    # What Grafana makes of it: names from the environment, and one dollar of two.
    assert set(re.findall(r"(?<!\$)\$(\w+)", text.replace("$$", ""))) == {
        f"OTEL_TRAIN_{name}_URL" for name in ("PROMETHEUS", "LOKI", "TEMPO", "ALERTMANAGER")
    }
    sources = {source["uid"]: source for source in yaml.safe_load(text.replace("$$", "$"))["datasources"]}
    assert set(sources) == {"prometheus", "loki", "tempo", "alertmanager"}
    assert [d["datasourceUid"] for d in sources["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]] == [
        "tempo",
        "tempo",
    ]
    assert sources["prometheus"]["jsonData"]["exemplarTraceIdDestinations"][0]["name"] == "trace_id"
    trace, run = sources["loki"]["jsonData"]["derivedFields"]
    assert (trace["matcherType"], trace["matcherRegex"], trace["datasourceUid"]) == ("label", "trace_id", "tempo")
    assert trace["url"] == "${__value.raw}"
    assert run["url"] == f"/d/{links.RUN}?var-run_id=${{__value.raw}}"
    logs = sources["tempo"]["jsonData"]["tracesToLogsV2"]
    assert logs["datasourceUid"] == "loki"
    assert logs["query"] == ('{${__tags}} | run_id="${__span.tags["run_id"]}" or trace_id="${__trace.traceId}"')
    metrics = sources["tempo"]["jsonData"]["tracesToMetrics"]
    assert metrics["datasourceUid"] == "prometheus"
    for query in metrics["queries"]:
        metric, _, rest = query["query"].partition("{")
        assert metric in METRIC_NAMES | {"train_loss"}
        assert rest == "$__tags}"


def test_what_provisioning_reads_from_the_environment_is_set_in_compose() -> None:
    """Grafana knows no defaults: an unset name would be an empty address."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(PROVISIONING.rglob("*.yaml"))]
    wanted = {name for text in texts for name in re.findall(r"(?<!\$)\$(OTEL_\w+)", text)}
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    given = compose["services"]["grafana"]["environment"]
    assert {name: bool(given.get(name)) for name in wanted} == dict.fromkeys(wanted, True)
    assert len(wanted) == 5
    mounts = [volume.split(":")[1] for volume in compose["services"]["grafana"]["volumes"] if volume.startswith("./")]
    assert given["OTEL_TRAIN_DASHBOARDS"] in mounts
