"""Tells how a run that is followed goes on in plain lines: for a file, a pipe, or the log of a job."""

from __future__ import annotations

from collections.abc import Iterator

from otel_train.clock import NS_PER_S
from otel_train.view.follow_picture import Picture, Told
from otel_train.view.text import duration, moment, number, plain, short

# Of what was said before somebody looked.
MOST_EARLIER = 5
MOST_METRICS = 8


class Lines:
    """The lines of one run: one every `every_s` seconds if anything has changed, and warnings as they come."""

    def __init__(self, every_s: float) -> None:
        self._every_ns = int(every_s * NS_PER_S)
        self._next_ns = 0
        self._state = ""
        self._attempt = 0
        self._at: object = None

    def of(self, picture: Picture) -> Iterator[str]:
        """Give what there is to say now."""
        first = not self._state
        if first:
            yield _line(picture.now_ns, f"run {picture.name} ({picture.run_id}) in {picture.path}")
        elif picture.attempt != self._attempt:
            yield _line(picture.now_ns, f"attempt {picture.attempt} of the run began")
        warnings = picture.new_warnings[-MOST_EARLIER:] if first else picture.new_warnings
        for told in warnings:
            yield warning_line(told)
        changed = picture.state != self._state or picture.attempt != self._attempt
        self._state, self._attempt = picture.state, picture.attempt
        # The pace, the machine and the time left move by themselves: they are told, and are no change.
        values = [(metric.name, number(metric.last), metric.last_step) for metric in picture.metrics]
        at = picture.step, picture.epoch, values
        if changed or (picture.now_ns >= self._next_ns and at != self._at):
            self._next_ns = picture.now_ns + self._every_ns
            self._at = at
            yield _line(picture.now_ns, f"{picture.state:<8} {status_text(picture)}".rstrip())
            if picture.reason and changed:
                yield _line(picture.now_ns, f"{picture.state}: {picture.reason}")


def status_text(picture: Picture) -> str:
    """Return progress, place, values and pace in one line."""
    parts = []
    if picture.share is not None:
        parts.append(f"{100 * picture.share:.1f} %")
    if picture.epoch is not None:
        parts.append(f"epoch {picture.epoch:.15g}")
    if picture.step is not None:
        parts.append(f"step {picture.step:.15g}")
    for metric in picture.metrics[:MOST_METRICS]:
        best = f" (best {short(metric.best)})" if metric.best is not None and metric.best != metric.last else ""
        parts.append(f"{metric.name} {short(metric.last)}{best}")
    if len(picture.metrics) > MOST_METRICS:
        parts.append(f"{len(picture.metrics) - MOST_METRICS} more metrics")
    if picture.step_s is not None:
        parts.append(f"{duration(picture.step_s)} a step")
    if picture.wait_share is not None:
        parts.append(f"data wait {100 * picture.wait_share:.0f} %")
    for gpu in picture.gpus[:1]:
        if gpu.busy is not None:
            parts.append(f"{gpu.name} {100 * gpu.busy:.0f} % busy")
    if picture.left_s is not None:
        parts.append(f"{duration(picture.left_s)} left")
    if picture.ranks is not None and picture.ranks.worst:
        parts.append(picture.ranks.worst)
    return ", ".join(parts)


def warning_line(told: Told) -> str:
    """Return a warning as one line, as `otel-train logs` prints it."""
    place = [f"rank {told.rank}"] if told.rank else []
    place += [] if told.epoch is None else [f"epoch {told.epoch:.15g}"]
    place += [] if told.step is None else [f"step {told.step:.15g}"]
    where = f"  [{', '.join(place)}]" if place else ""
    return _line(told.time_ns, f"{told.level:<8} {told.text}{where}")


def _line(time_ns: int, words: str) -> str:
    return f"{moment(time_ns)} " + plain(words).replace("\n", " ").replace("\t", " ")
