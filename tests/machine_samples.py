"""What the tests of the machine's samplers share: looking up one value, a clock that is moved by hand."""

from collections.abc import Sequence

from otel_train.record.entries import Sample
from otel_train.semconv import METRICS


class HandClock:
    """A clock that stands still until it is moved; the wall may be set back, the monotonic one never goes back."""

    def __init__(self, wall_ns: int = 1_700_000_000_000_000_000) -> None:
        self.wall = wall_ns
        self.mono = 1_000

    def wall_ns(self) -> int:
        return self.wall

    def mono_ns(self) -> int:
        return self.mono

    def advance(self, seconds: float) -> None:
        self.wall += int(seconds * 1e9)
        self.mono += int(seconds * 1e9)


class CollectingSink:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.rounds: list[tuple[int, list[Sample]]] = []

    def emit_log(self, entry: object) -> None:
        raise AssertionError("a sampler writes no log records")

    def emit_span(self, entry: object) -> None:
        raise AssertionError("a sampler writes no spans")

    def emit_samples(self, time_ns: int, samples: Sequence[Sample]) -> None:
        self.rounds.append((time_ns, list(samples)))


def values(samples: Sequence[Sample], name: str, **attributes: object) -> list[float]:
    """Return the values of a metric's series that carry these attributes; dots are written as double underscores."""
    wanted = {(key.replace("__", "."), value) for key, value in attributes.items()}
    return [s.value for s in samples if s.name == name and wanted <= set(s.attributes)]


def value(samples: Sequence[Sample], name: str, **attributes: object) -> float:
    """Return the one such value."""
    (found,) = values(samples, name, **attributes)
    return found


def assert_named_in_table(samples: Sequence[Sample]) -> None:
    """Every metric and attribute stands in the table of names, and no series comes twice."""
    series = [(s.name, s.attributes) for s in samples]
    assert len(series) == len(set(series))
    for sample in samples:
        assert {key for key, _ in sample.attributes} <= set(METRICS[sample.name].attributes), sample
