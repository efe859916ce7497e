"""What recording costs, beside its peers, in one run: each probe in a fresh process, in turn, several times over.

    python benchmarks/record_cost.py                 all, about ten minutes with every peer installed
    python benchmarks/record_cost.py --rounds 3      fewer rounds
    python benchmarks/record_cost.py --markdown F    also writes the tables to a file

Peers that are not installed are left out and named (`pip install -e .[bench]`). Figures are medians over the rounds;
the range beside them is the machine's noise.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peers import PEERS, installed

HERE = Path(__file__).parent
OURS = "otel-train"
# Calls a probe makes: enough for a stable median, few enough for the slow ones.
STEPS = {OURS: 20_000, "OpenTelemetry SDK gauges": 5_000, "TensorBoard": 3_000, "W&B offline": 2_000}
FEW_STEPS = 200

Results = dict[tuple[str, str, str], dict[str, list[float]]]


def jobs(peers: list[str]) -> Iterator[tuple[str, str, str, int]]:
    """Yield (probe, peer, kind, steps) of one round."""
    for peer in peers:
        yield "thread", peer, "float", STEPS.get(peer, FEW_STEPS)
        yield "init", peer, "-", 1
        # SDK gauges keep one value of each, whatever was logged: there is no size of a step.
        if peer != "OpenTelemetry SDK gauges":
            yield "disk", peer, "realistic", STEPS.get(peer, FEW_STEPS)
    for kind in ("numpy", "tensor"):
        yield "thread", OURS, kind, STEPS[OURS]
    yield "disk", OURS, "random", STEPS[OURS]
    yield "memory", OURS, "-", 100_000
    yield "steps", OURS, "-", 50_000
    yield "digits", OURS, "-", 60
    for mode in ("without", "with"):
        yield "stall", OURS, mode, 5_000
    for what in ("sdk", "otel_train"):
        yield "import", OURS, what, 1


def run_probe(probe: str, peer: str, kind: str, steps: int) -> dict[str, Any] | None:
    """Run one probe in its own process; None, and what it said, where it failed."""
    command = [sys.executable, str(HERE / "probes.py"), probe, peer, kind, str(steps)]
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "WANDB_", "MLFLOW_"))}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=600, check=False)
    if done.returncode:
        print(f"{probe} {peer} {kind} failed:\n{done.stderr[-500:]}", file=sys.stderr)
        return None
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def measure(peers: list[str], rounds: int) -> Results:
    """Run all probes, in another order each round, so that a slow minute of the machine does not hit one peer."""
    results: Results = {}
    order = random.Random(1)
    for number in range(rounds):
        todo = list(jobs(peers))
        order.shuffle(todo)
        for place, (probe, peer, kind, steps) in enumerate(todo, start=1):
            print(f"\rround {number + 1}/{rounds}, probe {place}/{len(todo)}: {probe} {peer} {kind}".ljust(78), end="")
            result = run_probe(probe, peer, kind, steps)
            for name, value in (result or {}).items():
                kept = results.setdefault((probe, peer, kind), {}).setdefault(name, [])
                kept.extend(value if isinstance(value, list) else [float(value)])
    print()
    return results


def shown(values: list[float] | None, digits: int = 3) -> str:
    """Return median and range, or a dash."""
    if not values:
        return "-"
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}g} ({low:.{digits}g} … {high:.{digits}g})"


def interval(ratios: list[float]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the median."""
    draw = random.Random(2)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[1949]


