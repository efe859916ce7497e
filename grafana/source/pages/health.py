"""Lays out the panels of watched values, each with the threshold of its alert, from the table of conditions."""

from __future__ import annotations

from typing import Any, Final

from grafana.source import links, tiles
from grafana.source.queries.health import QUERIES
from otel_train.watch.conditions import CONDITIONS

# Units of panels where that of the condition is a word and no unit.
UNITS: Final = {
    "overfit": "percentunit",
    "data_wait": "percentunit",
    "gpu_idle": "percentunit",
    "disk_full": "percentunit",
    "memory_full": "percentunit",
    "stalled": "s",
    "lost": "s",
    "gpu_hot": "celsius",
    "hung": "s",
    "rank_lost": "s",
    "memory_growth": "s",
    "dead_units": "percentunit",
    "amp_skipping": "percentunit",
    "samples_bad": "percentunit",
}
LEARNING: Final = ("plateau", "overfit", "gradient_exploding", "gradient_vanishing", "nonfinite")
GOING_ON: Final = ("data_wait", "stalled", "hung", "lost")
GPUS: Final = ("gpu_idle", "gpu_hot", "gpu_throttled", "gpu_ecc")
HOSTS: Final = ("disk_full", "memory_full", "memory_growth")
# On other dashboards than that of the run.
OF_THE_MODEL: Final = ("dead_units", "amp_skipping")
OF_SAMPLES: Final = ("samples_bad", "samples_drift")
OF_RANKS: Final = ("straggler", "rank_lost")
# The state of the run says it.
WITHOUT_A_PANEL: Final = ("failed",)


def panel(name: str, **arguments: Any) -> tiles.Tile:
    """Return the panel of one condition."""
    condition = CONDITIONS[name]
    description = (
        f"{condition.meaning}\n\nThe dashed line is this run's own threshold "
        f"(`{condition.setting}` of `init(alerts=…)`); the alert fires where the value is {condition.comparison} it."
    )
    unit = UNITS.get(name, "none")
    share = {"at_least": 0.0, "at_most": 1.0} if unit == "percentunit" and name != "overfit" else {"at_least": 0.0}
    return tiles.curves(
        condition.title, description, QUERIES[name], unit, links=links.AT_A_POINT, **{**share, **arguments}
    )


def panels(names: tuple[str, ...], **arguments: Any) -> list[tiles.Tile]:
    """Return the panels of several conditions."""
    return [panel(name, **arguments) for name in names]
