"""Makes the table of runs: those that a filter and a search mean, sorted, with the columns that were asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from otel_train.view.filter_syntax import FilterError
from otel_train.view.filtering import parse_filter
from otel_train.view.index import RunIndex
from otel_train.view.index_row import IndexRow, Scalar
from otel_train.view.run_columns import CONFIG, Column, Columns, UnknownColumn, metric_column, metric_id, metric_name

DEFAULT_SORT: Final = "-started"
ALWAYS_SHOWN: Final = ("state", "name", "project", "started", "duration", "step")
SHOWN_METRICS: Final = 3
SHOWN_CONFIG: Final = 3
# A key of the configuration with longer values is no good column by itself.
SHORT_VALUE: Final = 40
# From here on the page rounds a whole number, and not far above a browser cannot hold each.
EXACT_IN_A_BROWSER: Final = 10**15


def table(
    index: RunIndex,
    where: str = "",
    search: str = "",
    sort: str = "",
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    now_ns: int | None = None,
) -> dict[str, Any]:
    """Return the table as plain values; numbers may be NaN or infinite, times and durations are in seconds.

    `columns` are names as the filter language has them, an unknown one stays empty; without them a choice is shown.
    "shown" has their ids; those that are not among the "columns" of any run by themselves, such as ``loss`` of whatever
    split, are described in "asked".
    `sort` is such names with commas between, ``-`` before or ``desc`` behind one that descends. Where a text cannot be
    understood "error" says what, where and in which field, and there are no rows.
    """
    rows, known = index.rows, index.columns
    available = known.available()
    names = list(columns) if columns is not None else list(known.choice or default_columns(rows, known))
    # Two names may mean the same.
    shown = {column.id: column for column in (shown_column(name, known) for name in names)}
    listed = {column["id"] for column in available}
    result: dict[str, Any] = {
        "columns": available,
        "shown": list(shown),
        "asked": [known.described(column) for column in shown.values() if column.id not in listed],
        "sort": [],
        "rows": [],
        "total": len(rows),
        "matched": 0,
        "revision": index.revision,
        "pending": index.pending,
        "notice": index.notice,
    }
    try:
        order = sort_order(sort or DEFAULT_SORT, known)
        found = sort_rows(matching(rows, known, where, search, now_ns), order)
    except FilterError as fault:
        place = {"position": fault.position, "length": fault.length, "field": fault.field}
        return result | {"error": {"message": fault.message, **place}}
    result["sort"] = [[column.id, "descending" if descending else "ascending"] for column, descending in order]
    result["matched"] = len(found)
    result["rows"] = [_as_dict(row, list(shown.values())) for row in found[:limit]]
    return result


def matching(
    rows: Sequence[IndexRow], columns: Columns, where: str, search: str, now_ns: int | None = None
) -> list[IndexRow]:
    """Return the rows that a filter and a search mean, in their order; FilterError where either is wrong."""
    chosen = parse_filter(where, columns=columns, now_ns=now_ns)
    words = search_words(search)
    return [row for row in rows if chosen.matches(row) and (not words or all(word in row.words for word in words))]


def search_words(text: str) -> list[str]:
    """Return the words of a search in lower case; what stands in quotes is one. A quote that is not closed is text."""
    words: list[str] = []
    rest = text.casefold().strip()
    while rest:
        if rest[0] == '"' and '"' in rest[1:]:
            word, _, rest = rest[1:].partition('"')
        else:
            word = rest.split(maxsplit=1)[0]
            rest = rest[len(word) :]
        rest = rest.lstrip()
        if word:
            words.append(word)
    return words


def sort_order(text: str, columns: Columns) -> list[tuple[Column, bool]]:
    """Return the columns of a sorting order, each with whether it descends; FilterError where one is not known.

    ``-loss`` and ``loss desc`` descend.
    """
    order = []
    for name, position, length in _listed(text):
        stem, _, word = name.rpartition(" ")
        ends = word.lower() in ("asc", "desc") and stem != ""
        descending = name.startswith("-") or (ends and word.lower() == "desc")
        called = _unquoted((stem if ends else name).removeprefix("-").removeprefix("+").strip())
        if not called:
            raise FilterError("expected the name of a column", position, length, "sort")
        try:
            order.append((columns.find(called), descending))
        except UnknownColumn as fault:
            raise FilterError(str(fault), position, length, "sort") from None
    return order


def sort_rows(rows: Sequence[IndexRow], order: Sequence[tuple[Column, bool]]) -> list[IndexRow]:
    """Return the rows in an order: numbers by size, before texts; NaN and then what a row lacks always last."""
    result = list(rows)
    for column, descending in reversed(order):
        result.sort(key=_sort_key(column.get, descending), reverse=descending)
    return result


def split_columns(text: str) -> list[str]:
    """Return the names of a list with commas between; one that contains a comma stands in backquotes."""
    return [_unquoted(name) for name, _, _ in _listed(text) if name]


def shown_column(name: str, columns: Columns) -> Column:
    """Return the column of a name, an empty one where no run has it (any more)."""
    try:
        return columns.find(name)
    except UnknownColumn:
        statistic, called = metric_name(name)
        return metric_column(name, statistic, [called])


def default_columns(rows: Sequence[IndexRow], columns: Columns) -> list[str]:
    """Return what to show where nobody has chosen: facts, the metrics of most runs, and what differs between runs."""
    metrics = sorted(columns.metrics, key=columns.metric_order)[:SHOWN_METRICS]
    shown = [*ALWAYS_SHOWN, *(metric_id(key, "last") for key in metrics)]
    directed = next((key for key in metrics if key in columns.goals), None)
    if directed is not None:
        shown.insert(shown.index(metric_id(directed, "last")) + 1, metric_id(directed, "best"))
    # By name, so that a run that comes in does not move them about.
    columns.choice = shown + [CONFIG + key for key in sorted(differing(rows, columns)[:SHOWN_CONFIG])]
    return columns.choice


def differing(rows: Sequence[IndexRow], columns: Columns) -> list[str]:
    """Return the keys of the configuration that tell runs apart, the most telling first.

    First come keys that most runs have and whose values come again, so not a seed or a path that is another each time;
    those alike come by name.
    """
    ranked = []
    for key, count in columns.config.items():
        values = {_hashable(row.config[key]) for row in rows if key in row.config}
        # Not there is a value as well, but no more than one.
        kinds = len(values) + (count < len(rows))
        if kinds < 2 or any(isinstance(value, str) and len(value) > SHORT_VALUE for _, value in values):
            continue
        always_new = count > 2 and len(values) == count
        texts = always_new and any(isinstance(value, str) for _, value in values)
        ranked.append((always_new, 2 * count < len(rows), len(values) < 2, texts, key))
    return [key for *_, key in sorted(ranked)]


def _as_dict(row: IndexRow, shown: Sequence[Column]) -> dict[str, Any]:
    values = {column.id: _exact(value) for column in shown if (value := column.get(row)) is not None}
    return {
        "run_id": row.run_id,
        "name": row.run_name,
        "project": row.project,
        "state": row.state,
        "reason": row.reason,
        "tags": row.tags,
        "group": row.group,
        "created_s": row.created_ns / 1e9 if row.created_ns else None,
        "duration_s": row.duration_s,
        "step": row.step,
        "epoch": row.epoch,
        "host": row.host,
        "attempt": row.attempt,
        "ranks": row.ranks,
        "problem": row.problem,
        "partial": row.partial,
        "values": values,
    }


def _exact(value: Any) -> Any:
    """Return a value as the page can hold it: whole numbers that it would round, such as seeds, as texts."""
    return str(value) if type(value) is int and abs(value) >= EXACT_IN_A_BROWSER else value


def _sort_key(get: Callable[[IndexRow], Any], descending: bool) -> Callable[[IndexRow], tuple[int, Any]]:
    # Sorted backwards what is last has to be first.
    ranks = (4, 3, 1, 0) if descending else (0, 1, 3, 4)

    def key(row: IndexRow) -> tuple[int, Any]:
        value = get(row)
        if value is None:
            return ranks[3], 0
        if isinstance(value, list):
            value = ", ".join(value)
        if isinstance(value, str):
            return ranks[1], (value.casefold(), value)
        return (ranks[0], value) if value == value else (ranks[2], 0)

    return key


def _hashable(value: Scalar) -> tuple[bool, Scalar]:
    """Tell true from 1, which are equal to Python."""
    return isinstance(value, bool), value


def _listed(text: str) -> Iterator[tuple[str, int, int]]:
    """Give each name of a list with its place, without the spaces around it."""
    start, quoted = 0, False
    for position, letter in enumerate(text + ","):
        quoted ^= letter == "`"
        if letter == "," and (not quoted or position == len(text)):
            name = text[start:position]
            stripped = name.strip()
            yield stripped, start + len(name) - len(name.lstrip()), max(1, len(stripped))
            start = position + 1


def _unquoted(name: str) -> str:
    if len(name) >= 2 and name[0] == name[-1] == "`":
        return name[1:-1]
    return name
