"""Builds folders of runs on disk by hand, line by line, with made-up times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from otel_train.clock import NS_PER_S, from_iso, iso
from otel_train.otlp.encode import LineEncoder
from otel_train.record.entries import Column, LogEntry, Sample, SpanEntry
from otel_train.runlog.folder import RunFolder
from otel_train.semconv import SEVERITIES

START_NS = from_iso("2026-01-31T12:00:00Z")
RUN_ID = "20260131-120000-abcdefgh"


class RunBuilder:
    """A run that began at `START_NS`. Seconds are counted from there."""

    def __init__(self, root: Path, run_id: str = RUN_ID, *, name: str = "small-net", **document: Any) -> None:
        self.run_id = run_id
        self.name = name
        self.folder = RunFolder.create(
            root,
            run_id,
            {
                "run_id": run_id,
                "run_name": name,
                "project": "digits",
                "group": "",
                "tags": [],
                "notes": "",
                "created": iso(START_NS),
                "status": "running",
                "attempts": [],
                "datasets": [],
                "checkpoints": [],
                "stages": [],
                "metrics": {"loss": {"goal": "min"}},
                "summary": {},
                **document,
            },
        )
        self.path = self.folder.path

    def attempt(self, number: int = 1, *, start_s: float = 0.0, **entry: Any) -> RunBuilder:
        """Begin an attempt on another host, so that no process of this machine is looked for."""
        described = {
            "attempt": number,
            "started": iso(START_NS + round(start_s * NS_PER_S)),
            "ended": None,
            "status": "running",
            "exit_code": None,
            "reason": "",
            "host": "elsewhere",
            "pid": 1,
            "world_size": 1,
            "config": {},
            "environment": {},
            **entry,
        }
        self.folder.update(lambda document: document["attempts"].append(described))
        self.folder.rank_folder(number, 0)
        return self

    def end(self, state: str = "finished", *, at_s: float = 600.0, **entry: Any) -> RunBuilder:
        """Write the end of the newest attempt."""

        def change(document: dict[str, Any]) -> None:
            document["status"] = state
            document["attempts"][-1].update(status=state, ended=iso(START_NS + round(at_s * NS_PER_S)), **entry)

        self.folder.update(change)
        return self

    def log(
        self,
        values: Mapping[str, Sequence[float]],
        *,
        split: str = "train",
        steps: Sequence[int] | None = None,
        epochs: Sequence[int] | None = None,
        times_s: Sequence[float] | None = None,
        attempt: int = 1,
        rank: int = 0,
        axis: str = "",
    ) -> RunBuilder:
        """Write points of metrics with their siblings; one a second from the first second on where no time is given."""
        count = len(next(iter(values.values())))
        times = [
            START_NS + round((number + 1.0 if times_s is None else times_s[number]) * NS_PER_S)
            for number in range(count)
        ]
        attributes = (("split", split),) if split else ()
        sibling = (("axis", axis), *attributes) if axis else attributes
        columns = [
            Column(f"train.{key}", times, list(points), attributes, description=key) for key, points in values.items()
        ]
        if steps is not None:
            columns.append(Column("dl.step", times, list(steps), sibling))
        if epochs is not None:
            columns.append(Column("dl.epoch", times, list(epochs), sibling))
        return self.lines("metrics", self.encoder(attempt, rank).points(columns), attempt=attempt, rank=rank)

    def samples(self, at_s: float, samples: Sequence[Sample], *, attempt: int = 1, rank: int = 0) -> RunBuilder:
        """Write readings at one time."""
        time_ns = START_NS + round(at_s * NS_PER_S)
        return self.lines(
            "metrics", self.encoder(attempt, rank).samples(time_ns, START_NS, samples), attempt=attempt, rank=rank
        )

    def record(
        self,
        body: Any,
        level: str = "INFO",
        *,
        at_s: float = 1.0,
        event: str = "",
        attempt: int = 1,
        rank: int = 0,
        span_id: int = 0,
        **attributes: Any,
    ) -> RunBuilder:
        """Write one log record; dots of attribute names are given as two underscores."""
        entry = LogEntry(
            time_ns=START_NS + round(at_s * NS_PER_S),
            severity_number=SEVERITIES[level],
            severity_text=level,
            body=body,
            event_name=event,
            attributes={key.replace("__", "."): value for key, value in attributes.items()},
            trace_id=7 if span_id else 0,
            span_id=span_id,
        )
        return self.lines("logs", self.encoder(attempt, rank).logs([entry]), attempt=attempt, rank=rank)

    def span(
        self,
        name: str,
        start_s: float,
        end_s: float,
        *,
        span_id: int = 1,
        parent: int = 0,
        attempt: int = 1,
        **attributes: Any,
    ) -> RunBuilder:
        """Write one span."""
        entry = SpanEntry(
            name=name,
            trace_id=7,
            span_id=span_id,
            parent_span_id=parent,
            start_ns=START_NS + round(start_s * NS_PER_S),
            end_ns=START_NS + round(end_s * NS_PER_S),
            attributes={key.replace("__", "."): value for key, value in attributes.items()},
        )
        return self.lines("traces", self.encoder(attempt, 0).spans([entry]), attempt=attempt)

    def lines(self, signal: str, data: bytes, *, attempt: int = 1, rank: int = 0) -> RunBuilder:
        """Append bytes to a segment as they are."""
        with open(self.folder.rank_folder(attempt, rank) / f"{signal}.000001.jsonl", "ab") as file:
            file.write(data)
        return self

    def encoder(self, attempt: int, rank: int) -> LineEncoder:
        """Return the encoder of one rank."""
        resource = {
            "service.name": "digits",
            "run_id": self.run_id,
            "run_name": self.name,
            "run_attempt": attempt,
            "dl.rank": rank,
        }
        return LineEncoder(resource, "test")
