"""What looking at runs costs, beside TensorBoard on the same data in the same run: goals, figures, reached or not.

    python benchmarks/view.py                          all, about a quarter of an hour
    python benchmarks/view.py --rounds 1 --only chart  one probe, once
    python benchmarks/view.py --tensorboard PYTHON     the Python that has TensorBoard, where this one has not
    python benchmarks/view.py --markdown F             also writes the tables to a file

The data (`--data`, made once): a run of a million points over ten metrics, and a folder of 1,000 runs. Each probe
starts its server and its browser anew. Figures are medians over the rounds; the range beside them is the noise of the
machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import quote

from view_browser import Tab, fresh_page, seconds_until
from view_data import big_run, many_runs
from view_probes import Program, get_json, running, training

from otel_train.clock import wall_ns
from otel_train.view.reading import read_run
from otel_train.view.report import plotly_script

HERE = Path(__file__).parent
OURS, THEIRS = "otel-train", "TensorBoard"
METRICS, STEPS, RUNS = 10, 100_000, 1_000
FOLLOWED_S = 30.0
INDEX = ".otel-train-index*"
FILTER = "loss < 0.5 and state = finished"
CHART = "document.querySelector('.card.chart[data-drawn=yes] .main-svg')"
DRAWN = """async () => {
  for (const card of document.querySelectorAll("#curves .card.chart")) {
    card.scrollIntoView();
    while (card.dataset.drawn !== "yes") await new Promise((done) => setTimeout(done, 20));
  }
}"""
# TensorBoard draws its lines on a canvas, which its page covers with a spinner until the points are there.
THEIR_CHART = """[...document.querySelectorAll("scalar-card")].some(
  (card) => card.querySelector("line-chart canvas, line-chart path") && !card.querySelector("mat-spinner"))"""
Figures = dict[tuple[str, str], list[float]]


class Data:
    """Where the data of both are: made once, kept for the next time."""

    def __init__(self, folder: Path, tensorboard: str | None) -> None:
        self.tensorboard = tensorboard
        self.big, self.many = folder / "big", folder / "many"
        self.their_big, self.their_many = folder / "their-big", folder / "their-many"
        folder.mkdir(parents=True, exist_ok=True)
        if not any(self.big.glob("*/run.json")):
            big_run(self.big, steps=STEPS, metrics=METRICS)
        if sum(1 for _ in self.many.glob("*/run.json")) != RUNS:
            shutil.rmtree(self.many, ignore_errors=True)
            many_runs(self.many, runs=RUNS)
        self.run = next(self.big.glob("*/run.json")).parent
        if tensorboard:
            self._write_theirs(tensorboard)

    def _write_theirs(self, python: str) -> None:
        for what, ours, theirs in (("big", self.big, self.their_big), ("many", self.many, self.their_many)):
            if theirs.is_dir():
                continue
            print(f"writing TensorBoard's files of {what}", file=sys.stderr)
            runs = {path.parent.name: values_of(path.parent) for path in ours.glob("*/run.json")}
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                json.dump(next(iter(runs.values())) if what == "big" else runs, file)
                file.flush()
                part = theirs.with_name(theirs.name + ".part")
                shutil.rmtree(part, ignore_errors=True)
                subprocess.run([python, str(HERE / "view_tensorboard.py"), what, str(part), file.name], check=True)
            part.rename(theirs)


def values_of(path: Path) -> dict[str, list[float]]:
    """Return the user's metrics of a run as another logger would have them."""
    series = (item.series for item in read_run(path, wall_ns(), records=False).series())
    return {f"{one.key}/{one.split}": list(one.values) for one in series if one.name.startswith("train.")}


def ui(folder: Path) -> Callable[[int], list[str]]:
    """Return the command of the local page of a folder, by port."""
    return lambda port: [sys.executable, "-m", "otel_train.cli.main", "ui", str(folder), "--port", str(port)]


def board(data: Data, folder: Path) -> Callable[[int], list[str]]:
    """Return the command of TensorBoard over a folder, by port."""
    assert data.tensorboard
    start = [str(data.tensorboard), "-m", "tensorboard.main", "--logdir", str(folder)]
    return lambda port: [*start, "--port", str(port)]


def first_chart(data: Data) -> dict[str, float]:
    """Cold, of the run of a million points: request to the first chart, and the server's memory once all are drawn."""
    with fresh_page() as page, running(ui(data.big)) as server:
        seconds = seconds_until(page, f"{server.address}/run/{data.run.name}", CHART)
        start_s, cpu_s = server.age_s(), server.cpu_s()
        page.call(DRAWN)
        return {"chart_s": seconds, "start_s": start_s, "cpu_s": cpu_s, "memory_mib": server.peak_mib()}


