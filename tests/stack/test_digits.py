"""The digits example against the real stack: all that it recorded is in the stores, compared to the last item."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_train.runlog.reader import RunReader
from tests.stack import stores
from tests.stack.asking import get_json, wait_for
from tests.stack.expected import Expected, SeriesKey, Value, expected_of, lines
from tests.stack.programs import REPOSITORY
from tests.stack.table import PARTS, TABLE, Row
from tests.stack.trained import Trained, end_of, push, start_digits
from tests.stack.whole_stack import Stack


@pytest.fixture(scope="module")
def trained(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run of few epochs and little patience, so that it stops early; it sends while it trains."""
    folder = tmp_path_factory.mktemp("digits")
    process = start_digits(folder, "--epochs", "12", "--patience", "1", OTEL_EXPORTER_OTLP_ENDPOINT=stack.collector.url)
    done = end_of(process, folder)
    assert done.code == 0, done.output
    return done


@pytest.fixture(scope="module")
def expected(trained: Trained) -> Expected:
    """What stores must hold, from the run log alone."""
    found = trained.expected()
    counts = found.point_count, len(found.records), len(found.span_ids)
    assert all(count > least for count, least in zip(counts, (1_500, 30, 50), strict=True)), (
        "the example recorded too little to compare"
    )
    return found


@pytest.fixture(scope="module")
def points(stack: Stack, trained: Trained, expected: Expected) -> dict[SeriesKey, dict[int, Value]]:
    """All that Prometheus holds of the run, once it holds as much as the run log."""

    def enough() -> dict[SeriesKey, dict[int, Value]] | None:
        found = stores.points_of(stack.prometheus.url, trained.run_id)
        return found if not stores.differences(expected, found) else None

    try:
        return wait_for("the run's points", enough, timeout_s=60, every_s=1.0)
    except AssertionError:
        return stores.points_of(stack.prometheus.url, trained.run_id)


@pytest.fixture(scope="module")
def records(stack: Stack, trained: Trained, expected: Expected) -> list[tuple[int, str, dict[str, str]]]:
    """All that Loki holds of the run."""
    if stack.loki is None:
        pytest.skip(stack.missing["loki"])
    url = stack.loki.url
    times = [record[0] for record in expected.records]

    def found() -> list[tuple[int, str, dict[str, str]]]:
        return stores.records_of(url, trained.run_id, "digits", min(times), max(times))

    try:
        wait_for("the run's records", lambda: len(found()) >= len(times), timeout_s=60, every_s=1.0)
    except AssertionError:
        pass  # the tests say what is missing
    return found()


@pytest.fixture(scope="module")
def spans(stack: Stack, trained: Trained, expected: Expected) -> dict[str, dict[str, dict[str, Any]]]:
    """All that Tempo finds by the run's id: trace, span id, span."""
    if stack.tempo is None:
        pytest.skip(stack.missing["tempo"])
    url = stack.tempo.url
    times = [record[0] for record in expected.records]

    def found() -> dict[str, dict[str, dict[str, Any]]]:
        return stores.spans_of(url, trained.run_id, min(times), max(times))

    try:
        wanted = len(expected.span_ids)
        wait_for("the run's spans", lambda: sum(map(len, found().values())) >= wanted, timeout_s=90, every_s=2.0)
    except AssertionError:
        pass  # the tests say what is missing
    return found()


def test_every_point_of_every_metric_is_in_prometheus(
    expected: Expected, points: dict[SeriesKey, dict[int, Value]]
) -> None:
    """Each series with its labels, each point with its millisecond and exact value; nothing else under these names."""
    told = stores.differences(expected, points)
    assert not told, f"{len(told)} differences:\n" + "\n".join(told[:20])


def test_merged_points_equal_the_account(trained: Trained, expected: Expected) -> None:
    """What the sender says it merged and sent is what a second computation from the run log says."""
    sent = trained.sent("metrics")
    assert sent["merged"] == expected.merged
    assert sent["sent"] - sent["added"] == expected.point_count
    assert (sent["refused"], sent["aged"], sent["unreadable"]) == (0, 0, 0)


def test_every_record_is_in_loki_with_its_trace(
    expected: Expected, records: list[tuple[int, str, dict[str, str]]]
) -> None:
    """Time to the nanosecond, body, event name, trace and span id of each record; each once."""
    wanted = Counter(map(stores.comparable, expected.records))
    found = Counter(stores.found_records(records))
    assert not wanted - found, f"missing: {list((wanted - found).items())[:3]}"
    assert not found - wanted, f"too much: {list((found - wanted).items())[:3]}"
    assert all(record[2] and record[3] for record in expected.records)


def test_every_span_is_in_tempo(expected: Expected, spans: dict[str, dict[str, dict[str, Any]]]) -> None:
    """The traces that a search by run id finds hold every span of the run, and no other."""
    assert {trace: set(members) for trace, members in spans.items()} == expected.spans


def test_the_run_has_ended_in_prometheus(stack: Stack, trained: Trained, expected: Expected) -> None:
    """Its series are gone from "now" at once, and stay in history."""

    def now() -> set[str]:
        answer = get_json(f"{stack.prometheus.url}/api/v1/query", {"query": f'{{run_id="{trained.run_id}"}}'})
        return {series["metric"]["__name__"] for series in answer["data"]["result"]} & expected.names()

    wait_for("the end marks", lambda: not now(), timeout_s=30)
    assert not now()


