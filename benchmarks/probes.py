"""One measurement each, run in a process of its own: prints one JSON object. See `record_cost.py`, which calls them."""

from __future__ import annotations

import argparse
import gc
import json
import math
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from peers import PEERS, folder_bytes, scratch

# After this a run's start, with its look at the machine and the installed packages, is over.
STARTED_S = 2.0
# As training has them: losses that fall, rates that hardly change, counts.
NAMES = ["loss", "accuracy", "lr", "grad_norm", "f1", "precision", "recall", "aux_loss", "tokens", "temperature"]


def realistic(step: int, noise: random.Random) -> dict[str, float]:
    """Return ten scalars as float32 training gives them: 24 bits of mantissa, the last ones noise."""
    import numpy as np

    fall = math.exp(-step / 3000)
    values = [
        2.3 * fall + 0.05 * noise.random(),
        1 - 0.9 * fall + 0.02 * noise.random(),
        1e-3 * (1 - step / 100_000),
        1.0 + 0.3 * noise.random(),
        0.9 - 0.8 * fall + 0.02 * noise.random(),
        0.9 - 0.7 * fall + 0.02 * noise.random(),
        0.9 - 0.6 * fall + 0.02 * noise.random(),
        0.1 * fall + 0.01 * noise.random(),
        float(4096 * step),
        0.7,
    ]
    return {name: np.float32(value) for name, value in zip(NAMES, values, strict=True)}


def kinds(kind: str) -> dict[str, Any]:
    """Return ten scalars of one kind."""
    values = {f"metric_{index}": 0.1234567 * (index + 1) for index in range(10)}
    if kind == "float":
        return values
    if kind == "numpy":
        import numpy as np

        return {name: np.float32(value) for name, value in values.items()}
    import torch

    return {name: torch.tensor(value) for name, value in values.items()}


def probe_thread(peer: str, kind: str, steps: int) -> dict[str, float]:
    """CPU of the calling thread for one call with ten scalars, and of the rest of the process for 1,000 points."""
    values = kinds(kind)
    with scratch() as name:
        logger = PEERS[peer](Path(name))
        for step in range(min(200, steps)):
            logger.log(values, step)
        settle(logger)
        time.sleep(STARTED_S)
        process_ns, thread_ns = time.process_time_ns(), time.thread_time_ns()
        for step in range(steps):
            logger.log(values, step + 1000)
        thread_ns = time.thread_time_ns() - thread_ns
        settle(logger)
        background_ns = time.process_time_ns() - process_ns - thread_ns
        process_ns, own_ns = time.process_time_ns(), time.thread_time_ns()
        start = time.perf_counter()
        logger.finish()
        finish_s = time.perf_counter() - start
        closing_ns = time.process_time_ns() - process_ns
        del own_ns
        points = steps * 10
        return {
            "thread_us": thread_ns / steps / 1000,
            "background_ms_per_1000": background_ns / points / 1000,
            "background_closed_ms_per_1000": (background_ns + closing_ns) / points / 1000,
            "finish_s": finish_s,
        }


def settle(logger: Any) -> None:
    """Wait until what was logged is written, where the logger lets one."""
    run = getattr(logger, "run", None)
    if run is not None:
        run.flush(30)
    else:
        time.sleep(0.5)


def probe_steps(_: str, __: str, steps: int) -> dict[str, float]:
    """CPU of the training thread for a step with four phases, its times included: alone, and beside the writer."""
    from otel_train.record.buffer import Buffer
    from otel_train.record.names import NameTable
    from otel_train.record.phases import Phase
    from otel_train.record.points import PointLog
    from otel_train.record.steps import StepLoop

    log = PointLog(Buffer(steps * 8), NameTable(print), print)
    phases = [Phase(name, log) for name in ("data", "forward", "backward", "optimizer")]
    alone_us = _four_phases(StepLoop(range(steps), log), phases, steps)
    import otel_train

    with scratch() as name:
        run = otel_train.init(project="bench", dir=name, git=False, buffer_entries=steps * 8)
        names = ("data", "forward", "backward", "optimizer")
        start_ns = time.thread_time_ns()
        for _batch in run.steps(range(steps)):
            for phase in names:
                with run.phase(phase):
                    pass
        beside_us = (time.thread_time_ns() - start_ns) / steps / 1000
        run.finish()
    return {"alone_us": alone_us, "beside_us": beside_us}


def _four_phases(loop: Any, phases: list[Any], steps: int) -> float:
    first, second, third, fourth = phases
    start_ns = time.thread_time_ns()
    for _ in loop:
        with first:
            pass
        with second:
            pass
        with third:
            pass
        with fourth:
            pass
    return (time.thread_time_ns() - start_ns) / steps / 1000


