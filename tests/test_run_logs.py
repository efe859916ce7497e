"""Log records of a run: where they come from, what they carry, and what never gets into them."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_train.testing import recorded
from tests.scripts import Scripts

Start = Callable[..., Any]


def test_a_record_carries_the_innermost_span_else_the_runs_and_step_and_epoch(start: Start) -> None:
    """Whatever is known of where training stands is on the record."""
    logger = logging.getLogger("user")
    run = start()
    logger.warning("before")
    for _ in run.epochs(1):
        for _ in run.steps(range(2)):
            logger.warning("in step")
    with run.stage("a"), run.stage("b"):
        logger.warning("in b")
    run.finish()
    record = recorded(run)
    before, first, second, inner = (log for log in record.logs if not log.event)
    (marked,), (epoch,), (stage,) = record.spans_of("run"), record.spans_of("epoch"), record.spans_of("b")
    assert (before.entry.trace_id, before.entry.span_id) == (marked.entry.trace_id, marked.entry.span_id)
    assert "dl.step" not in before.attributes
    assert "dl.epoch" not in before.attributes
    assert [(log.attributes["dl.step"], log.attributes["dl.epoch"]) for log in (first, second)] == [(0, 0), (1, 0)]
    assert first.entry.span_id == epoch.entry.span_id
    assert (inner.entry.trace_id, inner.entry.span_id) == (stage.entry.trace_id, stage.entry.span_id)


def test_logging_arrives_with_level_place_attributes_and_exception(start: Start) -> None:
    """The parts of a record of `logging` are all there; the user's logger stays as it was."""
    logger = logging.getLogger("user.deep")
    run = start()
    try:
        1 / 0  # noqa: B018 - raises, which is its purpose
    except ZeroDivisionError:
        logger.exception("failed %s", "here", extra={"shard": 3})
    run.finish()
    (log,) = (log for log in recorded(run).logs if not log.event)
    assert (log.body, log.level, log.entry.severity_number) == ("failed here", "ERROR", 17)
    assert log.attributes["shard"] == 3
    assert log.attributes["code.file.path"] == __file__
    assert log.attributes["exception.type"] == "ZeroDivisionError"
    assert "1 / 0" in log.attributes["exception.stacktrace"]
    assert (logger.handlers, logger.level, logger.propagate) == ([], logging.NOTSET, True)


def test_loguru_and_structlog_arrive_too(start: Start) -> None:
    """Each library's records, once, with their own fields."""
    loguru = pytest.importorskip("loguru").logger
    structlog = pytest.importorskip("structlog")
    run = start()
    loguru.bind(shard=1).warning("by loguru")
    structlog.get_logger().warning("by structlog", shard=2)
    run.finish()
    logs = [(log.body, log.level, log.attributes.get("shard")) for log in recorded(run).logs if not log.event]
    assert [(body, shard) for body, _, shard in logs] == [("by loguru", 1), ("by structlog", 2)]


def test_levels_bound_what_is_kept(start: Start) -> None:
    """log_level is the run log's; own events are kept whatever it is."""
    logger = logging.getLogger("user")
    logger.setLevel(logging.DEBUG)
    try:
        run = start(log_level="error")
        logger.warning("below")
        logger.error("above")
        run.event("mine", "kept")
        run.finish()
    finally:
        logger.setLevel(logging.NOTSET)
    record = recorded(run)
    assert record.messages == ["above"]
    assert record.event("mine").body == "kept"
    assert record.event("run.end")


def test_capture_logs_may_be_turned_off(start: Start) -> None:
    """Then only the run's own events are there."""
    run = start(capture_logs=False)
    logging.getLogger("user").error("not kept")
    run.finish()
    assert recorded(run).messages == []


def test_a_flood_is_kept_as_samples_and_a_count(start: Start) -> None:
    """Of 1,000 like records within a moment ten are kept; the others are counted at the end."""
    logger = logging.getLogger("user")
    run = start()
    for number in range(1000):
        logger.warning("broken sample %d", number)
    run.finish()
    record = recorded(run)
    suppressed = sum(event.attributes["log.suppressed.count"] for event in record.events("log.suppressed"))
    assert len(record.messages) + suppressed == 1000
    assert 10 <= len(record.messages) <= 30


