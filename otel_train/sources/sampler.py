"""Runs the machine's sources on one daemon thread, at a steady interval, and hands their readings to the sink."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from otel_train.clock import NS_PER_S, SYSTEM, Clock
from otel_train.record.entries import Sample, Sink

_logger = logging.getLogger("otel_train")


class MachineSource(Protocol):
    """Something that can be sampled. What it raises costs it this reading, nothing else."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    def sample(self, now_ns: int) -> list[Sample]:
        """Return what is to be read now, at this wall time; called on the sampler's thread only."""
        ...

    def close(self) -> None:
        """Let go of what it holds; called on the sampler's thread, last."""
        ...


class Sampler:
    """Samples at the start, then every `interval_s`, then once more at the end.

    `wait` is given seconds and returns True when it is time to end; by default it waits for `stop`. A source that
    takes longer than the interval makes rounds fall out, never pile up.
    """

    def __init__(
        self,
        sink: Sink,
        sources: Sequence[MachineSource],
        *,
        interval_s: float = 5.0,
        clock: Clock = SYSTEM,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        self._sink: Sink | None = sink
        self._sources = tuple(sources)
        self._interval_ns = max(NS_PER_S // 1000, int(interval_s * NS_PER_S))
        self._clock = clock
        self._stopping = threading.Event()
        self._wait = wait if wait is not None else self._stopping.wait
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._faulty: set[str] = set()

    def start(self) -> None:
        """Start the thread and return at once: all loading and reading happens there."""
        if self._thread is None and self._sink is not None:
            self._thread = threading.Thread(target=self._run, name="otel-train-sampler", daemon=True)
            self._thread.start()

    def stop(self, deadline_s: float = 2.0) -> bool:
        """Take a last reading and end; False where a source still holds the thread, which is then left alone."""
        thread = self._thread
        if thread is None or os.getpid() != self._pid:
            return True
        self._stopping.set()
        thread.join(deadline_s)
        ended = not thread.is_alive()
        # What a driver answers after the deadline comes too late: the run log may be closed.
        self._sink = None
        return ended

    def abandon(self) -> None:
        """Forget the thread, in a forked child, where it does not run; takes no lock."""
        self._thread = None
        self._sink = None

    def _run(self) -> None:
        due_ns = self._clock.mono_ns()
        read_ns = due_ns
        self._sample_all()
        while True:
            now_ns = self._clock.mono_ns()
            due_ns += ((now_ns - due_ns) // self._interval_ns + 1) * self._interval_ns
            if self._wait(max(0, due_ns - now_ns) / NS_PER_S):
                break
            read_ns = self._clock.mono_ns()
            self._sample_all()
        # A last reading right after another would say nothing new, and the end waits for it.
        if self._clock.mono_ns() - read_ns > self._interval_ns // 10:
            self._sample_all()
        for source in self._sources:
            try:
                source.close()
            except Exception as error:  # noqa: BLE001  nothing of a source reaches the training process
                self._say(source, error)

    def _sample_all(self) -> None:
        for source in self._sources:
            sink = self._sink
            if sink is None:
                return
            try:
                now_ns = self._clock.wall_ns()
                samples = source.sample(now_ns)
                sink = self._sink
                if samples and sink is not None:
                    sink.emit_samples(now_ns, samples)
            except Exception as error:  # noqa: BLE001  the other sources go on, and this one the next time
                self._say(source, error)

    def _say(self, source: MachineSource, error: Exception) -> None:
        if source.name not in self._faulty:
            self._faulty.add(source.name)
            _logger.warning("sampling of %s failed: %s: %s", source.name, type(error).__name__, error)
