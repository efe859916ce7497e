"""What a chain of lineage is made of: its nodes, and what a run's node says of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from otel_train.lineage.documents import plain
from otel_train.lineage.runs_index import listed

_CONTEXT_DETAILS = (
    *("project", "created", "attempt", "step", "epoch", "iterations"),
    *("best", "code", "seed", "config", "image"),
)


@dataclass(slots=True)
class Node:
    """One link of the chain.

    `kind`: model, run, stage, dataset, file, folder, list, url, name, value, code, missing, cycle, seen. `link` says
    how it is tied to the node above: started from, saved by, made by, data, stage, input, output, code; started by, in
    one trace after.
    """

    kind: str
    title: str
    link: str = ""
    sha256: str = ""
    whole: bool = True
    details: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the node and all below it for JSON, empty fields left out."""
        fields: dict[str, Any] = {"kind": self.kind, "title": self.title, "link": self.link, "sha256": self.sha256}
        if self.sha256:
            fields["whole"] = self.whole
        fields |= {"details": plain(self.details), "notes": list(self.notes)}
        fields["children"] = [child.to_dict() for child in self.children]
        return {key: value for key, value in fields.items() if value not in ("", [], {})}


@dataclass(slots=True)
class Chain:
    """The tree from the model down to what nothing known made; `problems` are missing links and damaged records."""

    root: Node
    problems: list[str]
    found: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the chain for JSON."""
        return {"found": self.found, "chain": self.root.to_dict(), "problems": list(self.problems)}


def _attempt(document: Mapping[str, Any], number: Any) -> Mapping[str, Any]:
    attempts = listed(document, "attempts")
    for attempt in attempts:
        if attempt.get("attempt") == number:
            return attempt
    return attempts[-1] if attempts else {}


def run_details(document: Mapping[str, Any], checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run's node says: name, status, and of the checkpoint's attempt the code, seed, configuration."""
    number = checkpoint.get("attempt")
    attempt = _attempt(document, number)
    details: dict[str, Any] = {}
    for name, key in (("name", "run_name"), ("project", "project"), ("status", "status"), ("created", "created")):
        if document.get(key):
            details[name] = document[key]
    details["attempt"] = number if number is not None else attempt.get("attempt")
    for name in ("step", "epoch", "iterations", "best"):
        if checkpoint.get(name) is not None:
            details[name] = checkpoint[name]
    details["code"] = code_of(document, number)
    for name in ("seed", "config"):
        if attempt.get(name) not in (None, {}):
            details[name] = attempt[name]
    if isinstance(details.get("seed"), Mapping):
        details["seed"] = details["seed"].get("seed")
    return {name: value for name, value in details.items() if value not in (None, {})}


def context_details(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same as far as a checkpoint's context tells it."""
    details = {"name": context.get("run_name")} | {name: context.get(name) for name in _CONTEXT_DETAILS}
    return {name: value for name, value in details.items() if value not in (None, "", {})}


def code_of(document: Mapping[str, Any], number: Any) -> dict[str, Any]:
    """Return commit, branch and dirtiness as the attempt recorded them."""
    attempt = _attempt(document, number)
    environment = attempt.get("environment")
    places = [attempt, environment if isinstance(environment, Mapping) else {}, document]
    for place in places:
        for key in ("code", "git", "vcs"):
            found = place.get(key)
            if isinstance(found, Mapping) and found:
                return {name: found[name] for name in ("commit", "branch", "dirty", "remote") if name in found}
    return {}
