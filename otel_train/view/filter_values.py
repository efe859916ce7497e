"""Compares what a run has with the value of a filter, by the kind of the column."""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable
from typing import Any, Final

from otel_train.clock import NS_PER_S, from_iso
from otel_train.view.filter_syntax import FilterError, Literal
from otel_train.view.index_row import Scalar, text_of
from otel_train.view.run_columns import STATES, Column

Holds = Callable[[Any], bool]

_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NUMBER = re.compile(r"[+-]?(?:\d+(?:_\d+)*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_WHOLE = re.compile(r"[+-]?\d{1,400}")
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_UNITS: Final = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(ms|sec|min|s|m|h|d|w)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")
_DATE = re.compile(r"(\d{4})(?:-(\d\d))?", re.ASCII)
_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ](\d\d:\d\d)(:\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?", re.IGNORECASE | re.ASCII
)
_DAY_NS = 86_400 * NS_PER_S
_TIMES = "a date such as 2026-01-31 or 2026-01-31T12:00, an age such as 7d, or today"


def condition(column: Column, sign: str, value: Literal, now_ns: int) -> Holds:
    """Return the test of a column's value, which is False for None; FilterError where the two cannot be compared."""
    if is_null(value) or (value.quoted and not value.text and column.kind in ("text", "tags", "state")):
        if sign == "=":
            return lambda found: found is None
        if sign == "!=":
            return lambda found: found is not None
        raise _wrong(value, "nothing is more or less than null: use = or !=")
    if column.kind == "value":
        return _of_scalar(sign, value)
    if column.kind == "number":
        number = number_of(value)
        if number is None:
            raise _wrong(value, f"{column.id} is a number: compare it with one")
        return _of_number(sign, number, column, value)
    if column.kind == "duration":
        seconds = number_of(value) if number_of(value) is not None else duration_s(value.text)
        if seconds is None:
            raise _wrong(value, f"{column.id} is a duration: give seconds, or units as in 90s, 5m, 2h, 3d, 1h30m")
        return _of_number(sign, seconds, column, value)
    if column.kind == "time":
        return _of_time(sign, value, column, now_ns)
    if column.kind == "tags":
        return _of_tags(sign, value)
    if column.kind == "state":
        return _of_state(sign, value)
    return _of_text(sign, value)


def is_null(value: Literal) -> bool:
    """Return whether a value means that there is none."""
    return not value.quoted and value.text.lower() in ("null", "none")


def number_of(value: Literal) -> int | float | None:
    """Return the number that a value is, None where it is none; what stands in quotes is text."""
    if value.quoted:
        return None
    return _number(value.text)


def _number(text: str) -> int | float | None:
    if _WHOLE.fullmatch(text):
        # Exact, as a seed of 64 bits needs it.
        return int(text)
    if _NUMBER.fullmatch(text) or _NOT_FINITE.fullmatch(text):
        return float(text)
    return None


