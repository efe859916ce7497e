"""Reads docker-compose.yml: which image a service has, and with which command and environment it starts it.

The stack tests start each server with the flags that compose gives it, so that a wrong flag shows here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml

from tests.stack.programs import REPOSITORY

# ${NAME}, ${NAME:-default}, ${NAME:+instead}; compose knows more, its file here does not use them.
_VARIABLE = re.compile(r"\$\{([A-Z_][A-Z0-9_]*)(?:(:-|:\+)([^}]*))?\}")


class _Loader(yaml.SafeLoader):
    """Compose's own tag !reset takes a merged key away again."""


_Loader.add_constructor("!reset", lambda loader, node: None)


@cache
def services() -> dict[str, Any]:
    """Return the services of docker-compose.yml, variables as they stand."""
    with (REPOSITORY / "docker-compose.yml").open() as file:
        return dict(yaml.load(file, _Loader)["services"])


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Return a text with its variables replaced as compose does; a variable that is not set is empty."""

    def value(match: re.Match[str]) -> str:
        name, how, word = match.groups()
        set_to = variables.get(name, "")
        if how == ":-":
            return set_to or word
        if how == ":+":
            return word if set_to else ""
        return set_to

    return _VARIABLE.sub(value, text)


def command(service: str, variables: Mapping[str, str] | None = None) -> list[str]:
    """Return a service's command as a list of arguments."""
    found = services()[service]["command"]
    if isinstance(found, str):
        return shlex.split(expanded(found, variables or {}))
    return [expanded(part, variables or {}) for part in found]


def environment(service: str, variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a service's environment; what compose leaves empty is left out."""
    found = services()[service].get("environment", {})
    values = {name: expanded(str(value), variables or {}) for name, value in found.items()}
    return {name: value for name, value in values.items() if value}
