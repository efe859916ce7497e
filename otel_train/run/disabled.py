"""A run that records nothing, for `OTEL_SDK_DISABLED=true`: loops iterate and checkpoints are written all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from otel_train.record.open_loop import NoLoop
from otel_train.record.phases import NoPhase
from otel_train.run.adapting import NoCheckpoint
from otel_train.run.run import Run
from otel_train.run.stage import NoStage
from otel_train.run.verdict import check_status

if TYPE_CHECKING:
    from otel_train.config import Settings
    from otel_train.lineage.run_config import RunConfig


class DisabledRun(Run):
    """Has every method of a run; `id` is empty, and `path` the working folder, since there is none of the run's."""

    def __init__(self, settings: Settings, config: RunConfig) -> None:
        self.settings = settings
        self.config = config
        self.finished = False

    id = ""
    attempt = 0
    rank = 0
    step = 0
    epoch = None
    path = Path()
    present_stage = None
    stores_common = False
    place = None
    # What it shows in a notebook never changes.
    _is_over = True

    @property
    def name(self) -> str:
        """The name that was given."""
        return self.settings["name"] or ""

    @property
    def project(self) -> str:
        """The project that was given."""
        return self.settings["project"] or ""

    def __repr__(self) -> str:
        return "<Run (OTEL_SDK_DISABLED)>"

    def _repr_html_(self) -> str:
        """Return a panel that says so."""
        from otel_train.run.panel import disabled_html

        return disabled_html(self.name)

    def log(self, values: Mapping[str, Any], step: int | None = None, **about: Any) -> None:
        """Record nothing."""

    def define(self, name: str, **about: Any) -> None:
        """Record nothing."""

    def steps(self, loader: Iterable[Any], **about: Any) -> Any:
        """Return the loader itself."""
        return loader

    def check_samples(self, batch: Any, **about: Any) -> None:
        """Check nothing."""

    def watch(self, model: Any, optimizer: Any = None, **about: Any) -> Any:
        """Watch nothing."""
        return NoWatch()

    def unwatch(self, model: Any = None) -> None:
        """There is nothing to end."""

    def watch_data(self, loader: Iterable[Any], **about: Any) -> Any:
        """Return the loader itself."""
        return loader

    def epochs(self, epochs: int | Iterable[int], *, start: int = 0) -> Any:
        """Return the epochs' numbers."""
        return range(start, epochs) if isinstance(epochs, int) else epochs

    def phase(self, name: str) -> NoPhase:
        """Time nothing."""
        return _NO_PHASE

    def stage(self, name: str, **about: Any) -> Any:
        """Record nothing."""
        return NoStage()

    def log_dataset(self, name: str, data: Any = None, **about: Any) -> None:
        """Record nothing."""

    def save_checkpoint(
        self, path: str | PathLike[str], obj: Any, *, save: Callable[[Any, str], Any] | None = None, **about: Any
    ) -> Path:
        """Write the model, atomically and checked, without a context beside it."""
        from otel_train.lineage.checkpoints import save_checkpoint

        return Path(save_checkpoint(path, obj, save=save)["path"])

    def log_checkpoint(self, path: str | PathLike[str], **about: Any) -> None:
        """Record nothing."""

    def open_loop(self, **about: Any) -> Any:
        """Record nothing."""
        return NoLoop()

    def writing_checkpoint(self, path: str | PathLike[str], **about: Any) -> Any:
        """Record nothing."""
        return NoCheckpoint(path)

    def count(self, *, samples: Any = None, tokens: Any = None) -> None:
        """Count nothing."""

    def flops(self, *, per_sample: Any = None, per_token: Any = None, per_step: Any = None, peak: Any = None) -> None:
        """Take nothing."""

    def count_flops(self, **about: Any) -> AbstractContextManager[None]:
        """Count nothing."""
        return nullcontext()

    def log_base_model(self, path_or_name: str | PathLike[str]) -> None:
        """Record nothing."""

    def early_stop(self, reason: str) -> None:
        """Record nothing."""

    def event(self, name: str, body: str = "", attributes: Mapping[str, Any] | None = None) -> None:
        """Record nothing."""

    def record_registry(self, registry: Any = None, **about: Any) -> None:
        """Record nothing."""

    def position(self) -> dict[str, Any]:
        """Nothing is known."""
        return {}

    def use(self) -> AbstractContextManager[Run]:
        """Bind nothing."""
        return nullcontext(self)

    def flush(self, timeout_s: float = 5.0) -> bool:
        """There is nothing to write."""
        return True

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.finished = True

    def finish(self, status: str | None = None, **about: Any) -> None:
        """End; nothing was recorded. ConfigError for an unknown status, as everywhere."""
        check_status(status)
        self.finished = True


class NoWatch:
    """A watch of nothing."""

    closed = True
    model = None
    labels = ()

    def close(self) -> None:
        """There is nothing to end."""


_NO_PHASE = NoPhase()
