"""How a followed run is drawn and told: right words in every width, plain where it must be, nothing that steers."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from otel_train.clock import from_iso
from otel_train.view.follow_lines import Lines, warning_line
from otel_train.view.follow_picture import Gpu, Host, Metric, Picture, Ranks, Told
from otel_train.view.follow_screen import ASCII_BLOCKS, BLOCKS, Screen, sparkline
from otel_train.view.shapes import MOST_BUCKETS, Shape

NOW_NS = from_iso("2026-01-31T12:00:00Z")
S = 1_000_000_000
HOSTILE = "\x1b[2J\x1b]0;owned\x07[red]name[/red]\r\n\u202enam\x9be"


def metric(name: str, last: float = 0.5, *, best: float | None = None, nonfinite: int = 0) -> Metric:
    return Metric(name, last, 1234.0, best, 1200.0, nonfinite, best is not None, lambda width: [3.0, 2.0, 1.0])


def picture(**about: object) -> Picture:
    made = Picture(
        now_ns=NOW_NS,
        name="small-net",
        run_id="20260131-110000-abcdefgh",
        project="digits",
        path="/runs/20260131-110000-abcdefgh",
        state="running",
        reason="",
        attempt=2,
        elapsed_s=3723.0,
        share=0.25,
        left_s=11_169.0,
        step=1234.0,
        epoch=3.0,
        metrics=[metric("train/loss", 0.125, best=0.1), metric("lr", 1e-3)],
        step_s=0.0123,
        wait_share=0.04,
        rates=[("samples/s", 1203.4567)],
        gpus=[Gpu("GPU 0", 0.97, 31.5 * 2**30, 80 * 2**30, 65.0, 310.2)],
        host=Host(0.45, 0.61, 0.12, 1.25 * 2**30),
        holding=[Told(0, "WARN", "the loss stands still", 1200.0, None, 0)],
        warnings=[Told(NOW_NS - 60 * S, "ERROR", "disk full", 1100.0, 2.0, 0)],
        new_warnings=[],
    )
    return replace(made, **about)  # type: ignore[arg-type]


def drawn(made: Picture, width: int = 100, height: int | None = None, **about: bool) -> list[str]:
    return [line.plain.rstrip() for line in Screen(width, height, **about).lines(made)]


def test_everything_that_is_known_is_drawn() -> None:
    """Each line of a wide picture, word by word."""
    assert drawn(picture()) == [
        "small-net  running  digits · 20260131-110000-abcdefgh · attempt 2",
        f"{'━' * 5}{'─' * 15} 25.0 %  epoch 3 · step 1,234 · 1 h 02 min so far · about 3 h 06 min left",
        "",
        "metric              last        best",
        "train/loss  0.125 @1,234  0.1 @1,200  █▅▁",
        "lr          0.001 @1,234              █▅▁",
        "",
        "loop   step 12.3 ms · data wait 4 % · 1203 samples/s",
        "GPU 0  97 % busy · 31.5 GiB of 80.0 GiB · 65 °C · 310 W",
        "host   CPU 45 % · memory 61 % · process CPU 12 % · process memory 1.2 GiB",
        "",
        "WARN  [step 1200, holds] the loss stands still",
        "ERROR [epoch 2, step 1100, 11:59:00] disk full",
        "/runs/20260131-110000-abcdefgh",
    ]


@pytest.mark.parametrize("width", [20, 24, 40, 50, 60, 72, 80, 200])
@pytest.mark.parametrize("height", [5, 10, 24, 60])
def test_a_picture_fits_every_terminal(width: int, height: int) -> None:
    """No line is wider, and there are no more lines, whatever the run holds."""
    from rich.cells import cell_len

    wide = [metric(f"val/層{'x' * number}", math.nan, best=-1.5e-300, nonfinite=3) for number in range(60)]
    ranks = Ranks({"running": 63, "lost": 1}, "rank 5 lost at step 120: " + "killed " * 40)
    told = [Told(NOW_NS, "WARN", "much " * 500, 1.0, 1.0, 5)] * 50
    made = picture(name="n" * 500, metrics=wide, ranks=ranks, warnings=told, holding=told, damaged=3, reason="r" * 300)
    lines = Screen(width, height).lines(made)
    assert len(lines) <= height
    assert max(cell_len(line.plain) for line in lines) <= width
    assert lines[0].plain.startswith("nnn")


def test_where_room_is_small_the_metrics_with_a_direction_stay() -> None:
    """Of 60 metrics those that have a best value are kept, in their order, and the others counted."""
    many = [metric(f"m{number}", best=0.1 if number in (7, 50) else None) for number in range(60)]
    lines = drawn(picture(metrics=many), 100, 18)
    names = [line.split()[0] for line in lines if re.match(r"m\d", line)]
    assert names[-1] == "m50"
    assert "m7" in names
    assert names == sorted(names, key=lambda name: int(name[1:]))
    assert f"{60 - len(names)} more metrics" in lines


def test_many_cards_leave_room_for_the_metrics() -> None:
    """Eight of ten have lines of their own, on a low terminal two; of the others the mean is told."""
    cards = [Gpu(f"GPU {number}", number / 16, None, None, None, None) for number in range(10)]
    tall = [line for line in drawn(picture(gpus=cards)) if line.startswith("GPU")]
    assert [line.split()[1] for line in tall[:-1]] == [str(number) for number in range(8)]
    assert tall[-1] == "GPUs   2 more, 53 % busy on average"
    low = [line for line in drawn(picture(gpus=cards), 100, 24) if line.startswith("GPU")]
    assert low[1:] == ["GPU 1  6 % busy", "GPUs   8 more, 34 % busy on average"]


def test_a_console_with_ascii_alone_gets_nothing_else() -> None:
    """Bars, shapes, dots and degrees have their stand-ins, and what is cut has no dots."""
    lines = drawn(picture(name="n" * 300), ascii_only=True)
    assert all(line.isascii() for line in lines)
    assert lines[1].startswith("#####............... 25.0 %")
    assert [line.split()[-1] for line in lines[4:6]] == ["#=_", "#=_"]
    assert "65 C" in lines[8]


def test_nothing_that_a_run_holds_steers_the_terminal() -> None:
    """Names, reasons, paths and log texts are shown as their escapes, and markup as it stands."""
    told = [Told(NOW_NS, "WARN", HOSTILE, 1.0, None, 0)]
    made = picture(
        **dict.fromkeys(("name", "reason", "path", "project", "run_id"), HOSTILE),
        metrics=[metric(HOSTILE)],
        warnings=told,
        holding=told,
        ranks=Ranks({"lost": 1, "running": 1}, HOSTILE),
    )
    shown = "\n".join(drawn(made, 2_000))
    assert "[red]name[/red]" in shown
    assert "\\x1b[2J\\x1b]0;owned\\x07" in shown
    lines = Lines(0)
    told_lines = [*lines.of(made), warning_line(told[0])]
    for text in (shown, *told_lines):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert all("\n" not in line for line in told_lines)


@pytest.mark.parametrize(
    ("columns", "drawing"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], BLOCKS),
        ([7, 0, 7], "█▁█"),
        ([2.5, 2.5], "▁▁"),
        ([0, math.nan, 1], "▁x█"),
        ([math.nan, math.nan], "xx"),
        ([-1.7e308, 0.0, 1.7e308], "▁▅█"),
        ([], ""),
    ],
)
def test_a_sparkline_goes_from_the_lowest_to_the_highest(columns: list[float], drawing: str) -> None:
    """Also over the whole range of doubles; where nothing was finite there is an x."""
    assert sparkline(columns, BLOCKS) == drawing
    translated = drawing.translate(str.maketrans(BLOCKS, ASCII_BLOCKS))
    assert sparkline(columns, ASCII_BLOCKS) == translated


@pytest.mark.parametrize("count", [1, 5, 127, 128, 129, 1_000, 100_003])
def test_a_shape_is_the_means_of_equal_parts(count: int) -> None:
    """However many points come one by one: the columns are means of neighbours, over all points, in bounded memory."""
    shape = Shape()
    for index in range(count):
        shape.add(float(index))
    assert len(shape.means) < MOST_BUCKETS
    columns = shape.columns(32)
    assert len(columns) == min(count, len(columns))
    assert len(columns) <= 32
    assert columns == sorted(columns)
    # Each point is in one column: they lie evenly, from about the first point to about the last.
    part = count / len(columns)
    assert abs(columns[0] - (part - 1) / 2) <= part
    assert columns[-1] <= count - 1
    assert columns[-1] >= count - 1 - 1.5 * part


def test_a_shape_shows_where_nothing_was_finite() -> None:
    """A stretch of NaN stays a gap, a single one among others does not count."""
    shape = Shape()
    for index in range(1_024):
        shape.add(math.nan if 512 <= index < 768 or index == 3 else 1.0)
    columns = shape.columns(32)
    assert [value == value for value in columns] == [not 16 <= place < 24 for place in range(32)]
    assert {value for value in columns if value == value} == {1.0}


# Lines ---------------------------------------------------------------------------------------------------------------


def said(lines: Lines, made: Picture) -> list[str]:
    return list(lines.of(made))


def test_lines_come_when_something_has_changed() -> None:
    """At first, then after each interval if a step was made, at once for a warning, a new state or attempt."""
    lines = Lines(10)
    first = said(lines, picture(metrics=[metric("train/loss", 0.125, best=0.1)], gpus=[]))
    values = "epoch 3, step 1234, train/loss 0.125 (best 0.1), 12.3 ms a step, data wait 4 %"
    assert first == [
        "2026-01-31 12:00:00 run small-net (20260131-110000-abcdefgh) in /runs/20260131-110000-abcdefgh",
        f"2026-01-31 12:00:00 running  25.0 %, {values}, 3 h 06 min left",
    ]
    same = {"metrics": [metric("train/loss", 0.125, best=0.1)], "gpus": []}
    assert said(lines, picture(now_ns=NOW_NS + 20 * S, left_s=1.0, **same)) == []
    warning = Told(NOW_NS + 5 * S, "WARN", "odd\nvalue", 1240.0, 3.0, 1)
    soon = picture(now_ns=NOW_NS + 5 * S, step=1240.0, new_warnings=[warning], **same)
    assert said(lines, soon) == ["2026-01-31 12:00:05 WARN     odd value  [rank 1, epoch 3, step 1240]"]
    later = said(lines, picture(now_ns=NOW_NS + 10 * S, step=1250.0, **same))
    assert [line[:60] for line in later] == ["2026-01-31 12:00:10 running  25.0 %, epoch 3, step 1250, tra"]
    ended = picture(now_ns=NOW_NS + 11 * S, state="failed", reason="no data", left_s=None, step=1250.0, **same)
    assert [line[:40] for line in said(lines, ended)] == [
        "2026-01-31 12:00:11 failed   25.0 %, epo",
        "2026-01-31 12:00:11 failed: no data",
    ]
    again = said(lines, picture(now_ns=NOW_NS + 12 * S, attempt=3, **same))
    assert again[0] == "2026-01-31 12:00:12 attempt 3 of the run began"


def test_of_earlier_warnings_the_last_five_are_told() -> None:
    """Who begins to follow a long run is not told all that ever was."""
    warnings = [Told(NOW_NS + number, "WARN", f"w{number}", None, None, 0) for number in range(30)]
    found = said(Lines(10), picture(new_warnings=warnings))
    assert [line.split()[-1] for line in found[1:-1]] == ["w25", "w26", "w27", "w28", "w29"]
