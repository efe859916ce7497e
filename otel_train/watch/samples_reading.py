"""Turns what a check has found into points, an event and files, on the writer's thread."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from otel_train.clock import sleep
from otel_train.record.entries import AttributeValue, Sample, SeriesAttributes
from otel_train.record.readings import Occurrence, Read, Reading
from otel_train.runlog.png import png
from otel_train.runlog.sample_files import SampleFiles
from otel_train.semconv import CLASS, SPLIT
from otel_train.watch.samples_classes import ClassShares
from otel_train.watch.samples_measured import Facts, KeptSample, Measured
from otel_train.watch.samples_pictures import picture_range, pixels

EVENT: Final = "samples.checked"
_NAMES: Final = ("mean", "std", "saturated", "constant", "nonfinite", "duplicate")
# Longest text of a cell, or of a list of numbers.
MOST_CELL: Final = 1_000

Decode = Callable[[list[int]], Any]


@dataclass(slots=True, kw_only=True)
class Surroundings:
    """What the checks of a run have in common."""

    # None as long as the run is not open; `has_folder` is told once it is.
    is_open: Callable[[], bool]
    files: Callable[[], SampleFiles | None]
    redact: Callable[[str], str]
    redact_row: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    warn: Callable[[str], None]


class SamplesReading(Reading):
    """One check."""

    __slots__ = ("_around", "_classes", "_decode", "_given", "_kind", "_measured", "_place", "split")

    def __init__(
        self,
        measured: Measured,
        around: Surroundings,
        classes: ClassShares,
        *,
        kind: str,
        split: str,
        place: Mapping[str, Any],
        given: tuple[float, float] | None,
        decode: Decode | None,
    ) -> None:
        self._measured = measured
        self._around = around
        self._classes = classes
        self._kind = kind
        self.split = split
        self._place = place
        self._given = given
        self._decode = decode

    def ready(self) -> bool:
        """Tell whether the device is done, and the run has its folder."""
        return self._around.is_open() and self._measured.ready()

    def read(self) -> Read:
        """Return the points and the event; the files are written here."""
        facts = self._measured.facts()
        attributes: SeriesAttributes = ((SPLIT, self.split),)
        values = {name: facts.values.get(name) for name in _NAMES} | {"drift": facts.drift}
        shares: dict[str, float] = {}
        if facts.classes is not None:
            shares, values["class.drift"] = self._classes.take(facts.classes)
        points = [
            Sample(f"dl.samples.{name}", value, attributes) for name, value in values.items() if value is not None
        ]
        points += [
            Sample("dl.samples.class.share", share, ((CLASS, name), *attributes)) for name, share in shares.items()
        ]
        numbers = {name.replace(".", "_"): value for name, value in values.items() if value is not None}
        about: dict[str, AttributeValue] = {SPLIT: self.split, "kind": self._kind, "samples": facts.samples, **numbers}
        about |= facts.more
        if facts.range is not None:
            about["range"] = list(facts.range)
        if shares:
            about["class_shares"] = dict(shares)
        files = self._write(facts, {**about, **self._place})
        if files:
            about["files"] = files
        return Read(points=points, occurrences=[Occurrence(event=EVENT, body=self._sentence(facts), attributes=about)])

    def _sentence(self, facts: Facts) -> str:
        found = [
            f"{share:.3g} {name}"
            for name in ("nonfinite", "constant", "duplicate")
            if (share := facts.values.get(name))
        ]
        drift = "" if facts.drift is None else f", drift {facts.drift:.3g}"
        return f"{facts.samples} samples of {self.split} checked: {', '.join(found) or 'no faults'}{drift}"

    # Files -----------------------------------------------------------------------------------------------------------

    def _write(self, facts: Facts, about: Mapping[str, Any]) -> list[str]:
        if not facts.kept:
            return []
        files = self._around.files()
        if files is None:
            return []
        try:
            contents, described = self._contents(facts)
            described |= {"values": {name: _plain(value) for name, value in about.items()}}
            return files.write(self.split, int(about["step"]), contents, described)
        except OSError as fault:
            self._around.warn(f"check_samples: the samples could not be kept: {fault.strerror or fault}")
            return []

    def _contents(self, facts: Facts) -> tuple[list[tuple[str, bytes]], dict[str, Any]]:
        """Return the files, and what is said of them."""
        described: dict[str, Any] = {"kind": self._kind, "kept": []}
        if self._kind == "table":
            rows = [
                self._around.redact_row({name: _cell(cell) for name, cell in kept.content.items()})
                for kept in facts.kept
            ]
            described["kept"] = [{**self._about(kept), "file": "rows.csv"} for kept in facts.kept]
            return [("rows.csv", _csv([kept.row for kept in facts.kept], rows))], described
        contents = []
        for number, kept in enumerate(facts.kept):
            # One sample a turn: whoever waits for the interpreter gets it in between.
            sleep(0)
            suffix, data, more = self._content(kept, facts)
            contents.append((f"{number}{suffix}", data))
            described["kept"].append({**self._about(kept), "file": f"{number}{suffix}", **more})
        return contents, described

    def _content(self, kept: KeptSample, facts: Facts) -> tuple[str, bytes, dict[str, Any]]:
        if facts.layout not in ("", "other"):
            low, high = picture_range(str(kept.content.dtype).removeprefix("torch."), facts.range, self._given)
            width, height, channels, data = pixels(kept.content, facts.layout, low, high)
            return ".png", png(width, height, channels, data), {"width": width, "height": height, "range": [low, high]}
        if self._kind == "text":
            return ".txt", self._text("" if kept.content is None else kept.content), {}
        if self._kind == "tokens":
            ids = kept.content if isinstance(kept.content, tuple) else kept.content.tolist()
            return ".txt", self._text(self._decoded([number for number in ids if number >= 0])), {}
        values = [_plain(value) for value in kept.content.reshape(-1).tolist()]
        return ".json", json.dumps(values).encode(), {}

    def _text(self, text: str) -> bytes:
        return self._around.redact(text).encode("utf-8", "backslashreplace")

    def _decoded(self, ids: list[int]) -> str:
        if self._decode is not None:
            try:
                return str(self._decode(ids))
            except Exception as fault:  # noqa: BLE001 - the user's function may raise anything
                self._around.warn(
                    f"check_samples: decode failed, ids are kept as numbers: {type(fault).__name__}: {fault}"
                )
        return " ".join(map(str, ids))

    def _about(self, kept: KeptSample) -> dict[str, Any]:
        label = None if kept.label is None else self._classes.name(_whole(kept.label))
        return {"row": kept.row, "faults": kept.faults, **({} if label is None else {"label": label})}


def _whole(label: Any) -> Any:
    return int(label) if isinstance(label, float) and label.is_integer() else label


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: NaN and infinities by name."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else ("+Inf" if value > 0 else "-Inf")
    return value


def _cell(cell: Any) -> Any:
    if cell is None or isinstance(cell, bool | int | float):
        return cell
    text = str(cell)
    return text if len(text) <= MOST_CELL else f"{text[:MOST_CELL]}…"


def _csv(numbers: Sequence[int], rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return rows as CSV with their place in the batch; what is missing is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = list(rows[0])
    writer.writerow(["row", *names])
    for number, row in zip(numbers, rows, strict=True):
        writer.writerow([number, *("" if row.get(name) is None else row.get(name) for name in names)])
    return text.getvalue().encode("utf-8", "backslashreplace")
