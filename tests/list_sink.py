"""A sink for tests of log sources: keeps log entries, and refuses what such a source never gives."""

from __future__ import annotations

from otel_train.record.entries import LogEntry, SpanEntry


class ListSink:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []

    def emit_log(self, entry: LogEntry) -> None:
        self.entries.append(entry)

    def emit_span(self, entry: SpanEntry) -> None:
        raise AssertionError

    def emit_samples(self, time_ns: int, samples: object) -> None:
        raise AssertionError

    @property
    def lines(self) -> list[object]:
        return [entry.body for entry in self.entries if not entry.event_name]

    @property
    def bars(self) -> list[tuple[object, object]]:
        return [
            (entry.body, entry.attributes["progress.redraws"])
            for entry in self.entries
            if entry.event_name == "progress.bar"
        ]

    @property
    def levels(self) -> list[str]:
        return [entry.severity_text for entry in self.entries]

    def named(self, event_name: str) -> list[LogEntry]:
        return [entry for entry in self.entries if entry.event_name == event_name]


class FixedClock:
    """A clock that tests set."""

    def __init__(self, now_ns: int = 1_000_000_000_000) -> None:
        self.now_ns = now_ns

    def wall_ns(self) -> int:
        return self.now_ns

    def mono_ns(self) -> int:
        return self.now_ns


def fail(fault: Exception) -> None:
    """For `on_fault`: a test sees what is swallowed elsewhere."""
    raise fault
