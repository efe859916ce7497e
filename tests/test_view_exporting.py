"""A run's tables for other programs: every point, record and span, exactly."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_train.cli.export import FORMATS
from otel_train.cli.main import main
from otel_train.record.entries import Sample
from otel_train.view import exporting, table_files
from otel_train.view.exporting import export
from otel_train.view.table_files import MissingPyarrowError
from tests.runs import NS_PER_S, START_NS, RunBuilder

INF = math.inf


def run_with_everything(root: Path) -> RunBuilder:
    """Two attempts, the second of which does steps again; values that are no numbers; a gap; a metric without steps."""
    builder = RunBuilder(root).attempt().attempt(2, start_s=100)
    builder.log({"loss": [3.5, math.nan, INF, -INF]}, steps=[0, 1, 2, 3], epochs=[0, 0, 1, 1])
    builder.log({"loss": [0.1 + 0.2]}, split="val", steps=[3], times_s=[4.0])
    builder.samples(5, [Sample("system.cpu.utilization", 0.25)])
    builder.log({"loss": [2.5, 1.5]}, steps=[2, 3], times_s=[101, 102], attempt=2)
    gap = {"timeUnixNano": str(START_NS + 7 * NS_PER_S), "flags": 1}
    metric = {"name": "train.loss", "gauge": {"dataPoints": [gap]}}
    line = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}
    return builder.lines("metrics", json.dumps(line).encode() + b"\n").end()


# attempt, name, split, step, epoch, seconds since the start, value; None: nothing there.
POINTS = [
    (1, "train.loss", "train", 0, 0, 1, 3.5),
    (1, "train.loss", "train", 1, 0, 2, math.nan),
    (1, "train.loss", "train", 2, 1, 3, INF),
    (1, "train.loss", "train", 3, 1, 4, -INF),
    (1, "train.loss", "val", 3, None, 4, 0.1 + 0.2),
    (1, "system.cpu.utilization", "", None, None, 5, 0.25),
    (1, "train.loss", "", None, None, 7, None),
    (2, "train.loss", "train", 2, None, 101, 2.5),
    (2, "train.loss", "train", 3, None, 102, 1.5),
]


def as_read(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (
            row["attempt"],
            row["name"],
            row["split"],
            row["step"],
            row["epoch"],
            (row["time_ns"] - START_NS) // NS_PER_S,
            row["value"],
        )
        for row in rows
    ]


def same(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> bool:
    return str(left) == str(right)


def test_jsonl_has_every_point_with_its_places(tmp_path: Path) -> None:
    """One object a point, exact values and times; NaN and infinities by name, null where there is no value."""
    made = export(run_with_everything(tmp_path).path, "points", "jsonl")
    assert made.path == run_path(tmp_path) / "artifacts" / "points.jsonl"
    rows = [json.loads(line) for line in made.path.read_text(encoding="utf-8").splitlines()]
    assert made.rows == len(rows) == len(POINTS)
    for row in rows:
        if isinstance(row["value"], str):
            row["value"] = float(row["value"])
    assert same(as_read(rows), POINTS)
    assert [row["gap"] for row in rows] == [value is None for *_, value in POINTS]
    assert {(row["run_id"], row["rank"], row["key"]) for row in rows if row["name"] == "train.loss"} == {
        ("20260131-120000-abcdefgh", 0, "loss")
    }


def run_path(root: Path) -> Path:
    return next(path for path in root.iterdir() if path.is_dir())


def test_csv_reads_back_the_same(tmp_path: Path) -> None:
    """By Python's own reader: values bit by bit, times in nanoseconds."""
    made = export(run_with_everything(tmp_path).path, "points", "csv", tmp_path / "points.csv")
    text = made.path.read_bytes().decode()
    assert text.count("\r\n") == len(POINTS) + 1
    found = []
    for row in csv.DictReader(io.StringIO(text, newline="")):
        number = {name: float(row[name]) if row[name] else None for name in ("step", "epoch", "value")}
        found.append({**row, **number, "attempt": int(row["attempt"]), "time_ns": int(row["time_ns"])})
        for name in ("step", "epoch"):
            found[-1][name] = None if number[name] is None else int(number[name] or 0)
    assert same(as_read(found), POINTS)
    assert found[0]["time"] == "2026-01-31T12:00:01.000000Z"


