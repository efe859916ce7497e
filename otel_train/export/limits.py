"""Cuts attributes and bodies down to what the stores take, and says of each what was cut."""

from __future__ import annotations

from typing import Any, Final

from otel_train.export.merge_json import dumps
from otel_train.semconv import ATTRIBUTES_CUT, ATTRIBUTES_REST, BODY_CUT, EVENT_NAME

# Loki takes 64 KiB and 128 entries of structured metadata a record. Besides attributes it makes some of its own
# (trace and span id, severity, scope), for which there is room left.
MOST_METADATA_BYTES: Final = 65_536 - 1_536
MOST_METADATA: Final = 128 - 16
# Loki's limit of a line.
MOST_BODY_BYTES: Final = 256 << 10
# Far above what Tempo keeps of an attribute; only there so that a span stays a message of reasonable size.
MOST_SPAN_VALUE_BYTES: Final = 64 << 10
# Room for the mark that lists what was cut, and how many names it holds.
_MARK_BYTES: Final = 2_048
_MOST_NAMES: Final = 20
_MOST_NAME_BYTES: Final = 80

Pair = dict[str, Any]


def attributes(holder: Any) -> list[Pair]:
    """Return the attributes of a resource, record or span; those that are no pair are left out."""
    found = holder.get("attributes") if isinstance(holder, dict) else None
    if not isinstance(found, list):
        return []
    return [pair for pair in found if isinstance(pair, dict) and isinstance(pair.get("key"), str)]


def fit_resource(block: dict[str, Any]) -> bool:
    """Cut a resource's attributes to half of what a record may have; True where something was cut."""
    pairs = attributes(block.get("resource"))
    cut = _cut_largest(pairs, MOST_METADATA_BYTES // 2)
    if cut:
        block["resource"]["attributes"] = [*pairs, _mark(cut)]
    return bool(cut)


def fit_record(record: dict[str, Any], resource: list[Pair]) -> bool:
    """Cut a log record's body and attributes; True where something was cut. `resource` is counted with them."""
    pairs = attributes(record)
    marks: list[Pair] = []
    body = record.get("body")
    if isinstance(body, dict) and body:
        text = _text(body)
        size = len(text.encode("utf-8", "replace"))
        if size > MOST_BODY_BYTES:
            record["body"] = {"stringValue": cut_text(text, MOST_BODY_BYTES)}
            marks.append({"key": BODY_CUT, "value": {"intValue": str(size)}})
    kept, rest = _split(pairs, MOST_METADATA - sum(map(_entries, resource)))
    if rest:
        text = dumps({pair["key"]: _text(pair.get("value")) for pair in rest}).decode()
        kept.append({"key": ATTRIBUTES_REST, "value": {"stringValue": text}})
    cut = _cut_largest(kept, MOST_METADATA_BYTES - _MARK_BYTES - sum(map(_size, resource)))
    if cut:
        marks.append(_mark(cut))
    if not (marks or rest):
        return False
    record["attributes"] = kept + marks
    return True


def fit_values(holder: dict[str, Any]) -> bool:
    """Cut single attribute values of a span, event or link that are too long; True where something was cut."""
    pairs = attributes(holder)
    cut = []
    for pair in pairs:
        if _size(pair) > MOST_SPAN_VALUE_BYTES:
            _shorten(pair, MOST_SPAN_VALUE_BYTES)
            cut.append(pair["key"])
    if cut:
        holder["attributes"] = [*pairs, _mark(cut)]
    return bool(cut)


def cut_text(text: str, most_bytes: int) -> str:
    """Return the text with its end cut off and a mark of its whole size, within so many bytes of UTF-8."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most_bytes:
        return text
    mark = f"… [cut, {len(data):,} bytes in all]"
    room = max(0, most_bytes - len(mark.encode()))
    return (data[:room].decode("utf-8", "ignore") + mark) if room else ""


def _split(pairs: list[Pair], most: int) -> tuple[list[Pair], list[Pair]]:
    """Return as many attributes as stay within so many entries, and the others. An event keeps its name."""
    if sum(map(_entries, pairs)) <= most:
        return list(pairs), []
    kept: list[Pair] = []
    rest: list[Pair] = []
    left = most - 4  # for the rest itself, and for marks
    for pair in sorted(pairs, key=lambda pair: pair["key"] != EVENT_NAME):
        left -= _entries(pair)
        (kept if left >= 0 else rest).append(pair)
    return kept, rest


def _cut_largest(pairs: list[Pair], most_bytes: int) -> list[str]:
    """Cut the largest attributes down to one common size so that all fit; return the names of those cut."""
    sizes = sorted(map(_size, pairs))
    if sum(sizes) <= most_bytes:
        return []
    left, level = max(0, most_bytes), 0
    for position, size in enumerate(sizes):
        level = left // (len(sizes) - position)
        if size > level:
            break
        left -= size
    cut = []
    for pair in pairs:
        if _size(pair) > level:
            _shorten(pair, level)
            cut.append(pair["key"])
    return cut


def _shorten(pair: Pair, most_bytes: int) -> None:
    room = max(0, most_bytes - len(pair["key"].encode("utf-8", "replace")))
    pair["value"] = {"stringValue": cut_text(_text(pair.get("value")), room)}


def _mark(names: list[str]) -> Pair:
    listed = [cut_text(name, _MOST_NAME_BYTES) for name in names[:_MOST_NAMES]]
    if len(names) > _MOST_NAMES:
        listed.append(f"and {len(names) - _MOST_NAMES} more")
    return {"key": ATTRIBUTES_CUT, "value": {"arrayValue": {"values": [{"stringValue": name} for name in listed]}}}


def _inner(value: Any) -> list[Pair]:
    """Return the entries of a map, which a store makes entries of their own."""
    found = value.get("kvlistValue") if isinstance(value, dict) else None
    listed = found.get("values") if isinstance(found, dict) else None
    return [pair for pair in listed if isinstance(pair, dict)] if isinstance(listed, list) else []


def _entries(pair: Pair) -> int:
    inner = _inner(pair.get("value"))
    return sum(map(_entries, inner)) if inner else 1


def _size(pair: Pair) -> int:
    """Return the bytes of a name and its value; those of a map once for each entry with the names above it."""
    name = len(str(pair.get("key")).encode("utf-8", "replace"))
    inner = _inner(pair.get("value"))
    if inner:
        return sum(name + 1 + _size(entry) for entry in inner)
    value = pair.get("value")
    text = _text(value)
    size = name + len(text.encode("utf-8", "replace"))
    if isinstance(value, dict) and "arrayValue" in value:
        # A store writes lists as JSON, and these as six characters each.
        size += 5 * sum(map(text.count, "<>&\u2028\u2029"))
    return size


def _text(value: Any) -> str:
    """Return a value as text: a string as it is, anything else as the JSON of its value."""
    if not isinstance(value, dict) or not value:
        return ""
    kind, entry = next(iter(value.items()))
    if kind in ("stringValue", "intValue", "bytesValue") and isinstance(entry, str):
        return entry
    try:
        return dumps(plain(value)).decode()
    except (ValueError, RecursionError):
        return str(entry)


def plain(value: Any) -> Any:
    """Return an AnyValue without the names of its kinds, as JSON would have it from the beginning."""
    if not isinstance(value, dict) or not value:
        return None
    kind, entry = next(iter(value.items()))
    if kind == "arrayValue" and isinstance(entry, dict):
        return [plain(item) for item in entry.get("values") or ()]
    if kind == "kvlistValue":
        return {str(pair.get("key")): plain(pair.get("value")) for pair in _inner(value)}
    return entry
