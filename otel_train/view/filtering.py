"""Tells which rows of the table of runs a filter text means, as in ``loss < 0.2 and not state = failed``.

A comparison with a value that a run does not have is false, whatever the operator; `not` gives exactly the other runs.
``x = null`` finds the runs without a value, ``x != null`` those with one.
"""

from __future__ import annotations

from collections.abc import Callable

from otel_train.clock import SYSTEM
from otel_train.view.filter_syntax import Choice, Comparison, Every, Literal, Not, Place, Tree, parse, write
from otel_train.view.filter_syntax import FilterError as FilterError  # what callers catch
from otel_train.view.filter_values import condition
from otel_train.view.index_row import IndexRow
from otel_train.view.run_columns import Columns, UnknownColumn

Test = Callable[[IndexRow], bool]


class Filter:
    """A filter that has been understood. Its text is the shortest way to write it."""

    def __init__(self, tree: Tree | None, columns: Columns, now_ns: int) -> None:
        self.tree = tree
        self._columns = columns
        self._now_ns = now_ns
        self._test: Test = (lambda row: True) if tree is None else self._compile(tree)

    def matches(self, row: IndexRow) -> bool:
        """Return whether a run is meant."""
        return self._test(row)

    def __str__(self) -> str:
        return write(self.tree)

    def _compile(self, tree: Tree) -> Test:
        if isinstance(tree, Comparison):
            return self._comparison(tree.name, tree.place, tree.operator, tree.value)
        if isinstance(tree, Choice):
            return _either([self._comparison(tree.name, tree.place, "=", value) for value in tree.values])
        if isinstance(tree, Not):
            inner = self._compile(tree.item)
            return lambda row: not inner(row)
        parts = [self._compile(item) for item in tree.items]
        return _every(parts) if isinstance(tree, Every) else _either(parts)

    def _comparison(self, name: str, place: Place, operator: str, value: Literal) -> Test:
        try:
            column = self._columns.find(name)
        except UnknownColumn as fault:
            raise FilterError(str(fault), *place) from None
        get, holds = column.get, condition(column, operator, value, self._now_ns)
        return lambda row: holds(get(row))


def parse_filter(text: str, *, columns: Columns | None = None, now_ns: int | None = None) -> Filter:
    """Return the filter of a text, of an empty one the filter that means every run.

    With the `columns` of the rows a name that no run has is an error, which says what comes near. `now_ns` is what
    ``started > 7d`` counts from. FilterError says what cannot be understood and where.
    """
    tree = parse(text)
    return Filter(tree, columns or Columns(), SYSTEM.wall_ns() if now_ns is None else now_ns)


def _every(parts: list[Test]) -> Test:
    return lambda row: all(part(row) for part in parts)


def _either(parts: list[Test]) -> Test:
    return lambda row: any(part(row) for part in parts)
