"""The colours of charts, as people with and without a colour blindness see them."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import pytest

import otel_train.view
from otel_train.view.palette import PALETTE

Colour = tuple[float, float, float]
ASSETS = Path(otel_train.view.__file__).with_name("assets")
# What is drawn as a surface, never as a line or a dot.
SURFACES = ("uncounted",)
EIGHT = [f"series-{number}" for number in range(8)]
# Machado, Oliveira and Fernandes (2009), a physiologically-based model for simulation of colour vision deficiency:
# severity 1.0, on linear RGB.
SEEN = {
    "full": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
# Of CIELAB's units, in which 2.3 is what can just be told from one another side by side.
APART = 15.0
MOST_LIKE = {"full": 25.0, "protan": APART, "deutan": APART, "tritan": APART}


def linear(colour: str) -> Colour:
    """Return red, green and blue as amounts of light."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return red, green, blue


def seen(colour: str, sight: str) -> Colour:
    light = linear(colour)
    red, green, blue = (
        min(1.0, max(0.0, sum(weight * part for weight, part in zip(row, light, strict=True)))) for row in SEEN[sight]
    )
    return red, green, blue


def lab(light: Colour) -> Colour:
    """Return CIELAB for the white of sRGB."""
    red, green, blue = light
    x = (0.4124564 * red + 0.3575761 * green + 0.1804375 * blue) / 0.95047
    y = 0.2126729 * red + 0.7151522 * green + 0.0721750 * blue
    z = (0.0193339 * red + 0.1191920 * green + 0.9503041 * blue) / 1.08883
    x, y, z = (part ** (1 / 3) if part > 216 / 24389 else (24389 / 27 * part + 16) / 116 for part in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours as WCAG 2 has it."""
    dark, bright = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in map(linear, (one, other)))
    return (bright + 0.05) / (dark + 0.05)


def papers() -> tuple[str, str]:
    """Return what charts are drawn on, light and dark, as the style of the page says."""
    found = re.search(r"--card: light-dark\((#\w{6}), (#\w{6})\)", (ASSETS / "page.css").read_text("utf-8"))
    assert found
    return found[1], found[2]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("sight", SEEN)
def test_any_two_colours_of_series_can_be_told_apart(sight: str, theme: int) -> None:
    """The smallest distance of two of the eight, with each sight."""
    colours = {role: lab(seen(PALETTE[role][theme], sight)) for role in EIGHT}
    distances = {
        (one, other): math.dist(colours[one], colours[other]) for one, other in itertools.combinations(EIGHT, 2)
    }
    nearest = min(distances, key=distances.__getitem__)
    assert distances[nearest] >= MOST_LIKE[sight], nearest


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_every_line_stands_out_from_its_background(theme: int) -> None:
    """3:1 or more, which WCAG 2 asks of graphics."""
    for role, both in PALETTE.items():
        if role not in SURFACES:
            assert contrast(both[theme], papers()[theme]) >= 3.0, role


def test_the_same_sight_and_colour_have_no_distance_and_known_ones_their_own() -> None:
    """The measure itself: white is (100, 0, 0), pure red (53.24, 80.09, 67.20) in CIELAB; black on white is 21:1."""
    assert lab(linear("#ffffff")) == pytest.approx((100, 0, 0), abs=0.02)
    assert lab(linear("#ff0000")) == pytest.approx((53.24, 80.09, 67.20), abs=0.02)
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    # A protanope takes much of the difference of red and green away.
    full, protan = (math.dist(lab(seen("#d94040", sight)), lab(seen("#508030", sight))) for sight in ("full", "protan"))
    assert protan < full / 3
