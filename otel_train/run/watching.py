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
    from otel_train.runlog.watcher import Finding
    from otel_train.watch.hang import HangWatch

SCALES = "first_losses"


def thresholds_of(settings: Settings) -> Thresholds:
    """Return the thresholds of a run; ConfigError where `alerts` names none that there is, or gives no number."""
    by_environment = settings.origins["alerts"] == "environment"
    return Thresholds(settings["alerts"], field=BY_NAME["alerts"].variable if by_environment else "alerts")


class HealthAndHangs:
    """What watches the health of a run and, by its pace, whether the rank hangs."""

    def __init__(self, health: Health, hang: HangWatch) -> None:
        self._health = health
        self._hang = hang
        self.take = health.take
        self.readings = health.readings
        self.heartbeat = health.heartbeat

    def settle(self, wall_ns: int, mono_ns: int, *, ended: bool) -> list[Finding]:
        """Return what began or ended."""
        found = self._health.settle(wall_ns, mono_ns, ended=ended)
        return [*found, *self._hang.settle(self._health.pace, wall_ns, mono_ns, ended=ended)]


def watcher_of(run: Run, former: Mapping[str, Any] | None, *, main: bool) -> HealthAndHangs:
    """Return the watcher of a run; `former` is run.json of the earlier attempt that it goes on from."""
    thresholds = thresholds_of(run.settings)
    kept = (former or {}).get("health")
    scales = kept.get(SCALES) if isinstance(kept, Mapping) else None
    known = scales.items() if isinstance(scales, Mapping) else ()
    file = run.session.file
    health = Health(
        thresholds,
        run.digest,
        elsewhere=run.activity.elsewhere,
        main=main,
        scales={str(name): float(scale) for name, scale in known if isinstance(scale, int | float)},
        keep=lambda found: file.change(lambda document: document.setdefault("health", {}).update({SCALES: found})),
    )
    return HealthAndHangs(health, run.session.rank_watching.hang_watch(thresholds))
