"""Draws how a run that is followed stands as one picture for a terminal, of whatever width, height and characters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from otel_train.view.follow_picture import Gpu, Host, Metric, Picture, Told
from otel_train.view.text import duration, moment, number, plain, size

if TYPE_CHECKING:
    from rich.text import Text

BLOCKS: Final = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS: Final = "_.-~=+*#"
MOST_WARNINGS: Final = 5
MOST_HOLDING: Final = 4
# So many cards have lines of their own, on a low terminal fewer.
MOST_GPUS: Final = 8
FEW_GPUS: Final = 2
LOW_HEIGHT: Final = 40
FEWEST_METRICS: Final = 3
# From these widths on there is room for the best values, and for the shapes.
BEST_WIDTH: Final = 50
SHAPE_WIDTH: Final = 72
_NAME_WIDTH: Final = 32
_BAR_WIDTH: Final = 30
_STATES: Final = {
    "running": "bold blue",
    "finished": "bold green",
    "failed": "bold red",
    "lost": "bold red",
    "killed": "bold yellow",
    "interrupted": "bold yellow",
}


def sparkline(columns: Sequence[float], blocks: str) -> str:
    """Return a line of blocks from the lowest to the highest value; ``x`` where nothing was finite."""
    finite = [value for value in columns if math.isfinite(value)]
    if not finite:
        return "x" * len(columns)
    low, high = min(finite), max(finite)
    # Halves first: the span between two large values may be none.
    span = high / 2 - low / 2
    top = len(blocks) - 1

    def block(value: float) -> str:
        if not math.isfinite(value):
            return "x"
        return blocks[min(top, int((value / 2 - low / 2) / span * (top + 1)))] if span > 0 else blocks[0]

    return "".join(map(block, columns))


class Screen:
    """How to draw on one terminal: `width` columns, and without what is not in ASCII where it has no more.

    With a `height` (lines) the least important is left out, so that all fits.
    """

    def __init__(self, width: int, height: int | None = None, *, ascii_only: bool = False) -> None:
        self._width = max(20, width)
        self._height = height
        self._blocks = ASCII_BLOCKS if ascii_only else BLOCKS
        self._ascii = ascii_only
        self._dot = " - " if ascii_only else " · "

    def lines(self, picture: Picture) -> list[Text]:
        """Return the picture; no line is wider than the terminal, and none can steer it.

        Without a height the path, which is the last line, stays whole: it is there to be copied.
        """
        head = [*self._title(picture), *self._progress(picture)]
        machine = [*self._pace(picture), *self._gpus(picture.gpus), *self._host(picture.host), *self._ranks(picture)]
        holding = [self._said(one, picture, holds=True) for one in picture.holding[-MOST_HOLDING:]]
        # A condition that holds was told when it began, too.
        held = {one.text for one in picture.holding}
        warnings = [one for one in picture.warnings if one.text not in held][-MOST_WARNINGS:]
        told = [*holding, *(self._said(one, picture) for one in warnings)]
        foot = self._foot(picture)
        room = None
        if self._height is not None:
            # Blank lines stand between the parts.
            room = self._height - len(head) - len(machine) - len(told) - len(foot) - 3
            while told and room < FEWEST_METRICS + 1:
                told.pop()
                room += 1
        metrics = self._metrics(picture.metrics, room)
        parts = [part for part in (head, metrics, machine, told) if part]
        found: list[Text] = []
        for part in parts:
            found += [*([_text("")] if found else []), *part]
        found += foot
        if self._height is None:
            return [*map(self._fitted, found[:-1]), found[-1]]
        return [self._fitted(line) for line in found[: self._height]]

    # Parts -----------------------------------------------------------------------------------------------------------

    def _title(self, picture: Picture) -> list[Text]:
        line = _text(picture.name, "bold")
        line.append("  ").append(picture.state, _STATES.get(picture.state, "bold"))
        attempt = f"attempt {picture.attempt}" if picture.attempt > 1 else ""
        about = [plain(part) for part in (picture.project, picture.run_id, attempt) if part and part != picture.name]
        line.append("  ").append(self._dot.join(about), "dim")
        return [line, *([_text(picture.reason)] if picture.reason else [])]

    def _progress(self, picture: Picture) -> list[Text]:
        words = []
        if picture.epoch is not None:
            words.append(f"epoch {picture.epoch:.15g}")
        if picture.step is not None:
            words.append(f"step {_count(picture.step)}")
        words.append(f"{duration(picture.elapsed_s)}{' so far' if picture.is_running else ''}")
        if picture.left_s is not None:
            words.append(f"about {duration(picture.left_s)} left")
        line = _text("")
        if picture.share is not None:
            share = min(max(picture.share, 0.0), 1.0)
            width = min(_BAR_WIDTH, max(8, self._width - 80))
            done = round(width * share)
            full, empty = ("#", ".") if self._ascii else ("━", "─")
            line.append(full * done, "blue" if picture.is_running else "").append(empty * (width - done), "dim")
            line.append(f" {100 * share:.1f} %  ", "bold")
        return [line.append(self._dot.join(words))]

    def _metrics(self, metrics: Sequence[Metric], room: int | None) -> list[Text]:
        if not metrics:
            return [_text("no metric has been logged yet", "dim")]
        shown = list(metrics)
        if room is not None and len(shown) + 1 > room:
            fits = max(FEWEST_METRICS, room - 2)
            # Where not all fit, those that have a direction; in their order.
            chosen = sorted(range(len(shown)), key=lambda place: (not shown[place].has_goal, place))[:fits]
            shown = [shown[place] for place in sorted(chosen)]
        names = [plain(metric.name).replace("\n", " ") for metric in shown]
        width = min(_NAME_WIDTH, max(8, *map(_cells, names)), max(10, self._width // 3))
        last = [_at(metric.last, metric.last_step) for metric in shown]
        best = ["" if metric.best is None else _at(metric.best, metric.best_step) for metric in shown]
        last_width, best_width = (max(6, *map(len, column)) for column in (last, best))
        has_best = any(best) and self._width >= BEST_WIDTH
        left = self._width - width - last_width - 2 - (best_width + 2 if has_best else 0) - 2
        heads = [f"{'metric':<{width}}", f"{'last':>{last_width}}", *([f"{'best':>{best_width}}"] if has_best else [])]
        lines = [_text("  ".join(heads), "dim")]
        for metric, name, last_text, best_text in zip(shown, names, last, best, strict=True):
            line = _text(name)
            line.truncate(width, overflow="crop" if self._ascii else "ellipsis", pad=True)
            line.append(f"  {last_text:>{last_width}}", "" if math.isfinite(metric.last) else "bold red")
            if has_best:
                line.append(f"  {best_text:>{best_width}}")
            if self._width >= SHAPE_WIDTH and left >= 8:
                line.append("  ").append(sparkline(metric.columns(min(left, 40)), self._blocks), "cyan")
            if metric.nonfinite:
                line.append(f"  {metric.nonfinite:,} not finite", "red")
            lines.append(line)
        if len(shown) < len(metrics):
            lines.append(_text(f"{len(metrics) - len(shown):,} more metrics", "dim"))
        return lines

    def _pace(self, picture: Picture) -> list[Text]:
        parts = []
        if picture.step_s is not None:
            parts.append(f"step {duration(picture.step_s)}")
        if picture.wait_share is not None:
            parts.append(f"data wait {_percent(picture.wait_share)}")
        parts += [f"{number(float(f'{rate:.4g}'))} {what}" for what, rate in picture.rates]
        return [self._row("loop", parts)] if parts else []

    def _gpus(self, gpus: Sequence[Gpu]) -> list[Text]:
        lines = []
        most = MOST_GPUS if self._height is None or self._height >= LOW_HEIGHT else FEW_GPUS
        for gpu in gpus[:most]:
            parts = [] if gpu.busy is None else [f"{_percent(gpu.busy)} busy"]
            if gpu.used is not None:
                parts.append(size(gpu.used) if gpu.total is None else f"{size(gpu.used)} of {size(gpu.total)}")
            parts += [] if gpu.celsius is None else [f"{gpu.celsius:.0f} {'C' if self._ascii else '°C'}"]
            parts += [] if gpu.watts is None else [f"{gpu.watts:.0f} W"]
            lines.append(self._row(gpu.name, parts))
        if len(gpus) > most:
            busy = [gpu.busy for gpu in gpus[most:] if gpu.busy is not None]
            mean = f", {_percent(sum(busy) / len(busy))} busy on average" if busy else ""
            lines.append(self._row("GPUs", [f"{len(gpus) - most} more{mean}"]))
        return lines

    def _host(self, host: Host | None) -> list[Text]:
        if host is None:
            return []
        parts = [] if host.cpu is None else [f"CPU {_percent(host.cpu)}"]
        parts += [] if host.memory is None else [f"memory {_percent(host.memory)}"]
        parts += [] if host.process_cpu is None else [f"process CPU {_percent(host.process_cpu)}"]
        parts += [] if host.process_memory is None else [f"process memory {size(host.process_memory)}"]
        return [self._row("host", parts)]

    def _ranks(self, picture: Picture) -> list[Text]:
        ranks = picture.ranks
        if ranks is None:
            return []
        counts = ", ".join(f"{count} {state}" for state, count in ranks.states.items())
        bad = any(state in ranks.states for state in ("lost", "failed", "killed"))
        line = self._row("ranks", [counts, *([ranks.worst] if ranks.worst else [])])
        if bad:
            line.stylize("red")
        return [line]

    def _said(self, told: Told, picture: Picture, *, holds: bool = False) -> Text:
        style = "green" if told.over else "bold red" if told.level in ("ERROR", "FATAL") else "bold yellow"
        line = _text("over " if told.over else f"{told.level:<5}", style)
        place = [f"rank {told.rank}"] if told.rank or picture.ranks is not None else []
        place += [] if told.epoch is None else [f"epoch {told.epoch:.15g}"]
        place += [] if told.step is None else [f"step {told.step:.15g}"]
        place += ["holds"] if holds else [moment(told.time_ns)[11:]] if told.time_ns else []
        # The place stands first, since a long text is cut.
        line.append(f" [{', '.join(place)}]", "dim").append(f" {_one_line(told.text)}")
        return line

    def _foot(self, picture: Picture) -> list[Text]:
        lines = []
        if picture.damaged:
            what = "line is" if picture.damaged == 1 else "lines are"
            lines.append(_text(f"{picture.damaged:,} damaged {what} left out", "yellow"))
        return [*lines, _text(picture.path, "dim")]

    # Lines -----------------------------------------------------------------------------------------------------------

    def _row(self, name: str, parts: Sequence[str]) -> Text:
        return _text(f"{name:<6} ", "dim").append(_one_line(self._dot.join(parts)))

    def _fitted(self, line: Text) -> Text:
        line.truncate(self._width, overflow="crop" if self._ascii else "ellipsis")
        return line


def _text(words: str, style: str = "") -> Text:
    from rich.text import Text

    # A Text is never read as markup, and `plain` takes out what would steer the terminal. The style is that of these
    # words alone, not of what is appended.
    return Text(no_wrap=True).append(_one_line(words), style)


def _one_line(words: str) -> str:
    return plain(words).replace("\n", " ").replace("\t", " ")


def _cells(words: str) -> int:
    from rich.cells import cell_len

    return cell_len(words)


def _at(value: float, step: float | None) -> str:
    return number(value) + ("" if step is None else f" @{_count(step)}")


def _count(step: float) -> str:
    return f"{int(step):,}" if math.isfinite(step) and float(step).is_integer() else f"{step:.6g}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if math.isfinite(share) else number(share)
