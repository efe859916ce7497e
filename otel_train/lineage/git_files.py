"""Reads commit, branch and remote out of git's own files, for hosts without git and folders that git refuses.

Nothing is executed and nothing is trusted: a foreign repository's configuration cannot start a program here.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final

_HASH: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_MAX_LEVELS: Final = 64
_MAX_BYTES: Final = 8 << 20
_SECTION: Final = re.compile(r'^\s*\[remote\s+"([^"]+)"\]', re.MULTILINE)
_URL: Final = re.compile(r"^\s*url\s*=\s*(\S+)", re.MULTILINE)


def read_git_files(start: str) -> dict[str, Any]:
    """Return root, commit, branch or detached, and remote of the work tree around `start`; `{}` where there is none."""
    root = os.path.abspath(start)
    for _ in range(_MAX_LEVELS):
        folder = _git_folder(root)
        if folder is not None:
            return {"root": root, **_read_head(folder)}
        parent = os.path.dirname(root)
        if parent == root:
            break
        root = parent
    return {}


def _git_folder(root: str) -> str | None:
    path = os.path.join(root, ".git")
    if os.path.isdir(path):
        return path if os.path.isfile(os.path.join(path, "HEAD")) else None
    text = _read(path)  # a worktree or submodule: a file that names the folder
    if text is not None and text.startswith("gitdir:"):
        return os.path.normpath(os.path.join(root, text[len("gitdir:") :].strip()))
    return None


def _read_head(folder: str) -> dict[str, Any]:
    common_name = _read(os.path.join(folder, "commondir"))
    common = os.path.normpath(os.path.join(folder, common_name.strip())) if common_name else folder
    head = (_read(os.path.join(folder, "HEAD")) or "").strip()
    found: dict[str, Any] = {}
    if head.startswith("ref:"):
        reference = head[len("ref:") :].strip()
        found["branch"] = reference.removeprefix("refs/heads/")
        commit = _resolve(folder, common, reference)
        if commit:
            found["commit"] = commit
    elif _HASH.match(head):
        found |= {"commit": head, "detached": True}
    remote = _remote(_read(os.path.join(common, "config")) or "")
    if remote:
        found["remote"] = remote
    return found


def _resolve(folder: str, common: str, reference: str) -> str | None:
    for base in (folder, common):
        text = (_read(os.path.join(base, *reference.split("/"))) or "").strip()
        if _HASH.match(text):
            return text
    for line in (_read(os.path.join(common, "packed-refs")) or "").splitlines():
        commit, _, name = line.partition(" ")
        if name.strip() == reference and _HASH.match(commit):
            return commit
    return None


def _remote(config: str) -> str | None:
    """Return the URL of `origin`, else of the first remote."""
    urls: dict[str, str] = {}
    for match in _SECTION.finditer(config):
        body = re.split(r"^\s*\[", config[match.end() :], maxsplit=1, flags=re.MULTILINE)[0]
        url = _URL.search(body)
        if url:
            urls.setdefault(match[1], url[1])
    return urls.get("origin") or next(iter(urls.values()), None)


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_BYTES)
    except OSError:
        return None
