"""Lists every installed distribution with its version, and where those came from that no index served."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib import metadata
from typing import Any


def installed_packages(distributions: Iterable[Any] | None = None) -> tuple[dict[str, str], dict[str, str]]:
    """Return `{name: version}` in order of names, and `{name: source}` of editable and version-controlled ones.

    Names are in lower case with dashes. Of two with one name the first on the path counts, as for imports.
    """
    packages: dict[str, str] = {}
    sources: dict[str, str] = {}
    for distribution in metadata.distributions() if distributions is None else distributions:
        try:
            # One look: each property parses the file anew.
            content = distribution.metadata
            name, version = content["Name"], content["Version"]
        except Exception:  # noqa: BLE001 - one damaged folder must not hide the others
            continue
        if not name:
            continue
        name = re.sub(r"[-_.]+", "-", name).lower()
        if name in packages:
            continue
        packages[name] = str(version)
        source = _source(distribution)
        if source:
            sources[name] = source
    return dict(sorted(packages.items())), dict(sorted(sources.items()))


def _source(distribution: Any) -> str:
    try:
        content = json.loads(distribution.read_text("direct_url.json") or "null")
    except Exception:  # noqa: BLE001 - as above
        return ""
    if not isinstance(content, dict):
        return ""
    commit = (content.get("vcs_info") or {}).get("commit_id", "")
    editable = (content.get("dir_info") or {}).get("editable", False)
    url = str(content.get("url", ""))
    if commit:
        return f"{url}@{commit}"
    return f"editable {url}" if editable else url
