"""OTEL_SDK_DISABLED=true: nothing is recorded, and every program still does its work."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

import otel_train
from otel_train.errors import CheckpointError, ConfigError
from tests.scripts import own_threads


@pytest.fixture
def run(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "TRUE")
    return otel_train.init(project="digits", name="n", config={"lr": 0.5}, capture_output=True)


def test_nothing_is_made(run: Any, root: Path) -> None:
    """No folder, no thread, no hook, no current run; the values are those of a run that is none."""
    assert isinstance(run, otel_train.Run)
    assert not root.exists()
    assert own_threads() == []
    assert otel_train.current_run() is None
    assert (run.id, run.attempt, run.rank, run.step, run.epoch, run.name, run.project) == (
        "",
        0,
        0,
        0,
        None,
        "n",
        "digits",
    )
    assert repr(run) == "<Run (OTEL_SDK_DISABLED)>"
    assert type(sys.exit).__name__ == "builtin_function_or_method"


def test_loops_iterate_and_every_call_works(run: Any, tmp_path: Path, root: Path) -> None:
    """The documented program runs to its end; steps, epochs and their lengths are those of the loader."""
    seen = []
    with run:
        with run.stage("read", inputs=["missing"]) as stage:
            stage.output("missing")
            run.log_dataset("train", [1])
        assert len(run.epochs(3)) == 3
        assert list(run.epochs([7])) == [7]
        assert len(run.steps([1, 2])) == 2
        for epoch in run.epochs(2):
            for batch in run.steps(iter([1, 2])):
                with run.phase("forward"):
                    seen.append((epoch, batch))
                run.log({"loss": object()}, step=1)
        run.define("loss", goal="min")
        run.log_checkpoint("missing")
        run.log_base_model("missing")
        run.early_stop("done")
        run.event("mine")
        run.config.update(lr=0.25)
        with run.use():
            otel_train.log({"x": 1})
        assert run.flush()
        assert run.position() == {}
    run.finish()
    assert seen == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert run.config.lr == 0.25
    assert run.finished
    assert not root.exists()


def test_checkpoints_are_written(run: Any, tmp_path: Path) -> None:
    """The model is there, without a context; a failed save raises as ever."""
    path = run.save_checkpoint(tmp_path / "model.pkl", {"w": 1}, best=True)
    assert pickle.loads(path.read_bytes()) == {"w": 1}
    assert not (tmp_path / "model.pkl.context.json").exists()
    with pytest.raises(CheckpointError):
        run.save_checkpoint(path / "below a file", {"w": 1})


def test_wrong_arguments_are_still_told(run: Any) -> None:
    """A program that is wrong stays wrong without telemetry."""
    with pytest.raises(ConfigError, match="sample_interval_s=-1"):
        otel_train.init(sample_interval_s=-1)
    with pytest.raises(ConfigError, match="status='bogus'"):
        run.finish("bogus")


def test_an_exception_passes_through_the_block(run: Any) -> None:
    """The block swallows nothing."""
    with pytest.raises(ZeroDivisionError), run:
        1 / 0  # noqa: B018 - raises, which is its purpose
    assert run.finished


def test_the_disabled_run_has_every_public_name_of_a_run(run: Any) -> None:
    """Whatever a program asks of a run it can ask here."""
    for name in dir(otel_train.Run):
        if not name.startswith("_"):
            assert hasattr(run, name), name
