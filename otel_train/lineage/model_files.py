"""Describes checkpoints that another library wrote, and what a run starts from: its parent checkpoint or base model."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from otel_train.errors import CheckpointError
from otel_train.lineage.contexts import find_context_by_sha, read_context
from otel_train.lineage.documents import read_document
from otel_train.lineage.files import describe_file, without_credentials
from otel_train.lineage.hashing import file_checksum, folder_checksum

# A model is identified by all its bytes; off-thread this is one to three minutes at the limit.
WHOLE_MODEL_BYTES = 64 << 30
MODEL_SUFFIXES = frozenset(
    {
        ".pt",
        ".pth",
        ".ckpt",
        ".bin",
        ".safetensors",
        ".pkl",
        ".pickle",
        ".onnx",
        ".h5",
        ".keras",
        ".gguf",
        ".npz",
        ".tar",
    }
)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+://")
_STEP_FOLDER = re.compile(r"(?:global_step|checkpoint-|step[-_=]?|iter_)(\d+)")
_MAX_NAMES = 10_000
_FROM_CONTEXT = ("run", "run_name", "project", "attempt", "step", "epoch", "iterations", "metrics", "created")


def describe_checkpoint(path: str | os.PathLike[str], *, whole_bytes: int = WHOLE_MODEL_BYTES) -> dict[str, Any]:
    """Return what is known of a checkpoint file or folder: kind, size, checksum, format, iterations, base model.

    ``sha256`` is there only where everything was read. Never raises; reads up to `whole_bytes`, so call it off the
    training thread.
    """
    entry = describe_file(path, hash_now=False)
    if entry.pop("pending", False):
        where = entry["absolute"]
        try:
            if entry["kind"] == "folder":
                checksum = folder_checksum(where, whole_bytes=whole_bytes)
                entry["files"] = checksum.files
            else:
                checksum = file_checksum(where, whole_bytes=whole_bytes)
            entry["size"] = checksum.size
            entry["checksum"] = checksum.to_dict()
            if checksum.whole:
                entry["sha256"] = checksum.value
        except OSError as fault:
            entry["problem"] = f"no checksum: {fault.strerror or fault}"
        entry |= _folder_facts(Path(where)) if entry["kind"] == "folder" else {"format": _file_format(Path(where))}
    return _with_problems(entry)


def parent_of(path_or_name: str | os.PathLike[str], *, roots: Iterable[str | os.PathLike[str]] = ()) -> dict[str, Any]:
    """Return what a run starts from: a model file with the run that made it, or a model's name or URL.

    The run is told by the context beside the file, or, where that is missing, damaged or of other content, by the
    copy that a run under `roots` keeps. Never raises; hashes the file, so call it off the training thread.
    """
    text = os.fspath(path_or_name)
    if _URL.match(text) and not text.lower().startswith("file://"):
        return {"path": without_credentials(text), "kind": "url"}
    text = text.removeprefix("file://")
    if not os.path.lexists(text) and not _looks_like_file(text):
        return {"path": text, "kind": "name", "base_model": text}
    parent = describe_checkpoint(text)
    context = context_of(parent, roots)
    if context is not None:
        parent |= {key: context[key] for key in _FROM_CONTEXT if context.get(key) not in (None, "", {})}
        inherited = [entry.get("base_model") for entry in context.get("parents", []) if entry.get("base_model")]
        if inherited:
            parent.setdefault("base_model", inherited[0])
    return parent


def context_of(parent: dict[str, Any], roots: Iterable[str | os.PathLike[str]]) -> Mapping[str, Any] | None:
    """Return the context of a described model file, from beside it or from a run's copy; says problems in `parent`."""
    sha256 = parent.get("sha256")
    try:
        context = read_context(parent["absolute"])
    except CheckpointError as fault:
        if "no context lies beside" not in str(fault):
            _problem(parent, str(fault))
    else:
        if sha256 is None or context.get("sha256") == sha256:
            parent["context"] = parent["absolute"] + ".context.json"
            return context
        _problem(parent, "the context beside it tells of other content; the file was changed since")
    found = find_context_by_sha(roots, sha256) if sha256 else None
    if found is not None:
        parent["context"] = found["found_at"]
    return found


def _looks_like_file(text: str) -> bool:
    return os.path.isabs(text) or text.startswith((".", "~")) or Path(text).suffix.lower() in MODEL_SUFFIXES


def _file_format(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix in (".safetensors", ".onnx", ".gguf"):
        return suffix[1:]
    try:
        with open(path, "rb") as handle:
            start = handle.read(8)
    except OSError:
        return "unknown"
    if start[:4] == b"PK\x03\x04":
        return "torch" if suffix in (".pt", ".pth", ".ckpt", ".bin") else "zip"
    if start[:4] == b"\x89HDF":
        return "hdf5"
    return "pickle" if start[:1] == b"\x80" else "unknown"


def _folder_facts(folder: Path) -> dict[str, Any]:
    """Return format, iterations, epoch and base model as the folder's own small files tell them."""
    try:
        with os.scandir(folder) as entries:
            names = {entry.name for entry in islice(entries, _MAX_NAMES)}
    except OSError:
        return {"format": "unknown"}
    facts: dict[str, Any] = {"format": _folder_format(names)}
    state = _small_document(folder / "trainer_state.json")
    if isinstance(state.get("global_step"), int):
        facts["iterations"] = state["global_step"]
    if isinstance(state.get("epoch"), (int, float)):
        facts["epoch"] = state["epoch"]
    for name in ("latest", "latest_checkpointed_iteration.txt"):
        if name in names and "iterations" not in facts:
            number = re.search(r"(\d+)\s*$", _small_text(folder / name))
            if number:
                facts["iterations"] = int(number[1])
    step = _STEP_FOLDER.fullmatch(folder.name)
    if step and "iterations" not in facts:
        facts["iterations"] = int(step[1])
    base = _small_document(folder / "adapter_config.json").get("base_model_name_or_path")
    base = base or _small_document(folder / "config.json").get("_name_or_path")
    if isinstance(base, str) and base:
        facts["base_model"] = base
    return facts


def _folder_format(names: set[str]) -> str:
    def any_name(pattern: str) -> bool:
        return any(re.fullmatch(pattern, name) for name in names)

    if ".metadata" in names and any_name(r".*\.distcp"):
        return "torch-distributed"
    if any_name(r"(zero_pp_rank_|mp_rank_|bf16_zero_pp_rank_).*") or (
        "latest" in names and any_name(r"global_step\d+")
    ):
        return "deepspeed"
    if "latest_checkpointed_iteration.txt" in names:
        return "megatron"
    weights = any_name(r"(model|pytorch_model|adapter_model).*\.(safetensors|bin)")
    if "trainer_state.json" in names or (weights and ("config.json" in names or "adapter_config.json" in names)):
        return "huggingface"
    if "saved_model.pb" in names:
        return "tensorflow"
    if "_CHECKPOINT_METADATA" in names:
        return "orbax"
    return "unknown"


def _small_document(path: Path) -> dict[str, Any]:
    try:
        return read_document(path)
    except (OSError, ValueError):
        return {}


def _small_text(path: Path) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read(1000)
    except OSError:
        return ""


def _with_problems(entry: dict[str, Any]) -> dict[str, Any]:
    problem = entry.pop("problem", None)
    if problem:
        _problem(entry, f"{entry['path']}: {problem}")
    return entry


def _problem(entry: dict[str, Any], text: str) -> None:
    entry.setdefault("problems", []).append(text)
