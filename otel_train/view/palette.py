"""Colours of the page's charts by role, for light and for dark; each has 3:1 or more against its background."""

from __future__ import annotations

# Splits keep their colour on every chart; the eight others are told apart with any of the usual colour blindnesses by
# lightness as well as by hue.
PALETTE: dict[str, tuple[str, str]] = {
    "train": ("#2f62d9", "#6ea0ff"),
    "val": ("#d9640b", "#ffa057"),
    "test": ("#0f8a62", "#4fd1a1"),
    "value": ("#6d4bc4", "#b49bff"),
    "series-0": ("#2f62d9", "#6ea0ff"),
    "series-1": ("#d9640b", "#ffa057"),
    "series-2": ("#0f8a62", "#4fd1a1"),
    "series-3": ("#b3348f", "#f28ad6"),
    "series-4": ("#8a6d00", "#e0c04a"),
    "series-5": ("#0b7f9e", "#58cbe8"),
    "series-6": ("#6d4bc4", "#b49bff"),
    "series-7": ("#a33a2f", "#f5958a"),
    "rest": ("#8b95a3", "#5b6675"),
    "uncounted": ("#d3d9e1", "#333d4b"),
    "error": ("#c02434", "#ff8088"),
    "lane-run": ("#5b6675", "#8b95a3"),
    "lane-stage": ("#2f62d9", "#6ea0ff"),
    "lane-epoch": ("#0b7f9e", "#58cbe8"),
    "lane-evaluation": ("#d9640b", "#ffa057"),
    "lane-checkpoint": ("#0f8a62", "#4fd1a1"),
    "lane-step": ("#6d4bc4", "#b49bff"),
    "lane-phase": ("#b3348f", "#f28ad6"),
    "lane-span": ("#8a6d00", "#e0c04a"),
}