def peer_table(results: Results, peers: list[str]) -> list[str]:
    """Return the lines of the table of peers."""
    lines = [
        "| logger | CPU of the training thread for ten scalars, µs | times ours | other CPU for 1,000 points, ms | "
        "bytes on disk a step | start, s | end, s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    ours = statistics.median(results[("thread", OURS, "float")]["thread_us"])
    for peer in peers:
        thread = results.get(("thread", peer, "float"), {})
        start = results.get(("init", peer, "-"), {})
        disk = results.get(("disk", peer, "realistic"), {}).get("bytes_per_step")
        times = statistics.median(thread["thread_us"]) / ours if thread else float("nan")
        lines.append(
            f"| {peer} | {shown(thread.get('thread_us'))} | {times:.3g} | "
            f"{shown(thread.get('background_ms_per_1000'))} | {shown(disk)} | {shown(start.get('init_s'))} | "
            f"{shown(start.get('finish_s'))} |"
        )
    return lines


def goal_table(results: Results, peers: list[str]) -> list[str]:
    """Return the lines of the table of goals, each with what was measured."""

    def get(probe: str, kind: str, name: str) -> list[float]:
        return results.get((probe, OURS, kind), {}).get(name, [])

    others = [
        statistics.median(results[("thread", peer, "float")]["thread_us"])
        for peer in peers
        if peer != OURS and ("thread", peer, "float") in results
    ]
    ours = get("thread", "float", "thread_us")
    cheapest = min(others, default=float("nan")) / statistics.median(ours)
    rows: list[tuple[str, str, str, bool]] = []

    def at_most(what: str, goal: float, values: list[float], unit: str) -> None:
        rows.append((what, f"≤ {goal:g} {unit}", shown(values), bool(values) and statistics.median(values) <= goal))

    at_most("ten Python floats, training thread", 2, ours, "µs")
    rows.append(("against the cheapest peer", "≥ 10 times", f"{cheapest:.3g} times", cheapest >= 10))
    at_most("ten NumPy scalars", 2, get("thread", "numpy", "thread_us"), "µs")
    at_most("ten CPU tensors of one element", 8, get("thread", "tensor", "thread_us"), "µs")
    at_most("a step with four phases, alone", 4, get("steps", "-", "alone_us"), "µs")
    rows.append(("the same beside the running writer", "given", shown(get("steps", "-", "beside_us")) + " µs", True))
    at_most("stall by the writer, 99th percentile, 1 ms steps", 1, get("stall", "with", "stall_p99_ms"), "ms")
    without = shown(get("stall", "without", "stall_p99_ms"))
    rows.append(("the machine's own stall, 99th percentile, nothing recorded", "given", f"{without} ms", True))
    at_most("other CPU for 1,000 points, on disk", 1, get("thread", "float", "background_ms_per_1000"), "ms")
    at_most("the same with gzip", 2, get("thread", "float", "background_closed_ms_per_1000"), "ms")
    at_most("bytes a step, realistic float32", 120, get("disk", "realistic", "bytes_per_step"), "bytes")
    at_most("bytes a step, random mantissas", 160, get("disk", "random", "bytes_per_step"), "bytes")
    at_most("memory from 100,000 to 1,000,000 points", 5, get("memory", "-", "rest_mib"), "MiB")
    ratios = _ratios(get("import", "otel_train", "import_s"), get("import", "sdk", "import_s"))
    at_most("import, against the SDK's", 1.5, ratios, "times")
    at_most("init()", 0.3, get("init", "-", "init_s"), "s")
    for what, name in (("training thread's CPU", "thread_percent"), ("wall time", "wall_percent")):
        percents = get("digits", "-", name)
        if not percents:
            continue
        low, high = interval(percents)
        text = f"{statistics.median(percents):.2g} % (95 %: {low:.2g} … {high:.2g})"
        goal = "≤ 1 %" if name == "thread_percent" else "given"
        rows.append((f"digits loop, {what}", goal, text, statistics.median(percents) <= 1))
    rows.append(("digits loop, a step without recording", "given", shown(get("digits", "-", "step_us")) + " µs", True))
    lines = ["| what | goal | measured | reached |", "| --- | --- | --- | --- |"]
    return lines + [f"| {a} | {b} | {c} | {'' if b == 'given' else 'yes' if d else '**no**'} |" for a, b, c, d in rows]


def _ratios(values: list[float], base: list[float]) -> list[float]:
    """Return the ratios of values measured in the same round."""
    return [value / other for value, other in zip(values, base, strict=False)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--markdown", type=Path, help="file to write the tables to")
    arguments = parser.parse_args()
    peers = [peer for peer in PEERS if installed(peer)]
    results = measure(peers, arguments.rounds)
    missing = [peer for peer in PEERS if peer not in peers]
    text = [
        f"Python {platform.python_version()}, {os.cpu_count()} cores, {arguments.rounds} rounds. "
        "Median (lowest … highest)." + (f" Not installed: {', '.join(missing)}." if missing else ""),
        "",
        *peer_table(results, peers),
        "",
        *goal_table(results, peers),
    ]
    print("\n".join(text))
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
