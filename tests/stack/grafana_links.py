"""Follows the links that Grafana's data sources are provisioned with, as Grafana fills them in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from tests.stack.asking import get_json
from tests.stack.programs import REPOSITORY

FILE = REPOSITORY / "grafana" / "provisioning" / "datasources" / "otel-train.yaml"
_BRACED = re.compile(r'\$\{(__\w+)(?:\.(\w+))?(?:\["([^"]+)"\])?\}')


def sources() -> dict[str, dict[str, Any]]:
    """Return the provisioned data sources by uid, with single dollar signs."""
    text = FILE.read_text(encoding="utf-8").replace("$$", "$")
    return {source["uid"]: source for source in yaml.safe_load(text)["datasources"]}


def spans_of_trace(tempo: str, trace_id: str) -> list[dict[str, Any]]:
    """Return the spans of a trace with all tags, those of the resource too; an empty list where there is none."""
    document = get_json(f"{tempo}/api/v2/traces/{trace_id}").get("trace", {})
    found = []
    for part in document.get("resourceSpans", []):
        resource = tags(part["resource"].get("attributes", []))
        for scope in part["scopeSpans"]:
            for span in scope["spans"]:
                found.append({**span, "tags": {**tags(span.get("attributes", [])), **resource}})
    return found


def tags(attributes: list[dict[str, Any]]) -> dict[str, str]:
    """Return OTLP attributes as Grafana shows them."""
    return {one["key"]: str(next(iter(one["value"].values()))) for one in attributes}


def logs_of_span(span: Mapping[str, Any], trace_id: str) -> str:
    """Return the query of the link from a span to its logs."""
    settings = sources()["tempo"]["jsonData"]["tracesToLogsV2"]
    pairs = [f'{tag["value"]}="{span["tags"][tag["key"]]}"' for tag in settings["tags"] if tag["key"] in span["tags"]]
    assert pairs, "a selector without labels is refused"
    known = {"__tags": {"": ", ".join(pairs)}, "__trace": {"traceId": trace_id}, "__span": {"tags": span["tags"]}}

    def value(match: re.Match[str]) -> str:
        name, member, key = match.groups()
        found: Any = known[name][member or ""]
        return str(found[key] if key else found)

    return _BRACED.sub(value, settings["query"])


def metrics_of_span(span: Mapping[str, Any]) -> dict[str, str]:
    """Return the queries of the links from a span to metrics, by their names."""
    settings = sources()["tempo"]["jsonData"]["tracesToMetrics"]
    pairs = [f'{tag["value"]}="{span["tags"][tag["key"]]}"' for tag in settings["tags"] if tag["key"] in span["tags"]]
    return {query["name"]: query["query"].replace("$__tags", ", ".join(pairs)) for query in settings["queries"]}
