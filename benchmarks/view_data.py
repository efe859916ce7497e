"""Writes the runs that the local page is measured with: one of a million points, and a folder of a thousand small ones.

    python benchmarks/view_data.py big DIR                 100,000 steps of ten metrics
    python benchmarks/view_data.py big DIR --steps 10000 --metrics 4
    python benchmarks/view_data.py many DIR --runs 1000    small runs in all states

The bytes are those that a recorder writes: the same encoder, blocks of 200 points a series with `dl.step` and
`dl.epoch` beside them, times of steps, readings of the machine every ten seconds, segments that are gzipped once
closed. Only the description is shorter than a real one. All numbers come from a seed.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from otel_train.clock import NS_PER_S, SYSTEM, compact, iso  # noqa: E402
from otel_train.record.entries import Column, LogEntry, Sample, SpanEntry  # noqa: E402
from otel_train.runlog.accounting import Accounting  # noqa: E402
from otel_train.runlog.folder import RunFolder  # noqa: E402
from otel_train.runlog.run_lines import RunLines  # noqa: E402

STEP_NS = 50_000_000
BLOCK = 200
STEPS_AN_EPOCH = 1_000
READING_NS = 10 * NS_PER_S
NAMES = (
    *("loss", "accuracy", "lr", "grad_norm", "f1", "precision", "recall", "aux_loss", "tokens", "temperature"),
    *("perplexity", "entropy", "kl", "reward", "margin", "weight_norm"),
)
STATES = ("finished", "finished", "finished", "failed", "interrupted", "killed", "lost", "running")
TRAIN = (("split", "train"),)
MEMORY = 64 << 30


def curve(name: str, step: int, noise: Callable[[], float], *, learning: float = 1.0) -> float:
    """Return one value as training has it: losses fall, accuracies rise, both noisily."""
    progress = 1 - math.exp(-step * learning / 20_000)
    if name in ("accuracy", "f1", "precision", "recall"):
        return min(1.0, 0.1 + 0.85 * progress + 0.02 * noise())
    if name == "lr":
        return 3e-4 * (0.5 + 0.5 * math.cos(math.pi * min(1.0, step / 100_000)))
    return (2.3 - 2 * progress) * (1 + 0.05 * noise()) * (1 + NAMES.index(name) / 10 if name in NAMES else 1)


def description(run_id: str, name: str, created_ns: int, **more: Any) -> dict[str, Any]:
    """Return a run.json without attempts."""
    return {
        "run_id": run_id,
        "run_name": name,
        "project": "bench",
        "group": "",
        "tags": [],
        "notes": "",
        "created": iso(created_ns),
        "status": "running",
        "attempts": [],
        "datasets": [],
        "checkpoints": [],
        "stages": [],
        "metrics": {"accuracy": {"unit": "", "goal": "max"}},
        "summary": {},
        **more,
    }


def attempt(started_ns: int, **more: Any) -> dict[str, Any]:
    """Return an attempt that is not of this machine, so that its process is not looked for."""
    return {
        "attempt": 1,
        "started": iso(started_ns),
        "ended": None,
        "status": "running",
        "exit_code": None,
        "reason": "",
        "host": "elsewhere",
        "pid": 1,
        "world_size": 1,
        "launcher": "single",
        "config": {},
        "environment": {"python": {"version": "3.11.9"}, "packages": {"torch": "2.6.0", "numpy": "2.1.0"}},
        **more,
    }


def lines_of(folder: RunFolder, name: str, rank: int = 0) -> RunLines:
    """Return the recorder's own writer for one rank."""
    resource = {
        "host.name": "elsewhere",
        "service.name": "bench",
        "run_id": folder.path.name,
        "run_name": name,
        "run_attempt": 1,
        "dl.rank": rank,
        "dl.world_size": 1,
        "process.pid": 1,
        "telemetry.sdk.name": "opentelemetry",
        "telemetry.sdk.language": "python",
        "telemetry.distro.name": "otel-train",
    }

    def fail(what: str, fault: Exception) -> None:
        raise RuntimeError(what) from fault

    return RunLines(
        folder.rank_folder(1, rank),
        resource,
        Accounting(),
        version="bench",
        segment_bytes=64 << 20,
        max_run_bytes=1 << 40,
        clock=SYSTEM,
        write=os.write,
        say_fault=fail,
    )


def big_run(
    root: Path,
    *,
    steps: int = 100_000,
    metrics: int = 10,
    ended: bool = True,
    started_ns: int = 0,
    rank_count: int = 1,
    timed: bool = False,
) -> Path:
    """Write a run of `steps` steps of that many metrics, with a validation each epoch; return its folder.

    Where it is `timed` the duration of each step and its wait for data are there as well, as `run.steps` records them.
    """
    started_ns = started_ns or SYSTEM.wall_ns() - steps * STEP_NS
    run_id = f"{compact(started_ns)}-{random.Random(steps * 100 + metrics).randbytes(4).hex().translate(_LETTERS)}"
    folder = RunFolder.create(root, run_id, description(run_id, "a-million-points", started_ns))
    entry = attempt(started_ns, world_size=rank_count, config={"lr": 3e-4, "batch_size": 32, "model": {"depth": 12}})
    folder.update(lambda document: document["attempts"].append(entry))
    for rank in range(rank_count):
        lines = lines_of(folder, "a-million-points", rank)
        for _ in write_steps(lines, range(steps), NAMES[:metrics], started_ns, seed=rank, timed=timed):
            pass
        if ended:
            lines.logs([log("run ended", "INFO", started_ns + steps * STEP_NS, "run.end", status="finished")])
        lines.close(SYSTEM.mono_ns() + 600 * NS_PER_S)
    if ended:
        end(folder, "finished", started_ns + steps * STEP_NS)
    return folder.path


