"""Records one stage of a pipeline: what it read, what it made, by which code and parameters, and how long it took."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

from otel_train import clock
from otel_train.lineage.documents import plain
from otel_train.lineage.files import FILE_LIMIT, add_checksums, describe_code, describe_files

StageStatus = Literal["running", "ok", "failed", "truncated"]
MAX_PARAMETERS = 1000


class StageRecord:
    """What is known of one stage; times come in, nothing here reads a clock or raises.

    Inputs, outputs and code are paths, globs, folders, URLs, mappings of names to these, or arrays in memory (see
    `files.describe_files`). With ``hash_now=False`` files get their checksums by `complete`, which belongs off the
    training thread.
    """

    def __init__(
        self,
        name: str,
        *,
        base: str | os.PathLike[str] | None = None,
        hash_now: bool = False,
        parent: str | None = None,
    ) -> None:
        self.name = str(name)
        self.parent = parent
        self.status: StageStatus = "running"
        self.inputs: list[dict[str, Any]] = []
        self.outputs: list[dict[str, Any]] = []
        self.code: list[dict[str, Any]] = []
        self.parameters: dict[str, Any] = {}
        self.error: str | None = None
        self.problems: list[str] = []
        self._base = base
        self._hash_now = hash_now
        self._started_ns: int | None = None
        self._ended_ns: int | None = None
        self._started_mono_ns = 0
        self._duration_s: float | None = None

    def start(self, wall_ns: int, mono_ns: int) -> None:
        """Take the start: the wall time and a monotonic one, both in nanoseconds."""
        self._started_ns = wall_ns
        self._started_mono_ns = mono_ns

    def end(self, wall_ns: int, mono_ns: int, status: StageStatus = "ok", error: str | None = None) -> None:
        """Take the end; the duration is that of the monotonic clock."""
        self._ended_ns = wall_ns
        if self._started_ns is not None:
            self._duration_s = (mono_ns - self._started_mono_ns) / clock.NS_PER_S
        self.status = status
        self.error = error

    def add_inputs(self, paths: Any) -> None:
        """Add what the stage reads."""
        self._add("inputs", self.inputs, paths, describe_files)

    def add_outputs(self, paths: Any) -> None:
        """Add what the stage made; call it when it is written."""
        self._add("outputs", self.outputs, paths, describe_files)

    def add_code(self, code: Any) -> None:
        """Add what the stage is made by: a script, a folder, a function, a class or a module."""
        self._add("code", self.code, code, describe_code)

    def set_parameters(self, parameters: Any) -> None:
        """Add parameters by name; foreign values are kept as texts."""
        if parameters is None:
            return
        if not isinstance(parameters, Mapping):
            self.problems.append(f"parameters are a mapping of names to values, not a {type(parameters).__name__}")
            return
        for key, value in parameters.items():
            if len(self.parameters) >= MAX_PARAMETERS and str(key) not in self.parameters:
                self.problems.append(f"only the first {MAX_PARAMETERS} parameters are kept")
                return
            self.parameters[str(key)] = plain(value)

    @property
    def pending(self) -> bool:
        """Whether files wait for their checksum."""
        return any(entry.get("pending") for entry in (*self.inputs, *self.outputs, *self.code))

    def complete(self) -> None:
        """Hash the files that wait for it. Whoever adds files meanwhile finds them kept, and pending."""
        for kept in (self.inputs, self.outputs, self.code):
            for index, entry in enumerate(tuple(kept)):
                if entry.get("pending"):
                    # Replaced, never changed in place: `to_dict` may be reading.
                    kept[index] = add_checksums(entry)
                    self._say(kept[index])

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of run.json's list of stages."""
        entry: dict[str, Any] = {"name": self.name, "status": self.status}
        if self.parent is not None:
            entry["parent"] = self.parent
        if self._started_ns is not None:
            entry["started"] = clock.iso(self._started_ns)
        if self._ended_ns is not None:
            entry["ended"] = clock.iso(self._ended_ns)
        if self._duration_s is not None:
            entry["duration_s"] = self._duration_s
        for role, kept in (("inputs", self.inputs), ("outputs", self.outputs), ("code", self.code)):
            entry[role] = [dict(one) for one in tuple(kept)]
        entry["parameters"] = dict(self.parameters)
        if self.error is not None:
            entry["error"] = self.error
        if self.problems:
            entry["problems"] = list(self.problems)
        return entry

    def _add(
        self, role: str, kept: list[dict[str, Any]], what: Any, describe: Callable[..., list[dict[str, Any]]]
    ) -> None:
        try:
            entries = describe(what, base=self._base, hash_now=self._hash_now)
        except Exception as fault:  # noqa: BLE001 - a foreign value may raise anything; the stage goes on
            self.problems.append(f"{role} could not be described: {type(fault).__name__}: {fault}")
            return
        left = FILE_LIMIT - len(kept)
        if len(entries) > left:
            self.problems.append(f"only the first {FILE_LIMIT} {role} are listed")
        for entry in entries[: max(left, 0)]:
            kept.append(entry)
            self._say(entry)

    def _say(self, entry: Mapping[str, Any]) -> None:
        if "problem" in entry:
            text = f"{entry['path'] or entry.get('type', 'a value')}: {entry['problem']}"
            if text not in self.problems:
                self.problems.append(text)
