"""Names as Prometheus' OTLP receiver spells them."""

from __future__ import annotations

import re

import pytest

from otel_train.otlp.prometheus_names import known_name, label_name, prometheus_name
from otel_train.semconv import METRICS


@pytest.mark.parametrize(
    ("name", "unit", "kind", "spelled"),
    [
        ("train.loss", "", "gauge", "train_loss"),
        ("train.a/b c", "", "gauge", "train_a_b_c"),
        ("train.__x__", "", "gauge", "train_x"),
        ("7b.loss", "", "gauge", "_7b_loss"),
        ("train.accuracy", "1", "gauge", "train_accuracy_ratio"),
        ("train.ratio.of.units", "1", "gauge", "train_of_units_ratio"),
        ("hw.status", "1", "updowncounter", "hw_status"),
        ("tokens_total", "", "counter", "tokens_total"),
        ("tokens.total.seen", "{token}", "counter", "tokens_seen_total"),
        ("dl.step.time", "s", "gauge", "dl_step_time_seconds"),
        ("wait.seconds", "s", "gauge", "wait_seconds"),
        ("hw.energy", "J", "counter", "hw_energy_joules_total"),
        ("speed", "By/s", "gauge", "speed_bytes_per_second"),
        ("speed", "{token}/s", "gauge", "speed_per_second"),
        ("share", "%", "gauge", "share_percent"),
        ("odd", "foo.bar", "gauge", "odd_foo_bar"),
    ],
)
def test_a_metric_is_spelled_as_the_receiver_spells_it(name: str, unit: str, kind: str, spelled: str) -> None:
    """Unit words, total and ratio are appended once, and characters that a name may not have become underscores."""
    assert prometheus_name(name, unit, kind) == spelled


def test_no_two_metrics_of_the_table_are_spelled_alike() -> None:
    """A shipped query for one metric never finds another."""
    spelled = [known_name(name) for name in METRICS]
    assert len(set(spelled)) == len(spelled)
    assert all(re.fullmatch(r"[a-z_][a-z0-9_]*", name) for name in spelled)


@pytest.mark.parametrize(
    ("attribute", "label"),
    [
        ("dl.rank", "dl_rank"),
        ("run_id", "run_id"),
        ("hw.id", "hw_id"),
        ("0th", "key_0th"),
        ("_x", "key_x"),
        ("__x", "__x"),
        ("", "key_"),
        ("学習率", "key____"),
    ],
)
def test_an_attribute_becomes_a_label(attribute: str, label: str) -> None:
    """Dots become underscores, and a label never begins with a digit or one underscore."""
    assert label_name(attribute) == label
