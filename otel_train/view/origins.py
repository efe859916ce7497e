"""Says what a run was made from: in short for the top of its page, and as a chain of base models and their runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from otel_train.errors import OtelTrainError
from otel_train.runlog.folder import RunFolder
from otel_train.view.facts import shown
from otel_train.view.run_data import RunData, mappings

# A model of a model of a model …: a loop in damaged descriptions must end, too.
MOST_GENERATIONS = 12
SHORT_CHARACTERS = 12
_DATASETS_NAMED = 4


def lineage(run: RunData) -> list[list[str]]:
    """Return name, text and the section that tells more: code, data sets, base model, seed, best checkpoint."""
    newest = run.attempts[-1] if run.attempts else {}
    rows = [
        ["Code", _code(newest), "environment"],
        ["Data sets", _datasets(run), "data"],
        ["Starts from", ", ".join(_base(record) for record in _loaded(run.info)), "checkpoints"],
        ["Seed", _seed(newest), "environment"],
        ["Best checkpoint", _best(run), "checkpoints"],
    ]
    return [row for row in rows if row[1]]


def _code(attempt: Mapping[str, Any]) -> str:
    described = attempt.get("environment")
    known = [described.get(key) for key in ("code", "git", "vcs")] if isinstance(described, Mapping) else []
    code: Mapping[str, Any] = next((found for found in known if isinstance(found, Mapping)), {})
    if not code.get("commit"):
        return ""
    branch = f" on {shown(code['branch'])}" if code.get("branch") else ""
    return f"{shown(code['commit'])[:SHORT_CHARACTERS]}{branch}{', with changes' if code.get('dirty') else ''}"


def _datasets(run: RunData) -> str:
    found: dict[str, str] = {}
    for record in mappings(run.info.get("datasets")):
        checksum = record.get("checksum")
        digest = str(checksum.get("value") or "") if isinstance(checksum, Mapping) else ""
        found[shown(record.get("name", "data set"))] = digest[:SHORT_CHARACTERS]
    named = [f"{name} {digest}".strip() for name, digest in list(found.items())[:_DATASETS_NAMED]]
    more = len(found) - len(named)
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def _seed(attempt: Mapping[str, Any]) -> str:
    seed = attempt.get("seed")
    value = seed.get("seed") if isinstance(seed, Mapping) else seed
    return shown(value) if value is not None else ""


def _best(run: RunData) -> str:
    best = [record for record in mappings(run.info.get("checkpoints")) if record.get("best")]
    if not best:
        return ""
    step = best[-1].get("step")
    return _name(best[-1]) + (f" at step {shown(step)}" if step is not None else "")


def _loaded(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what the run started from, each content once."""
    found: dict[str, Mapping[str, Any]] = {}
    for record in mappings(document.get("checkpoints")):
        if record.get("role") == "loaded":
            found.setdefault(str(record.get("sha256") or record.get("path")), record)
    return list(found.values())


def _name(record: Mapping[str, Any]) -> str:
    path = str(record.get("path", ""))
    return PurePath(path.replace("\\", "/")).name or path


def _base(record: Mapping[str, Any]) -> str:
    made = f" of run {shown(record.get('run_name') or record['run'])}" if record.get("run") else ""
    return _name(record) + made


def chain(run: RunData) -> list[dict[str, Any]]:
    """Return the models that the run started from, theirs and so on, each with its generation, oldest last.

    Runs beside this one are asked for what they started from; `here` says which of them lie there.
    """
    return list(_origins(run, run.info, 1, {run.run_id}))


def _origins(run: RunData, document: Mapping[str, Any], generation: int, seen: set[str]) -> Iterator[dict[str, Any]]:
    for record in _loaded(document):
        maker = str(record.get("run") or "")
        older = None if maker in seen else _document(run, maker)
        problems = record.get("problems") or []
        yield {
            "generation": generation,
            "name": _name(record),
            "path": shown(record.get("path", "")),
            "sha256": str(record.get("sha256") or ""),
            "run": maker,
            "run_name": shown(record.get("run_name") or ""),
            "here": older is not None,
            "step": shown(record["step"]) if record.get("step") is not None else "",
            "epoch": shown(record["epoch"]) if record.get("epoch") is not None else "",
            "iterations": shown(record["iterations"]) if record.get("iterations") is not None else "",
            "base_model": shown(record.get("base_model") or ""),
            "problems": [shown(problem) for problem in problems] if isinstance(problems, list) else [],
        }
        if older is not None and generation < MOST_GENERATIONS:
            yield from _origins(run, older, generation + 1, seen | {maker})


def _document(run: RunData, run_id: str) -> Mapping[str, Any] | None:
    """Return the description of another run of the same folder; None where there is none that can be read."""
    if not run_id or PurePath(run_id).name != run_id:
        return None
    try:
        return RunFolder(run.path.parent / run_id).read()
    except (OtelTrainError, OSError, ValueError):
        return None
