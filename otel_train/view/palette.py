"""Colours of the page's charts by role, for light and for dark; each has 3:1 or more against its background."""

from __future__ import annotations

# Any two of the eight stand 18 or more apart in CIELAB, also as the three colour blindnesses see them: they differ in
# lightness where a blindness takes the hue.
_BLUE = ("#3262da", "#4683f1")
_ORANGE = ("#e87014", "#ed8e4f")
_GREEN = ("#0e7c52", "#55bf8c")
_PINK = ("#b3358e", "#f991d3")
_YELLOW = ("#7f5f00", "#e7c442")
_CYAN = ("#129cbf", "#5ae0ff")
_VIOLET = ("#4b299b", "#b89eff")
_RED = ("#851917", "#df605a")
SERIES = (_BLUE, _ORANGE, _GREEN, _PINK, _YELLOW, _CYAN, _VIOLET, _RED)

# Splits keep their colour on every chart whose lines differ in their split alone.
PALETTE: dict[str, tuple[str, str]] = {
    "train": _BLUE,
    "val": _ORANGE,
    "test": _GREEN,
    "value": _VIOLET,
    **{f"series-{number}": both for number, both in enumerate(SERIES)},
    "rest": ("#87919f", "#647081"),
    "uncounted": ("#d3d9e1", "#333d4b"),
    "error": ("#c02434", "#ff8088"),
    "lane-run": ("#5b6675", "#8b95a3"),
    "lane-stage": _BLUE,
    "lane-epoch": _CYAN,
    "lane-evaluation": _ORANGE,
    "lane-checkpoint": _GREEN,
    "lane-step": _VIOLET,
    "lane-phase": _PINK,
    "lane-span": _YELLOW,
}