def test_what_is_printed_is_kept_when_asked_for(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """capture_output records whole lines; the console shows what it always did."""
    run = start(capture_output=True)
    print("epoch 0: loss 0.5")
    print("half ", end="")
    print("a line")
    print("to errors", file=sys.stderr)
    sys.stdout.write("\r10%|#")
    sys.stdout.write("\r100%|##########\n")
    run.finish()
    record = recorded(run)
    assert [message for message in record.messages if "%" not in message] == [
        "epoch 0: loss 0.5",
        "half a line",
        "to errors",
    ]
    assert all("\r" not in str(log.body) and "\x1b" not in str(log.body) for log in record.logs)
    out, err = capsys.readouterr()
    assert out == "epoch 0: loss 0.5\nhalf a line\n\r10%|#\r100%|##########\n"
    assert err.startswith("to errors\n")


def test_without_asking_nothing_that_is_printed_is_kept(start: Start) -> None:
    """Standard output is left alone by default."""
    stream = sys.stdout
    run = start()
    assert sys.stdout is stream
    print("not kept")
    run.finish()
    assert recorded(run).messages == []


def test_the_console_prints_pretty_lines_or_json(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """Both go to standard error; JSON lines hold run, level and message."""
    logger = logging.getLogger("user")
    run = start(console="pretty", console_level="warning")
    logger.warning("careful")
    run.finish()
    assert any("WARNING  careful" in line for line in capsys.readouterr().err.splitlines())
    run = start(console="json")
    logger.warning("careful")
    run.finish()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    assert "careful" in [line.get("message", line.get("body")) for line in lines]


SECRETS = """
import argparse, logging, os, sys, otel_train
parser = argparse.ArgumentParser()
parser.add_argument("--api-key")
parser.add_argument("--use_cls_token")
parser.add_argument("--num_memory_tokens", type=int)
arguments = parser.parse_args()
config = dict(vars(arguments), db="postgres://u:FAKE4@h/db", nested={"password": "FAKE5", "n": 1})
run = otel_train.init(config=config, git=True, notes="token=FAKE6123456789")
logger = logging.getLogger("user")
logger.warning("connecting to postgres://u:FAKE4@h/db with api_key=FAKEKEY1")
logger.warning("fields", extra={"api_key": "FAKE7", "token": 5})
try:
    raise ValueError("cannot open postgres://u:FAKE4@h/db")
except ValueError:
    logger.exception("failed")
with run.stage("load", parameters={"api_key": "FAKE8", "rows": 3}):
    run.event("mine", "password=FAKE9", {"secret_key": "FAKE10", "url": "https://u:FAKE11@h/x"})
run.early_stop("token=FAKE12345678")
run.config.update(hf_token="FAKE13")
open("model.bin", "wb").write(b"x")
run.log_checkpoint("model.bin")
run.save_checkpoint("model.pkl", {"a": 1})
try:
    with run.stage("broken"):
        raise RuntimeError("db=postgres://u:FAKE4@h/db")
except RuntimeError:
    pass
run.session.surroundings.environment(20.0)
raise RuntimeError("gone: https://u:FAKEPAT2@git.example/a/b.git HF_TOKEN=FAKE3")
"""


@pytest.mark.slow
def test_no_secret_reaches_any_file_of_the_run(scripts: Scripts) -> None:
    """Command line, remote, environment, configuration, logs, stages and exceptions: harmless keys stay."""
    folder = scripts.folder
    for command in (
        ["init", "-q", "."],
        ["remote", "add", "origin", "https://u:FAKEPAT2@git.example/a/b.git"],
        ["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "--allow-empty", "-m", "first"],
    ):
        subprocess.run(["git", *command], cwd=folder, check=True)
    ended = scripts(
        SECRETS, "--api-key", "FAKEKEY1", "--use_cls_token", "True", "--num_memory_tokens", "16",
        env={"HF_TOKEN": "FAKE3", "OTEL_TRAIN_GIT": "1"},
    )  # fmt: skip
    assert ended.code == 1
    files = [path for path in ended.path.rglob("*") if path.is_file()]
    files += [folder / "model.pkl.context.json", folder / "model.bin.context.json"]
    assert len(files) > 5
    for path in files:
        assert b"FAKE" not in content(path), path
    record = recorded(ended.path)
    config = record.info["attempts"][0]["config"]
    assert (config["use_cls_token"], config["num_memory_tokens"]) == ("True", 16)
    assert config["db"] == "postgres://[redacted]@h/db"
    assert (config["nested"], config["hf_token"]) == ({"password": "[redacted]", "n": 1}, "[redacted]")
    environment = record.info["attempts"][0]["environment"]
    assert environment["code"]["remote"] == "https://git.example/a/b.git"
    argv = environment["command"]["argv"]
    assert argv[-6:] == ["--api-key", "[redacted]", "--use_cls_token", "True", "--num_memory_tokens", "16"]
    assert record.info["stages"][0]["parameters"] == {"api_key": "[redacted]", "rows": 3}
    assert record.messages[0] == "connecting to postgres://[redacted]@h/db with api_key=[redacted]"
    assert record.event("mine").attributes["url"] == "https://[redacted]@h/x"
    assert record.info["attempts"][0]["reason"].startswith("RuntimeError: gone: https://")
    fields = next(log for log in record.logs if log.body == "fields")
    assert (fields.attributes["api_key"], fields.attributes["token"]) == ("[redacted]", 5)
    assert "FAKE" not in next(line for line in ended.errors.splitlines() if line.startswith("otel-train: run"))


def content(path: Path) -> bytes:
    import gzip

    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def test_more_keys_and_patterns_may_be_hidden(start: Start) -> None:
    """redact= takes whole keys and regular expressions."""
    run = start(config={"patient": "Ada", "age": 36}, redact=["patient", r"MRN-\d+"])
    logging.getLogger("user").warning("read MRN-1234")
    run.finish()
    record = recorded(run)
    assert record.info["attempts"][0]["config"] == {"patient": "[redacted]", "age": 36}
    assert record.messages == ["read [redacted]"]


def test_own_diagnostics_do_not_feed_themselves(start: Start) -> None:
    """A warning of ours stays out of the run's records of the user."""
    run = start()
    run.log({"text": "no number"})
    logging.getLogger("otel_train").warning("about ourselves")
    run.finish()
    assert recorded(run).messages == []
