"""otel-train ties logs, metrics and traces of a training run together by one run id, on OpenTelemetry.

import otel_train

with otel_train.init(project="digits", config={"lr": 1e-3}) as run:
    for epoch in run.epochs(10):
        for x, y in run.steps(loader):
            run.log({"loss": loss})
"""

__version__ = "0.1.0.dev0"

from otel_train.errors import (
    CheckpointError,
    ConfigError,
    OtelTrainError,
    RunFolderError,
    RunIdInUseError,
    RunNotFoundError,
)
from otel_train.run.anywhere import log, phase, stage
from otel_train.run.current import current_run
from otel_train.run.init import init
from otel_train.run.run import Run

__all__ = [
    "init",
    "Run",
    "current_run",
    "log",
    "stage",
    "phase",
    "OtelTrainError",
    "ConfigError",
    "RunIdInUseError",
    "RunNotFoundError",
    "RunFolderError",
    "CheckpointError",
    "__version__",
]
