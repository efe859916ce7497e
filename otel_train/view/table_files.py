"""Writes tables by columns as CSV, JSON lines or Parquet."""

from __future__ import annotations

import contextlib
import importlib
import json
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from otel_train.clock import iso
from otel_train.errors import installing
from otel_train.view.lines import number_cell, text_cell

FORMATS = {"parquet": "parquet", "csv": "csv", "jsonl": "jsonl"}
# Numbers, texts or flags by the column's name, all of one length.
Columns = dict[str, Any]


class MissingPyarrowError(Exception):
    """The pyarrow package, which writes Parquet, is not installed."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    `kind` is name (a text of which there are few), text, integer, number (NaN: none), value (NaN is one), time
    (nanoseconds since the Unix epoch) or flag. Where the flag `gap` is set, the value beside it is none.
    """

    name: str
    kind: str

    def empty(self) -> Any:
        """Return what takes the values of this column."""
        return array("d") if self.kind in ("number", "value") else array("q") if self.kind == "time" else []


class TableFile(Protocol):
    """Takes rows, some at a time."""

    def write(self, rows: Columns) -> None:
        """Append rows, by columns."""
        ...


@contextlib.contextmanager
def open_table(path: Path, form: str, columns: Sequence[Column]) -> Iterator[TableFile]:
    """Open a file for rows of these columns; MissingPyarrowError where its format needs a package that is not there."""
    if form == "parquet":
        pyarrow, parquet = _pyarrow()
        writer = _Parquet(path, columns, pyarrow, parquet)
        try:
            yield writer
        finally:
            writer.close()
        return
    # A lone surrogate, from a file name that is no UTF-8, becomes its escape.
    with open(path, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        yield _Csv(file, columns) if form == "csv" else _JsonLines(file, columns)


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as fault:
        raise MissingPyarrowError(f"parquet needs pyarrow: {installing('parquet')}") from fault


class _Csv:
    """RFC 4180, with a head; times as text and, exactly, as nanoseconds."""

    def __init__(self, file: IO[str], columns: Sequence[Column]) -> None:
        self._file = file
        self._columns = columns
        names = [name for column in columns for name in _names(column)]
        file.write(",".join(names) + "\r\n")

    def write(self, rows: Columns) -> None:
        cells = [cell for column in self._columns for cell in _csv_cells(column, rows)]
        self._file.writelines(",".join(row) + "\r\n" for row in zip(*cells, strict=True))


def _names(column: Column) -> list[str]:
    return [column.name, f"{column.name}_ns"] if column.kind == "time" else [column.name]


def _csv_cells(column: Column, rows: Columns) -> list[list[str]]:
    values = rows[column.name]
    if column.kind == "time":
        return [list(map(iso, values)), list(map(str, values))]
    if column.kind == "value":
        gaps = rows.get("gap", ())
        cells = list(map(number_cell, values))
        return [["" if gap else cell for cell, gap in zip(cells, gaps, strict=True)] if any(gaps) else cells]
    if column.kind == "number":
        return [["" if value != value else number_cell(value) for value in values]]
    if column.kind == "flag":
        return [["true" if value else "false" for value in values]]
    if column.kind == "integer":
        return [list(map(str, values))]
    known: dict[str, str] = {}
    return [[known.get(value) or known.setdefault(value, text_cell(value)) for value in values]]


class _JsonLines:
    """One object a line: null where there is nothing, numbers that are not finite by the names that OTLP has."""

    def __init__(self, file: IO[str], columns: Sequence[Column]) -> None:
        self._file = file
        self._columns = columns
        self._names = [name for column in columns for name in _names(column)]

    def write(self, rows: Columns) -> None:
        cells = [cell for column in self._columns for cell in _json_cells(column, rows)]
        encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
        self._file.writelines(
            encode(dict(zip(self._names, row, strict=True))) + "\n" for row in zip(*cells, strict=True)
        )


def _json_cells(column: Column, rows: Columns) -> list[list[Any]]:
    values = rows[column.name]
    if column.kind == "time":
        return [list(map(iso, values)), list(values)]
    if column.kind == "value":
        gaps = rows.get("gap") or [False] * len(values)
        return [
            [
                None if gap else value if value - value == 0.0 else number_cell(value)
                for value, gap in zip(values, gaps, strict=True)
            ]
        ]
    if column.kind == "number":
        return [[None if value != value else _whole(value) for value in values]]
    return [list(values)]


def _whole(number: float) -> int | float | str:
    if number - number != 0.0:
        return number_cell(number)
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


class _Parquet:
    """zstd; names as dictionaries, the bytes of values apart by their place, times as differences."""

    def __init__(self, path: Path, columns: Sequence[Column], pyarrow: Any, parquet: Any) -> None:
        self._pyarrow = pyarrow
        self._compute = importlib.import_module("pyarrow.compute")
        self._columns = columns
        self._schema = pyarrow.schema([(column.name, self._type(column)) for column in columns])
        spread = {"number": "BYTE_STREAM_SPLIT", "value": "BYTE_STREAM_SPLIT", "time": "DELTA_BINARY_PACKED"}
        self._writer = parquet.ParquetWriter(
            path,
            self._schema,
            compression="zstd",
            use_dictionary=[column.name for column in columns if column.kind in ("name", "integer")],
            column_encoding={column.name: spread[column.kind] for column in columns if column.kind in spread},
        )

    def write(self, rows: Columns) -> None:
        arrays = [self._array(column, rows) for column in self._columns]
        self._writer.write_table(self._pyarrow.Table.from_arrays(arrays, schema=self._schema))

    def close(self) -> None:
        self._writer.close()

    def _type(self, column: Column) -> Any:
        arrow = self._pyarrow
        types: Mapping[str, Callable[[], Any]] = {
            "integer": arrow.int64,
            "number": arrow.float64,
            "value": arrow.float64,
            "time": lambda: arrow.timestamp("ns", tz="UTC"),
            "flag": arrow.bool_,
        }
        return types.get(column.kind, arrow.string)()

    def _array(self, column: Column, rows: Columns) -> Any:
        arrow, values, of_type = self._pyarrow, rows[column.name], self._type(column)
        if column.kind in ("number", "value", "time"):
            made = arrow.Array.from_buffers(of_type, len(values), [None, arrow.py_buffer(values)])
            if column.kind == "number":
                return self._compute.if_else(self._compute.is_nan(made), arrow.scalar(None, of_type), made)
            if column.kind == "value" and any(rows.get("gap", ())):
                return self._compute.if_else(arrow.array(rows["gap"]), arrow.scalar(None, of_type), made)
            return made
        try:
            return arrow.array(values, of_type)
        except UnicodeEncodeError:
            return arrow.array([text.encode("utf-8", "backslashreplace").decode() for text in values], of_type)
