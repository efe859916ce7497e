"""otel-train ties logs, metrics and traces of a training run together by one run id, on OpenTelemetry.

import otel_train

with otel_train.init(project="digits", config={"lr": 1e-3}) as run:
    for epoch in run.epochs(10):
        for x, y in run.steps(loader):
            run.log({"loss": loss})
"""

__version__ = "0.1.0.dev0"

import sys
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if PurePath((getattr(sys, "argv", None) or [""])[0]).stem != "otel-train":
    # The half of what a run needs that is imported here; the rest is imported by `init()`. Either takes a tenth of a
    # second beside the SDK's two. Our own command records nothing, and needs neither.
    import otel_train.runlog.recorder  # noqa: F401 - for its side effect: it is loaded
from otel_train.errors import (
    CheckpointError,
    ConfigError,
    OtelTrainError,
    RunFolderError,
    RunIdInUseError,
    RunNotFoundError,
)
from otel_train.run.anywhere import init, log, phase, show, stage
from otel_train.run.current import current_run
from otel_train.watch.augmentation import augmentation

if TYPE_CHECKING:
    from otel_train.run.run import Run

__all__ = [
    "init",
    "Run",
    "current_run",
    "log",
    "stage",
    "phase",
    "augmentation",
    "show",
    "OtelTrainError",
    "ConfigError",
    "RunIdInUseError",
    "RunNotFoundError",
    "RunFolderError",
    "CheckpointError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Import `Run` when it is asked for: it brings the rest of the rooms."""
    if name == "Run":
        from otel_train.run.run import Run

        return Run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
