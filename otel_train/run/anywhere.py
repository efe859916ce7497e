"""The front door: `init`, and ways to the current run from anywhere; the rest of the rooms opens with the first run."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from otel_train.record.phases import NoPhase, Phase
from otel_train.run.current import current_run

if TYPE_CHECKING:
    from otel_train.run.run import Run
    from otel_train.run.stage import NoStage, Stage

_NO_PHASE = NoPhase()


def init(
    project: str | None = None,
    *,
    config: object = None,
    name: str | None = None,
    group: str | None = None,
    tags: Sequence[str] | None = None,
    notes: str | None = None,
    seed: int | None = None,
    run_id: str | None = None,
    resume: str | None = None,
    dir: str | PathLike[str] | Literal[False] | None = None,  # noqa: A002 - the word that people look for
    **settings: Any,
) -> Run:
    """Start a run, and return it; use it as a context manager, or call `finish()`, or just let the process end.

    `project` is the resource's service.name; without it `OTEL_SERVICE_NAME`, else the script's folder. `config` is a
    mapping, Namespace, dataclass or OmegaConf. `seed` seeds Python's `random`, NumPy and torch, and is recorded.
    `resume` continues an earlier run, by its id, as a new attempt in the same folder; "auto" continues the one that the
    scheduler requeued, else starts a new one. `dir` is the root folder of all runs (`OTEL_TRAIN_DIR`, else `./runs`);
    False writes nothing to any disk: what is recorded is only sent to `endpoint`.
    `settings` are the others of `otel_train.config.SETTINGS`, such as `console="pretty"`, `every={"train.*": 10}`,
    `capture_output=True`. With `OTEL_SDK_DISABLED=true` nothing is recorded.

    Raises ConfigError, which names argument, value and fix; RunIdInUseError where `run_id` is that of an existing run;
    RunNotFoundError where there is nothing to resume.
    """
    from otel_train.run.init import start

    arguments = {"project": project, "name": name, "group": group, "tags": tags, "notes": notes, "dir": dir, **settings}
    return start(arguments, config=config, seed=seed, run_id=run_id, resume=resume)


def show(
    run: Run | str | PathLike[str] | None = None, *, root: str | PathLike[str] | None = None, height: int = 720
) -> Any:
    """Show the report of a run in the notebook, as it is now, `height` pixels high.

    `run` is a run, its id, the start of one, its name, its folder or "latest"; without it the current run, else the
    latest. It is looked for in `root`, else where the current run is, else in `OTEL_TRAIN_DIR`, else in `./runs`. The
    page is part of the notebook then, about 5 MB, and needs no network, nor the run's folder. Outside of a notebook the
    file is written as `otel-train report` does, and what is returned prints its path and has it as `path`.

    Raises RunNotFoundError with near names, RunFolderError where nothing can be read, ConfigError for a height that is
    none or a run without a folder, MissingPlotlyError without plotly, which the extra `view` brings.
    """
    # By its name: recording knows nothing of the room above, and loads it for nobody who does not look.
    return importlib.import_module("otel_train.view.notebook").show(run, root=root, height=height)


def log(values: Mapping[str, Any], step: int | None = None, **about: Any) -> None:
    """Record numbers with the current run; see `Run.log`."""
    run = current_run()
    if run is not None:
        run.log(values, step, **about)


def phase(name: str) -> Phase | NoPhase:
    """Time a part of a step of the current run; see `Run.phase`."""
    run = current_run()
    return _NO_PHASE if run is None else run.phase(name)


def stage(name: str, **about: Any) -> Stage | NoStage:
    """Record a stage of the current run; see `Run.stage`."""
    from otel_train.run.stage import NoStage

    run = current_run()
    return NoStage() if run is None else run.stage(name, **about)
