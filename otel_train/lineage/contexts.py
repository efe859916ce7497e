"""The context that lies beside each saved model file: which run, data, code, parameters and parent made it.

``model.pt`` has ``model.pt.context.json``; a copy under the model's SHA-256 lies in the run's folder, so that a file
that was moved or renamed is found again by its content.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from otel_train import clock
from otel_train.errors import CheckpointError
from otel_train.lineage.documents import plain, read_document, write_document

FORMAT: Final = 1
KIND: Final = "otel-train checkpoint context"
SUFFIX: Final = ".context.json"
ARCHIVE: Final = ("artifacts", "contexts")
_SHA256 = re.compile(r"[0-9a-f]{64}")
# What of a file or data set identifies it; counts and notes stay in the run's own record.
_FILE_KEYS = ("name", "path", "absolute", "kind", "size", "checksum", "type")
_DATA_KEYS = ("name", "size", "checksum", "label_checksum", "class_count", "sampling", "dropped", "stage")


def make_context(
    facts: Mapping[str, Any],
    *,
    created_ns: int,
    run: str,
    run_name: str = "",
    project: str = "",
    attempt: int = 1,
    rank: int = 0,
    step: int | None = None,
    epoch: int | None = None,
    iterations: int | None = None,
    metrics: Mapping[str, Any] | None = None,
    best: bool = False,
    parents: Sequence[Mapping[str, Any]] = (),
    data: Sequence[Mapping[str, Any]] = (),
    stages: Sequence[Mapping[str, Any]] = (),
    code: Mapping[str, Any] | None = None,
    dependencies: Mapping[str, str] | None = None,
    image: Any = None,
    config: Mapping[str, Any] | None = None,
    seed: Any = None,
    command: Sequence[str] | None = None,
    python: str | None = None,
) -> dict[str, Any]:
    """Return the context of one saved checkpoint; `facts` are those of `checkpoints.save_checkpoint`.

    `parents` are what the run started from (`parent_of`), `data` and `stages` the run's records, `code` has commit,
    branch, dirty, remote and patch_sha256. Secrets have to be redacted before. What is unknown is null.
    """
    path = str(facts["path"])
    context = {
        "format": FORMAT,
        "kind": KIND,
        "file": os.path.basename(path),
        "path": path,
        "sha256": facts.get("sha256"),
        "size": facts.get("size"),
        "model_format": facts.get("format"),
        "created": clock.iso(created_ns),
        "run": run,
        "run_name": run_name,
        "project": project,
        "attempt": attempt,
        "rank": rank,
        "step": step,
        "epoch": epoch,
        "iterations": iterations,
        "metrics": dict(metrics or {}),
        "best": best,
        "parents": [dict(parent) for parent in parents],
        "data": [_data_identity(record) for record in data],
        "stages": [_stage_identity(stage) for stage in stages],
        "code": dict(code or {}),
        "dependencies": dict(dependencies or {}),
        "image": image,
        "config": dict(config or {}),
        "seed": seed,
        "command": list(command or ()),
        "python": python,
    }
    whole = plain(context)
    assert isinstance(whole, dict)
    return whole


def context_path(model: str | os.PathLike[str]) -> Path:
    """Return where the context of a model file or folder lies."""
    path = Path(os.path.realpath(model))
    return path.with_name(path.name + SUFFIX)


def write_context(path: str | os.PathLike[str], context: Mapping[str, Any]) -> Path:
    """Write a context beside its model and return where; raises OSError."""
    target = context_path(path)
    write_document(target, context)
    return target


def archive_context(run_path: str | os.PathLike[str], context: Mapping[str, Any]) -> Path:
    """Keep a copy in the run's folder, under the model's SHA-256; raises OSError, ValueError without a SHA-256."""
    sha256 = str(context.get("sha256"))
    if not _SHA256.fullmatch(sha256):
        raise ValueError(f"a context without the model's SHA-256 ({sha256}) cannot be found again")
    folder = Path(run_path).joinpath(*ARCHIVE)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{sha256}{SUFFIX}"
    write_document(target, context)
    return target


def read_context(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the context of a model file, or of a context file itself.

    Raises CheckpointError, naming the file and the reason, where there is none or it is damaged.
    """
    given = Path(path)
    target = given if given.name.endswith(SUFFIX) else context_path(given)
    try:
        context = read_document(target)
    except FileNotFoundError:
        raise CheckpointError(f"{given}: no context lies beside it ({target.name})") from None
    except (OSError, ValueError) as fault:
        raise CheckpointError(f"{target}: the context is damaged or cannot be read: {fault}") from fault
    if context.get("kind") != KIND:
        raise CheckpointError(f"{target}: this is no checkpoint context of otel-train")
    number = context.get("format")
    if not isinstance(number, int) or number > FORMAT:
        raise CheckpointError(f"{target}: its format {number!r} is newer than this version of otel-train reads")
    return context


def find_context_by_sha(roots: Iterable[str | os.PathLike[str]], sha256: str) -> dict[str, Any] | None:
    """Return the context kept for a model's SHA-256 by a run under one of the roots, None where none is known.

    ``found_at`` names the copy. Roots are folders of runs, or run folders themselves. Damaged copies are passed over.
    """
    if not _SHA256.fullmatch(sha256):
        return None
    name = f"{sha256}{SUFFIX}"
    for root in roots:
        for folder in _run_folders(Path(root)):
            candidate = folder.joinpath(*ARCHIVE, name)
            try:
                context = read_context(candidate) if candidate.is_file() else None
            except CheckpointError:
                continue
            if context is not None and context.get("sha256") == sha256:
                return context | {"found_at": str(candidate)}
    return None


def _run_folders(root: Path) -> Iterable[Path]:
    """Return a root's folders, newest name first (run ids begin with their date), the root itself at the end."""
    try:
        with os.scandir(root) as entries:
            names = sorted((entry.name for entry in entries if entry.is_dir()), reverse=True)
    except OSError:
        return []
    return [*(root / name for name in names), root]


def _file_identity(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: entry[key] for key in _FILE_KEYS if key in entry}


def _data_identity(record: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: record[key] for key in _DATA_KEYS if key in record}
    if record.get("files"):
        kept["files"] = [_file_identity(entry) for entry in record["files"]]
    if record.get("parts"):
        kept["parts"] = {name: _data_identity(part) for name, part in record["parts"].items()}
    return kept


def _stage_identity(stage: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {"name": stage.get("name"), "parameters": stage.get("parameters", {})}
    for role in ("inputs", "outputs", "code"):
        kept[role] = [_file_identity(entry) for entry in stage.get(role, [])]
    return kept