def probe_stall(_: str, mode: str, steps: int) -> dict[str, float]:
    """Wall time of steps that need the interpreter for one millisecond each, with and without recording them."""
    import otel_train

    rows: list[int] = []
    values = kinds("float")
    with scratch() as name:
        run = otel_train.init(project="bench", dir=name, git=False) if mode == "with" else None
        time.sleep(STARTED_S)
        count = spins_of_a_millisecond()
        for _step in range(steps):
            start = time.perf_counter_ns()
            spin(count)
            if run is not None:
                run.log(values)
            rows.append(time.perf_counter_ns() - start)
        if run is not None:
            run.finish()
    rows.sort()
    usual = rows[len(rows) // 2]
    return {
        "median_ms": usual / 1e6,
        "stall_p99_ms": (rows[int(len(rows) * 0.99)] - usual) / 1e6,
        "stall_max_ms": (rows[-1] - usual) / 1e6,
    }


def spin(count: int) -> int:
    """Keep the interpreter busy."""
    total = 0
    for number in range(count):
        total += number
    return total


def spins_of_a_millisecond() -> int:
    """Return how many turns of `spin` take a millisecond here."""
    times = []
    for _ in range(20):
        start = time.perf_counter_ns()
        spin(10_000)
        times.append(time.perf_counter_ns() - start)
    return int(10_000 * 1e6 / statistics.median(times))


def probe_memory(peer: str, _: str, steps: int) -> dict[str, float]:
    """Resident memory that ten scalars a step add: after a tenth of the steps, and from there to the end."""
    import psutil

    own = psutil.Process()
    values = kinds("float")
    with scratch() as name:
        logger = PEERS[peer](Path(name))
        for step in range(100):
            logger.log(values, step)
        settle(logger)
        gc.collect()
        start = own.memory_info().rss
        first = 0
        for step in range(steps):
            logger.log(values, step + 100)
            if step % 50 == 49:
                # Some pace (150,000 points a second), so that what waits is not mistaken for what stays.
                time.sleep(0.003)
            if step == steps // 10:
                settle(logger)
                first = own.memory_info().rss - start
        settle(logger)
        last = own.memory_info().rss - start
        logger.finish()
    return {"first_tenth_mib": first / 2**20, "rest_mib": (last - first) / 2**20}


def probe_disk(peer: str, kind: str, steps: int) -> dict[str, float]:
    """Bytes on disk a step of ten scalars once everything is closed."""
    noise = random.Random(7)
    with scratch() as name:
        folder = Path(name)
        logger = PEERS[peer](folder)
        settle(logger)
        before = folder_bytes(folder)
        for step in range(steps):
            values = realistic(step, noise) if kind == "realistic" else {key: noise.random() for key in NAMES}
            logger.log(values, step)
            if step % 100 == 99:
                time.sleep(0.002)
        logger.finish()
        return {"bytes_per_step": (folder_bytes(folder) - before) / steps}


def probe_init(peer: str, _: str, __: int) -> dict[str, float]:
    """Wall time of starting and of ending a run with one logged step, in a fresh process, import not counted."""
    import importlib

    importlib.import_module(PEERS[peer].module)  # type: ignore[attr-defined]
    with scratch() as name:
        start = time.perf_counter()
        logger = PEERS[peer](Path(name))
        init_s = time.perf_counter() - start
        logger.log(kinds("float"), 0)
        start = time.perf_counter()
        logger.finish()
        return {"init_s": init_s, "finish_s": time.perf_counter() - start}


def probe_import(_: str, what: str, __: int) -> dict[str, float]:
    """Wall time of an import in a fresh process."""
    start = time.perf_counter()
    if what == "sdk":
        import opentelemetry.sdk._logs
        import opentelemetry.sdk.metrics
        import opentelemetry.sdk.trace  # noqa: F401
    else:
        import otel_train  # noqa: F401
    return {"import_s": time.perf_counter() - start, "torch": "torch" in sys.modules, "plotly": "plotly" in sys.modules}


def probe_digits(_: str, __: str, blocks: int) -> dict[str, Any]:
    """The digits loop in alternating blocks with and without recording: their ratios, block by block.

    Both stand in one process while the run's threads live, so that a slow second of the machine meets both.
    """
    import torch
    from sklearn.datasets import load_digits

    import otel_train

    torch.manual_seed(3)
    torch.set_num_threads(1)
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = [(x[start : start + 64], y[start : start + 64]) for start in range(0, len(x), 64)]
    epochs = 5

    def plain() -> None:
        for _epoch in range(epochs):
            for xs, ys in loader:
                optimizer.zero_grad()
                out = model(xs)
                loss = torch.nn.functional.cross_entropy(out, ys)
                loss.backward()
                optimizer.step()
                # Whoever does not record still looks at these.
                loss.item(), (out.argmax(1) == ys).float().mean().item()

    def recorded() -> None:
        for _epoch in range(epochs):
            for xs, ys in run.steps(loader):
                optimizer.zero_grad()
                with run.phase("model_forward"):
                    out = model(xs)
                    loss = torch.nn.functional.cross_entropy(out, ys)
                with run.phase("model_backward"):
                    loss.backward()
                with run.phase("optimizer"):
                    optimizer.step()
                run.log({"loss": loss, "accuracy": (out.argmax(1) == ys).float().mean()})

    def timed(loop: Any) -> tuple[float, float]:
        thread_ns, start_ns = time.thread_time_ns(), time.perf_counter_ns()
        loop()
        return time.thread_time_ns() - thread_ns, time.perf_counter_ns() - start_ns

    rows = []
    with scratch() as name:
        run = otel_train.init(project="bench", dir=name, git=False)
        time.sleep(STARTED_S)
        for block in range(blocks + 2):
            pair = [timed(plain), timed(recorded)] if block % 2 else [timed(recorded), timed(plain)][::-1]
            if block >= 2:
                rows.append(pair)
        run.finish()
    steps = epochs * len(loader)
    return {
        "step_us": [without[0] / steps / 1e3 for without, _ in rows],
        "added_thread_us": [(with_[0] - without[0]) / steps / 1e3 for without, with_ in rows],
        "thread_percent": [100 * (with_[0] / without[0] - 1) for without, with_ in rows],
        "wall_percent": [100 * (with_[1] / without[1] - 1) for without, with_ in rows],
    }


PROBES = {name.removeprefix("probe_"): probe for name, probe in list(globals().items()) if name.startswith("probe_")}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("probe", choices=PROBES)
    parser.add_argument("peer")
    parser.add_argument("kind")
    parser.add_argument("steps", type=int)
    arguments = parser.parse_args()
    result = PROBES[arguments.probe](arguments.peer, arguments.kind, arguments.steps)
    print(json.dumps(result))