def test_parquet_has_types_and_every_point(tmp_path: Path) -> None:
    """Opened by pyarrow: times are times, steps are null where there are none, NaN stays a NaN and is no null."""
    parquet = pytest.importorskip("pyarrow.parquet")
    made = export(run_with_everything(tmp_path).path, "points", "parquet")
    table = parquet.read_table(made.path)
    types = {field.name: str(field.type) for field in table.schema}
    assert types["time"] == "timestamp[ns, tz=UTC]"
    assert (types["value"], types["step"], types["gap"]) == ("double", "double", "bool")
    columns = table.to_pydict()
    columns["time_ns"] = table["time"].cast("int64").to_pylist()
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for row in rows:
        row.update({name: None if row[name] is None else int(row[name]) for name in ("step", "epoch")})
    assert same(as_read(rows), POINTS)
    assert table["value"].null_count == 1
    column = parquet.ParquetFile(made.path).metadata.row_group(0).column(table.schema.get_field_index("value"))
    assert column.compression == "ZSTD"
    assert "BYTE_STREAM_SPLIT" in column.encodings


def test_pandas_and_duckdb_open_the_parquet(tmp_path: Path) -> None:
    """What people use to look at it reads the same numbers."""
    pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    made = export(run_with_everything(tmp_path).path, "points", "parquet")
    frame = pandas.read_parquet(made.path)
    assert frame[frame.split == "val"].value.tolist() == [0.1 + 0.2]
    assert frame.groupby("attempt").step.max().tolist() == [3.0, 3.0]


def test_logs_and_spans_are_tables_too(tmp_path: Path) -> None:
    """Structured bodies and attributes as JSON, ids in hex, steps as numbers."""
    builder = RunBuilder(tmp_path).attempt()
    builder.record({"a": [1, "ä"]}, "WARN", at_s=2, event="epoch.end", dl__step=7, ratio=math.inf)
    builder.span("step", 1, 3.5, span_id=255, parent=1, dl__step=7)
    path = builder.end().path
    (row,) = [json.loads(line) for line in export(path, "logs", "jsonl").path.read_text("utf-8").splitlines()]
    assert (row["level"], row["event"], row["step"], row["epoch"]) == ("WARN", "epoch.end", 7, None)
    assert json.loads(row["body"]) == {"a": [1, "ä"]}
    assert json.loads(row["attributes"])["ratio"] == "Infinity"
    (row,) = [json.loads(line) for line in export(path, "spans", "jsonl").path.read_text("utf-8").splitlines()]
    assert (row["name"], row["span_id"], row["parent_span_id"]) == ("step", "00000000000000ff", "0000000000000001")
    assert (row["time_ns"], row["end_ns"], row["duration_s"]) == (START_NS + NS_PER_S, START_NS + 3_500_000_000, 2.5)
    for form in ("csv", "parquet"):
        if form == "csv" or "pyarrow" in sys.modules:
            assert export(path, "logs", form).rows == export(path, "spans", form).rows == 1


