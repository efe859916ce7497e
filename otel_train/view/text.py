"""Writes numbers, times and tables for people: on the terminal and in the page."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import TextIO, TypeGuard

from otel_train import clock

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_STATE_STYLES = {
    "running": "blue",
    "finished": "green",
    "failed": "red",
    "lost": "red",
    "killed": "yellow",
    "interrupted": "yellow",
}
# What would move a terminal's cursor or colours: a run's name or a log line must not.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def number(value: float | int | None) -> str:
    """Return a number in at most six digits, non-finite ones by name, nothing where there is none."""
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 100_000 else str(value)
    if not math.isfinite(value):
        return "NaN" if value != value else ("+Inf" if value > 0 else "-Inf")
    if value.is_integer() and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.6g}"


def short(value: float) -> str:
    """Return a number in four digits, for where room is small."""
    return f"{value:.4g}" if math.isfinite(value) and not (value.is_integer() and abs(value) < 1e6) else number(value)


def duration(seconds: object) -> str:
    """Return ``119 µs``, ``850 ms``, ``12.3 s``, ``4 min 05 s``, ``3 h 12 min`` or ``2 d 5 h``."""
    if not _is_finite(seconds):
        return ""
    if seconds < 0:
        return "-" + duration(-seconds)
    if seconds == 0:
        return "0 ms"
    # From here on a unit's thousand would be written, which is one of the next unit.
    for limit, scale, unit in ((0.9995e-6, 1e9, "ns"), (0.9995e-3, 1e6, "µs"), (0.9995, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * scale:.3g} {unit}"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = whole // 60
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


def size(count: object) -> str:
    """Return bytes in binary units: ``18.0 GiB``; "" for what is no finite number, as damaged descriptions have it."""
    if not _is_finite(count):
        return ""
    value, unit = float(count), 0
    while abs(value) >= 1023.95 and unit < len(_SIZES) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.1f} {_SIZES[unit]}"


def _is_finite(value: object) -> TypeGuard[float]:
    try:
        return isinstance(value, (int, float)) and math.isfinite(value)
    except OverflowError:
        return False


def moment(time_ns: int | None) -> str:
    """Return a time as ``2026-01-31 12:00:00`` in UTC."""
    return clock.iso(time_ns)[:19].replace("T", " ") if time_ns else ""


def plain(text: object) -> str:
    """Return a text that cannot steer a terminal: control characters are shown as their escapes in Python."""
    return _CONTROL.sub(lambda match: ascii(match.group())[1:-1], str(text))


class Paint:
    """Colours for one stream: only on a terminal, and not where ``NO_COLOR`` is set."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        try:
            terminal = stream.isatty()
        except (AttributeError, ValueError):
            terminal = False
        self.on = terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"

    def __call__(self, text: str, *styles: str) -> str:
        """Return the text in these styles."""
        codes = ";".join(_STYLES[style] for style in styles if style)
        return f"\x1b[{codes}m{text}\x1b[0m" if self.on and codes else text

    def state(self, state: str, text: str | None = None) -> str:
        """Return a run's state, or a text about it, in the state's colour."""
        return self(text if text is not None else state, _STATE_STYLES.get(state, ""))


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    paint: Paint,
    *,
    right: Sequence[int] = (),
    state_column: int | None = None,
) -> str:
    """Return a table as text; the columns of `right` are aligned to the right."""
    texts = [[plain(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [list(head), *texts]) for column in range(len(head))]

    def cells(row: Sequence[str]) -> list[str]:
        return [
            cell.rjust(widths[column]) if column in right else cell.ljust(widths[column])
            for column, cell in enumerate(row)
        ]

    lines = [paint("  ".join(cells(head)).rstrip(), "bold")]
    for row in texts:
        padded = cells(row)
        if state_column is not None:
            padded[state_column] = paint.state(row[state_column], padded[state_column])
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)