def test_the_archive_is_the_run_log_again(stack: Stack, trained: Trained, expected: Expected) -> None:
    """The gateway's archive of the run holds the same points, records and spans as the run folder, merges apart."""
    folder = stack.collector.archive / trained.run_id

    def archived() -> Expected | None:
        found = expected_of(folder)
        complete = len(found.span_ids) == len(expected.span_ids) and len(found.records) >= len(expected.records)
        return found if complete and not stores.differences(expected, found.points) else None

    found = wait_for("the archive", archived, timeout_s=30, every_s=1.0)
    assert found.spans == expected.spans
    assert Counter(map(stores.comparable, found.records)) == Counter(map(stores.comparable, expected.records))
    assert not RunReader(folder).damage


def test_a_second_push_finds_nothing_to_send(stack: Stack, trained: Trained) -> None:
    """All was acknowledged while the run went on: `push` reports that, and leaves the account as it was."""
    before = {signal: trained.sent(signal) for signal in ("metrics", "logs", "traces")}
    done = push(trained.path, "--endpoint", stack.collector.url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {signal: trained.sent(signal) for signal in before} == before


def test_push_verifies_in_the_stores(stack: Stack, trained: Trained, points: object, records: object) -> None:
    """`push --verify` counts the run in the stores that there are, and finds it whole."""
    if stack.loki is None or stack.tempo is None:
        pytest.skip(stack.missing.get("loki") or stack.missing["tempo"])
    arguments = ["--endpoint", stack.collector.url, "--verify", "--prometheus", stack.prometheus.url]
    done = push(trained.path, *arguments, "--loki", stack.loki.url, "--tempo", stack.tempo.url)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_the_table(
    row: Row, stack: Stack, trained: Trained, expected: Expected, request: pytest.FixtureRequest
) -> None:
    """Each row of the table is in its store, as often as it must be."""
    assert count(row, stack, trained, request) >= row.at_least


def count(row: Row, stack: Stack, trained: Trained, request: pytest.FixtureRequest) -> int:
    """Return how often a row's thing is in its store."""
    if row.store == "prometheus":
        request.getfixturevalue("points")
        found = wait_for(
            str(row),
            lambda: [
                len(points)
                for (name, labels), points in stores.points_of(stack.prometheus.url, trained.run_id).items()
                if name == row.name and labels >= frozenset(row.labels)
            ],
            timeout_s=30,
            every_s=0.5,
        )
        return sum(found)
    if row.store == "loki":
        rows = request.getfixturevalue("records")
        return sum(
            labels.get("event_name", "") == row.name and labels.items() >= dict(row.labels).items()
            for _, _, labels in rows
        )
    if row.store == "tempo":
        traces = request.getfixturevalue("spans")
        return sum(span["name"] == row.name for members in traces.values() for span in members.values())
    return sum(1 for _ in lines(stack.collector.archive / trained.run_id, row.name))


@pytest.mark.parametrize("part", PARTS)
def test_the_parts_are_scraped(part: str, stack: Stack) -> None:
    """Prometheus sees each part up, and has a metric of its own telemetry."""
    if part in stack.missing:
        pytest.skip(stack.missing[part])

    def value(query: str) -> float:
        answer = get_json(f"{stack.prometheus.url}/api/v1/query", {"query": query})
        return float(answer["data"]["result"][0]["value"][1]) if answer["data"]["result"] else -1.0

    wait_for(f"{part} to be up", lambda: value(f'up{{job="{part}"}}') == 1.0, timeout_s=40, every_s=0.5)
    wait_for(PARTS[part], lambda: value(f'sum({PARTS[part]}{{job="{part}"}})') >= 0, timeout_s=40, every_s=0.5)


def test_prometheus_has_its_rules(stack: Stack) -> None:
    """Every shipped rule is loaded, and none fails in its evaluation."""
    groups = get_json(f"{stack.prometheus.url}/api/v1/rules")["data"]["groups"]
    loaded = {rule["name"] for group in groups for rule in group["rules"]}
    shipped = sorted((REPOSITORY / "deploy" / "prometheus" / "rules").glob("*.yaml"))
    assert loaded == {name for path in shipped for name in rule_names(path)}
    assert not [rule["lastError"] for group in groups for rule in group["rules"] if rule.get("lastError")]


def test_loki_has_its_rules(stack: Stack) -> None:
    """Loki's ruler has read every shipped rule."""
    if stack.loki is None:
        pytest.skip(stack.missing["loki"])
    groups = get_json(f"{stack.loki.url}/prometheus/api/v1/rules")["data"]["groups"]
    shipped = sorted((REPOSITORY / "deploy" / "loki" / "rules").glob("*/*.yaml"))
    assert shipped
    names = {name for path in shipped for name in rule_names(path)}
    assert {rule["name"] for group in groups for rule in group["rules"]} == names


def rule_names(path: Path) -> set[str]:
    """Return the names of the alerts and recorded series in a file of rules."""
    groups = yaml.safe_load(path.read_text())["groups"]
    return {rule.get("alert") or rule["record"] for group in groups for rule in group["rules"]}


def test_the_run_left_no_alert(stack: Stack, trained: Trained) -> None:
    """A healthy run of some seconds notifies nobody."""
    assert stack.webhook.alerts(trained.run_id) == []


def test_files_of_the_stack_are_only_in_its_folders(stack: Stack) -> None:
    """Queue and archive lie where they were told to."""
    assert {path.name for path in Path(stack.collector.folder).iterdir()} == {"queue", "archive", "collector.log"}
