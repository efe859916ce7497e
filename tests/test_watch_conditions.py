"""The table of conditions and the thresholds of a run: complete, in step with each other, wrong arguments refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import otel_train
from otel_train.errors import ConfigError
from otel_train.semconv import EVENTS, METRICS
from otel_train.watch.conditions import CONDITIONS, Condition
from otel_train.watch.onsets import OWN_VALUES
from otel_train.watch.thresholds import ALERT_SETTINGS, Thresholds

NO_EVENT = {"failed", "lost", "rank_lost"}
# Whose values other parts make: the writer itself, what runs beside the steps of a rank, the check of samples.
MADE_ELSEWHERE = {"dl.nonfinite", "dl.run.heartbeat", "dl.run.state", "dl.rank.straggler", "dl.samples.drift"}


def test_the_conditions_are_these() -> None:
    """Rules, runbook and dashboards know them by these names."""
    assert list(CONDITIONS) == [
        "plateau",
        "overfit",
        "nonfinite",
        "gradient_exploding",
        "gradient_vanishing",
        "stalled",
        "failed",
        "lost",
        "data_wait",
        "dead_units",
        "amp_skipping",
        "samples_bad",
        "samples_drift",
        "memory_growth",
        "straggler",
        "hung",
        "rank_lost",
        "gpu_idle",
        "gpu_hot",
        "gpu_throttled",
        "gpu_ecc",
        "disk_full",
        "memory_full",
    ]


@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=CONDITIONS.keys())
def test_a_condition_names_a_metric_a_setting_and_what_to_do(condition: Condition) -> None:
    """Its metric is in the table of names, its default is that of its key, and its texts are sentences."""
    assert condition.metric in METRICS
    assert ALERT_SETTINGS[condition.setting].default == condition.threshold
    assert set(condition.also) <= set(ALERT_SETTINGS)
    assert {key for key, _ in condition.where} <= set(METRICS[condition.metric].attributes)
    for text in (condition.summary, condition.meaning, *condition.look_at, *condition.remedies):
        assert len(text.split()) > 2
        assert text.endswith((".", "?")), text
    assert len(condition.look_at) >= 2
    assert len(condition.remedies) >= 2


def test_each_key_of_alerts_belongs_to_a_condition() -> None:
    """No key is accepted that changes nothing."""
    assert {key for row in CONDITIONS.values() for key in (row.setting, *row.also)} == set(ALERT_SETTINGS)


def test_conditions_that_are_found_here_are_in_the_table_of_events() -> None:
    """With the severity that they are written at."""
    severities = {"critical": "ERROR", "warning": "WARN"}
    expected = {row.event: severities[row.severity] for row in CONDITIONS.values() if row.name not in NO_EVENT}
    assert {name: EVENTS[name].severity for name in expected} == expected


def test_values_made_here_are_metrics_of_our_own() -> None:
    """What is written at an onset is in the table of names, and compared by a condition."""
    assert set(METRICS) >= OWN_VALUES
    assert {row.metric for row in CONDITIONS.values()} >= OWN_VALUES
    assert {row.metric for row in CONDITIONS.values() if row.metric.startswith("dl.")} - OWN_VALUES == MADE_ELSEWHERE


def test_thresholds_are_the_defaults_unless_given() -> None:
    """Numbers, texts of numbers, and the words on and off are understood."""
    thresholds = Thresholds({"plateau_steps": "500", "overfit_gap": 0.25, "gpu_throttled": "on", "disk_share": "off"})
    assert thresholds.limit(CONDITIONS["plateau"]) == 500
    assert thresholds.limit(CONDITIONS["overfit"]) == 0.25
    assert thresholds.limit(CONDITIONS["gpu_throttled"]) == 1
    assert thresholds.limit(CONDITIONS["disk_full"]) == math.inf
    assert thresholds.limit(CONDITIONS["memory_full"]) == 0.95
    assert thresholds["plateau_percent"] == 1.0


@pytest.mark.parametrize("off", [0, None, "off", "0", "none", False, 0.0])
def test_what_is_off_is_never_reached(off: Any) -> None:
    """A limit above is infinite and one below zero, so that a rule needs no special case."""
    thresholds = Thresholds({row.setting: off for row in CONDITIONS.values()})
    for condition in CONDITIONS.values():
        expected = 0.0 if condition.comparison == "<" else math.inf
        assert thresholds.limit(condition, usual=1.0) == expected, condition.name


@pytest.mark.parametrize(
    ("usual_s", "limit_s"), [(None, math.inf), (0.5, 120.0), (12.0, 120.0), (12.5, 125.0), (60.0, 600.0)]
)
def test_a_run_has_stalled_after_ten_steps_and_two_minutes(usual_s: float | None, limit_s: float) -> None:
    """Both must have passed; while no step time is usual nothing has stalled."""
    assert Thresholds().limit(CONDITIONS["stalled"], usual_s) == limit_s


@pytest.mark.parametrize(
    ("usual_s", "limit_s"), [(None, math.inf), (0.5, 30.0), (3.0, 30.0), (3.5, 35.0), (60.0, 600.0)]
)
def test_a_rank_hangs_after_ten_steps_and_half_a_minute(usual_s: float | None, limit_s: float) -> None:
    """Sooner than the run as a whole counts as stalled; by keys of its own."""
    assert Thresholds().limit(CONDITIONS["hung"], usual_s) == limit_s
    assert Thresholds({"hung_min_s": 5, "hung_factor": 2}).limit(CONDITIONS["hung"], 10.0) == 20.0


def test_without_a_window_no_gpu_idles() -> None:
    """The time over which the mean is taken switches the condition off as well."""
    assert Thresholds({"gpu_idle_s": 0}).limit(CONDITIONS["gpu_idle"]) == 0.0


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"plateau": 5}, "plateau_steps"),
        ({"plateau_steps": "many"}, "2000"),
        ({"plateau_steps": -1}, "of at least 0"),
        ({"plateau_steps": math.nan}, "of at least 0"),
        ({"plateau_steps": math.inf}, "of at least 0"),
        ({"disk_share": 95}, "from 0 to 1"),
        ({"overfit_gap": [1]}, "off"),
    ],
)
def test_a_wrong_threshold_is_refused_by_name(given: dict[str, Any], named: str) -> None:
    """The message names key and value, and the known keys or the range."""
    with pytest.raises(ConfigError) as caught:
        Thresholds(given)
    (key,) = given
    assert repr(key) in caught.value.field
    assert caught.value.value is given[key]
    assert named in str(caught.value)


def test_init_refuses_a_wrong_threshold_before_it_makes_anything(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As argument and from the environment, each named as the user wrote it; no folder is left."""
    with pytest.raises(ConfigError, match=r"alerts\['plateau_step'\]"):
        otel_train.init(alerts={"plateau_step": 3})
    with pytest.raises(ConfigError, match="alerts='plateau_steps': use name=number"):
        otel_train.init(alerts="plateau_steps")
    monkeypatch.setenv("OTEL_TRAIN_ALERTS", "overfit_gap=much")
    with pytest.raises(ConfigError, match=r"OTEL_TRAIN_ALERTS\['overfit_gap'\]='much'"):
        otel_train.init()
    assert not root.exists()
