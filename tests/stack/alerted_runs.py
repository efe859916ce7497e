"""Makes runs that send heartbeats as the SDK does, well or ill, so that alerts are tested in a minute."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from otel_train.otlp.encode import LineEncoder
from otel_train.record.entries import Column, Sample
from otel_train.semconv import RUN_STATES
from tests.stack.asking import post_json

WELL = {
    "dl.steps_since_improvement": 10.0,
    "dl.overfit.gap": 0.01,
    "dl.step.age": 0.2,
    "dl.data.wait.share": 0.02,
    "dl.grad.excess": 1.0,
    "dl.grad.recent_max": 0.5,
    "dl.memory.share": 0.4,
    "system.filesystem.utilization": 0.5,
    "train.loss": 1.0,
}
ATTRIBUTES = {
    "dl.steps_since_improvement": (("metric", "train.loss"), ("split", "train")),
    "dl.overfit.gap": (("metric", "train.loss"),),
    "dl.grad.excess": (("metric", "train.grad_norm"),),
    "dl.grad.recent_max": (("metric", "train.grad_norm"),),
    "train.loss": (("split", "train"),),
}


@dataclass
class SentRun:
    """One run. What stands in `now` is sent with each heartbeat; `changed_s` is when a change was first sent."""

    run_id: str
    attempt: int = 1
    state: str = "running"
    now: dict[str, float] = field(default_factory=lambda: dict(WELL))
    thresholds: Mapping[str, float] = field(default_factory=dict)
    changed_s: float = 0.0
    sends: bool = True

    def change(self, **values: float) -> None:
        """Send other values from the next heartbeat on; names have double underscores for dots."""
        self.now |= {name.replace("__", "."): value for name, value in values.items()}
        self.changed_s = 0.0

    def end(self, state: str) -> None:
        """Send a last heartbeat with this state."""
        self.state = state
        self.changed_s = 0.0

    def lines(self, time_ns: int) -> list[bytes]:
        """Return what is sent at a heartbeat."""
        encoder = LineEncoder(
            {
                "service.name": "alerted",
                "service.instance.id": f"{self.run_id}-0",
                "run_id": self.run_id,
                "run_name": f"name of {self.run_id}",
                "run_attempt": self.attempt,
                "dl.rank": 0,
                "host.name": "node-1",
            },
            "0.1.0",
        )
        samples = [Sample("dl.run.heartbeat", time_ns / 1e9)]
        samples += [Sample("dl.run.state", int(state == self.state), (("state", state),)) for state in RUN_STATES]
        samples += [Sample("dl.alert.threshold", value, (("alert", name),)) for name, value in self.thresholds.items()]
        columns = [Column(name, [time_ns], [value], ATTRIBUTES.get(name, ())) for name, value in self.now.items()]
        # A column has the unit that it is given: that of the age is its own.
        for column in columns:
            column.unit = {"dl.step.age": "s", "system.filesystem.utilization": "1"}.get(column.name, "")
        return [encoder.samples(time_ns, time_ns, samples), encoder.points(columns)]

    def end_marks(self, time_ns: int) -> list[bytes]:
        """Return what makes each of its series end: a point without a value, a millisecond later."""
        marked = []
        for line in self.lines(time_ns + 1_000_000):
            # Every point of ours ends with its value.
            text = line.decode()
            for kind in ('"asDouble":', '"asInt":'):
                parts = text.split(kind)
                text = parts[0] + "".join('"flags":1' + part[part.index("}") :] for part in parts[1:])
            marked.append(text.encode())
        return marked


class Heartbeats:
    """Sends for all runs every `every_s` seconds, until closed."""

    def __init__(self, otlp_url: str, runs: Sequence[SentRun], every_s: float = 5.0) -> None:
        self._url, self._runs, self._every_s = f"{otlp_url}/v1/metrics", runs, every_s
        self._ended = threading.Event()
        self.faults: list[str] = []
        self._thread = threading.Thread(target=self._send_all, daemon=True)
        self._thread.start()

    def _send_all(self) -> None:
        while not self._ended.is_set():
            for run in self._runs:
                if run.sends:
                    self._send(run)
            self._ended.wait(self._every_s)

    def _send(self, run: SentRun) -> None:
        time_ns = time.time_ns()
        bodies = run.lines(time_ns)
        if run.state != "running":
            bodies += run.end_marks(time_ns)
            run.sends = False
        run.changed_s = run.changed_s or time_ns / 1e9
        for body in bodies:
            status, answer = post_json(self._url, body)
            if status != 200:
                self.faults.append(f"{run.run_id}: {status} {answer!r}")

    def close(self) -> None:
        """Send no more."""
        self._ended.set()
        self._thread.join()
