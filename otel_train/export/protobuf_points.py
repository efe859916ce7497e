"""Writes the points of gauges as protobuf straight from the text of a line, without parsing that as JSON.

Nearly all there is to send are points of gauges as our own encoder writes them, and `json` makes five objects of each.
What looks in any way different is left in the text, for the general path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import groupby
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is named like a function
from typing import Any

# The key that stands in the text for points taken out of it; no writer of OTLP has it.
TAKEN = "\0points"
# A quotation mark within a JSON string is escaped, so these are keys wherever they stand, never text.
_START = re.compile(rb'"gauge":\{"dataPoints":\[')
_END = re.compile(rb'"as(?:Double|Int)":[^,\]}]*\}(\]\})')
_POINT = re.compile(
    rb'\{(?:"attributes":(\[.*?\]),)?"timeUnixNano":"(\d{1,19})",'
    rb'"as(?:Double":(-?[0-9.eE+-]+|"NaN"|"-?Infinity")|Int":"(-?\d{1,19})")\}(?:,|\Z)',
    re.DOTALL,
)
_TIME = b'"timeUnixNano":"'
_VALUE = b'","asDouble":'
_OTHER_FIELDS = (b'"startTimeUnixNano"', b'"flags"', b'"exemplars"')
# NumberDataPoint: time_unix_nano is field 3 and as_double field 4, both of eight bytes, as_int field 6 likewise.
_DOUBLE = Struct("<BQBd")
_INTEGER = Struct("<BQBq")
_TIME_TAG, _DOUBLE_TAG, _INTEGER_TAG = 0x19, 0x21, 0x31
_TIME_TAG_BYTE = bytes((_TIME_TAG,))
FIRST, SECOND, THIRD, FIFTH, SEVENTH = (bytes((number << 3 | 2,)) for number in (1, 2, 3, 5, 7))


def take_points(body: bytes, attribute: Callable[[Any], bytes]) -> tuple[bytes, list[bytes]]:
    """Return the text with a number in the place of each gauge's points, and the content of each such gauge.

    `attribute` serializes one KeyValue.
    """
    pieces: list[bytes] = []
    taken: list[bytes] = []
    position = 0
    for start in _START.finditer(body):
        if start.start() < position:
            continue
        end = body.find(b"}]}", start.end()) + 1
        points = _column(body[start.end() : end], attribute) if end else None
        if points is None and (found := _END.search(body, start.end())):
            end = found.start(1)
            points = _points(body[start.end() : end], attribute)
        if points is None:
            continue
        pieces += (body[position : start.start()], b'"gauge":{"\\u0000points":%d}' % len(taken))
        taken.append(points)
        position = end + len(b"]}")
    pieces.append(body[position:])
    return b"".join(pieces), taken


def _column(text: bytes, attribute: Callable[[Any], bytes]) -> bytes | None:
    """Return the points of one series with finite doubles, as a column is written; None where it is not that."""
    head = text[: text.find(_TIME) + len(_TIME)]
    flat = text[len(head) : -1].replace(b"}," + head, _VALUE).split(_VALUE)
    if len(flat) != 2 * text.count(_TIME):
        return None
    try:
        first = json.loads(head + b'0"}')
        if not first.keys() <= {"attributes", "timeUnixNano"}:
            return None
        content = b"".join([framed(SEVENTH, attribute(pair)) for pair in first.get("attributes", ())])
        before = FIRST + varint(_DOUBLE.size + len(content)) + _TIME_TAG_BYTE
        pack = Struct(f"<{len(before)}sQBd{len(content)}s").pack
        points = zip(map(int, flat[::2]), map(float, flat[1::2]), strict=True)
        return b"".join([pack(before, time, _DOUBLE_TAG, value, content) for time, value in points])
    except (ValueError, TypeError, AttributeError, StructError):
        return None


def _points(text: bytes, attribute: Callable[[Any], bytes]) -> bytes | None:
    """Return points of several series or kinds of number; None where they have more than time, value, attributes."""
    found = _POINT.findall(text)
    if len(found) != text.count(b'"timeUnixNano"') or any(field in text for field in _OTHER_FIELDS):
        return None
    # Nothing may stand between the points, which findall would pass over.
    lengths = sum(map(len, (part for point in found for part in point)))
    doubles = sum(1 for point in found if point[2])
    named = sum(1 for point in found if point[0])
    frame = len('{"timeUnixNano":"","asDouble":},')
    if lengths + len(found) * frame + named * len('"attributes":,') - (len(found) - doubles) * 1 - 1 != len(text):
        return None
    encoded: list[bytes] = []
    try:
        for attributes, points in groupby(found, key=lambda point: point[0]):
            content = b""
            if attributes:
                content = b"".join(framed(SEVENTH, attribute(pair)) for pair in json.loads(attributes))
            head = FIRST + varint(_DOUBLE.size + len(content))
            for _, time, double, integer in points:
                if double:
                    packed = _DOUBLE.pack(_TIME_TAG, int(time), _DOUBLE_TAG, float(double.strip(b'"')))
                else:
                    packed = _INTEGER.pack(_TIME_TAG, int(time), _INTEGER_TAG, int(integer))
                encoded += (head, packed, content)
    except (ValueError, TypeError, StructError):
        return None
    return b"".join(encoded)


def framed(tag: bytes, content: bytes) -> bytes:
    """Return a field that has a length: a message, a text, bytes."""
    return tag + varint(len(content)) + content


def varint(number: int) -> bytes:
    """Return a number as protobuf writes lengths."""
    if number < 0x80:
        return bytes((number,))
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
