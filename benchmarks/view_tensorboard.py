"""TensorBoard's side of benchmarks/view.py, run by the Python that has it: writes event files of the same data.

python view_tensorboard.py big FOLDER POINTS_FILE      one run from a .json of {metric: [values]}
python view_tensorboard.py many FOLDER RUNS_FILE       one folder a run, from a .json of {run: {metric: [values]}}
python view_tensorboard.py live FOLDER                 logs 100 times a second until standard input ends
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path
from typing import Any

METRICS, STEPS_A_SECOND = 10, 100


def writer_of(folder: Path) -> Any:
    """Return TensorBoard's own writer of event files."""
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    return EventFileWriter(str(folder), max_queue_size=1000, flush_secs=2)


def event(step: int, values: dict[str, float], time_s: float) -> Any:
    """Return the event of one step, with the metadata that TensorFlow and torch write."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
    return Event(step=step, wall_time=time_s, summary=summary)


def write_run(folder: Path, metrics: dict[str, list[float]]) -> None:
    """Write a run: one event a step and metric, as `add_scalar` does."""
    writer = writer_of(folder)
    start_s = time.time() - 3600
    steps = max(len(values) for values in metrics.values())
    for step in range(steps):
        for name, values in metrics.items():
            if step < len(values):
                writer.add_event(event(step, {name: values[step]}, start_s + step * 0.01))
    writer.close()


def main() -> None:
    what, folder = sys.argv[1], Path(sys.argv[2])
    if what == "big":
        write_run(folder, json.loads(Path(sys.argv[3]).read_text(encoding="utf-8")))
    elif what == "many":
        for name, metrics in json.loads(Path(sys.argv[3]).read_text(encoding="utf-8")).items():
            write_run(folder / name, metrics)
    else:
        writer = writer_of(folder)
        print("started", flush=True)
        start_s, step = time.monotonic(), 0
        while not select.select([sys.stdin], [], [], 0)[0]:
            for number in range(METRICS):
                writer.add_event(event(step, {f"metric{number}": 1 / (step + number + 1)}, time.time()))
            step += 1
            time.sleep(max(0.0, start_s + step / STEPS_A_SECOND - time.monotonic()))
        writer.close()


if __name__ == "__main__":
    main()
