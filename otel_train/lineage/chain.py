"""Follows a model file back to the raw data: through runs, stages, data sets and parent models, by checksum."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from otel_train.errors import CheckpointError, RunFolderError
from otel_train.lineage.chain_nodes import Chain, Node, code_of, context_details, run_details
from otel_train.lineage.contexts import read_context
from otel_train.lineage.files import describe_file
from otel_train.lineage.model_files import context_of, describe_checkpoint
from otel_train.lineage.runs_index import (
    Match,
    RunsIndex,
    entry_path,
    entry_sha,
    entry_whole,
    listed,
)

MAX_NODES = 2000
# Every hop takes a few frames of Python's stack.
MAX_HOPS = 100
_Key = tuple[str, str, int]


def trace_lineage(
    path: str | os.PathLike[str],
    roots: Sequence[str | os.PathLike[str]],
    *,
    verify: bool = True,
    progress: Callable[[int, int], None] | None = None,
    max_nodes: int = MAX_NODES,
) -> Chain:
    """Return the chain behind a file, folder, run folder, run id or name; never raises for what it finds.

    `roots` are the folders of runs to search, also those of other runs than the model's. The file is hashed and found
    by its content, so it may have been moved or renamed; with ``verify=False`` the context beside it is believed.
    `progress(done, total)` counts runs read. ``found`` is False where nothing is known of the file.
    """
    index = RunsIndex(roots, progress)
    tracer = _Tracer(index, roots, max_nodes)
    tracer.problems.extend(f"damaged, left out: {text}" for text in index.damaged)
    text = os.fspath(path)
    if os.path.isfile(os.path.join(text, "run.json")):
        run_id = next((key for key, folder in index.folders.items() if folder == Path(text).resolve()), None)
        if run_id is None:
            index_here = RunsIndex([text])
            index.folders |= index_here.folders
            run_id = next(iter(index_here.folders), None)
        root = tracer.run(run_id or text, "", {})
        return Chain(root, tracer.problems, run_id is not None)
    if not os.path.lexists(text):
        run_id = index.resolve(text)
        if run_id is not None:
            return Chain(tracer.run(run_id, "", {}), tracer.problems, True)
    root = tracer.start(text, verify)
    return Chain(root, tracer.problems, bool(root.children))


class _Tracer:
    def __init__(self, index: RunsIndex, roots: Sequence[str | os.PathLike[str]], max_nodes: int) -> None:
        self.problems: list[str] = []
        self._index = index
        self._roots = roots
        self._left = max_nodes
        self._open: list[_Key] = []
        self._done: set[_Key] = set()

    def start(self, text: str, verify: bool) -> Node:
        """Return the node of the file that is asked about."""
        absolute = os.path.abspath(text)
        if not os.path.lexists(text):
            entry: dict[str, Any] = {"path": text, "absolute": absolute, "kind": "missing"}
            hexadecimal = len(text) == 64 and all(digit in "0123456789abcdef" for digit in text)
            if hexadecimal:
                entry |= {"sha256": text, "kind": "name"}
            else:
                self.problems.append(f"{text}: no such file, and no run of that id or name; looked for by its path")
            return self.model(entry, "", "", None)
        context: Mapping[str, Any] | None = None
        if verify:
            entry = describe_checkpoint(text)
            context = context_of(entry, self._roots)
        else:
            entry = describe_file(text, hash_now=False)
            entry.pop("pending", None)
            try:
                context = read_context(text)
                entry["sha256"] = context.get("sha256")
                entry["note"] = "its checksum is that of the context beside it, not verified"
            except CheckpointError as fault:
                self.problems.append(str(fault))
        self.problems.extend(entry.pop("problems", []))
        return self.model(entry, "", "", context)

    def model(self, entry: Mapping[str, Any], link: str, before: str, context: Mapping[str, Any] | None) -> Node:
        """Return the node of a model file with the run that made it."""
        node = self._file_node(entry, link)
        if node.kind in ("file", "folder"):
            node.kind = "model"
        context = context or self._context_beside(entry)
        teller = context if context is not None else entry
        run_id = str(teller.get("run") or "")
        match = self._index.find(
            sha256=node.sha256, path=entry_path(entry), before=before, prefer_run=run_id, prefer="checkpoint"
        )
        # A later producer, or another content at the same place, is a guess; what the context says is not.
        sure = match is not None and match.by == "sha256" and (not run_id or match.producer.run_id == run_id)
        if run_id and not sure:
            node.children.append(self.run(run_id, "saved by", teller))
        elif match is not None:
            self._add_producer(node, match)
        elif node.kind not in ("url", "name"):
            node.notes.append("no known run made it")
        return node

    def _context_beside(self, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the context beside a parent, as long as it tells of the content that the run started from."""
        sha256 = entry_sha(entry)
        if not sha256 or not entry.get("absolute"):
            return None
        try:
            context = read_context(str(entry["absolute"]))
        except CheckpointError:
            return None
        return context if context.get("sha256") == sha256 else None

    def run(self, run_id: str, link: str, checkpoint: Mapping[str, Any]) -> Node:
        """Return the node of a run with all that went into it by the time of a checkpoint (or at all)."""
        attempt = checkpoint.get("attempt")
        key = (run_id, "run", attempt if isinstance(attempt, int) else 0)
        if (ended := self._repeated(key, f"run {run_id}", link)) is not None:
            return ended
        try:
            document = self._index.read(run_id)
        except RunFolderError as fault:
            return self._run_of_context(run_id, link, checkpoint, str(fault))
        self._open.append(key)
        node = Node("run", f"run {run_id}", link, details=run_details(document, checkpoint))
        last = attempt if isinstance(attempt, int) else None
        time = str(checkpoint.get("time") or checkpoint.get("created") or "")
        for entry in _newest([one for one in listed(document, "checkpoints") if one.get("role") == "loaded"], last):
            if entry:
                self._add(node, self.model, entry, "started from", str(entry.get("time") or ""), None)
        for position, entry in enumerate(_newest(listed(document, "datasets"), last)):
            if entry:
                self._add(node, self._dataset, run_id, document, position, entry, "data")
        for position, stage in enumerate(listed(document, "stages")):
            later = time and str(stage.get("started") or "") > time
            if _of_attempt(stage, last) and not later and (run_id, "stage", position) not in self._open:
                self._add(node, self._stage, run_id, position, stage, "stage")
        before = self._index.traces.before(run_id)
        # Where files join the two already, that says more.
        if before is not None and not _tells_of(node, before.run_id):
            self._add(node, self.run, before.run_id, before.link, {})
        self._close(key)
        return node

    def _run_of_context(self, run_id: str, link: str, context: Mapping[str, Any], reason: str) -> Node:
        """Return a run as far as a checkpoint's context tells of it: its folder is gone or elsewhere."""
        key = (run_id, "run", 0)
        self._open.append(key)
        node = Node("run", f"run {run_id}", link, details=context_details(context))
        node.notes.append("told by the checkpoint's context alone")
        self.problems.append(reason)
        time = str(context.get("created") or "")
        for entry in listed(context, "parents"):
            self._add(node, self.model, entry, "started from", time, None)
        for entry in listed(context, "data"):
            self._add(node, self._dataset, run_id, {}, -1, entry, "data")
        for stage in listed(context, "stages"):
            self._add(node, self._stage, run_id, -1, stage, "stage")
        self._close(key)
        return node

    def _stage(self, run_id: str, position: int, stage: Mapping[str, Any], link: str) -> Node:
        title = f"stage {stage.get('name')}"
        if link == "made by":
            title += f" of run {run_id}"
        key = (run_id, "stage", position)
        if position >= 0 and (ended := self._repeated(key, title, link)) is not None:
            return ended
        self._open.append(key)
        node = Node("stage", title, link)
        for name in ("status", "started", "duration_s", "parameters"):
            if stage.get(name) not in (None, {}):
                node.details[name] = stage[name]
        if link == "made by" and not any(one[:2] == (run_id, "run") for one in self._open):
            node.details |= self._code_of(run_id)
        used = str(stage.get("started") or "")
        for entry in listed(stage, "code"):
            self._add(node, self._file_node, entry, "code")
        for entry in listed(stage, "inputs"):
            self._add(node, self._traced_file, entry, "input", used, frozenset({key}))
        for entry in listed(stage, "outputs"):
            self._add(node, self._file_node, entry, "output")
        self._close(key)
        return node

    def _dataset(
        self, run_id: str, document: Mapping[str, Any], position: int, entry: Mapping[str, Any], link: str
    ) -> Node:
        """Return a data set with the files it came from, else the stage that made or logged it."""
        node = Node("dataset", f"data set {entry.get('name')}", link, entry_sha(entry), entry_whole(entry))
        for name in ("size", "class_count", "sampling", "dropped"):
            if entry.get(name) is not None:
                node.details[name] = entry[name]
        time = str(entry.get("time") or "")
        key = (run_id, "dataset", position)
        for one in listed(entry, "files"):
            self._add(node, self._traced_file, one, "from", time, frozenset({key}))
        parts = entry.get("parts")
        for name, part in parts.items() if isinstance(parts, Mapping) else ():
            if isinstance(part, Mapping):
                inner = {"name": name, **part, "time": time}
                self._add(node, self._dataset, run_id, {}, position, inner, "part")
        if node.children:
            return node
        # Data that lay in memory: what a stage made with the same content, else what an earlier run had.
        match = self._index.find(sha256=node.sha256, before=time, exclude_datasets_of=run_id)
        if match is not None and not (match.later and match.producer.role == "dataset"):
            self._add_producer(node, match)
            if node.children and node.children[0].children:
                return node
            node.children.clear()
        for at, stage in enumerate(listed(document, "stages")):
            if entry.get("stage") and stage.get("name") == entry["stage"]:
                self._add(node, self._stage, run_id, at, stage, "logged in")
                break
        return node

    def _traced_file(self, entry: Mapping[str, Any], link: str, used: str, exclude: frozenset[_Key]) -> Node:
        node = self._file_node(entry, link)
        if node.kind == "missing":
            self.problems.append(f"{node.title}: it was missing when the run asked for it")
        match = self._index.find(sha256=node.sha256, path=entry_path(entry), before=used, exclude=exclude)
        if match is not None and match.producer.role != "dataset":
            self._add_producer(node, match)
        elif node.kind in ("file", "folder", "list", "value"):
            node.notes.append("raw: no known run made it")
        return node

    def _add_producer(self, node: Node, match: Match) -> None:
        producer = match.producer
        if match.by == "path":
            node.notes.append("found by its path")
            if match.differs:
                node.notes.append("its content differs from what was made")
                self.problems.append(f"{node.title}: its content differs from what run {producer.run_id} made there")
        if match.later:
            node.notes.append("the same content was made after it was used")
        if match.others:
            node.notes.append(f"{match.others} more run{'s' if match.others > 1 else ''} made the same content")
        try:
            document = self._index.read(producer.run_id)
        except RunFolderError as fault:
            self.problems.append(str(fault))
            return
        entries = listed(document, f"{producer.role}s")
        if producer.position >= len(entries):
            self.problems.append(f"run {producer.run_id} was rewritten while it was read")
            return
        entry = entries[producer.position]
        if producer.role == "stage":
            self._add(node, self._stage, producer.run_id, producer.position, entry, "made by")
        elif producer.role == "checkpoint":
            link = "saved by" if producer.saved else "logged by"
            if self._is_within(producer.run_id):
                node.children.append(Node("seen", f"run {producer.run_id}", link, notes=["this run itself, above"]))
            else:
                self._add(node, self.run, producer.run_id, link, entry)
        else:
            key = (producer.run_id, "dataset", producer.position)
            if (ended := self._repeated(key, f"data set {entry.get('name')}", "same as")) is not None:
                node.children.append(ended)
                return
            self._open.append(key)
            self._add(node, self._dataset, producer.run_id, document, producer.position, entry, "same as")
            self._close(key)
            node.children[-1].title += f" of run {producer.run_id}"

    def _file_node(self, entry: Mapping[str, Any], link: str) -> Node:
        kind = "code" if link == "code" else str(entry.get("kind") or "file")
        title = str(entry.get("path") or entry.get("type") or "a value")
        node = Node(kind, title, link, entry_sha(entry), entry_whole(entry))
        if kind in ("file", "folder") and entry.get("absolute") not in (None, title):
            node.details["absolute"] = entry["absolute"]
        for name in ("size", "name", "function", "files", "base_model", "format"):
            if entry.get(name) is not None:
                node.details[name] = entry[name]
        for name in ("problem", "note"):
            if entry.get(name):
                node.notes.append(str(entry[name]))
        if not node.whole:
            node.notes.append("checksum of a sample")
        return node

    def _code_of(self, run_id: str) -> dict[str, Any]:
        try:
            return {"code": code_of(self._index.read(run_id), None)}
        except RunFolderError:
            return {}

    def _repeated(self, key: _Key, title: str, link: str) -> Node | None:
        """Return the end of a branch: it closes a circle, was told already, or has grown too long."""
        if key in self._open:
            self.problems.append(f"{title} is among its own sources")
            return Node("cycle", title, link, notes=["a circle: it is above, among what this made"])
        if key in self._done:
            return Node("seen", title, link, notes=["told elsewhere in this tree"])
        if len(self._open) >= MAX_HOPS:
            self.problems.append(f"the chain goes on behind {title}; only {MAX_HOPS} steps are followed")
            return Node("seen", title, link, notes=["not followed further"])
        return None

    def _is_within(self, run_id: str) -> bool:
        """Tell whether this branch has not left the run since it entered it: its own checkpoint is no circle."""
        for key in reversed(self._open):
            if key[0] != run_id:
                return False
            if key[1] == "run":
                return True
        return False

    def _close(self, key: _Key) -> None:
        self._open.remove(key)
        self._done.add(key)

    def _add(self, node: Node, make: Callable[..., Node], *arguments: Any) -> None:
        if self._left <= 0:
            if not node.notes or node.notes[-1] != "more is not shown":
                node.notes.append("more is not shown")
                if "the tree was cut: it is too large" not in self.problems:
                    self.problems.append("the tree was cut: it is too large")
            return
        self._left -= 1
        node.children.append(make(*arguments))


def _tells_of(node: Node, run_id: str) -> bool:
    """Tell whether a run, or something of it, stands in a tree."""
    return any(run_id in child.title or _tells_of(child, run_id) for child in node.children)


def _newest(entries: list[Mapping[str, Any]], last: int | None) -> list[Mapping[str, Any]]:
    """Return the list with an empty entry in the place of what a later attempt (up to `last`) logged again alike."""
    kept: list[Mapping[str, Any]] = []
    seen: set[tuple[str, str, str]] = set()
    for entry in reversed(entries):
        identity = (str(entry.get("name") or ""), entry_path(entry), entry_sha(entry))
        repeated = identity in seen and any(identity)
        kept.append({} if repeated or not _of_attempt(entry, last) else entry)
        if _of_attempt(entry, last):
            seen.add(identity)
    return kept[::-1]


def _of_attempt(entry: Mapping[str, Any], last: int | None) -> bool:
    attempt = entry.get("attempt")
    return last is None or not isinstance(attempt, int) or attempt <= last
