"""Holds what every comparison has, of two runs or of a thousand: who is compared, with what base, and the facts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from otel_train.view import comparison_runs
from otel_train.view.comparison_cells import cell, part
from otel_train.view.palette import PALETTE


def common(described: Sequence[Mapping[str, Any]], missing: Mapping[str, str], base: int) -> dict[str, Any]:
    """Return the runs, those that are missing, the base (a place among the runs), and the facts side by side."""
    return {
        "runs": list(described),
        "base": described[base]["id"] if described else "",
        "missing": [{"id": name, "message": why} for name, why in missing.items()],
        "live": any(one["state"] == "running" for one in described),
        "elapsed_s": max((one["duration_s"] or 0.0 for one in described), default=0.0),
        "palette": PALETTE,
        "facts": part(_fact_rows(described)),
    }


def _fact_rows(described: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for key, label in comparison_runs.FACTS:
        texts = [comparison_runs.fact_text(key, one.get(key)) for one in described]
        if any(texts) and not (key == "damaged" and set(texts) == {"0"}):
            cells = [cell(written) | {"text": written} if written else None for written in texts]
            rows.append({"key": label, "group": "", "differs": len(set(texts)) > 1, "cells": cells})
    return rows


def notice(kind: str, words: str) -> dict[str, str]:
    """Return one thing that a reader should know first; kind is info, warn or bad."""
    return {"kind": kind, "text": words}


def digest(parts: object) -> str:
    """Return a short text that is another one for other parts."""
    return hashlib.blake2s(json.dumps(parts, default=str).encode(), digest_size=8).hexdigest()
