"""Takes the points out of a line in the layout of our own encoder, so that a million of them need no parser of JSON.

What is left is a line of the same shape with one point in the place of each series, whose time is the number of the
columns that were taken out: it is read with care once, and then known again by its text. What our encoder would not
have written so is left to that reading altogether.
"""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from typing import Any, NamedTuple, NoReturn

_POINTS = '"gauge":{"dataPoints":['
_RARE_AT = _POINTS.index("P")
_NAME = '"name":"'
_POINTS_END = "]}}"
_TIME = '"timeUnixNano":"'
_DOUBLE = '","asDouble":'
_INTEGER = '","asInt":"'
# A line with one of these has columns that only some points have.
_OTHERS = ('"sum":{', '"histogram":{', '"exponentialHistogram":{', '"summary":{')
# A letter of `timeUnixNano` that no value has, and hardly any attribute.
_RARE = "U"
_NAMED = {"NaN", "Infinity", "-Infinity"}

Columns = tuple[list[int], list[int | float | None]]


class TakenOut(NamedTuple):
    """What is left of a line, and the columns that were taken out: times in nanoseconds, and values."""

    rest: str
    columns: list[Columns]


def take_out(line: bytes, names: Container[str] | None = None) -> TakenOut | None:
    """Return a line without its points, and these; None where it is not in our layout.

    With `names` the points of other metrics are left out unread, which takes a tenth of the time.
    """
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return None
    start = _next_points(text, 0)
    if not start:
        return None
    rest = [text[:start]]
    taker = _Taker()
    try:
        while start:
            following = _next_points(text, start)
            end = text.rindex(_POINTS_END, start, following or len(text))
            if names is None or _name_before(rest[-1]) in names:
                rest.append(taker.block(text[start:end]))
            rest.append(text[end : following or len(text)])
            start = following
    except (ValueError, OverflowError, RecursionError):
        return None
    left = "".join(rest)
    return None if any(other in left for other in _OTHERS) else TakenOut(left, taker.columns)


def _next_points(text: str, start: int) -> int:
    """Return where the points of the next metric begin; 0 where there is none."""
    # One rare letter is found many times as fast as a text of which every point has most letters.
    found = text.find(_POINTS[_RARE_AT], start)
    while found >= 0:
        if text.startswith(_POINTS, found - _RARE_AT):
            return found - _RARE_AT + len(_POINTS)
        found = text.find(_POINTS[_RARE_AT], found + 1)
    return 0


def _name_before(head: str) -> str:
    """Return the name of the metric whose points come behind this text; ValueError where it is not plain."""
    begin = head.rindex(_NAME) + len(_NAME)
    name = head[begin : head.index('"', begin)]
    if "\\" in name:
        raise ValueError("a name with escapes")
    return name


class _Taker:
    """Takes the points of one line; what it cannot take is a ValueError."""

    def __init__(self) -> None:
        self.columns: list[Columns] = []
        # The columns of a line mostly stand at the same times, which are then read once.
        self._times: list[int] = []
        self._time_texts: list[str] = []
        # All that stands before each value, by what stands between two times and values.
        self._known: dict[tuple[str, str], list[str]] = {}

    def block(self, body: str) -> str:
        """Take the points of one metric, series after series, and return what is left of them."""
        left = []
        position = 0
        while True:
            begin = body.index(_TIME, position) + len(_TIME)
            # All up to the time is the same for each point of a series.
            head = body[position:begin]
            time_end = body.index('"', begin)
            last = body.rfind("," + head)
            stop = body.index("}", last + 1 + len(head) if last >= begin else begin)
            if body.startswith(_DOUBLE, time_end):
                values = self._run(body[begin:stop], "}," + head, _DOUBLE, time_end - begin)
                if not _only(values, float):
                    values = list(map(_double, values))
                total = sum(values)
                if total - total != 0.0:
                    _check_infinities(values, body[begin:stop])
            elif body.startswith(_INTEGER, time_end) and body[stop - 1] == '"':
                values = self._run(body[begin : stop - 1], '"},' + head, _INTEGER, time_end - begin)
                if not _only(values, int):
                    raise ValueError("not all of them integers")
            else:
                raise ValueError("neither a double nor an integer")
            left.append(f"{head}{len(self.columns)}{_DOUBLE}0}}")
            self.columns.append((self._times, values))
            if stop + 1 == len(body):
                return ",".join(left)
            if not body.startswith(",{", stop + 1):
                raise ValueError("something else behind a point")
            position = stop + 2

    def _run(self, run: str, between: str, middle: str, digits: int) -> list[Any]:
        """Read the times and return the values; the parser of JSON sees to it that each is a number."""
        texts = self._at_known_times(run, between, middle)
        if texts is None:
            points = run.split(between)
            width = digits + len(middle)
            starts = ",".join([point[:width] for point in points]) + ","
            # Where a time has another number of digits the comma is not behind the middle, and no parser takes it.
            times_text = starts.replace(middle + ",", ",")[:-1]
            times = _items(times_text)
            if len(times) != len(points) or not _only(times, int):
                raise ValueError("not all of them times")
            self._times, self._time_texts = times, times_text.split(",")
            self._known = {}
            texts = [point[width:] for point in points]
        values = _items(",".join(texts))
        if len(values) != len(texts):
            raise ValueError("not one value a point")
        return values

    def _at_known_times(self, run: str, between: str, middle: str) -> list[str] | None:
        """Return the values as they are written where the times are those read last; None where they are others.

        Splitting at one rare letter is many times as fast as looking for a long text; what comes of it is put together
        again and compared.
        """
        cut = between.find(_RARE)
        if cut < 0 or _RARE in between[cut + 1 :] or not self._time_texts:
            return None
        place = (between, middle)
        before = self._known.get(place)
        if before is None:
            before = self._known[place] = [f"{between}{text}{middle}" for text in self._time_texts]
        pieces = f"{between[cut + 1 :]}{run}{between[:cut]}".split(_RARE)
        if len(pieces) != len(before):
            return None
        front = len(before[0]) - cut - 1
        texts = [piece[front:-cut] for piece in pieces]
        again = [""] * (2 * len(texts))
        again[0::2], again[1::2] = before, texts
        return texts if "".join(again) == between + run else None


def _only(items: Sequence[Any], kind: type) -> bool:
    return set(map(type, items)) == {kind}


def _double(value: Any) -> float:
    if type(value) is str and value in _NAMED:
        return float(value)
    if type(value) in (int, float):
        return float(value)
    raise ValueError("no double")


def _check_infinities(values: Sequence[float], run: str) -> None:
    """Leave a line to the careful reader where the parser made an infinity out of a number such as 1e400."""
    written = run.count('Infinity"')
    if sum(1 for value in values if abs(value) == float("inf")) != written:
        raise ValueError("beyond a double")


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


# Made once: `json.loads` makes a decoder for each call that is not the usual one.
_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _items(text: str) -> list[Any]:
    """Return the items of a JSON list that is given without its brackets."""
    found, end = _DECODER.raw_decode(f"[{text}]")
    if end != len(text) + 2:
        raise ValueError("something else behind the list")
    items: list[Any] = found
    return items
