"""Loggers of scalars behind one interface, each started the way its own documentation shows."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol


class Logger(Protocol):
    """Takes ten scalars a step."""

    def log(self, values: dict[str, Any], step: int) -> None: ...

    def finish(self) -> None: ...


class OtelTrain:
    name = "otel-train"
    module = "otel_train"

    def __init__(self, folder: Path) -> None:
        import otel_train

        self.run = otel_train.init(project="bench", dir=folder, git=False)
        # What a user calls, without a frame of ours around it: at this speed one would count.
        self.log: Callable[[dict[str, Any], int], None] = self.run.log

    def finish(self) -> None:
        self.run.finish()


class SdkGauges:
    name = "OpenTelemetry SDK gauges"
    module = "opentelemetry.sdk.metrics"

    def __init__(self, folder: Path) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader

        self._file = (folder / "metrics.json").open("w")
        reader = PeriodicExportingMetricReader(ConsoleMetricExporter(out=self._file), export_interval_millis=5000)
        self._provider = MeterProvider([reader])
        self._meter = self._provider.get_meter("bench")
        self._gauges: dict[str, Any] = {}

    def log(self, values: dict[str, Any], step: int) -> None:
        for name, value in values.items():
            gauge = self._gauges.get(name)
            if gauge is None:
                gauge = self._gauges[name] = self._meter.create_gauge(name)
            gauge.set(value)

    def finish(self) -> None:
        self._provider.shutdown()
        self._file.close()


class TensorBoard:
    name = "TensorBoard"
    module = "tensorboard"

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    def log(self, values: dict[str, Any], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def finish(self) -> None:
        self._writer.close()


class WandbOffline:
    name = "W&B offline"
    module = "wandb"

    def __init__(self, folder: Path) -> None:
        os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=str(folder))
        import wandb

        self._run = wandb.init(project="bench", dir=str(folder), settings=wandb.Settings(silent=True))

    def log(self, values: dict[str, Any], step: int) -> None:
        self._run.log(values, step=step)

    def finish(self) -> None:
        self._run.finish()


class MlflowSqlite:
    name = "MLflow with SQLite"
    module = "mlflow"

    def __init__(self, folder: Path) -> None:
        import mlflow

        mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
        mlflow.set_experiment("bench")
        self._mlflow = mlflow
        mlflow.start_run()

    def log(self, values: dict[str, Any], step: int) -> None:
        self._mlflow.log_metrics(values, step=step)

    def finish(self) -> None:
        self._mlflow.end_run()


class Trackio:
    name = "trackio"
    module = "trackio"

    def __init__(self, folder: Path) -> None:
        os.environ.update(TRACKIO_DIR=str(folder), HF_HUB_OFFLINE="1", TRACKIO_SHOW_DASHBOARD="0")
        import trackio

        self._trackio = trackio
        trackio.init(project="bench")

    def log(self, values: dict[str, Any], step: int) -> None:
        self._trackio.log(values, step=step)

    def finish(self) -> None:
        self._trackio.finish()


PEERS: dict[str, Callable[[Path], Logger]] = {
    peer.name: peer for peer in (OtelTrain, SdkGauges, TensorBoard, WandbOffline, MlflowSqlite, Trackio)
}


def installed(name: str) -> bool:
    """Tell whether a peer's package is there."""
    module = PEERS[name].module  # type: ignore[attr-defined]
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def folder_bytes(folder: Path) -> int:
    """Return the size of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def scratch() -> tempfile.TemporaryDirectory[str]:
    """Return a folder that goes away again."""
    return tempfile.TemporaryDirectory(prefix="otel-train-bench-", ignore_cleanup_errors=True)
