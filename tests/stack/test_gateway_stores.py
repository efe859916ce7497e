"""What the stores would refuse costs nobody else's data: the gateway mends it, or hands it to the archive alone."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_train.clock import NS_PER_S, SYSTEM
from otel_train.lineage.run_id import new_run_id
from otel_train.runlog.reader import RunReader
from tests.stack import stores, telemetry
from tests.stack.asking import wait_for
from tests.stack.programs import COLLECTOR, REPOSITORY
from tests.stack.whole_stack import Stack

HOUR_NS = 3_600 * NS_PER_S
# A name without a letter or digit of ASCII; other producers send such, and users name attributes in their language.
NAMES = ("", "_", "学習率", "🚀")


def _point(name: str, time_ns: int, **attributes: str) -> dict[str, Any]:
    point = {"timeUnixNano": str(time_ns), "asDouble": 1.0, "attributes": _pairs(attributes)}
    return {"name": name, "gauge": {"dataPoints": [point]}}


def _pairs(values: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]


def _metrics(run_id: str, *metrics: dict[str, Any], **resource: str) -> dict[str, Any]:
    pairs = _pairs({"service.name": "stores", "run_id": run_id, **resource})
    return {"resource": {"attributes": pairs}, "scopeMetrics": [{"metrics": list(metrics)}]}


def _values(stack: Stack, run_id: str) -> dict[str, int]:
    """Return how many points each metric of a run has in Prometheus."""
    found: dict[str, int] = {}
    for (name, _), points in stores.points_of(stack.prometheus.url, run_id).items():
        if name != "target_info":
            found[name] = found.get(name, 0) + len(points)
    return found


def test_a_name_that_prometheus_refuses_costs_no_point(stack: Stack) -> None:
    """Points before and behind it in the same request arrive, and it arrives too, under a name that can be."""
    run_id, at_ns = new_run_id(SYSTEM), time.time_ns() - 60 * NS_PER_S
    blocks = [
        _metrics(run_id, _point("first", at_ns)),
        _metrics(run_id, *(_point(f"named.{number}", at_ns, **{name: "x"}) for number, name in enumerate(NAMES))),
        _metrics(run_id, _point("学習率", at_ns)),
        _metrics(run_id, _point("resource", at_ns), **dict.fromkeys(NAMES, "x")),
        _metrics(run_id, _point("last", at_ns)),
    ]
    assert telemetry.send(stack.collector.url, "metrics", {"resourceMetrics": blocks})[0] == 200
    found = wait_for("all points", lambda: them if len(them := _values(stack, run_id)) == 8 else None)
    assert found == {**dict.fromkeys(("first", *(f"named_{n}" for n in range(4)), "resource", "last"), 1), "metric": 1}


def test_a_time_that_prometheus_refuses_costs_no_other_point(stack: Stack) -> None:
    """A clock an hour ahead and a run of two months ago keep their points from Prometheus; the archive has them."""
    run_id, now_ns = new_run_id(SYSTEM), time.time_ns()
    times = {"first": now_ns, "ahead": now_ns + HOUR_NS, "old": now_ns - 60 * 24 * HOUR_NS, "last": now_ns}
    blocks = [_metrics(run_id, _point(name, at_ns)) for name, at_ns in times.items()]
    assert telemetry.send(stack.collector.url, "metrics", {"resourceMetrics": blocks})[0] == 200
    found = wait_for("both points", lambda: them if len(them := _values(stack, run_id)) == 2 else None)
    assert found == {"first": 1, "last": 1}
    folder = stack.collector.archive / run_id

    def archived() -> dict[str, int]:
        return {series.name: series.times_ns[0] for series, _ in RunReader(folder).series()} if folder.exists() else {}

    assert wait_for("the archive", lambda: them if len(them := archived()) == 4 else None) == times


def test_a_name_that_loki_refuses_costs_no_record(stack: Stack) -> None:
    """Records beside it arrive, and it arrives too with what its attributes say."""
    if stack.loki is None:
        pytest.skip(stack.missing["loki"])
    run_id = new_run_id(SYSTEM)
    for text, attributes in (("first", {}), ("named", dict.fromkeys(NAMES, "x")), ("last", {})):
        body = telemetry.records(run_id, [text], **attributes)
        assert telemetry.send(stack.collector.url, "logs", body)[0] == 200
    url, first_ns = stack.loki.url, telemetry.START_NS

    def records() -> list[tuple[int, str, dict[str, str]]] | None:
        found = stores.records_of(url, run_id, "drill", first_ns, first_ns + NS_PER_S)
        return found if len(found) == 3 else None

    found = {line: labels for _, line, labels in wait_for("three records", records)}
    assert found.keys() == {"first", "named", "last"}
    assert {value for key, value in found["named"].items() if key.startswith("key_")} == {"x"}


def test_the_gateway_knows_how_old_prometheus_takes_points() -> None:
    """What the gateway lets through lies within the window of the shipped Prometheus, by an hour."""
    prometheus = yaml.safe_load((REPOSITORY / "deploy" / "prometheus" / "prometheus.yml").read_text())
    window = prometheus["storage"]["tsdb"]["out_of_order_time_window"]
    gateway = Path(COLLECTOR / "gateway.yaml").read_text()
    (oldest,) = re.findall(r'Now\(\) - datapoint\.time > Duration\("(\d+)h"\)', gateway)
    assert window.endswith("d")
    assert int(oldest) == int(window[:-1]) * 24 - 1
