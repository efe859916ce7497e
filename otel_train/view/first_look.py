"""Makes the first chart of a long run before all of it is read: of one metric alone, in half of the time or less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from otel_train.otlp.values import name_json
from otel_train.record.names import PREFIX
from otel_train.runlog.folder import RunFolder
from otel_train.runlog.reader import RunReader
from otel_train.runlog.segments import list_segments
from otel_train.semconv import EPOCH, STEP
from otel_train.view.parts import build_parts
from otel_train.view.reading import read_run

# About half a second of reading, of the lines as they are written.
LONG_BYTES = 40 << 20
# What gzip makes of our lines is about a tenth.
_PACKED = 10


def is_long(path: Path) -> bool:
    """Return whether reading all points of a run takes so long that a first chart is worth a look of its own."""
    size = 0
    for _, _, folder in RunFolder(path).rank_folders():
        for _, segment in list_segments(folder, "metrics"):
            try:
                size += segment.stat().st_size * (_PACKED if segment.suffix == ".gz" else 1)
            except OSError:
                continue
    return size >= LONG_BYTES


def first_look(path: Path, now_ns: int) -> dict[str, Any]:
    """Return the part `metrics` of a run's page with its first chart alone; empty where the run has none.

    RunFolderError where the folder is no run's.
    """
    name = _first_metric(path)
    if not name:
        return {}
    names = frozenset((name, STEP, EPOCH))
    # Steps and epochs stand in the line of their points, with hardly an exception; a first look may lack those.
    run = read_run(path, now_ns, names=names, holding=name_json(name).encode(), records=False)
    head = build_parts(run, ["head"])
    return {**build_parts(run, ["metrics"]), "elapsed_s": head["elapsed_s"], "axes": head["axes"]}


def _first_metric(path: Path) -> str:
    """Return the metric whose chart is the first: the first of those with a loss in their key, else of all."""
    for request, _, _ in RunReader(path).requests("metrics"):
        series = [one for one in request.series if one.name.startswith(PREFIX)]
        losses = [one for one in series if "loss" in (one.description or one.name.removeprefix(PREFIX)).lower()]
        if series:
            return (losses or series)[0].name
    return ""