def duration_s(text: str) -> float | None:
    """Return the seconds of ``90s``, ``1h30m`` or ``2.5d``; None where it is no duration."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(count) * _UNITS[unit] for count, unit in _PART.findall(text))


def span_ns(text: str, now_ns: int) -> tuple[int, int] | None:
    """Return the start and the end of the day, minute or second that a text names; None where it names no time.

    An age is one moment, so long before now.
    """
    word = text.lower()
    if word == "now":
        return now_ns, now_ns
    midnight_ns = now_ns - now_ns % _DAY_NS
    if word in ("today", "yesterday"):
        start_ns = midnight_ns - (_DAY_NS if word == "yesterday" else 0)
        return start_ns, start_ns + _DAY_NS
    age_s = duration_s(text.removeprefix("-"))
    if age_s is not None:
        moment_ns = now_ns - round(age_s * NS_PER_S)
        return moment_ns, moment_ns
    try:
        return _date(text)
    except (ValueError, OverflowError):
        return None


def _date(text: str) -> tuple[int, int] | None:
    month = _DATE.fullmatch(text)
    if month:
        year, number = int(month[1]), int(month[2] or 1)
        after = (year + number // 12, number % 12 + 1) if month[2] else (year + 1, 1)
        return from_iso(f"{year:04}-{number:02}-01"), from_iso(f"{after[0]:04}-{after[1]:02}-01")
    moment = _MOMENT.fullmatch(text)
    if not moment:
        return None
    start_ns = from_iso(text.upper())
    if moment[2]:
        return start_ns, start_ns + (1 if "." in moment[2] else NS_PER_S)
    return start_ns, start_ns + (60 * NS_PER_S if moment[1] else _DAY_NS)


def _of_number(sign: str, number: float, column: Column, value: Literal) -> Holds:
    if sign == "~":
        raise _wrong(value, f"'~' looks into texts; {column.id} is a {column.kind}")
    if sign == "=":
        return lambda found: found is not None and _same(found, number)
    if sign == "!=":
        return lambda found: found is not None and not _same(found, number)
    holds = _ORDER[sign]
    return lambda found: found is not None and holds(found, number)


def _same(one: float, other: float) -> bool:
    return one == other or (one != one and other != other)


def _of_time(sign: str, value: Literal, column: Column, now_ns: int) -> Holds:
    span = span_ns(value.text, now_ns)
    if span is None:
        raise _wrong(value, f"{column.id} is a time: give {_TIMES}")
    start, end = span[0] / NS_PER_S, span[1] / NS_PER_S
    # A day that is named is all of it: after it is after its end.
    if sign == "=":
        return lambda found: found is not None and (start <= found < end or found == start)
    if sign == "!=":
        return lambda found: found is not None and not (start <= found < end or found == start)
    if sign == "<":
        return lambda found: found is not None and found < start
    if sign == ">=":
        return lambda found: found is not None and found >= start
    if sign == "<=":
        return lambda found: found is not None and (found < end or found == start)
    if sign == ">":
        return lambda found: found is not None and found >= end and found != start
    raise _wrong(value, f"'~' looks into texts; {column.id} is a time")


def _of_tags(sign: str, value: Literal) -> Holds:
    text = value.text
    if sign == "=":
        return lambda found: found is not None and text in found
    if sign == "!=":
        return lambda found: found is not None and text not in found
    if sign == "~":
        part = text.casefold()
        return lambda found: found is not None and any(part in tag.casefold() for tag in found)
    raise _wrong(value, "tags have no order: use =, != or ~")


def _of_state(sign: str, value: Literal) -> Holds:
    state = value.text.lower()
    if sign in ("=", "!="):
        if state not in STATES:
            near = difflib.get_close_matches(state, STATES, n=1)
            hint = f"; near it: {near[0]}" if near else ""
            raise _wrong(value, f"no state {value.text!r}: there are {', '.join(STATES)}{hint}")
        return _of_text(sign, Literal(state, True))
    if sign == "~":
        return _of_text(sign, value)
    raise _wrong(value, "states have no order: use =, != or in")


def _of_text(sign: str, value: Literal) -> Holds:
    text = value.text
    if sign == "=":
        return lambda found: found is not None and found == text
    if sign == "!=":
        return lambda found: found is not None and found != text
    if sign == "~":
        part = text.casefold()
        return lambda found: found is not None and part in found.casefold()
    holds = _ORDER[sign]
    return lambda found: found is not None and holds(found, text)


def _of_scalar(sign: str, value: Literal) -> Holds:
    """Compare a value of the configuration: numbers with numbers, also such as are stored as text; else as texts."""
    number, text = number_of(value), value.text
    if sign == "~":
        part = text.casefold()
        return lambda found: found is not None and part in text_of(found).casefold()
    if sign == "=":
        return lambda found: found is not None and _equals(found, number, value)
    if sign == "!=":
        return lambda found: found is not None and not _equals(found, number, value)
    holds = _ORDER[sign]

    def compare(found: Scalar) -> bool:
        if found is None or isinstance(found, bool):
            return False
        if number is None:
            return isinstance(found, str) and holds(found, text)
        measured = _number(found) if isinstance(found, str) else found
        return measured is not None and holds(measured, number)

    return compare


def _equals(found: Scalar, number: float | None, value: Literal) -> bool:
    if isinstance(found, bool):
        return value.text.lower() == str(found).lower()
    if number is not None:
        measured = _number(found) if isinstance(found, str) else found
        return measured is not None and _same(measured, number)
    if not value.quoted and value.text.lower() in ("true", "false") and isinstance(found, str):
        return found.lower() == value.text.lower()
    return text_of(found) == value.text


def _wrong(value: Literal, message: str) -> FilterError:
    return FilterError(message, *value.place)