_LETTERS = str.maketrans("01896", "zyxwv")


def write_steps(
    lines: RunLines, steps: range, names: tuple[str, ...], started_ns: int, *, seed: int = 1, timed: bool = False
) -> Iterator[int]:
    """Write steps block by block, giving the number of steps after each; the caller says when the next is written."""
    random_numbers = random.Random(seed)
    noise = lambda: random_numbers.gauss(0, 1)  # noqa: E731
    span_id = seed * 1_000_000_000 + 1
    for first in range(steps.start, steps.stop, BLOCK):
        block = range(first, min(steps.stop, first + BLOCK))
        times = [started_ns + step * STEP_NS + random_numbers.randrange(2_000_000) for step in block]
        epochs = [step // STEPS_AN_EPOCH for step in block]
        columns = [
            Column(f"train.{name}", times, [curve(name, step, noise) for step in block], TRAIN, description=name)
            for name in names
        ]
        siblings = [Column("dl.step", times, list(block), TRAIN), Column("dl.epoch", times, epochs, TRAIN)]
        lines.points([*columns, *siblings])
        if timed:
            ends = [time_ns + 10_000_000 for time_ns in times]
            durations = [0.05 + 0.005 * abs(noise()) for _ in block]
            lines.points(
                [
                    Column("dl.step.time", ends, durations, TRAIN, "s"),
                    Column("dl.data.wait.time", ends, [duration * 0.05 for duration in durations], TRAIN, "s"),
                    Column("dl.step", ends, list(block), TRAIN),
                    Column("dl.epoch", ends, epochs, TRAIN),
                ]
            )
        last_ns = times[-1]
        if times[0] // READING_NS != last_ns // READING_NS:
            lines.readings(last_ns, _readings(last_ns - started_ns, noise), started_ns)
        if block[-1] % STEPS_AN_EPOCH == STEPS_AN_EPOCH - 1:
            epoch = block[-1] // STEPS_AN_EPOCH
            validation = [
                Column(f"train.{name}", [last_ns + 1000], [curve(name, block[-1], noise) * 1.1], (("split", "val"),))
                for name in names[:2]
            ]
            places = [
                Column(sibling, [last_ns + 1000], [number], (("split", "val"),))
                for sibling, number in (("dl.step", block[-1]), ("dl.epoch", epoch))
            ]
            lines.points([*validation, *places])
            lines.logs([log(f"epoch {epoch} done", "INFO", last_ns, "", **{"dl.step": block[-1], "dl.epoch": epoch})])
            if epoch % 10 == 3:
                lines.logs([log("gradients were clipped", "WARN", last_ns, "", **{"dl.step": block[-1]})])
            start_ns = started_ns + epoch * STEPS_AN_EPOCH * STEP_NS
            lines.spans([span("epoch", span_id, start_ns, last_ns, **{"dl.epoch": epoch})])
            span_id += 1
        yield block[-1] + 1


def _readings(elapsed_ns: int, noise: Callable[[], float]) -> list[Sample]:
    elapsed_s = elapsed_ns / NS_PER_S
    read, written = (("disk.io.direction", "read"),), (("disk.io.direction", "write"),)
    return [
        Sample("system.cpu.utilization", 0.4 + 0.02 * noise()),
        Sample("system.memory.utilization", 0.3 + 0.01 * noise()),
        Sample("system.memory.usage", round(MEMORY * 0.3), (("system.memory.state", "used"),)),
        Sample("system.disk.io", round(elapsed_s * 5e6), (*read, ("system.device", "sda"))),
        Sample("system.disk.io", round(elapsed_s * 1e6), (*written, ("system.device", "sda"))),
        Sample("process.memory.usage", round(4e9 + 1e7 * noise())),
        Sample("hw.gpu.utilization", 0.9 + 0.01 * noise(), (("hw.id", "GPU-0"), ("index", 0))),
        Sample("hw.gpu.memory.usage", round(3e10), (("hw.id", "GPU-0"), ("index", 0))),
        Sample("dl.run.heartbeat", elapsed_s),
        Sample("otel_train.points", round(elapsed_s * 200), (("outcome", "recorded"),)),
    ]


def log(body: str, level: str, time_ns: int, event: str = "", **attributes: Any) -> LogEntry:
    """Return one log record."""
    number = {"INFO": 9, "WARN": 13, "ERROR": 17}[level]
    return LogEntry(
        time_ns=time_ns, severity_number=number, severity_text=level, body=body, event_name=event, attributes=attributes
    )


def span(name: str, span_id: int, start_ns: int, end_ns: int, **attributes: Any) -> SpanEntry:
    """Return one span of the run's trace."""
    return SpanEntry(name=name, trace_id=7, span_id=span_id, start_ns=start_ns, end_ns=end_ns, attributes=attributes)


def end(folder: RunFolder, state: str, ended_ns: int, **more: Any) -> None:
    """Write the end of the run's only attempt."""

    def change(document: dict[str, Any]) -> None:
        document["status"] = state
        document["ended"] = iso(ended_ns)
        document["attempts"][-1].update(status=state, ended=iso(ended_ns), **more)

    folder.update(change)


def many_runs(root: Path, *, runs: int = 1_000, steps: int = 60) -> list[Path]:
    """Write small runs in all states, of three projects, with configurations that differ; return their folders."""
    now_ns = SYSTEM.wall_ns()
    return [_small_run(root, number, now_ns, steps) for number in range(runs)]


def _small_run(root: Path, number: int, now_ns: int, steps: int) -> Path:
    chosen = random.Random(number)
    state = STATES[number % len(STATES)]
    # Those that run wrote their last line just now, the others some hours or days ago.
    ended_ns = now_ns - 1_000_000_000 if state == "running" else now_ns - (3600 + number * 600) * NS_PER_S
    started_ns = ended_ns - steps * STEP_NS * 20
    run_id = f"{compact(started_ns)}-{chosen.randbytes(4).hex().translate(_LETTERS)}"
    rate = chosen.choice([1e-4, 3e-4, 1e-3, 3e-3])
    name = f"{chosen.choice(['red', 'blue', 'calm', 'swift'])}-{chosen.choice(['fox', 'oak', 'sea', 'owl'])}-{number}"
    config = {"lr": rate, "batch_size": chosen.choice([16, 32, 64]), "optimizer": chosen.choice(["adamw", "sgd"])}
    config["model"] = {"depth": chosen.choice([2, 6, 12]), "width": 256}
    project = ("digits", "translation", "robot")[number % 3]
    tags = ["baseline"] if number % 5 == 0 else []
    folder = RunFolder.create(root, run_id, description(run_id, name, started_ns, project=project, tags=tags))
    entry = attempt(started_ns, config=config)
    folder.update(lambda document: document["attempts"].append(entry))
    lines = lines_of(folder, name)
    times = [started_ns + step * STEP_NS * 20 for step in range(steps)]
    noise = lambda: chosen.gauss(0, 1)  # noqa: E731
    columns = [
        Column(
            f"train.{key}", times, [curve(key, step * 500, noise, learning=rate * 3e3) for step in range(steps)], TRAIN
        )
        for key in ("loss", "accuracy")
    ]
    summary = {
        f"train/{column.name.removeprefix('train.')}": {
            "count": steps,
            "last": column.values[-1],
            "last_step": steps - 1,
            "mean": math.fsum(column.values) / steps,
            "min": min(column.values),
            "min_step": list(column.values).index(min(column.values)),
            "max": max(column.values),
            "max_step": list(column.values).index(max(column.values)),
        }
        for column in columns
    }
    epochs = [step // 20 for step in range(steps)]
    siblings = [Column("dl.step", times, list(range(steps)), TRAIN), Column("dl.epoch", times, epochs, TRAIN)]
    lines.points([*columns, *siblings])
    lines.readings(times[-1], [Sample("dl.run.heartbeat", times[-1] / NS_PER_S)], started_ns)
    lines.logs([log("training begins", "INFO", started_ns)])
    if state not in ("running", "lost", "killed"):
        level = "ERROR" if state == "failed" else "INFO"
        lines.logs([log(f"run {state}", level, ended_ns, "run.end", status=state)])
    lines.close(SYSTEM.mono_ns() + 60 * NS_PER_S)
    if state not in ("running", "lost"):
        reason = {"failed": "ValueError: shapes differ", "interrupted": "Ctrl-C", "killed": "signal 15"}.get(state, "")
        code = {"failed": 1, "finished": 0}.get(state)
        end(folder, state, ended_ns, reason=reason, exit_code=code)
        folder.update(lambda document: document.update(summary=summary))
    return folder.path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    big = kinds.add_parser("big")
    big.add_argument("root", type=Path)
    big.add_argument("--steps", type=int, default=100_000)
    big.add_argument("--metrics", type=int, default=10, choices=range(1, len(NAMES) + 1), metavar="N")
    big.add_argument("--ranks", type=int, default=1)
    big.add_argument("--timed", action="store_true", help="with the duration of each step and its wait for data")
    many = kinds.add_parser("many")
    many.add_argument("root", type=Path)
    many.add_argument("--runs", type=int, default=1_000)
    arguments = parser.parse_args()
    if arguments.kind == "big":
        made = big_run(
            arguments.root,
            steps=arguments.steps,
            metrics=arguments.metrics,
            rank_count=arguments.ranks,
            timed=arguments.timed,
        )
        print(made)
    else:
        print(f"{len(many_runs(arguments.root, runs=arguments.runs))} runs in {arguments.root}")


if __name__ == "__main__":
    main()
