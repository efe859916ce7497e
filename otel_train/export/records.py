"""Fits log records and spans to what the stores take: age, times, and the size of attributes and bodies.

A line that needs nothing goes as it stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from otel_train.clock import NS_PER_S, SYSTEM, Clock
from otel_train.export.identity import fit_names
from otel_train.export.limits import MOST_METADATA, attributes, fit_record, fit_resource, fit_values
from otel_train.export.merge_json import dumps
from otel_train.otlp.decode import DamagedLine, parse_line
from otel_train.otlp.decode_values import whole_number
from otel_train.otlp.encode import PREFIXES, SUFFIX
from otel_train.runlog.lines import whole_parts

# In a line shorter than this no record can be too large.
_SMALL_LINE_BYTES: Final = 48 << 10
_SUFFIX: Final = SUFFIX.rstrip(b"\n")


@dataclass(slots=True)
class Fitted:
    """What became of one line: `parts` are what stands between a request's prefix and suffix."""

    parts: list[bytes] = field(default_factory=list)
    items: int = 0
    aged: int = 0
    unreadable: int = 0
    changed: bool = False


class LogFitter:
    """For the log records of one rank, in the order of the log."""

    def __init__(self, max_age_s: float | None = None, clock: Clock = SYSTEM) -> None:
        self._max_age_ns = None if max_age_s is None else int(max_age_s * NS_PER_S)
        self._clock = clock
        self._last_ns = 0

    def line(self, line: bytes) -> Fitted:
        """Take one line without its line end."""
        fitted = Fitted()
        small = len(line) < _SMALL_LINE_BYTES
        for text, document in _documents(line, fitted):
            items = 0
            for block in _objects(document, "resourceLogs", fitted):
                if not small:
                    fitted.changed |= fit_resource(block)
                items += sum(self._scope(scope, block, small, fitted) for scope in _objects(block, "scopeLogs", fitted))
            _give("logs", text, document, items, fitted)
        return fitted

    def _scope(self, scope: dict[str, Any], block: dict[str, Any], small: bool, fitted: Fitted) -> int:
        """Fit the records of one scope; return how many are left."""
        resource = attributes(block.get("resource"))
        records = _objects(scope, "logRecords", fitted)
        kept = []
        for record in records:
            fitted.changed |= self._set_time(record)
            if self._is_aged(record):
                fitted.aged += 1
                continue
            fitted.changed |= fit_names(record)
            if not small or _may_be_too_much(record, resource):
                fitted.changed |= fit_record(record, resource)
            kept.append(record)
        if len(kept) < len(records):
            scope["logRecords"] = kept
            fitted.changed = True
        return len(kept)

    def _set_time(self, record: dict[str, Any]) -> bool:
        """Give a record without a time its observed time, else that of the record before, else the present."""
        time_ns = whole_number(record.get("timeUnixNano")) or 0
        if time_ns > 0:
            self._last_ns = time_ns
            return False
        observed_ns = whole_number(record.get("observedTimeUnixNano")) or 0
        self._last_ns = observed_ns if observed_ns > 0 else self._last_ns or self._clock.wall_ns()
        record["timeUnixNano"] = str(self._last_ns)
        return True

    def _is_aged(self, record: dict[str, Any]) -> bool:
        if self._max_age_ns is None:
            return False
        return int(record["timeUnixNano"]) < self._clock.wall_ns() - self._max_age_ns


def fit_spans(line: bytes) -> Fitted:
    """Take one line of spans without its line end."""
    fitted = Fitted()
    for text, document in _documents(line, fitted):
        items = 0
        for block in _objects(document, "resourceSpans", fitted):
            for scope in _objects(block, "scopeSpans", fitted):
                spans = _objects(scope, "spans", fitted)
                items += len(spans)
                if len(line) < _SMALL_LINE_BYTES:
                    continue
                for span in spans:
                    for holder in (span, *_objects(span, "events", fitted), *_objects(span, "links", fitted)):
                        fitted.changed |= fit_values(holder)
        _give("traces", text, document, items, fitted)
    return fitted


def _documents(line: bytes, fitted: Fitted) -> Iterator[tuple[bytes, dict[str, Any]]]:
    try:
        documents = [(line, parse_line(line))]
    except DamagedLine:
        fitted.unreadable += 1
        documents = [(part, parse_line(part)) for part in whole_parts(line)]
    for text, document in documents:
        fitted.changed = False
        yield text, document


def _give(signal: str, text: bytes, document: dict[str, Any], items: int, fitted: Fitted) -> None:
    if not items:
        return
    prefix = PREFIXES[signal]
    as_it_stands = text.startswith(prefix) and text.endswith(_SUFFIX)
    if not as_it_stands or fitted.changed:
        try:
            part = dumps(document[prefix[2 : prefix.index(b'"', 2)].decode()])[1:-1]
        except ValueError:
            # A number beyond what a double holds: no server reads that.
            fitted.unreadable += items
            return
    else:
        part = text[len(prefix) : -len(_SUFFIX)]
    fitted.parts.append(part)
    fitted.items += items


def _objects(holder: dict[str, Any], key: str, fitted: Fitted) -> list[dict[str, Any]]:
    """Return the objects of a list; what is none is taken out of it and counted."""
    found = holder.get(key)
    if not isinstance(found, list):
        fitted.unreadable += found is not None
        return []
    objects = [entry for entry in found if entry.__class__ is dict]
    if len(objects) < len(found):
        fitted.unreadable += len(found) - len(objects)
        fitted.changed = True
        holder[key] = objects
    return objects


def _may_be_too_much(record: dict[str, Any], resource: list[dict[str, Any]]) -> bool:
    """Tell whether a record of a short line may have too much: many attributes, maps (several each), or lists."""
    pairs = attributes(record)
    return len(pairs) + len(resource) > MOST_METADATA or any(
        kind in (pair.get("value") or ()) for pair in pairs for kind in ("kvlistValue", "arrayValue")
    )
