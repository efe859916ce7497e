"""Takes the pictures of docs/local-page.md: trains the digits with several settings, and photographs the real page.

python docs/page_pictures.py [NAME …]     `make page-pictures` takes all; chromium must be on the PATH; some minutes

The runs stay in build/page-runs; delete the folder to train anew.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from otel_train.runlog.catalogue import list_runs
from otel_train.runlog.status import last_step

HERE = Path(__file__).parent
FOLDER = HERE / "images"
DIGITS = HERE.parent / "examples" / "digits.py"
MOST_BYTES = 400_000
# What the runs differ in. The last two end before their time: one by Ctrl-C, one killed.
SETTINGS: dict[str, tuple[str, ...]] = {
    "usual": ("--epochs", "12"),
    "quick": ("--lr", "0.003", "--epochs", "12"),
    "slow": ("--lr", "0.0003", "--epochs", "12"),
    "large batches": ("--batch-size", "128", "--epochs", "12"),
    "small batches": ("--batch-size", "16", "--epochs", "8"),
    "hot": ("--lr", "0.05", "--epochs", "12"),
    "clipped": ("--clip", "0.5", "--epochs", "12"),
    "interrupted": ("--delay", "0.02"),
    "killed": ("--delay", "0.02", "--seed", "11"),
}
ENDS = {"interrupted": signal.SIGINT, "killed": signal.SIGKILL}


@dataclass(frozen=True)
class Picture:
    """A view of the page: its address (with `{run}`, `{runs}`), the window, what to scroll to, the colours."""

    name: str
    address: str
    dark: bool = False
    width: int = 1280
    height: int = 860
    section: str = ""


COLUMNS = "columns=state,started,step,val/loss,best.val/loss,config.lr,config.batch_size"
PICTURES = (
    Picture("page-runs-light", f"/?{COLUMNS}", height=640),
    Picture("page-runs-dark", f"/?{COLUMNS}", dark=True, height=640),
    Picture("page-run-light", "/run/{run}", height=1480),
    Picture("page-run-dark", "/run/{run}?smoothing=0.6", dark=True, section="curves"),
    Picture("page-timeline-light", "/run/{run}", section="timeline", height=660),
    Picture("page-compare-light", "/compare?runs={runs}", height=1180),
    Picture("page-compare-dark", "/compare?runs={runs}", dark=True, section="compare-curves"),
    Picture("page-run-narrow", "/run/{run}", width=390, height=844),
)


def train(root: Path) -> None:
    """Train what is not there yet, one after the other."""
    done = len(list_runs(root)) if root.is_dir() else 0
    for name, settings in list(SETTINGS.items())[done:]:
        command = [
            sys.executable,
            str(DIGITS),
            *settings,
            "--dir",
            str(root),
            "--output",
            str(root.parent / "page-models"),
        ]
        before = set(root.glob("*/run.json"))
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        if name in ENDS:
            while process.poll() is None and trained_steps(set(root.glob("*/run.json")) - before) < 250:
                time.sleep(0.5)
            process.send_signal(ENDS[name])
        process.wait()


def trained_steps(descriptions: set[Path]) -> int:
    """Return the newest step of a run, 0 where it has not begun."""
    return max((last_step(path.parent / "attempt-1" / "rank-0") or 0 for path in descriptions), default=0)


@contextlib.contextmanager
def served(root: Path) -> Iterator[str]:
    """Serve the page of a root; give its address without a slash at the end."""
    command = [sys.executable, "-m", "otel_train.cli.main", "ui", str(root), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = next(word for word in line.split() if word.startswith("http://")).rstrip("/")
        until_s = time.monotonic() + 60
        while time.monotonic() < until_s:
            with contextlib.suppress(OSError), urllib.request.urlopen(address + "/", timeout=10):
                break
        yield address
    finally:
        process.terminate()
        process.wait()


def settle(page: Page, section: str) -> None:
    """Wait until what is in sight is drawn."""
    page.evaluate(
        """async (section) => {
          const until = performance.now() + 40000;
          const box = (node) => node.getBoundingClientRect();
          const inSight = (node) => box(node).bottom > 0 && box(node).top < innerHeight;
          const charts = () => [...document.querySelectorAll(".card.chart")].filter(inSight);
          const drawn = () => charts().every((node) => node.dataset.drawn === "yes");
          const ready = () => document.documentElement.dataset.ready === "yes" && drawn();
          while (!ready()) {
            if (performance.now() > until) throw new Error("the page is not ready");
            await new Promise((done) => setTimeout(done, 50));
          }
          if (section) document.getElementById(section).scrollIntoView();
          await new Promise((done) => setTimeout(done, 1500));
          while (!ready() && performance.now() < until) await new Promise((done) => setTimeout(done, 50));
        }""",
        section,
    )


def take(browser: Browser, picture: Picture, address: str) -> Path:
    """Take one picture."""
    context = browser.new_context(
        viewport={"width": picture.width, "height": picture.height}, color_scheme="dark" if picture.dark else "light"
    )
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(address, wait_until="domcontentloaded")
    settle(page, picture.section)
    target = FOLDER / f"{picture.name}.png"
    page.screenshot(path=target)
    context.close()
    size = target.stat().st_size
    assert size <= MOST_BYTES, f"{target} has {size:,} bytes"
    print(target, size)
    return target


def main() -> None:
    """Take the pictures that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="pictures; all without any")
    parser.add_argument("--dir", type=Path, default=Path("build/page-runs"), help="folder of the runs (%(default)s)")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("chromium is not on the PATH")
    train(arguments.dir)
    runs = list_runs(arguments.dir)
    finished = [run for run in runs if run.status.state == "finished"]
    # The oldest is the usual one.
    names = {"run": finished[-1].path.name, "runs": ",".join(run.path.name for run in finished[::-1][:4])}
    with served(arguments.dir) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for picture in PICTURES:
            if not arguments.names or picture.name in arguments.names:
                take(browser, picture, address + picture.address.format(**names))
        browser.close()


if __name__ == "__main__":
    main()
