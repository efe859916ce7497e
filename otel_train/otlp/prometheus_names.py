"""Spells metric and attribute names as Prometheus' OTLP receiver does, with its default translation.

Source: the specification's "Prometheus and OpenMetrics compatibility", as prometheus/otlptranslator carries it out:
characters outside ``[a-zA-Z0-9_:]`` become underscores, which are not repeated; the unit's word and, for monotonic
sums, ``total`` are appended where they are not there already.
"""

from __future__ import annotations

import re
from typing import Final

from otel_train.semconv import METRICS

_UNITS: Final = {
    "d": "days",
    "h": "hours",
    "min": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
    "By": "bytes",
    "KiBy": "kibibytes",
    "MiBy": "mebibytes",
    "GiBy": "gibibytes",
    "TiBy": "tibibytes",
    "KBy": "kilobytes",
    "MBy": "megabytes",
    "GBy": "gigabytes",
    "TBy": "terabytes",
    "m": "meters",
    "V": "volts",
    "A": "amperes",
    "J": "joules",
    "W": "watts",
    "g": "grams",
    "Cel": "celsius",
    "Hz": "hertz",
    "%": "percent",
}
_PER: Final = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week", "mo": "month", "y": "year"}
_OTHER_CHARACTERS: Final = re.compile(r"[^a-zA-Z0-9:]+")
_NO_LABEL: Final = re.compile(r"[^a-zA-Z0-9_]")
_NAMED: Final = re.compile(r"[a-zA-Z0-9]")


def prometheus_name(name: str, unit: str = "", kind: str = "gauge") -> str:
    """Return how Prometheus spells a metric; `kind` is gauge, counter, updowncounter or histogram."""
    tokens = [token for token in _OTHER_CHARACTERS.split(name) if token]
    main, _, per = unit.partition("/")
    for word in (_word(main, _UNITS), _per_word(per)):
        if word and word not in tokens:
            tokens.append(word)
    if kind == "counter":
        tokens = [token for token in tokens if token != "total"] + ["total"]
    if unit == "1" and kind == "gauge":
        tokens = [token for token in tokens if token != "ratio"] + ["ratio"]
    spelled = "_".join(tokens)
    return f"_{spelled}" if spelled[:1].isdigit() else spelled


def _word(unit: str, table: dict[str, str]) -> str:
    unit = unit.strip()
    if not unit or "{" in unit or unit == "1":
        return ""
    return "_".join(part for part in _OTHER_CHARACTERS.split(table.get(unit, unit)) if part)


def _per_word(unit: str) -> str:
    word = _word(unit, _PER)
    return f"per_{word}" if word else ""


def known_name(name: str) -> str:
    """Return how Prometheus spells one of `semconv.METRICS`; KeyError where it is none."""
    metric = METRICS[name]
    return prometheus_name(metric.name, metric.unit, metric.kind)


def taken_name(attribute: str) -> str:
    """Return an attribute's name, or where no store takes it, without a letter or digit of ASCII, one that each does.

    For one such name Prometheus and Loki refuse a whole request, with what else a Collector has put into it.
    """
    return attribute if _NAMED.search(attribute) else f"key_{attribute}"


def label_name(attribute: str) -> str:
    """Return how Prometheus spells an attribute as label, such as ``dl_rank`` for ``dl.rank``."""
    label = _NO_LABEL.sub("_", taken_name(attribute))
    if label[:1].isdigit():
        return f"key_{label}"
    return f"key{label}" if label.startswith("_") and not label.startswith("__") else label
