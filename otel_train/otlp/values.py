"""Writes single values as OTLP JSON: text, numbers, attributes, ids."""

from __future__ import annotations

import sys
from array import array
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import repeat
from json.encoder import encode_basestring
from math import isfinite, isnan
from typing import Any

from otel_train.record.numbers import Float32

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
# Deeper nesting is cut to its text: readers of JSON refuse or crash on a few hundred levels.
MAX_DEPTH = 32
_NARROW_FLOATS = frozenset({"float32", "float16", "bfloat16"})
_float_repr = float.__repr__

# json's own, in C where it is there; a lone surrogate stays one and is replaced when the line becomes bytes.
text_json = encode_basestring
# Names and keys come again with every line.
name_json = lru_cache(maxsize=4096)(encode_basestring)


def to_bytes(line: str) -> bytes:
    """Return the line as UTF-8; what no UTF-8 can hold (a lone surrogate) becomes a question mark."""
    try:
        return line.encode()
    except UnicodeEncodeError:
        return line.encode("utf-8", "replace")


def float32_texts(values: Sequence[float]) -> list[str]:
    """Return each value, a finite float32, with the fewest digits (at most 9) that read back alike."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and len(values) > 1:
        # Exactly the shortest, and faster than trying; where there are float32s NumPy is mostly loaded.
        texts: list[str] = numpy.array(values, numpy.float32).astype("U").tolist()
        return texts
    # Trying all values at once costs a third of trying one by one.
    wanted = array("f", values)
    texts = _formatted(wanted, 7)
    for digits in (8, 9):
        back = array("f", map(float, texts))
        if back == wanted:
            break
        places = [place for place, value in enumerate(wanted) if value != back[place]]
        for place, text in zip(places, _formatted([wanted[place] for place in places], digits), strict=True):
            texts[place] = text
    if "-0" in texts:
        texts = ["-0.0" if text == "-0" else text for text in texts]
    return texts


def _formatted(values: Sequence[float], digits: int) -> list[str]:
    return ((f"%.{digits}g " * len(values)) % tuple(values)).split()


def number_json(value: float) -> str:
    """Return a float as a JSON number, or as OTLP's string where it is not finite."""
    if isfinite(value):
        if isinstance(value, Float32):
            return float32_texts((value,))[0] if abs(value) < 3.4e38 else _float_repr(value)
        return _float_repr(value)
    return '"NaN"' if isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def plain(value: Any) -> Any:
    """Return a NumPy scalar (or another number that has `item`) as Python's own; anything else as it is."""
    kind = type(value)
    if kind is float or kind is int or kind is str or kind is bool or kind is Float32:
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int):
        return int(value)
    item = getattr(value, "item", None)
    if item is None or getattr(value, "ndim", 0) != 0:
        return value
    if kind.__name__ in _NARROW_FLOATS:
        return Float32(value)
    python_value = item()
    # A long double's item() is a long double again.
    return float(python_value) if hasattr(python_value, "item") else python_value


def point_value_json(value: Any) -> str | None:
    """Return the value field of a number point, ``"asInt":"5"`` or ``"asDouble":0.5``; None where it is no number."""
    value = plain(value)
    if isinstance(value, float):
        return f'"asDouble":{number_json(value)}'
    if isinstance(value, int):
        number = int(value)
        if INT64_MIN <= number <= INT64_MAX:
            return f'"asInt":"{number}"'
        try:
            return f'"asDouble":{number_json(float(number))}'
        except OverflowError:
            return f'"asDouble":{number_json(float("inf") if number > 0 else float("-inf"))}'
    return None


def value_json(value: Any, depth: int = 0) -> str:
    """Return an attribute value or body as an OTLP AnyValue; what has no place there is written as its text.

    None becomes the empty value ``{}``: it appears only within lists, where leaving it out would move the rest.
    """
    if isinstance(value, str):
        return f'{{"stringValue":{text_json(value)}}}'
    value = plain(value)
    if isinstance(value, bool):
        return '{"boolValue":true}' if value else '{"boolValue":false}'
    if isinstance(value, int):
        if INT64_MIN <= value <= INT64_MAX:
            return f'{{"intValue":"{value:d}"}}'
        return f'{{"stringValue":"{_long_int_text(value)}"}}'
    if isinstance(value, float):
        return f'{{"doubleValue":{number_json(value)}}}'
    if value is None:
        return "{}"
    if isinstance(value, bytes | bytearray | memoryview):
        return f'{{"bytesValue":"{b64encode(value).decode()}"}}'
    if depth < MAX_DEPTH:
        if isinstance(value, Mapping):
            return f'{{"kvlistValue":{{"values":[{_entries(value.items(), depth + 1)}]}}}}'
        if isinstance(value, AbstractSet):
            value = sorted(value, key=repr)
        if isinstance(value, Sequence):
            items = ",".join(map(value_json, value, repeat(depth + 1)))
            return f'{{"arrayValue":{{"values":[{items}]}}}}'
    return f'{{"stringValue":{text_json(_safe_text(value))}}}'


def _long_int_text(value: int) -> str:
    # Python refuses to write out integers of more than 4,300 digits.
    return str(value) if value.bit_length() < 8192 else hex(value)


def _safe_text(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a user's __str__ may do anything
        return f"<{type(value).__name__}>"


def _entries(pairs: Iterable[tuple[Any, Any]], depth: int = 0) -> str:
    return ",".join(
        [f'{{"key":{_key(key)},"value":{value_json(value, depth)}}}' for key, value in pairs if value is not None]
    )


def _key(key: Any) -> str:
    return name_json(key if isinstance(key, str) else _safe_text(key))


def attributes_field(pairs: Iterable[tuple[Any, Any]]) -> str:
    """Return ``"attributes":[…],`` with its comma, or nothing where there is no attribute with a value."""
    entries = _entries(pairs)
    return f'"attributes":[{entries}],' if entries else ""


def trace_id_hex(trace_id: int) -> str:
    """Return a trace id as 32 lower-case hex digits."""
    return f"{trace_id:032x}"


def span_id_hex(span_id: int) -> str:
    """Return a span id as 16 lower-case hex digits."""
    return f"{span_id:016x}"
