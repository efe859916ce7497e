"""Puts data, style and scripts into one HTML file that needs no network and takes no text of the run for markup."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any, Final

# What the report and the local page have in common, in the order in which they are joined; then what each adds.
SCRIPTS: Final = (
    "formats.js",
    "dom.js",
    "address.js",
    "keyboard.js",
    "theme.js",
    "layout.js",
    "scales.js",
    "smoothing.js",
    "ranks.js",
    "traces.js",
    "figures.js",
    "zoom.js",
    "cursor.js",
    "charts.js",
    "chart_card.js",
    "chart_tools.js",
    "chart_groups.js",
    "jumps.js",
    "timeline.js",
    "span_panel.js",
    "logs.js",
    "overview.js",
    "sections.js",
    "inside.js",
    "samples.js",
    "main.js",
)
REPORT_SCRIPTS: Final = (*SCRIPTS, "report_main.js")
LOCAL_SCRIPTS: Final = (
    *SCRIPTS,
    "live.js",
    "run_page.js",
    "runs_cells.js",
    "runs_table.js",
    "runs_filter.js",
    "runs_columns.js",
    "runs_names.js",
    "runs_live.js",
    "runs_page.js",
    "compare_data.js",
    "compare_table.js",
    "compare_legend.js",
    "compare_curves.js",
    "compare_scales.js",
    "compare_scatter.js",
    "compare_parallel.js",
    "compare_axis_list.js",
    "compare_page.js",
    "local_main.js",
)
LOCAL_STYLES: Final = (
    "page.css",
    "runs.css",
    "compare.css",
)
# What could end the element or start a tag, and two separators that older scripts took for line ends.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_ESCAPED = re.compile("[<>&\u2028\u2029]")


def json_bytes(value: Any) -> bytes:
    """Return JSON on one line as UTF-8; numbers that are not finite become the names "NaN", "+Inf" and "-Inf"."""
    try:
        # Nearly always nothing needs another spelling, and the C encoder is ten times quicker than a look at each item.
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError):
        text = json.dumps(_strict(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # A lone surrogate, from a file name that is no UTF-8, cannot be written as UTF-8.
    return text.encode("utf-8", "backslashreplace")


def strict_json(value: Any) -> str:
    """Return `json_bytes` as a text."""
    return json_bytes(value).decode("utf-8")


def embed_json(value: Any) -> str:
    """Return `strict_json` in a spelling that is safe inside a script element."""
    return _ESCAPED.sub(lambda match: _ESCAPES[match.group()], strict_json(value))


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


def joined(names: Iterable[str]) -> str:
    """Return one script of several files, whose names are seen by nobody else."""
    return '(() => {\n"use strict";\n' + "\n".join(asset(name) for name in names) + "\n})();"


def render(payload: Mapping[str, Any], title: str, plotly_script: str) -> str:
    """Return the page. Its policy admits the two scripts by their hashes, and no other and no address at all."""
    script = joined(REPORT_SCRIPTS)
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
    return filled(asset("page.html"), parts)


def filled(template: str, parts: Mapping[str, str]) -> str:
    """Return a template with its placeholders replaced, in one pass: a placeholder in a user's text stays a text."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match.group(1)], template)


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