def their_first_chart(data: Data) -> dict[str, float]:
    """The same of TensorBoard: its server reads in the background, so the wait for that is counted first."""
    with fresh_page() as page, running(board(data, data.their_big)) as server:
        start_s = time.perf_counter()
        while sum(len(tags) for tags in get_json(f"{server.address}/data/plugin/scalars/tags").values()) < METRICS:
            time.sleep(0.05)
        read_s = time.perf_counter() - start_s
        seconds = seconds_until(page, f"{server.address}/#timeseries", THEIR_CHART)
        return {
            "chart_s": read_s + seconds,
            "start_s": server.age_s(),
            "cpu_s": server.cpu_s(),
            "memory_mib": server.peak_mib(),
        }


def follow(server: Program) -> float:
    """Return the server's share of a core over some seconds, in %."""
    before_s, start_s = server.cpu_s(), time.monotonic()
    time.sleep(FOLLOWED_S)  # the span over which is measured
    return 100 * (server.cpu_s() - before_s) / (time.monotonic() - start_s)


def following(data: Data) -> dict[str, float]:
    """An open page on a training that logs ten metrics 100 times a second."""
    with tempfile.TemporaryDirectory() as name, training(Path(name), sys.executable, writer="otel-train"):
        with fresh_page() as page, running(ui(Path(name))) as server:
            run = next(Path(name).glob("*/run.json")).parent.name
            seconds_until(page, f"{server.address}/run/{run}", CHART)
            shown = "document.querySelector('.card.chart[data-drawn=yes] .plot').data[0].y.length"
            before = page.evaluate(shown)
            percent = follow(server)
            after = page.evaluate(shown)
            assert after > before, "the page did not follow"
            return {"percent": percent, "memory_mib": server.peak_mib()}


def their_following(data: Data) -> dict[str, float]:
    """The same of TensorBoard, whose server reads anew every five seconds by itself."""
    assert data.tensorboard
    with tempfile.TemporaryDirectory() as name, training(Path(name), data.tensorboard, writer="tensorboard"):
        with fresh_page() as page, running(board(data, Path(name))) as server:
            while not get_json(f"{server.address}/data/plugin/scalars/tags").get("."):
                time.sleep(0.1)
            seconds_until(page, f"{server.address}/#timeseries", THEIR_CHART)
            return {"percent": follow(server), "memory_mib": server.peak_mib()}


def table(data: Data, *, index: bool) -> dict[str, float]:
    """Cold, of the folder of 1,000 runs: request to the table; then a filter, typed and asked for."""
    for path in data.many.glob(INDEX):
        if not index:
            path.unlink()
    if index and not any(data.many.glob(INDEX)):
        table(data, index=False)
    with fresh_page() as page, running(ui(data.many)) as server:
        rows = "document.querySelectorAll('main table tbody tr').length > 10"
        seconds = seconds_until(page, f"{server.address}/", rows)
        start_s = server.age_s()
        answers = []
        for _ in range(5):
            asked_s = time.perf_counter()
            found = get_json(f"{server.address}/api/runs?where={quote(FILTER)}")
            answers.append(time.perf_counter() - asked_s)
            assert 0 < found["matched"] < found["total"] == RUNS, found.get("error")
        if not index:
            return {"table_s": seconds}
        return {
            "table_s": seconds,
            "start_s": start_s,
            "filter_ms": 1000 * statistics.median(answers),
            "typed_ms": 1000 * typed(page, found["matched"]),
            "memory_mib": server.peak_mib(),
        }


def typed(page: Tab, matched: int) -> float:
    """Return the seconds from Enter behind a filter's text to the table that has only its rows."""
    seconds: float = page.call(
        """async ([text, wanted]) => {
          const start = performance.now();
          const field = document.getElementById("runs-filter");
          field.value = text;
          field.dispatchEvent(new Event("input", { bubbles: true }));
          field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true }));
          while (!document.querySelector(".runs-count").textContent.startsWith(wanted)) {
            if (performance.now() - start > 30000) throw new Error("the table did not follow the filter");
            await new Promise((done) => requestAnimationFrame(done));
          }
          return (performance.now() - start) / 1000;
        }""",
        [FILTER, f"{matched:,} of "],
    )
    return seconds


def their_table(data: Data) -> dict[str, float]:
    """TensorBoard over the same 1,000 runs: request to its list of runs."""
    with fresh_page() as page, running(board(data, data.their_many)) as server:
        rows = f"document.querySelectorAll('tb-data-table-content-row').length === {RUNS}"
        seconds = seconds_until(page, f"{server.address}/#timeseries", rows)
        return {"table_s": seconds, "start_s": server.age_s(), "memory_mib": server.peak_mib()}


def report(data: Data) -> dict[str, float]:
    """The report of the run of a million points, by the command, and its size without the chart library."""
    with tempfile.TemporaryDirectory() as name:
        target = Path(name) / "report.html"
        command = [sys.executable, "-m", "otel_train.cli.main", "report", str(data.run), "-o", str(target)]
        start_s, before_s = time.perf_counter(), children_cpu_s()
        subprocess.run(command, check=True, capture_output=True)
        seconds, cpu_s = time.perf_counter() - start_s, children_cpu_s() - before_s
        return {
            "report_s": seconds,
            "cpu_s": cpu_s,
            "kilobytes": (target.stat().st_size - len(plotly_script().encode())) / 1000,
        }


