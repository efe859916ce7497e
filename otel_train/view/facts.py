"""Writes what a run's description says as rows for the page: configuration, environment, data, checkpoints, stages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from otel_train.clock import NS_PER_S
from otel_train.view import text
from otel_train.view.log_list import cut
from otel_train.view.run_data import RunData, listed, mappings, time_of

Rows = list[list[Any]]
VALUE_CHARACTERS = 2_000
PATCH_CHARACTERS = 400_000
_OF_ONE_CALL = frozenset({"attempt", "rank", "time", "step", "stage"})


def shown(value: object) -> str:
    """Return any JSON value as text for a cell."""
    if isinstance(value, str):
        return cut(value, VALUE_CHARACTERS)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, (int, float)):
        return str(value)
    return cut(json.dumps(value, ensure_ascii=False, default=str), VALUE_CHARACTERS)


def flatten(value: object, prefix: str = "") -> dict[str, object]:
    """Return nested mappings as one, keys joined by dots; lists of plain values stay one value."""
    if isinstance(value, Mapping):
        if not value and prefix:
            return {prefix: "{}"}
        result: dict[str, object] = {}
        for key, item in value.items():
            result.update(flatten(item, f"{prefix}.{key}" if prefix else str(key)))
        return result
    if isinstance(value, list) and any(isinstance(item, (Mapping, list)) for item in value):
        result = {}
        for index, item in enumerate(value):
            result.update(flatten(item, f"{prefix}.{index}"))
        return result
    return {prefix: value} if prefix else {}


def configuration(run: RunData) -> dict[str, Any]:
    """Return the configuration by key, one column for each attempt; keys that changed are marked."""
    attempts = run.attempts
    columns = [flatten(attempt.get("config")) for attempt in attempts]
    keys = list(dict.fromkeys(key for column in columns for key in column))
    rows = []
    for key in sorted(keys):
        cells = [shown(column[key]) if key in column else "" for column in columns]
        rows.append({"cells": [key, *cells], "changed": len(set(cells)) > 1})
    numbers = [attempt.get("attempt", place) for place, attempt in enumerate(attempts, 1)]
    return {"attempts": numbers, "rows": rows}


def configuration_values(run: RunData) -> dict[str, Any]:
    """Return the flat configuration of the newest attempt, values as they are."""
    return dict(flatten(run.attempts[-1].get("config"))) if run.attempts else {}


def environment(run: RunData) -> dict[str, Any]:
    """Return the environment of the newest attempt in groups, packages and patch apart."""
    newest = run.attempts[-1] if run.attempts else {}
    described = newest.get("environment")
    described = dict(described) if isinstance(described, Mapping) else {}
    code = next(
        (dict(described.pop(key)) for key in ("code", "git", "vcs") if isinstance(described.get(key), Mapping)), {}
    )
    patch = str(code.pop("patch", "") or "")
    packages = described.pop("packages", None)
    groups: list[dict[str, Any]] = []
    unknown = code.pop("reasons", None)
    _group(groups, "Code", code | {f"{part} is not known": why for part, why in flatten(unknown).items()})
    simple = {key: value for key, value in described.items() if not isinstance(value, (Mapping, list))}
    process = {key: newest[key] for key in ("host", "pid", "world_size") if newest.get(key) is not None}
    _group(groups, "Process", {**simple, **process})
    seed = newest.get("seed")
    # The states behind the seed are for programs; run.json holds them.
    seeds = (
        {key: value for key, value in seed.items() if key != "states"} if isinstance(seed, Mapping) else {"seed": seed}
    )
    _group(groups, "Seeds", seeds)
    for key, value in described.items():
        if isinstance(value, (Mapping, list)) and key not in ("package_sources", "reasons"):
            _group(groups, key.replace("_", " ").capitalize(), value if isinstance(value, Mapping) else {key: value})
    _group(groups, "Not known, and why", described.get("reasons"))
    listed = packages.items() if isinstance(packages, Mapping) else ()
    note = f"cut to {text.size(len(patch))}" if code.get("patch_cut") or len(patch) > PATCH_CHARACTERS else ""
    return {
        "groups": groups,
        "packages": sorted([str(name), shown(version)] for name, version in listed),
        "patch": cut(patch, PATCH_CHARACTERS),
        "patch_note": note,
    }


def _group(groups: list[dict[str, Any]], title: str, values: object) -> None:
    rows = [[key, _readable(key, value)] for key, value in flatten(values).items() if value not in (None, "", [], "{}")]
    if rows:
        groups.append({"title": title, "rows": rows})


def _readable(key: str, value: object) -> str:
    if key.endswith("_bytes") and isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{text.size(value)} ({value:,} bytes)"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return cut("\n".join(value), VALUE_CHARACTERS)
    return shown(value)


def datasets(run: RunData) -> list[dict[str, Any]]:
    """Return a card for each data set, once where several attempts described the same; its parts are cards too."""
    cards: list[dict[str, Any]] = []
    seen: dict[str, list[str]] = {}
    for record in mappings(run.info.get("datasets")):
        likeness = json.dumps({key: value for key, value in record.items() if key not in _OF_ONE_CALL}, default=str)
        attempt = shown(record.get("attempt", 1))
        if likeness in seen:
            if attempt not in seen[likeness]:
                seen[likeness].append(attempt)
            continue
        seen[likeness] = [attempt]
        _dataset(cards, record, shown(record.get("name", "data set")), seen[likeness])
    for card in cards:
        attempts = card.pop("attempts")
        if len(run.attempts) > 1:
            card["rows"].append(["attempts", ", ".join(attempts)])
    return cards


def _dataset(cards: list[dict[str, Any]], record: Mapping[str, Any], name: str, attempts: list[str]) -> None:
    classes = record.get("classes")
    counts = (
        [[str(label), count] for label, count in classes.items() if isinstance(count, (int, float))]
        if isinstance(classes, Mapping)
        else []
    )
    rest = record.get("classes_rest")
    if isinstance(rest, Mapping) and rest.get("samples"):
        counts.append([f"{rest.get('classes', '?')} more", rest["samples"]])
    rows = []
    for key in ("size", "shape", "type", "dtype", "columns", "sampling", "class_count", "stage"):
        if record.get(key) is not None:
            value = record[key]
            rows.append(
                [key.replace("_", " "), f"{value:,}" if key == "size" and isinstance(value, int) else shown(value)]
            )
    dropped = record.get("dropped")
    if isinstance(dropped, Mapping):
        reasons = dropped.get("reasons")
        why = (
            f" ({', '.join(f'{reason}: {count}' for reason, count in reasons.items())})"
            if isinstance(reasons, Mapping)
            else ""
        )
        rows.append(["dropped", f"{shown(dropped.get('total', ''))}{why}"])
    elif dropped is not None:
        rows.append(["dropped", shown(dropped)])
    labels = record.get("labels")
    if isinstance(labels, Mapping):
        rows.append(["labels", ", ".join(f"{key} {shown(value)}" for key, value in labels.items())])
    for key in ("checksum", "label_checksum"):
        if isinstance(record.get(key), Mapping):
            rows.append([key.replace("_", " "), checksum(record[key])])
    for entry in mappings(record.get("files"))[:50]:
        rows.append(["file", file_text(entry)])
    for note in listed(record.get("notes")):
        rows.append(["note", shown(note)])
    cards.append(
        {
            "name": name,
            "rows": rows,
            "attempts": attempts,
            "classes": counts[:200],
            "problems": [shown(item) for item in listed(record.get("problems"))],
        }
    )
    parts = record.get("parts")
    if isinstance(parts, Mapping):
        for part, inner in parts.items():
            if isinstance(inner, Mapping):
                _dataset(cards, inner, f"{name} / {part}", attempts)


def checksum(record: Mapping[str, Any]) -> str:
    """Return a checksum with its algorithm, and whether it is of all bytes."""
    part = "" if record.get("whole", True) else f" (of {text.size(record.get('bytes_read'))}, sampled)"
    return f"{record.get('algorithm', '')} {record.get('value', '')}{part}".strip()


def file_text(entry: Mapping[str, Any]) -> str:
    """Return a file with its size and the start of its checksum on one line."""
    found = entry.get("checksum")
    digest = f" · {str(found.get('value', ''))[:12]}" if isinstance(found, Mapping) else ""
    name = shown(entry.get("name") or entry.get("path") or entry.get("absolute") or entry.get("type") or "value")
    size = f" · {text.size(entry['size'])}" if isinstance(entry.get("size"), (int, float)) else ""
    problem = f" · {entry['problem']}" if entry.get("problem") else ""
    missing = " · missing" if entry.get("kind") == "missing" else ""
    return f"{name}{size}{digest}{missing}{problem}"


def checkpoints(run: RunData) -> Rows:
    """Return a row for each checkpoint: name, role, step, epoch, size, checksum, metrics, time to write."""
    rows: Rows = []
    for record in mappings(run.info.get("checkpoints")):
        known = record.get("checksum")
        digest = str(record.get("sha256") or (known.get("value") if isinstance(known, Mapping) else "") or "")
        metrics = record.get("metrics")
        path = str(record.get("path", ""))
        name = ("★ " if record.get("best") else "") + (PurePath(path.replace("\\", "/")).name or path)
        rows.append(
            [
                {"mono": name, "title": path},
                shown(record.get("role", "saved")),
                shown(record.get("step", "")),
                shown(record.get("epoch", "")),
                text.size(record.get("size")),
                {"mono": digest[:12], "title": digest} if digest else "",
                ", ".join(
                    f"{key} {text.number(value) if isinstance(value, (int, float)) else value}"
                    for key, value in metrics.items()
                )
                if isinstance(metrics, Mapping)
                else "",
                text.duration(record.get("duration_s")),
            ]
        )
    return rows


def stages(run: RunData) -> Rows:
    """Return a row for each stage: name, status, duration, inputs, outputs, code."""
    rows: Rows = []
    for record in mappings(run.info.get("stages")):
        status = str(record.get("status", ""))
        if status == "running" and run.state != "running":
            status = "truncated"
        files = [
            "\n".join(file_text(entry) for entry in mappings(record.get(key))[:50])
            for key in ("inputs", "outputs", "code")
        ]
        rows.append(
            [
                shown(record.get("name", "")),
                {"pill": status} if status else "",
                text.duration(record.get("duration_s")),
                *({"mono": part} if part else "" for part in files),
            ]
        )
    return rows


def attempts(run: RunData) -> Rows:
    """Return a row for each attempt, with what changed since the one before."""
    rows: Rows = []
    for place, attempt in enumerate(run.attempts, 1):
        started, ended = time_of(attempt.get("started")), time_of(attempt.get("ended"))
        last = place == len(run.attempts)
        status = run.state if last else str(attempt.get("status", ""))
        if status == "running" and not last:
            status = "lost"
        until = ended or (run.until_ns if last else run.last_of_attempt.get(attempt["attempt"], 0))
        seconds = (until - started) / NS_PER_S if started and until else None
        rows.append(
            [
                shown(attempt.get("attempt", place)),
                {"pill": status} if status else "",
                text.moment(started),
                text.duration(seconds) if seconds is not None and seconds >= 0 else "",
                shown(attempt.get("host") or ""),
                shown(attempt["exit_code"]) if attempt.get("exit_code") is not None else "",
                shown(attempt.get("reason") or ""),
                "\n".join(change_text(change) for change in _listed(attempt.get("changes"))),
            ]
        )
    return rows


def _listed(value: object) -> Sequence[object]:
    return value[:100] if isinstance(value, list) else ()


def change_text(change: object) -> str:
    """Return one change as ``lr: 0.0001 -> 5e-05``."""
    if not isinstance(change, Mapping):
        return shown(change)
    kind = change.get("change")
    key = shown(change.get("key", ""))
    if kind == "added":
        return f"{key}: added, {shown(change.get('new'))}"
    if kind == "removed":
        return f"{key}: removed, was {shown(change.get('old'))}"
    return f"{key}: {shown(change.get('old'))} -> {shown(change.get('new'))}"
