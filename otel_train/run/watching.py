"""Joins a run and the watcher of its health: thresholds from the settings, what is kept from attempt to attempt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from otel_train.config import BY_NAME
from otel_train.watch.health import Health
from otel_train.watch.thresholds import Thresholds

if TYPE_CHECKING:
    from otel_train.config import Settings
    from otel_train.run.run import Run

SCALES = "first_losses"


def thresholds_of(settings: Settings) -> Thresholds:
    """Return the thresholds of a run; ConfigError where `alerts` names none that there is, or gives no number."""
    by_environment = settings.origins["alerts"] == "environment"
    return Thresholds(settings["alerts"], field=BY_NAME["alerts"].variable if by_environment else "alerts")


def watcher_of(run: Run, former: Mapping[str, Any] | None, *, main: bool) -> Health:
    """Return the watcher of a run; `former` is run.json of the earlier attempt that it goes on from."""
    kept = (former or {}).get("health")
    scales = kept.get(SCALES) if isinstance(kept, Mapping) else None
    known = scales.items() if isinstance(scales, Mapping) else ()
    file = run.session.file
    return Health(
        thresholds_of(run.settings),
        run.digest,
        elsewhere=run.activity.elsewhere,
        main=main,
        scales={str(name): float(scale) for name, scale in known if isinstance(scale, int | float)},
        keep=lambda found: file.change(lambda document: document.setdefault("health", {}).update({SCALES: found})),
    )
