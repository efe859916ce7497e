"""Reads the value of a setting from what the user gave: text or number in, checked value out, else ValueError."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from otel_train.semconv import severity_number

_SIZE_UNITS: Final = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", start=1):
    _SIZE_UNITS[_letter] = _SIZE_UNITS[_letter + "B"] = 1000**_power
    _SIZE_UNITS[_letter + "IB"] = 1024**_power
_NUMBER: Final = re.compile(r"\d+\.?\d*|\.\d+")
_DURATION_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_size(text: str | float) -> int:
    """Return bytes of `20GB` (decimal), `500MiB` (binary) or a plain number; ValueError where it is neither."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", str(text))
    if not match or match[2].upper() not in _SIZE_UNITS or not _NUMBER.fullmatch(match[1]):
        raise ValueError("a size is a number with a unit, such as 20GB or 500MiB")
    return int(float(match[1]) * _SIZE_UNITS[match[2].upper()])


def parse_duration(text: str | float) -> float:
    """Return seconds of `30d`, `12h`, `45m`, `10s` or a plain number; ValueError where it is none."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([smhdw]?)\s*", str(text))
    if not match or not _NUMBER.fullmatch(match[1]):
        raise ValueError("a duration is a number with a unit, such as 30d, 12h, 45m or 10s")
    return float(match[1]) * _DURATION_UNITS[match[2] or "s"]


def flag(value: Any) -> bool:
    """Return true or false."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("use true or false")


def number(low: float, high: float = float("inf"), *, whole: bool = False) -> Callable[[Any], Any]:
    """Return a check for a number from `low` to `high`."""

    def parse(value: Any) -> float | int:
        kind = "whole number" if whole else "number"
        try:
            number = (int if whole else float)(value)
            exact = float(number) == float(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"use a {kind} of at least {low:g}") from None
        if isinstance(value, bool) or not exact or not low <= number <= high or number == float("inf"):
            limit = f"at least {low:g}" if high == float("inf") else f"from {low:g} to {high:g}"
            raise ValueError(f"use a {kind} {'of ' if high == float('inf') else ''}{limit}")
        return number

    return parse


def level(value: Any) -> str:
    """Return the name of a severity."""
    try:
        severity_number(str(value))
    except KeyError:
        raise ValueError("use one of trace, debug, info, warning, error, critical") from None
    return str(value).upper()


def console(value: Any) -> str | None:
    """Return how the console shows records, None for not at all."""
    if value in (None, "", "none", "off", False):
        return None
    if value not in ("pretty", "json"):
        raise ValueError('use "pretty", "json", or None for none')
    return str(value)


def log_ranks(value: Any) -> str:
    """Return which ranks store what they log."""
    if value not in ("main", "all"):
        raise ValueError('use "main" or "all"')
    return str(value)


def every(value: Any) -> dict[str, int]:
    """Accept a mapping of name patterns to N steps, or `pattern=N,pattern=N`; `epoch` for N keeps one an epoch."""
    if isinstance(value, str):
        value = dict(part.split("=", 1) for part in value.split(",") if "=" in part) if value.strip() else {}
    if not isinstance(value, Mapping):
        raise ValueError('use a mapping from metric patterns to steps, such as {"train.*": 10}')
    parsed: dict[str, int] = {}
    for pattern, steps in value.items():
        if steps == "epoch":
            parsed[str(pattern)] = 0
            continue
        try:
            parsed[str(pattern)] = number(1, whole=True)(steps)
        except ValueError:
            raise ValueError(f'{pattern!r} needs a whole number of steps of at least 1, or "epoch"') from None
    return parsed


def alerts(value: Any) -> dict[str, Any]:
    """Accept a mapping of names to numbers, or `name=number,name=number`; what names there are is checked with them."""
    if isinstance(value, str):
        parts = [part for part in value.split(",") if part.strip()]
        if not all("=" in part for part in parts):
            raise ValueError("use name=number,name=number, such as plateau_steps=500,overfit_gap=0.2")
        value = {name.strip(): number.strip() for name, _, number in (part.partition("=") for part in parts)}
    if not isinstance(value, Mapping):
        raise ValueError('use a mapping from names to numbers, such as {"plateau_steps": 500}')
    return {str(name): number for name, number in value.items()}


def names(value: Any) -> tuple[str, ...]:
    """Return texts, of a list or parted by commas."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    try:
        names = tuple(value)
    except TypeError:
        raise ValueError("use a list of texts") from None
    if not all(isinstance(name, str) for name in names):
        raise ValueError("use a list of texts")
    return names


def text(value: Any) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("use a text that is not empty")
    if len(value) > 256:
        raise ValueError("use a text of at most 256 characters")
    return value


def notes(value: Any) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise ValueError("use a text")
    return value[:100_000]


def endpoint(value: Any) -> str:
    """Return the address of a server."""
    # Without a scheme it is an address for gRPC; the protocol is known only where things are sent.
    if not re.match(r"(?:https?|dns|unix|ipv[46]):/*[^/\s]|(?!https?:)[^\s/]+:\d", str(value), re.IGNORECASE):
        raise ValueError("use a URL with its scheme, such as http://localhost:4318")
    return str(value)


def port(value: Any) -> int | None:
    """Accept a port; 0 takes one that is free, `none` lifts what a file says."""
    if str(value).strip().lower() in ("none", ""):
        return None
    port: int = number(0, 65_535, whole=True)(value)
    return port


def sender(value: Any) -> str:
    """Return how the run log is sent."""
    if value not in ("thread", "process", "none"):
        raise ValueError('use "thread", "process" or "none"')
    return str(value)


def age(value: Any) -> float | None:
    """Seconds; None where `none` is said, so that a file's limit can be lifted."""
    if str(value).strip().lower() == "none":
        return None
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError("use a duration above 0, such as 7d, or none")
    return seconds


def folder(value: Any) -> str | Literal[False]:
    """Accept a path, or False for none; in variables and files `false` and `none` say that too."""
    if value is False or (isinstance(value, str) and value.strip().lower() in ("false", "none")):
        return False
    try:
        path = os.fsdecode(value)
    except TypeError:
        raise ValueError("use a path") from None
    if not path or "\0" in path:
        raise ValueError("use a path that is not empty")
    return os.path.expanduser(path)


def sized(value: Any) -> int:
    """Return a size in bytes, of at least 64 KiB."""
    size = parse_size(value)
    if size < 65_536:
        raise ValueError("use a size of at least 64KiB")
    return size
