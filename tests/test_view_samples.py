"""The page's section of checked samples: charts, pictures and texts, none of which can become a part of the page."""

from __future__ import annotations

import base64
import html
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from otel_train.clock import wall_ns
from otel_train.runlog.png import png
from otel_train.runlog.sample_files import SampleFiles
from otel_train.view.page import embed_json
from otel_train.view.reading import read_run
from otel_train.view.report import build, write
from otel_train.view.samples_section import MOST_BYTES, kept_checks
from otel_train.watch.samples_pictures import layout_of, picture_range, pixels, shrunk
from tests.runs import RunBuilder
from tests.test_view_browser import CHROMIUM, HOSTILE, open_page


def page_data(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(embed_json(build(read_run(path, wall_ns()))))
    return data


def test_values_become_charts_and_files_become_pictures(start: Callable[..., Any]) -> None:
    """Two splits on each chart, classes on their own; first and newest check with the pictures that were checked."""
    run = start()
    images = torch.zeros(4, 1, 2, 3)
    images[0, 0, 0] = torch.tensor([0.0, 0.5, 1.0])
    for step in range(3):
        run.log({"loss": 1.0}, step=step)
        run.check_samples(images, labels=[0, 1, 1, 1], every=1, value_range=(0, 1), keep=1 + step)
        run.check_samples(images + step, every=1, split="val", value_range=(0, 1))
    path = run.path
    run.finish()
    data = page_data(path)
    samples = data["samples"]
    charts = {chart["title"]: chart for chart in samples["charts"]}
    assert [line["label"] for line in charts["Mean of the values"]["lines"]] == ["train", "val"]
    assert charts["Mean of the values"]["lines"][1]["y"] == pytest.approx([1.5 / 24, 1.0 + 1.5 / 24, 2.0 + 1.5 / 24])
    assert charts["Mean of the values"]["lines"][1]["x"]["step"] == [0, 1, 2]
    shares = charts["Share of each class · train"]
    assert (shares["unit"], [line["label"] for line in shares["lines"]]) == ("%", ["0", "1"])
    assert shares["lines"][1]["y"] == [75.0, 75.0, 75.0]
    assert all("dl.samples" not in chart["title"] for chart in data["charts"]["other"])
    train, val = samples["splits"]
    assert (train["title"], train["kept"], val["title"]) == ("train", 3, "val")
    assert [check["title"] for check in train["checks"]] == ["First check · step 0", "Newest check · step 2"]
    # The zeros are constant and equal, so they come first; the third kept is the picture with three values.
    first, newest = train["checks"]
    assert [len(first["samples"]), len(newest["samples"])] == [1, 3]
    assert newest["samples"][0]["faults"] == ["constant", "duplicate"]
    assert newest["samples"][0]["caption"] == "label 1 · row 1"
    (shown,) = (one for one in val["checks"][0]["samples"] if not one["faults"])
    assert base64.b64decode(shown["picture"].split(",")[1]) == png(3, 2, 1, bytes([0, 128, 255, 0, 0, 0]))


def test_a_run_without_checks_says_how_they_are_made(tmp_path: Path) -> None:
    """The section names the call; a run with values alone says that no file was kept."""
    builder = RunBuilder(tmp_path).attempt().log({"loss": [1.0]}, steps=[1]).end()
    samples = page_data(builder.path)["samples"]
    assert (samples["charts"], samples["splits"]) == ([], [])
    assert "run.check_samples(" in samples["empty"]


def test_texts_enter_the_page_as_texts(start: Callable[..., Any]) -> None:
    """Tags, separators and numbers that are none stand in the data as their escapes."""
    run = start()
    run.check_samples([HOSTILE, "plain"], labels=[HOSTILE, HOSTILE], every=1)
    run.check_samples([{HOSTILE: HOSTILE, "n": math.nan}, {HOSTILE: 2, "n": 1.0}], every=1, split="val")
    path = run.path
    run.finish()
    text = embed_json(build(read_run(path, wall_ns())))
    assert "<" not in text
    assert "\u2028" not in text
    splits = json.loads(text)["samples"]["splits"]
    assert splits[0]["checks"][0]["samples"][0]["text"] == HOSTILE
    table = splits[1]["checks"][0]["table"]
    assert table["head"] == ["row", HOSTILE[:100], "n", "faults"]
    assert table["rows"] == [["0", HOSTILE, "nan", "non-finite"], ["1", "2", "1.0", ""]]


def planted(tmp_path: Path, description: Any, files: list[tuple[str, bytes]] = [("0.txt", b"x")]) -> Path:  # noqa: B006
    SampleFiles(tmp_path).write("train", 1, files, {})
    (tmp_path / "artifacts/samples/train/step-000000001/check.json").write_text(json.dumps(description))
    return tmp_path


@pytest.mark.parametrize("name", ["../../../../secret", "/etc/passwd", "", ".", "gone.txt", "link.txt"])
def test_only_files_of_the_check_itself_are_shown(tmp_path: Path, name: str) -> None:
    """A description that names another file, or a link to one, shows nothing of it."""
    (tmp_path / "secret").write_text("hidden")
    planted(tmp_path, {"kept": [{"file": name, "row": 0}]})
    (tmp_path / "artifacts/samples/train/step-000000001/link.txt").symlink_to(tmp_path / "secret")
    (sample,) = kept_checks(tmp_path)[0]["checks"][0]["samples"]
    assert "text" not in sample
    assert "picture" not in sample
    assert sample["missing"]


@pytest.mark.parametrize(
    "description",
    [{"kept": 5}, {"kept": [7, None]}, {"kept": [{"file": 3, "faults": "x", "row": "y"}]}, {"values": [1], "kind": 1}],
    ids=str,
)
def test_a_damaged_description_costs_nothing_else(tmp_path: Path, description: Any) -> None:
    """The page is made; what can't be read of a check is left out."""
    (split,) = kept_checks(planted(tmp_path, description))
    assert split["checks"][0]["title"] == "First check · step 1"


def test_a_check_that_was_cut_short_is_no_check(tmp_path: Path) -> None:
    """Without its description, or with half of one, a folder is not shown."""
    planted(tmp_path, {"kept": []})
    for number, text in enumerate(["", '{"kept": [', "[1, 2]"], start=2):
        folder = tmp_path / f"artifacts/samples/train/step-{number:09d}"
        folder.mkdir()
        (folder / "check.json").write_text(text)
    (tmp_path / "artifacts/samples/train/step-000000009").mkdir()
    (split,) = kept_checks(tmp_path)
    assert split["kept"] == 1


def test_the_page_is_bounded(tmp_path: Path) -> None:
    """A text is cut, of many samples eight are shown, and what exceeds the page's share of bytes is named only."""
    files = [(f"{number}.txt", b"y" * 5_000) for number in range(12)] + [("big.txt", bytes(MOST_BYTES + 1))]
    names = ["big.txt", *(f"{number}.txt" for number in range(12))]
    planted(tmp_path, {"kept": [{"file": name, "row": 0} for name in names]}, files)
    check = kept_checks(tmp_path)[0]["checks"][0]
    assert (len(check["samples"]), check["left_out"]) == (8, 5)
    assert check["samples"][0]["missing"] == "big.txt is not shown"
    assert check["samples"][1]["text"].startswith("y" * 2_000 + "…")


# Pictures ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [np.asarray, torch.tensor], ids=["numpy", "torch"])
def test_pixels_are_scaled_by_the_range(make: Any) -> None:
    """-1 to 1 over black to white, values beyond cut, by the nearest of 256 steps."""
    values = [[-1.0, -0.5, 0.0], [0.5, 1.0, 7.0]]
    expected = bytes(min(255, round((value + 1) / 2 * 255)) for row in values for value in row)
    assert pixels(make(values), "hw", -1.0, 1.0) == (3, 2, 1, expected)


@pytest.mark.parametrize("make", [np.asarray, torch.tensor], ids=["numpy", "torch"])
def test_channels_first_become_channels_last(make: Any) -> None:
    """Three planes of two pixels become two pixels of three values."""
    planes = [[[0, 1]], [[10, 11]], [[20, 21]]]
    assert pixels(make(planes), "chw", 0, 255) == (2, 1, 3, bytes([0, 10, 20, 1, 11, 21]))
    assert pixels(make([[[0, 10, 20], [1, 11, 21]]]), "hwc", 0, 255) == (2, 1, 3, bytes([0, 10, 20, 1, 11, 21]))


@pytest.mark.parametrize("make", [np.asarray, torch.tensor], ids=["numpy", "torch"])
def test_what_is_no_number_is_drawn_in_a_colour_of_its_own(make: Any) -> None:
    """A grey picture with NaN becomes one in colour; the others stay grey."""
    assert pixels(make([[0.0, math.nan, 1.0]]), "hw", 0, 1) == (3, 1, 3, bytes([0, 0, 0, 255, 0, 255, 255, 255, 255]))
    assert pixels(make([[[1.0], [math.inf], [0.0]]]), "chw", 0, 1)[2:] == (
        3,
        bytes([255, 255, 255, 255, 0, 255, 0, 0, 0]),
    )


@pytest.mark.parametrize(
    ("shape", "first", "layout"),
    [
        ((8, 8), True, "hw"),
        ((3, 8, 8), True, "chw"),
        ((8, 8, 4), True, "hwc"),
        ((3, 8, 3), True, "chw"),
        ((3, 8, 3), False, "hwc"),
        ((5, 8, 8), True, "other"),
        ((3, 8, 8, 8), True, "other"),
    ],
)
def test_the_layout_follows_from_the_shape(shape: tuple[int, ...], first: bool, layout: str) -> None:
    """Where both ends could be channels, torch has them first and NumPy last."""
    assert layout_of(shape, channels_first=first) == layout


def test_large_pictures_are_thinned() -> None:
    """Of 1,030 pixels a side every third is kept, which stays below 512."""
    assert shrunk(torch.zeros(2, 3, 1030, 600), "chw").shape == (2, 3, 344, 200)
    assert shrunk(np.zeros((2, 512, 20, 3)), "hwc").shape == (2, 512, 20, 3)


@pytest.mark.parametrize(
    ("dtype", "seen", "given", "expected"),
    [
        ("float32", (0.0, 0.9), None, (0.0, 1.0)),
        ("float32", (-0.9, 0.9), None, (-1.0, 1.0)),
        ("float32", (0.0, 254.0), None, (0.0, 255.0)),
        ("float32", (-2.1, 2.6), None, (-2.1, 2.6)),
        ("uint8", (3.0, 9.0), None, (0.0, 255.0)),
        ("float32", None, None, (0.0, 1.0)),
        ("float32", (0.0, 1.0), (0.0, 4.0), (0.0, 4.0)),
    ],
)
def test_the_range_of_a_picture(dtype: str, seen: Any, given: Any, expected: tuple[float, float]) -> None:
    """The one given, that of bytes, the usual one that fits, else what was seen."""
    assert picture_range(dtype, seen, given) == expected


# In a browser --------------------------------------------------------------------------------------------------------

browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not on the PATH")


@pytest.mark.slow
@browser
def test_the_section_opens_with_hostile_samples(start: Callable[..., Any], tmp_path: Path) -> None:
    """No script error, no foreign element, texts shown literally, every picture there."""
    run = start(name="samples")
    run.check_samples([HOSTILE, "plain"], labels=[HOSTILE, "x"], every=1)
    run.check_samples([{HOSTILE: HOSTILE}, {HOSTILE: "2"}], every=1, split="val")
    run.check_samples(torch.rand(3, 3, 8, 8), every=1, split="test")
    path = run.path
    run.finish()
    document, complaints = open_page(write(read_run(path, wall_ns())), tmp_path / "profile")
    assert complaints == ""
    assert 'data-ready="yes"' in document
    body = re.sub(r"<script.*?</script>", "", document, flags=re.DOTALL)
    assert 'id="foreign"' not in body
    assert "id=foreign" not in body.replace("&lt;b id=foreign&gt;", "")
    assert "<title>samples" in document
    assert html.escape(HOSTILE, quote=False).split("\u2028")[0] in body
    assert body.count('<figure class="picture">') == 3
    assert len(re.findall(r'<section id="samples"', body)) == 1


@pytest.mark.slow
@browser
def test_a_browser_reads_the_pictures(tmp_path: Path) -> None:
    """Four kinds of PNG drawn on a canvas give back the pixels that went in."""
    colours = [[0, 9, 200, 255], [10, 60, 90, 250, 130, 7], [1, 2, 3, 255, 40, 50, 60, 255]]
    sources = [png(4, 1, 1, bytes(colours[0])), png(1, 2, 3, bytes(colours[1])), png(2, 1, 4, bytes(colours[2]))]
    addresses = ["data:image/png;base64," + base64.b64encode(data).decode() for data in sources]
    page = tmp_path / "page.html"
    page.write_text(
        "<body><script>Promise.all("
        + json.dumps(addresses)
        + """.map(async (address) => {
        const image = new Image(); image.src = address; await image.decode();
        const canvas = document.createElement("canvas"); canvas.width = image.width; canvas.height = image.height;
        const context = canvas.getContext("2d"); context.drawImage(image, 0, 0);
        return [...context.getImageData(0, 0, image.width, image.height).data];
        })).then((all) => { document.body.textContent = "PIXELS" + JSON.stringify(all) + "END"; });</script>"""
    )
    document, complaints = open_page(page, tmp_path / "profile")
    assert complaints == ""
    match = re.search(r"PIXELS(.*?)END", document)
    assert match is not None
    grey = [value for level in colours[0] for value in (level, level, level, 255)]
    rgb = [*colours[1][:3], 255, *colours[1][3:], 255]
    assert json.loads(match[1]) == [grey, rgb, colours[2]]
