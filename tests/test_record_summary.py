"""Count, last, extremes, mean and non-finite values of a series, and its best value."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pytest

from otel_train.record.names import Series
from otel_train.record.summary import Best, NonFinite, Summaries, plain

LOSS = Series("train.loss", (("split", "val"),), "val/loss", "val", "loss")
TRAIN_LOSS = Series("train.loss", (("split", "train"),), "loss", "train", "loss")
ACCURACY = Series("train.accuracy", (("split", "val"),), "accuracy", "val", "accuracy")


def add(
    summaries: Summaries, series: Series, values: Sequence[float], first_step: int = 0
) -> tuple[NonFinite | None, Best | None]:
    steps = range(first_step, first_step + len(values))
    return summaries.add(series, [1_000 + step for step in steps], list(steps), values)


def test_a_summary_has_count_last_extremes_and_mean_of_all_batches() -> None:
    """3, 1, 2 and then 5, 0.5: the numbers of all five, the extremes with their steps."""
    summaries = Summaries()
    add(summaries, TRAIN_LOSS, [3.0, 1.0, 2.0])
    add(summaries, TRAIN_LOSS, (5.0, 0.5), first_step=3)
    assert summaries.by_series[TRAIN_LOSS].to_dict() == {
        "count": 5,
        "last": 0.5,
        "last_step": 4,
        "mean": 2.3,
        "min": 0.5,
        "min_step": 4,
        "max": 5.0,
        "max_step": 3,
    }


def test_extremes_and_mean_are_over_finite_values_and_the_record_is_strict_json() -> None:
    """With NaN and infinities among them: counted by kind, the first bad step is kept, the texts are JSON."""
    summaries = Summaries()
    bad, best = add(summaries, TRAIN_LOSS, [2.0, math.nan, 4.0, math.inf])
    assert best is None
    assert bad is not None
    assert (bad.kinds, bad.first, bad.step, bad.time_ns) == ({"NaN": 1, "Infinity": 1}, True, 1, 1_001)
    again, _ = add(summaries, TRAIN_LOSS, [-math.inf, math.nan], first_step=4)
    assert again is not None
    assert (again.first, again.step, again.value) == (False, 4, -math.inf)
    record = summaries.by_series[TRAIN_LOSS].to_dict()
    assert record == {
        "count": 6,
        "last": "NaN",
        "last_step": 5,
        "mean": 3.0,
        "min": 2.0,
        "min_step": 0,
        "max": 4.0,
        "max_step": 2,
        "nonfinite": {"NaN": 2, "Infinity": 1, "-Infinity": 1},
        "first_nonfinite_step": 1,
    }
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_a_series_that_never_was_finite_has_no_extremes() -> None:
    """Only counts and the last value are said."""
    summaries = Summaries()
    add(summaries, TRAIN_LOSS, [math.nan])
    assert summaries.by_series[TRAIN_LOSS].to_dict() == {
        "count": 1,
        "last": "NaN",
        "last_step": 0,
        "nonfinite": {"NaN": 1},
        "first_nonfinite_step": 0,
    }


def test_finite_values_whose_sum_overflows_are_no_fault_and_not_called_infinite() -> None:
    """Twice 1.5e308: both finite, extremes right, only their mean has no number."""
    summaries = Summaries()
    bad, _ = add(summaries, TRAIN_LOSS, [1.5e308, 1.5e308])
    assert bad is None
    record = summaries.by_series[TRAIN_LOSS].to_dict()
    assert (record["min"], record["max"], record["mean"]) == (1.5e308, 1.5e308, "Infinity")
    assert "nonfinite" not in record


def test_large_integers_are_found_where_they_are() -> None:
    """2**53 + 1 has no double of its own, and its step is right nonetheless."""
    summaries = Summaries()
    add(summaries, TRAIN_LOSS, [1, 2**53 + 1, 5])
    summary = summaries.by_series[TRAIN_LOSS]
    assert (summary.minimum_step, summary.maximum_step) == (0, 1)
    _, best = add(summaries, LOSS, [2**53 + 1])
    assert best is not None
    assert best.value == 2.0**53


def test_a_loss_on_other_data_than_trainings_has_a_best_value_by_itself() -> None:
    """0.5, 0.4 at step 1, then 0.45 (none), then 0.3 with 0.4 before it; training's own loss has none."""
    summaries = Summaries()
    _, best = add(summaries, LOSS, [0.5, 0.4])
    assert best == Best(LOSS, 1, 0.4, None, "min", 1_001)
    assert add(summaries, LOSS, [0.45, 0.4], first_step=2) == (None, None)
    _, best = add(summaries, LOSS, [0.3], first_step=4)
    assert best == Best(LOSS, 4, 0.3, 0.4, "min", 1_004)
    assert add(summaries, TRAIN_LOSS, [0.1]) == (None, None)


def test_without_a_direction_there_is_no_best_and_define_gives_one() -> None:
    """Accuracy has none until the user says that more is better; then 0.9 beats 0.8."""
    summaries = Summaries()
    assert add(summaries, ACCURACY, [0.5]) == (None, None)
    summaries.goals["accuracy"] = "max"
    _, best = add(summaries, ACCURACY, [0.8, 0.9, 0.7])
    assert best == Best(ACCURACY, 1, 0.9, None, "max", 1_001)
    assert add(summaries, ACCURACY, [0.9]) == (None, None)


@pytest.mark.parametrize(
    ("key", "goal"),
    [("loss", "min"), ("Error", "min"), ("aux/loss", "min"), ("aux_loss", "min"), ("loss_scale", None), ("f1", None)],
)
def test_losses_and_errors_count_down_by_themselves(key: str, goal: str | None) -> None:
    """The last part of the name decides."""
    assert Summaries().goal(Series(f"train.{key}", (), key, "", key)) == goal


def test_a_direction_may_be_given_for_the_key_as_the_user_writes_it() -> None:
    """`define("val/loss", goal="max")` wins over what the name says."""
    summaries = Summaries()
    summaries.goals["val/loss"] = "max"
    assert summaries.goal(LOSS) == "max"


def test_infinity_is_no_best_value() -> None:
    """-Infinity is counted as non-finite, the best is the finite value beside it."""
    bad, best = add(Summaries(), LOSS, [0.5, -math.inf])
    assert bad is not None
    assert best == Best(LOSS, 0, 0.5, None, "min", 1_000)


@pytest.mark.parametrize(
    ("number", "text"), [(1.5, 1.5), (3, 3), (math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")]
)
def test_plain_is_what_strict_json_can_hold(number: float, text: object) -> None:
    """Finite numbers stay, others are OTLP's texts."""
    assert plain(number) == text
