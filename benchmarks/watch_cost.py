"""What looking into a model costs, beside its peers: the same training with and without, each in a fresh process.

    python benchmarks/watch_cost.py                  all, some twenty minutes with every peer installed
    python benchmarks/watch_cost.py --rounds 2 --blocks 4
    python benchmarks/watch_cost.py --markdown F     also writes the table to a file

Sampled is every 100th step: weights and gradients as histograms, their norms, the update ratio, activations with the
dead units. TensorBoard is given the same by hand; W&B's `watch` has the histograms alone. Peers that are not installed
are left out and named (`pip install -e .[bench]`). Within a process blocks with and without the tool alternate; the
rounds run in another order each. Figures are medians over all blocks; the range beside them is the machine's noise.
The verdicts are by CPU time, of the training thread, which is what training waits for, and of all threads together:
wall time of a shared machine is mostly noise.
W&B has a process of its own beside, which is not counted.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from record_cost import interval, shown

HERE = Path(__file__).parent
OURS = "otel-train"
TOOLS = {OURS: "otel_train", "TensorBoard": "tensorboard", "W&B watch": "wandb"}
WORKLOADS = ("digits", "transformer")
GOAL_PERCENT = 1.0

Results = dict[tuple[str, str], dict[str, list[float]]]


def run_probe(workload: str, tool: str, blocks: int) -> dict[str, Any] | None:
    """Run one probe in its own process; None, and what it said, where it failed."""
    command = [sys.executable, str(HERE / "watch_probes.py"), workload, tool, str(blocks)]
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "WANDB_"))}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=1800, check=False)
    if done.returncode:
        print(f"{workload} {tool} failed:\n{done.stderr[-1500:]}", file=sys.stderr)
        return None
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def measure(workloads: list[str], tools: list[str], rounds: int, blocks: int) -> Results:
    """Run all probes, in another order each round, so that a slow minute of the machine does not hit one tool."""
    results: Results = {}
    order = random.Random(1)
    for number in range(rounds):
        todo = [(workload, tool) for workload in workloads for tool in tools]
        order.shuffle(todo)
        for place, (workload, tool) in enumerate(todo, start=1):
            print(f"\rround {number + 1}/{rounds}, probe {place}/{len(todo)}: {workload} {tool}".ljust(78), end="")
            for name, value in (run_probe(workload, tool, blocks) or {}).items():
                kept = results.setdefault((workload, tool), {}).setdefault(name, [])
                kept.extend(value if isinstance(value, list) else [float(value)])
    print()
    return results


def table(results: Results, tools: list[str]) -> list[str]:
    """Return the lines of the table."""
    lines = [
        "| training | tool | CPU of one sampling on the training thread, ms | of 100 steps, % | "
        "CPU of its other threads, % | wall time added, % (95 %) | KiB on disk a sampling |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for workload in WORKLOADS:
        for tool in tools:
            found = results.get((workload, tool))
            if not found:
                continue
            step_ms = statistics.median(found["step_ms"])
            name = f"{workload}, {found['parameters'][0]:,.0f} parameters, {step_ms:.3g} ms a step"
            lines.append(
                f"| {name} | {tool} | {shown(found['sampling_ms'], 2)} | {shown(found['sampling_percent'], 2)} | "
                f"{shown(found['others_percent'], 2)} | {added(found['wall_percent'])} | "
                f"{shown(found['kib_per_sampling'], 2)} |"
            )
    return lines


def added(percent: list[float]) -> str:
    low, high = interval(percent)
    return f"{statistics.median(percent):.2g} ({low:.2g} … {high:.2g})"


def verdict(results: Results) -> list[str]:
    """Return whether ours is within the goal, by workload."""
    lines = []
    for workload in WORKLOADS:
        found = results.get((workload, OURS))
        if found:
            thread = statistics.median(found["sampling_percent"])
            others = statistics.median(found["others_percent"])
            of_thread, of_all = (
                "reached" if percent < GOAL_PERCENT else "**not reached**" for percent in (thread, thread + others)
            )
            lines.append(
                f"watch(every=100), {workload}: {thread:.2g} % of the training thread; under {GOAL_PERCENT:g} % is "
                f"{of_thread}. With the {others:.2g} % of other threads of the process it is {of_all}."
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=10, help="pairs of blocks with and without in one process")
    parser.add_argument("--only", choices=WORKLOADS, help="one of the trainings")
    parser.add_argument("--markdown", type=Path, help="file to write the table to")
    arguments = parser.parse_args()
    tools = [tool for tool, module in TOOLS.items() if importlib.util.find_spec(module) is not None]
    missing = [tool for tool in TOOLS if tool not in tools]
    results = measure(
        [arguments.only] if arguments.only else list(WORKLOADS), tools, arguments.rounds, arguments.blocks
    )
    text = [
        f"Python {platform.python_version()}, {os.cpu_count()} cores, one thread of torch, "
        f"{arguments.rounds} rounds of {arguments.blocks} blocks. Median (lowest … highest)."
        + (f" Not installed: {', '.join(missing)}." if missing else ""),
        "",
        *table(results, tools),
        "",
        *verdict(results),
    ]
    print("\n".join(text))
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
