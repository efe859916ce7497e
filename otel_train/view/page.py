"""Puts data, style and scripts into one HTML file that needs no network and takes no text of the run for markup."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

SCRIPTS = ("dom.js", "charts.js", "timeline.js", "logs.js", "sections.js", "inside.js", "samples.js", "main.js")
# What could end the element or start a tag, and two separators that older scripts took for line ends.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_ESCAPED = re.compile("[<>&\u2028\u2029]")


def embed_json(value: Any) -> str:
    """Return JSON that is safe inside a script element; numbers that are not finite become their names."""
    text = json.dumps(_strict(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # A lone surrogate, from a file name that is no UTF-8, cannot be written as UTF-8.
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return _ESCAPED.sub(lambda match: _ESCAPES[match.group()], text)


def _strict(value: Any) -> Any:
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if value != value else ("+Inf" if value > 0 else "-Inf")
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return value


def asset(name: str) -> str:
    """Return the text of one file of the page."""
    return resources.files("otel_train.view").joinpath("assets", name).read_text(encoding="utf-8")


def render(payload: Mapping[str, Any], title: str, plotly_script: str) -> str:
    """Return the page. Its policy admits the two scripts by their hashes, and no other and no address at all."""
    script = '(() => {\n"use strict";\n' + "\n".join(asset(name) for name in SCRIPTS) + "\n})();"
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(plotly_script)} {_hash(script)}",
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    parts = {
        "policy": policy,
        "title": html.escape(title),
        "style": asset("page.css"),
        "data": embed_json(payload),
        "plotly": plotly_script,
        "script": script,
    }
    # One pass: a placeholder in a user's text stays a text.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match.group(1)], asset("page.html"))


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
