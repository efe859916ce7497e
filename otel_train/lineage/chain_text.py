"""Draws a chain of lineage as an indented tree for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from otel_train.lineage.chain_nodes import Chain, Node

_MAX_VALUES = 6
_MAX_TEXT = 60


def render(chain: Chain, *, unicode: bool = True) -> str:
    """Return the tree with short checksums, then the problems; `unicode=False` draws its lines in ASCII."""
    lines = [_line(chain.root)]
    lines.extend(_below(chain.root, "", unicode))
    if chain.problems:
        lines += ["", "Missing or doubtful:"]
        lines += [f"  - {problem}" for problem in dict.fromkeys(chain.problems)]
    return "\n".join(lines)


def size_text(size: float) -> str:
    """Return bytes as people read them: 512 B, 1.2 kB, 3.4 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _below(node: Node, indent: str, unicode: bool) -> Iterator[str]:
    branch, last_branch, pass_by = ("├─ ", "└─ ", "│  ") if unicode else ("|- ", "`- ", "|  ")
    for number, child in enumerate(node.children):
        is_last = number == len(node.children) - 1
        yield indent + (last_branch if is_last else branch) + _line(child)
        deeper = indent + ("   " if is_last else pass_by)
        for extra in _extra_lines(child):
            yield deeper + (pass_by if child.children else "   ") + extra
        yield from _below(child, deeper, unicode)


def _line(node: Node) -> str:
    # "data set train" and "stage clean" say by themselves what they are.
    parts = [node.title if node.title.startswith(node.link) else f"{node.link} {node.title}"]
    name = node.details.get("name")
    if name and node.kind in ("run", "file", "folder", "url"):
        parts[0] += f" ({_short(name)})"
    if node.sha256:
        parts.append(f"sha256 {node.sha256[:12]}")
    size = node.details.get("size")
    if isinstance(size, (int, float)):
        parts.append(_counted(size, "sample") if node.kind == "dataset" else size_text(size))
    if isinstance(node.details.get("class_count"), int):
        parts.append(_counted(node.details["class_count"], "class", "classes"))
    for key, text in _SHORT_DETAILS.items():
        value = node.details.get(key)
        if value is not None and value is not False:
            parts.append(text.format(_short(value)))
    duration = node.details.get("duration_s")
    if isinstance(duration, (int, float)):
        parts.append(f"{duration:.3g} s")
    return "  ".join(parts) + (f"  [{'; '.join(node.notes)}]" if node.notes else "")


_SHORT_DETAILS = {
    "attempt": "attempt {}",
    "step": "step {}",
    "epoch": "epoch {}",
    "iterations": "{} iterations",
    "best": "best",
    "sampling": "{}",
    "status": "{}",
    "function": "in {}",
    "base_model": "base model {}",
}


def _extra_lines(node: Node) -> Iterator[str]:
    """Yield what of a run or stage does not fit on its line: code, seed, values."""
    code = node.details.get("code")
    if isinstance(code, Mapping) and code:
        text = f"code {str(code.get('commit') or 'without commit')[:12]}"
        if code.get("branch"):
            text += f" on {code['branch']}"
        yield text + (", with changes that are not committed" if code.get("dirty") else "")
    if node.details.get("seed") is not None:
        yield f"seed {_short(node.details['seed'])}"
    for key, title in (("config", "configuration"), ("parameters", "parameters")):
        values = node.details.get(key)
        if isinstance(values, Mapping) and values:
            shown = [f"{name}={_short(value)}" for name, value in list(values.items())[:_MAX_VALUES]]
            more = len(values) - len(shown)
            yield f"{title}: " + ", ".join(shown) + (f" and {more} more" if more else "")
    dropped = node.details.get("dropped")
    if isinstance(dropped, Mapping) and dropped.get("total"):
        yield f"{_counted(dropped['total'], 'sample')} dropped before"


def _counted(number: float, one: str, more: str = "") -> str:
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def _short(value: Any) -> str:
    """Return a value on one line, without control characters that would write over the terminal."""
    text = "".join(character if character.isprintable() else "?" for character in str(value))
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"