def test_a_csv_cell_is_no_formula_and_no_second_cell(tmp_path: Path) -> None:
    """Texts with commas, quotes and line ends are quoted; those that begin like a formula get an apostrophe."""
    builder = RunBuilder(tmp_path).attempt()
    for body in ('=HYPERLINK("http://x")', "+1", "-1", "@x", 'a,"b"\r\nc', "plain"):
        builder.record(body)
    made = export(builder.end().path, "logs", "csv")
    with open(made.path, encoding="utf-8", newline="") as file:
        bodies = [row["body"] for row in csv.DictReader(file)]
    assert bodies == ['\'=HYPERLINK("http://x")', "'+1", "'-1", "'@x", 'a,"b"\r\nc', "plain"]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_rows_are_written_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Whatever the size of a piece, the table is the same."""
    if form == "parquet":
        pytest.importorskip("pyarrow")
    path = run_with_everything(tmp_path).path
    whole = _content(export(path, "points", form).path, form)
    monkeypatch.setattr(exporting, "ROWS", 2)
    assert _content(export(path, "points", form).path, form) == whole


def _content(path: Path, form: str) -> Any:
    if form != "parquet":
        return path.read_bytes()
    import pyarrow.parquet

    return str(pyarrow.parquet.read_table(path).to_pydict())


def test_a_name_that_is_no_text_is_written_as_its_escape(tmp_path: Path) -> None:
    """A lone surrogate stops no format."""
    path = RunBuilder(tmp_path).attempt().end().path
    line = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"a\\udcff"}}]}]}]}\n'
    (path / "attempt-1" / "rank-0" / "logs.000001.jsonl").write_bytes(line)
    for form in ("csv", "jsonl", "parquet"):
        if form == "parquet":
            pytest.importorskip("pyarrow")
        assert b"a\\udcff" in export(path, "logs", form).path.read_bytes() or form == "parquet"


def test_a_failed_export_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is replaced as a whole or not at all, and nothing half written stays."""
    path = run_with_everything(tmp_path).path
    target = tmp_path / "out" / "points.csv"
    export(path, "points", "csv", target)
    before = target.read_bytes()

    def fail(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        export(path, "points", "csv", target)
    assert target.read_bytes() == before
    assert [entry.name for entry in target.parent.iterdir()] == ["points.csv"]


def test_without_pyarrow_the_message_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written, and CSV still works."""
    path = run_with_everything(tmp_path).path
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingPyarrowError, match=r"pip install 'otel-train\[parquet\]'"):
        export(path, "points", "parquet", tmp_path / "x.parquet")
    assert not (tmp_path / "x.parquet").exists()
    assert export(path, "points", "csv").rows == len(POINTS)


def test_the_command_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Path, rows and size; 3 where lines are damaged; 2 for a folder as file."""
    builder = run_with_everything(tmp_path)
    assert main(["export", str(builder.path), "--format", "csv"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{builder.path / 'artifacts' / 'points.csv'} (9 rows, ")
    builder.lines("metrics", b'{"cut\n')
    assert main(["export", str(builder.path), "--format", "jsonl", "--what", "spans"]) == 0
    assert main(["export", str(builder.path), "--format", "jsonl", "-o", str(tmp_path / "a.jsonl")]) == 3
    assert main(["export", str(builder.path), "--format", "csv", "-o", str(tmp_path)]) == 2
    assert "is a folder: name a file, such as points.csv in it" in capsys.readouterr().err


def test_the_format_is_that_of_the_files_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where --format does not say otherwise; CSV without a name; an ending that says nothing is refused."""
    path = run_with_everything(tmp_path).path
    assert main(["export", str(path)]) == 0
    table = (path / "artifacts" / "points.csv").read_bytes()
    assert table.startswith(b"run_id,attempt,rank,name,key,split,")
    assert main(["export", str(path), "-o", str(tmp_path / "a.JSONL")]) == 0
    lines = (tmp_path / "a.JSONL").read_text(encoding="utf-8").splitlines()
    keys = [row["key"] for row in csv.DictReader(io.StringIO(table.decode()))]
    assert [json.loads(line)["key"] for line in lines] == keys
    assert len(keys) == len(POINTS)
    assert main(["export", str(path), "--format", "csv", "-o", str(tmp_path / "b.jsonl")]) == 0
    assert (tmp_path / "b.jsonl").read_bytes() == table
    capsys.readouterr()
    assert main(["export", str(path), "-o", str(tmp_path / "c.xlsx")]) == 2
    told = "tells no format: say --format, or end the name in one of .parquet, .csv, .jsonl"
    assert capsys.readouterr().err == f"otel-train: --output {str(tmp_path / 'c.xlsx')!r} {told}\n"
    assert set(FORMATS) == set(table_files.FORMATS)
