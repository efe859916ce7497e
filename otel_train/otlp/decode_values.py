"""Reads single fields of OTLP JSON; what cannot be read is left out and counted."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from math import isinf
from typing import Any

from otel_train.semconv import SEVERITIES

# Levels have four grades: INFO, INFO2, INFO3, INFO4.
_ENUM_NUMBERS = {
    f"SEVERITY_NUMBER_{name}{grade or ''}": base + max(grade - 1, 0)
    for name, base in SEVERITIES.items()
    for grade in (0, 2, 3, 4)
} | {
    "SEVERITY_NUMBER_UNSPECIFIED": 0,
    "SPAN_KIND_UNSPECIFIED": 0,
    "SPAN_KIND_INTERNAL": 1,
    "SPAN_KIND_SERVER": 2,
    "SPAN_KIND_CLIENT": 3,
    "SPAN_KIND_PRODUCER": 4,
    "SPAN_KIND_CONSUMER": 5,
    "STATUS_CODE_UNSET": 0,
    "STATUS_CODE_OK": 1,
    "STATUS_CODE_ERROR": 2,
    "AGGREGATION_TEMPORALITY_UNSPECIFIED": 0,
    "AGGREGATION_TEMPORALITY_DELTA": 1,
    "AGGREGATION_TEMPORALITY_CUMULATIVE": 2,
}
_HEX = frozenset("0123456789abcdefABCDEF")


class Damage:
    """Counts what was left out of one line."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


def items(holder: Mapping[str, Any], key: str, damage: Damage) -> list[dict[str, Any]]:
    """Return the objects of a list field; what is no object in it, or no list at all, is counted."""
    found = holder.get(key)
    if found is None:
        damage.count += key in holder
        return []
    if not isinstance(found, list):
        damage.count += 1
        return []
    objects = [item for item in found if item.__class__ is dict]
    damage.count += len(found) - len(objects)
    return objects


def listed(holder: Mapping[str, Any], key: str, damage: Damage) -> list[Any]:
    """Return a list field as it is, empty where it is missing."""
    found = holder.get(key)
    if isinstance(found, list):
        return found
    damage.count += key in holder
    return []


def counts(holder: Mapping[str, Any], key: str, damage: Damage) -> tuple[int, ...]:
    """Return a list of counts; one that is none counts as nothing, so that the others keep their places."""
    found = list(map(whole_number, listed(holder, key, damage)))
    damage.count += found.count(None)
    return tuple(count or 0 for count in found)


def text(holder: Mapping[str, Any], key: str, damage: Damage) -> str:
    """Return a text field, empty where it is missing."""
    found = holder.get(key)
    if isinstance(found, str):
        return found
    damage.count += key in holder
    return ""


def whole_number(found: Any) -> int | None:
    """Return an integer, written as string or number; None where it is none."""
    if found.__class__ is int:
        return int(found)
    if isinstance(found, str) or (isinstance(found, float) and found.is_integer()):
        try:
            return int(found)
        except ValueError:
            pass
    return None


def integer(holder: Mapping[str, Any], key: str, damage: Damage) -> int:
    """Return an integer field, written as string or number; 0 where it is missing."""
    found = whole_number(holder.get(key))
    if found is None:
        damage.count += key in holder
        return 0
    return found


def enum(holder: Mapping[str, Any], key: str, damage: Damage) -> int:
    """Return an enum field, written as number or name."""
    found = holder.get(key)
    if isinstance(found, str) and found in _ENUM_NUMBERS:
        return _ENUM_NUMBERS[found]
    return integer(holder, key, damage)


def number(found: Any) -> float | None:
    """Return a double, written as number or string; None where it is none or beyond what a double holds."""
    if isinstance(found, bool) or found is None:
        return None
    if isinstance(found, float):
        # The parser makes infinity out of 1e400; a written infinity is a string.
        return None if isinf(found) else found
    if isinstance(found, int | str):
        try:
            return float(found)
        except (ValueError, OverflowError):
            return None
    return None


def identifier(holder: Mapping[str, Any], key: str, digits: int, damage: Damage) -> int:
    """Return a hex id of so many digits as an integer; 0 where it is missing, empty or no hex (base64, say)."""
    found = holder.get(key)
    if isinstance(found, str) and (not found or (len(found) == digits and _HEX.issuperset(found))):
        return int(found, 16) if found else 0
    damage.count += key in holder
    return 0


def attributes(holder: Any, damage: Damage, key: str = "attributes") -> dict[str, Any]:
    """Return a list of key and value as a dict; an entry without a readable value is left out and counted."""
    found: dict[str, Any] = {}
    if not isinstance(holder, dict):
        damage.count += 1
        return found
    for pair in items(holder, key, damage):
        name = pair.get("key")
        entry = value(pair.get("value"), damage)
        if entry is None or not isinstance(name, str):
            damage.count += 1
        else:
            found[name] = entry
    return found


def value(holder: Any, damage: Damage) -> Any:
    """Return an AnyValue as Python's own; None for the empty value, for null and for what cannot be read."""
    if not isinstance(holder, dict):
        return None
    for key, entry in holder.items():
        if key in ("stringValue", "boolValue"):
            return entry if isinstance(entry, str if key == "stringValue" else bool) else None
        if key == "intValue":
            return whole_number(entry)
        if key == "doubleValue":
            return number(entry)
        if key == "bytesValue":
            return _bytes(entry)
        if key == "arrayValue" and isinstance(entry, dict):
            listed = entry.get("values")
            return [value(item, damage) for item in listed] if isinstance(listed, list) else []
        if key == "kvlistValue" and isinstance(entry, dict):
            return attributes(entry, damage, "values")
    return None


def _bytes(entry: Any) -> bytes | None:
    try:
        return b64decode(entry, validate=True)
    except (ValueError, TypeError):
        return None
