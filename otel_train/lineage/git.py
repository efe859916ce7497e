"""Describes the code that runs: commit, branch, remote without credentials, and the patch of what differs from it.

Everything comes from `git`, with a time limit, without locks, prompts or network; where git is missing or refuses, its
files are read for what they tell, and where there is no repository the variables of build systems are.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from typing import Any, Final

from otel_train.clock import SYSTEM, Clock
from otel_train.lineage.git_command import Git, GitFault, GitTimeout, NoRepository
from otel_train.lineage.git_files import read_git_files
from otel_train.lineage.redact import Redactor, remote_without_credentials

_EMPTY_TREE: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_MAX_UNTRACKED: Final = 100
_MAX_CHANGED: Final = 1000
_SMALL_FILE_BYTES: Final = 1 << 20
_BUILD_VARIABLES: Final = (
    ("OTEL_TRAIN_GIT_COMMIT", "OTEL_TRAIN_GIT_BRANCH"),
    ("GIT_COMMIT", "GIT_BRANCH"),
    ("GITHUB_SHA", "GITHUB_REF_NAME"),
    ("CI_COMMIT_SHA", "CI_COMMIT_REF_NAME"),
    ("SOURCE_COMMIT", "SOURCE_BRANCH"),
)
_HASH: Final = re.compile(r"[0-9a-fA-F]{7,64}\Z")


def describe_code(
    folder: str | None,
    redactor: Redactor,
    *,
    environ: Mapping[str, str] | None = None,
    git: str = "git",
    timeout_s: float = 10.0,
    max_patch_bytes: int = 1 << 20,
    clock: Clock = SYSTEM,
) -> dict[str, Any]:
    """Return what is known of the code in `folder`. Never raises; may take `timeout_s` in all.

    Keys: commit, branch (absent when detached), detached, remote, dirty (tracked files differ; absent when unknown),
    root, shallow, changed_files, patch (redacted, cut at `max_patch_bytes`), patch_sha256 (of the whole, as it is),
    patch_bytes, patch_cut, untracked (path, size, sha256 of small ones), untracked_left_out, reasons.
    """
    variables = os.environ if environ is None else environ
    start = folder or os.getcwd()
    reasons: dict[str, str] = {}
    runner = Git(git, start, variables, timeout_s, clock)
    try:
        found = _from_git(runner, reasons, max_patch_bytes)
    except NoRepository as fault:
        found = _from_variables(variables)
        reasons["code"] = str(fault)
    except GitFault as fault:
        found = read_git_files(start) or _from_variables(variables)
        reasons["code"] = str(fault)
    except Exception as fault:  # noqa: BLE001 - the run goes on without its code
        found = {}
        reasons["code"] = f"{type(fault).__name__}: {fault}"
    if "remote" in found:
        found["remote"] = redactor.text(remote_without_credentials(found["remote"]))
    if "patch" in found:
        found["patch"] = redactor.text(found["patch"])
    if reasons:
        found["reasons"] = {part: redactor.text(reason) for part, reason in reasons.items()}
    return found


def _from_git(git: Git, reasons: dict[str, str], max_patch_bytes: int) -> dict[str, Any]:
    lines = git.text("rev-parse", "--show-toplevel", "--is-shallow-repository").splitlines()
    root = lines[0]
    git.folder = root
    found: dict[str, Any] = {"root": root}
    if lines[1:2] == ["true"]:
        found["shallow"] = True
    found |= _head(git)
    try:
        found |= _remote(git, found.get("branch"))
        found |= _status(git, root)
    except GitFault as fault:
        reasons["dirty"] = str(fault)
    if found.get("dirty"):
        try:
            found |= _patch(git, found.get("commit"), max_patch_bytes)
        except GitFault as fault:
            reasons["patch"] = str(fault)
    return found


def _head(git: Git) -> dict[str, Any]:
    found: dict[str, Any] = {}
    try:
        found["commit"] = git.text("rev-parse", "--verify", "HEAD").strip()
    except GitTimeout:
        raise
    except GitFault:
        pass  # a repository without a commit
    try:
        found["branch"] = git.text("symbolic-ref", "--short", "HEAD").strip()
    except GitTimeout:
        raise
    except GitFault:
        found["detached"] = True
    return found


def _remote(git: Git, branch: str | None) -> dict[str, Any]:
    """Return the remote that the branch follows, else `origin`, else the only or first one."""
    try:
        listing = git.text("config", "-z", "--get-regexp", r"^(remote\..*\.url|branch\..*\.remote)$")
    except GitTimeout:
        raise
    except GitFault:
        return {}  # git fails where there is none
    entries = [entry.partition("\n") for entry in listing.split("\0") if entry]
    urls = {key[len("remote.") : -len(".url")]: value for key, _, value in reversed(entries) if key.endswith(".url")}
    follows = next((value for key, _, value in entries if key == f"branch.{branch}.remote"), "origin")
    url = urls.get(follows) or urls.get("origin") or next(iter(urls.values()), None)
    return {"remote": url} if url else {}


def _status(git: Git, root: str) -> dict[str, Any]:
    changed: list[str] = []
    untracked: list[str] = []
    entries = iter(git.text("status", "--porcelain=v1", "-z", "--untracked-files=normal").split("\0"))
    for entry in entries:
        if not entry:
            continue
        state, path = entry[:2], entry[3:]
        if state == "??":
            untracked.append(path)
            continue
        changed.append(path)
        if "R" in state or "C" in state:
            next(entries, None)  # the former name
    found: dict[str, Any] = {"dirty": bool(changed)}
    if changed:
        found["changed_files"] = changed[:_MAX_CHANGED]
    if untracked:
        found["untracked"] = [_untracked_file(root, path) for path in untracked[:_MAX_UNTRACKED]]
        if len(untracked) > _MAX_UNTRACKED:
            found["untracked_left_out"] = len(untracked) - _MAX_UNTRACKED
    return found


def _untracked_file(root: str, path: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"path": path}
    full = os.path.join(root, path)
    try:
        if os.path.isfile(full) and not os.path.islink(full):
            entry["size"] = os.path.getsize(full)
            if entry["size"] <= _SMALL_FILE_BYTES:
                with open(full, "rb") as file:
                    entry["sha256"] = hashlib.sha256(file.read(_SMALL_FILE_BYTES + 1)).hexdigest()
    except OSError:
        pass
    return entry


def _patch(git: Git, commit: str | None, limit: int) -> dict[str, Any]:
    output = git.output("diff", "--no-color", "--no-ext-diff", "--no-textconv", commit or _EMPTY_TREE, keep=limit)
    found: dict[str, Any] = {
        "patch": output.kept.decode("utf-8", "replace"),
        "patch_bytes": output.size,
        "patch_sha256": output.sha256,
    }
    if output.size > limit:
        found["patch"] += f"\n[cut, {output.size} bytes]\n"
        found["patch_cut"] = True
    return found


def _from_variables(environ: Mapping[str, str]) -> dict[str, Any]:
    for commit, branch in _BUILD_VARIABLES:
        if _HASH.match(environ.get(commit, "")):
            found: dict[str, Any] = {"commit": environ[commit], "from": f"the environment variable {commit}"}
            if environ.get(branch):
                found["branch"] = environ[branch]
            return found
    return {}
