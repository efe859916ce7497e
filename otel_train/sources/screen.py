"""Follows a stream as a terminal shows it: whole lines come out at once, a progress bar once, in its last state.

A row becomes a bar when it is written again after a carriage return, a backspace or an erasure. A bar stays on its
row while lines are printed through it (they push it down on a real terminal), is returned to by cursor-up codes
(nested bars), and is over when it is left behind. Colours and all other codes are taken out.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

MAX_ROWS = 16
MAX_LINE_CHARS = 16_384
_MAX_UNFINISHED_CODE = 256
# A bar is left behind when the second line below it has ended; a nested bar comes back up before that.
_LEFT_BEHIND_AFTER = 2

_TOKEN = re.compile(
    r"(?P<csi>\x1b\[(?P<count>\d*)[0-?]*[ -/]*(?P<code>[@-~]))"
    r"|(?P<other>\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[PX^_][^\x1b\n]*\x1b\\|\x1b[ -/]*[0-~])"
    r"|(?P<move>[\r\n\b])"
    r"|(?P<text>[^\x1b\r\n\b]+)"
    r"|\x1b"
)
_UNFINISHED_CODE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*\x1b?)?$")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

Stamp = TypeVar("Stamp")


@dataclass(slots=True)
class Shown(Generic[Stamp]):
    """A finished line, or the last state of a bar with the number of times it was drawn (0: a line)."""

    text: str
    stamp: Stamp
    redraws: int = 0


@dataclass(slots=True)
class _Row(Generic[Stamp]):
    stamp: Stamp
    text: str = ""
    # A bar keeps its last visible state here while its row is blank; `draws` is 0 for an ordinary row.
    state: str = ""
    draws: int = 0
    # The cursor is at the start of the row: what comes next replaces its text.
    at_start: bool = False
    # Written in this very call after a code that moves or erases: a redraw, not a line printed through the bar.
    led: bool = False
    # Text written on a bar's row without such a code: a line if it ends with a newline, else a redraw.
    tail: str = ""
    lines_below: int = 0
    # A line has gone out from this row: what is written here again is a bar.
    used: bool = False


class Screen(Generic[Stamp]):
    """The last rows of one stream. A stamp (time, context) comes with each write and out with what it finished."""

    def __init__(self) -> None:
        self._rows: deque[_Row[Stamp]] = deque()
        self._at = 0
        self._code = ""
        self._returns = False
        self._finished: list[Shown[Stamp]] = []

    def feed(self, text: str, stamp: Stamp) -> list[Shown[Stamp]]:
        """Take what one call wrote; return what is finished by it."""
        if not self._rows:
            self._rows.append(_Row(stamp))
        for row in self._rows:
            row.led = False
        text = self._code + text
        self._code = ""
        unfinished = _UNFINISHED_CODE.search(text)
        if unfinished and len(text) - unfinished.start() <= _MAX_UNFINISHED_CODE:
            self._code = text[unfinished.start() :]
            text = text[: unfinished.start()]
        for token in _TOKEN.finditer(text):
            if token["text"]:
                self._write(_CONTROL.sub("", token["text"]), stamp)
            elif token["move"]:
                self._control(token["move"], stamp)
            elif token["code"]:
                self._command(token["code"], token["count"], stamp)
        return self._take_finished()

    def flush(self) -> list[Shown[Stamp]]:
        """Return what is left: unfinished lines, and the last state of each bar."""
        for row in self._rows:
            self._close(row)
        self._rows.clear()
        self._at = 0
        self._code = ""
        return self._take_finished()

    def _take_finished(self) -> list[Shown[Stamp]]:
        finished = self._finished
        self._finished = []
        return finished

    def _write(self, text: str, stamp: Stamp) -> None:
        row = self._rows[self._at]
        row.stamp = stamp
        if row.led:
            self._redraw(row, text)
        elif row.draws or (row.at_start and row.text):
            if not row.draws:
                # The first redraw of what looked like an ordinary line so far.
                row.draws, row.state = 1, row.text
            row.tail += text
        else:
            row.text = text if row.at_start else row.text + text
            row.at_start = False
            if len(row.text) > MAX_LINE_CHARS:
                self._finish_line(row.text, stamp)
                row.text = ""

    def _redraw(self, row: _Row[Stamp], text: str) -> None:
        if row.at_start:
            if row.text.strip() and not row.draws:
                row.draws, row.state = 1, row.text
            if text.strip():
                row.draws += 1
            elif not row.draws:
                return
            row.text = text
            row.at_start = False
        else:
            row.text += text
        row.text = row.text[:MAX_LINE_CHARS]
        if row.text.strip():
            row.state = row.text
            row.draws = row.draws or 1

    def _control(self, move: str, stamp: Stamp) -> None:
        row = self._rows[self._at]
        if move == "\n":
            self._newline(row, stamp)
            return
        self._merge_tail(row)
        if move == "\r":
            row.at_start = row.led = True
        else:
            self._back(row)

    def _back(self, row: _Row[Stamp]) -> None:
        if row.text and not row.draws:
            row.draws, row.state = 1, row.text
        if not row.led or row.at_start:
            # The first backspace of a call begins a redraw that keeps what is left of it.
            row.draws += 1
        row.text = row.text[:-1]
        row.led, row.at_start = True, False

    def _newline(self, row: _Row[Stamp], stamp: Stamp) -> None:
        if row.tail.strip():
            # Printed through the bar: the bar moves down with the cursor.
            self._finish_line(row.tail, stamp)
            row.tail = ""
            row.at_start = True
            row.led = False
            return
        row.tail = ""
        if not row.draws:
            self._finish_line(row.text, row.stamp)
            row.used = row.used or bool(row.text)
            row.text = ""
        self._move_down(stamp)
        self._leave_behind()

    def _move_down(self, stamp: Stamp) -> None:
        self._at += 1
        if self._at == len(self._rows):
            self._rows.append(_Row(stamp))
            if len(self._rows) > MAX_ROWS:
                self._close_bar(self._rows.popleft())
                self._at -= 1
        below = self._rows[self._at]
        below.at_start = True
        # On a row that was there before, text is a redraw; on a new one it is a line.
        below.led = bool(below.used or below.draws)

    def _leave_behind(self) -> None:
        if self._returns:
            return
        for row in list(self._rows)[: self._at]:
            row.lines_below += 1
            if row.draws and row.lines_below >= _LEFT_BEHIND_AFTER:
                self._close_bar(row)

    def _command(self, code: str, count: str, stamp: Stamp) -> None:
        row = self._rows[self._at]
        if code in "AF":
            self._merge_tail(row)
            self._returns = True
            self._at = max(0, self._at - int(count or 1))
            self._begin_again(code == "F")
        elif code in "BE":
            self._merge_tail(row)
            for _ in range(min(int(count or 1), MAX_ROWS)):
                self._move_down(stamp)
            self._begin_again(code == "E")
        elif (code == "G" and count in ("", "1")) or (code == "K" and count in ("1", "2")):
            # Erasing only what is right of the cursor ends a redraw, and says nothing about the row.
            self._merge_tail(row)
            row.led = row.at_start = True

    def _begin_again(self, at_start: bool) -> None:
        row = self._rows[self._at]
        row.led = bool(row.used or row.draws)
        row.at_start = row.at_start or at_start or row.used

    def _merge_tail(self, row: _Row[Stamp]) -> None:
        if row.tail.strip():
            row.text = row.tail if row.at_start else row.text + row.tail
            row.text = row.text[:MAX_LINE_CHARS]
            row.state = row.text
            row.draws += 1
        row.tail = ""

    def _finish_line(self, text: str, stamp: Stamp) -> None:
        text = text.rstrip()
        if text:
            self._finished.append(Shown(text, stamp))

    def _close(self, row: _Row[Stamp]) -> None:
        if row.draws:
            self._merge_tail(row)
            self._close_bar(row)
        elif row is self._rows[self._at]:
            self._finish_line(row.text, row.stamp)

    def _close_bar(self, row: _Row[Stamp]) -> None:
        if row.draws and row.state.strip():
            self._finished.append(Shown(row.state.strip(), row.stamp, row.draws))
        row.draws, row.state, row.text, row.tail, row.used = 0, "", "", "", True