def children_cpu_s() -> float:
    """Return the CPU seconds of the processes that this one has waited for."""
    times = os.times()
    return times.children_user + times.children_system


PROBES: dict[str, tuple[str, str, Callable[[Data], dict[str, float]]]] = {
    "chart": (OURS, "chart", first_chart),
    "their chart": (THEIRS, "chart", their_first_chart),
    "follow": (OURS, "follow", following),
    "their follow": (THEIRS, "follow", their_following),
    "table": (OURS, "table", lambda data: table(data, index=True)),
    "table without index": (OURS, "no index", lambda data: table(data, index=False)),
    "their table": (THEIRS, "table", their_table),
    "report": (OURS, "report", report),
}


def measure(data: Data, rounds: int, wanted: Iterable[str]) -> Figures:
    """Run the probes, in another order each round; one that fails is told and left out."""
    figures: Figures = {}
    order = random.Random(1)
    for number in range(rounds):
        names = [name for name in wanted if data.tensorboard or PROBES[name][0] == OURS]
        order.shuffle(names)
        for name in names:
            print(f"round {number + 1}/{rounds}: {name}", file=sys.stderr)
            who, what, probe = PROBES[name]
            try:
                found = probe(data)
            except Exception as fault:  # noqa: BLE001 - the others are still worth having
                print(f"{name} failed: {fault}", file=sys.stderr)
                continue
            for figure, value in found.items():
                figures.setdefault((who, f"{what} {figure}"), []).append(value)
    return figures


def shown(values: list[float] | None, digits: int = 3) -> str:
    """Return median and range, or a dash."""
    if not values:
        return "-"
    return f"{statistics.median(values):.{digits}g} ({min(values):.{digits}g} … {max(values):.{digits}g})"


ROWS = (
    ("a million points: request to the first chart, cold", "chart chart_s", 2.0, "s"),
    ("the same from the start of the server's command", "chart start_s", None, "s"),
    ("CPU of the server until then, its start included", "chart cpu_s", None, "s"),
    ("memory of the server after that, all charts drawn", "chart memory_mib", 200.0, "MiB"),
    ("following 1,000 points a second with an open page", "follow percent", 2.0, "% of a core"),
    ("memory of the server then", "follow memory_mib", None, "MiB"),
    ("1,000 runs: request to the table, cold", "table table_s", 1.0, "s"),
    ("the same from the start of the server's command", "table start_s", None, "s"),
    ("request to the table without an index, which is made then", "no index table_s", None, "s"),
    ("filter over 1,000 runs, answer of the server", "table filter_ms", 100.0, "ms"),
    ("filter over 1,000 runs, from Enter to the rows on the page", "table typed_ms", 100.0, "ms"),
    ("memory of the server of 1,000 runs", "table memory_mib", None, "MiB"),
    ("report of the million points, the whole command", "report report_s", 2.0, "s"),
    ("CPU of that", "report cpu_s", None, "s"),
    ("its size apart from the chart library", "report kilobytes", 1000.0, "kB"),
)


def tables(figures: Figures) -> list[str]:
    """Return the table of goals, each with what was measured of both."""
    lines = [f"| what | goal | {OURS} | reached | {THEIRS} |", "| --- | --- | --- | --- | --- |"]
    for what, name, goal, unit in ROWS:
        ours, theirs = figures.get((OURS, name)), figures.get((THEIRS, name))
        if not ours and not theirs:
            continue
        reached = "" if goal is None or not ours else "yes" if statistics.median(ours) <= goal else "**no**"
        wanted = "given" if goal is None else f"≤ {goal:g} {unit}"
        lines.append(f"| {what}, {unit} | {wanted} | {shown(ours)} | {reached} | {shown(theirs)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", choices=list(PROBES), help="this probe; may be repeated")
    parser.add_argument("--data", type=Path, default=Path("build/view-bench"), help="folder of the data (%(default)s)")
    parser.add_argument("--tensorboard", metavar="PYTHON", help="the Python that has TensorBoard")
    parser.add_argument("--markdown", type=Path, help="file to write the table to")
    arguments = parser.parse_args()
    here = sys.executable if importlib.util.find_spec("tensorboard") else None
    data = Data(arguments.data, arguments.tensorboard or here)
    figures = measure(data, arguments.rounds, arguments.only or PROBES)
    missing = "" if data.tensorboard else f" {THEIRS} is not installed: give its Python with --tensorboard."
    text = [
        f"Python {platform.python_version()}, {os.cpu_count()} cores, {arguments.rounds} rounds. "
        f"Median (lowest … highest).{missing}",
        "",
        *tables(figures),
    ]
    print("\n".join(text))
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
