"""Takes the pictures of docs/internals.md: trains the runs of sick_runs.py, and photographs charts of their reports.

python docs/pictures.py [NAME …]     `make pictures` takes all; chromium must be on the PATH; about ten minutes

A picture is a chart of the page that `otel-train report` makes, alone in the window.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sick_runs import OF_RANKS, RUNS

from otel_train.clock import wall_ns
from otel_train.runlog.catalogue import list_runs
from otel_train.view.page import render
from otel_train.view.reading import read_run
from otel_train.view.report import build, plotly_script

HERE = Path(__file__).parent
FOLDER = HERE / "images" / "internals"
WIDTH = 560
# More than any chart is high; what is empty below it is cut off.
HEIGHT = 640
MARGIN = 10
# The finest that keeps a picture small.
SCALES = (1.25, 1.0, 0.9)
MOST_BYTES = 80_000


@dataclass(frozen=True)
class Picture:
    """A chart of a run's report: its section and title there, and the file's name. `layer`: of a distribution."""

    name: str
    run: str
    section: str
    title: str
    layer: str = ""


PICTURES = (
    Picture("gradient-norm-healthy", "healthy", "model", "Gradient norm"),
    Picture("gradient-norm-sick", "exploding", "model", "Gradient norm"),
    Picture("gradient-by-layer-healthy", "healthy", "model", "Gradient norm by layer"),
    Picture("gradient-by-layer-sick", "vanishing", "model", "Gradient norm by layer"),
    Picture("update-ratio-healthy", "healthy", "model", "Update ratio by layer"),
    Picture("update-ratio-sick", "exploding", "model", "Update ratio by layer"),
    Picture("weight-norm-healthy", "healthy", "model", "Weight norm by layer"),
    Picture("weight-norm-sick", "decaying", "model", "Weight norm by layer"),
    Picture("frozen-sick", "frozen", "model", "Gradient norm by layer"),
    Picture("dead-units-healthy", "healthy", "model", "Dead units by layer"),
    Picture("dead-units-sick", "dead", "model", "Dead units by layer"),
    Picture("activations-healthy", "healthy", "model", "Deviation of activations by layer"),
    Picture("activations-sick", "exploding", "model", "Deviation of activations by layer"),
    Picture("weights-healthy", "healthy", "model", "Weights over time", layer="fc2"),
    Picture("weights-sick", "decaying", "model", "Weights over time", layer="fc2"),
    Picture("gradients-healthy", "healthy", "model", "Gradients over time", layer="fc1"),
    Picture("gradients-sick", "vanishing", "model", "Gradients over time", layer="fc1"),
    Picture("loss-scale-healthy", "scaled", "model", "Loss scale"),
    Picture("loss-scale-sick", "overflowing", "model", "Loss scale"),
    Picture("skipped-healthy", "scaled", "model", "Skipped optimizer steps"),
    Picture("skipped-sick", "overflowing", "model", "Skipped optimizer steps"),
    Picture("path-healthy", "quick-loader", "data-path", "Path of a batch"),
    Picture("path-sick", "slow-loader", "data-path", "Path of a batch"),
    Picture("time-healthy", "quick-loader", "speed", "Where the time went"),
    Picture("time-sick", "slow-loader", "speed", "Where the time went"),
    Picture("rate-healthy", "quick-loader", "speed", "Samples a second"),
    Picture("rate-sick", "slow-loader", "speed", "Samples a second"),
    Picture("drift-healthy", "steady-samples", "samples", "Drift of the values"),
    Picture("drift-sick", "drifting-samples", "samples", "Drift of the values"),
    Picture("own-work-healthy", "even-ranks", "ranks", "Own work of a step"),
    Picture("own-work-sick", "straggler", "ranks", "Own work of a step"),
    Picture("straggler-healthy", "even-ranks", "ranks", "Straggler score"),
    Picture("straggler-sick", "straggler", "ranks", "Straggler score"),
    Picture("memory-healthy", "steady-memory", "memory", "Memory of the process and its children"),
    Picture("memory-sick", "leak", "memory", "Memory of the process and its children"),
)
# Leaves only the wanted chart in the page, once the page has put itself together.
ALONE = """
;addEventListener("load", () => setTimeout(() => {
  const wanted = %s;
  const cards = [...document.querySelectorAll("#" + wanted.section + " .card")];
  const card = cards.find((node) => node.querySelector("h3") && node.querySelector("h3").textContent === wanted.title);
  if (!card) { document.title = "MISSING"; return; }
  const choice = card.querySelector("select");
  if (wanted.layer && choice) {
    choice.value = [...choice.options].findIndex((option) => option.textContent === wanted.layer);
    choice.dispatchEvent(new Event("change"));
  }
  for (const button of card.querySelectorAll(".buttons")) button.remove();
  document.body.replaceChildren(card);
  document.body.style.padding = "8px";
  dispatchEvent(new Event("beforeprint"));
  document.title = "READY";
}, 600));
"""


def train(name: str, root: Path) -> Path:
    """Train a run unless it is there; return its folder."""
    folder = root / name
    if not folder.is_dir():
        start = [sys.executable, str(HERE / "sick_runs.py")]
        if name in OF_RANKS:
            start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", start[1]]
        subprocess.run([*start, name, "--dir", str(root)], check=True)
    (run,) = list_runs(folder)
    return run.path


def photograph(page: Path, target: Path, width: int, height: int, scale: float) -> None:
    """Have the browser write a picture of the page; RuntimeError where it does not."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise RuntimeError("chromium is not on the PATH")
    with tempfile.TemporaryDirectory() as profile:
        flags = "--headless --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --disable-background-networking"
        command = [chromium, *flags.split(), "--virtual-time-budget=9000", f"--force-device-scale-factor={scale}"]
        command += [f"--window-size={width},{height}", f"--screenshot={target}", f"--user-data-dir={profile}"]
        with open(os.devnull, "wb") as nothing:
            browser = subprocess.Popen(
                [*command, page.as_uri()], stdout=nothing, stderr=nothing, start_new_session=True
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                browser.wait(60)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(browser.pid, signal.SIGKILL)
            browser.wait()
    if not target.is_file():
        raise RuntimeError(f"no picture {target}")


def cut(picture: Path) -> None:
    """Cut off the empty rows at the end of a PNG, of which each is the same as the one above it."""
    data = picture.read_bytes()
    chunks, place = [], 8
    while place < len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        chunks.append((data[place + 4 : place + 8], data[place + 8 : place + 8 + length]))
        place += 12 + length
    header = dict(chunks)[b"IHDR"]
    width, height, _, color = struct.unpack(">IIBB", header[:10])
    size = 1 + width * {2: 3, 6: 4}[color]
    rows = zlib.decompress(b"".join(content for kind, content in chunks if kind == b"IDAT"))
    kept = height
    while kept and not any(rows[(kept - 1) * size + 1 : kept * size]):
        kept -= 1
    kept = min(height, kept + MARGIN)
    header = struct.pack(">II", width, kept) + header[8:]
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(rows[: kept * size], 9)), (b"IEND", b"")]
    picture.write_bytes(
        data[:8]
        + b"".join(
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
            for kind, content in parts
        )
    )


def take(pictures: Sequence[Picture], root: Path) -> None:
    """Take these pictures."""
    FOLDER.mkdir(exist_ok=True)
    payloads = {}
    for picture in pictures:
        if picture.run not in payloads:
            payloads[picture.run] = build(read_run(train(picture.run, root), wall_ns()))
        wanted = {"section": picture.section, "title": picture.title, "layer": picture.layer}
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.html"
            script = plotly_script() + ALONE % repr(wanted)
            page.write_text(render(payloads[picture.run], picture.name, script), encoding="utf-8")
            target = FOLDER / f"{picture.name}.png"
            target.unlink(missing_ok=True)
            for scale in SCALES:
                photograph(page, target, WIDTH, HEIGHT, scale)
                cut(target)
                if target.stat().st_size <= MOST_BYTES:
                    break
        print(target, target.stat().st_size)


def main() -> None:
    """Take the pictures that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="pictures, or runs whose pictures are taken; all without any")
    parser.add_argument("--dir", type=Path, default=Path("build/sick"), help="folder of the runs (%(default)s)")
    args = parser.parse_args()
    assert set(OF_RANKS) <= set(RUNS)
    wanted = [one for one in PICTURES if not args.names or one.name in args.names or one.run in args.names]
    take(wanted, args.dir)


if __name__ == "__main__":
    main()
