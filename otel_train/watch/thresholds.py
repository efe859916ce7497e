"""Names the keys of `init(alerts=…)`, checks what a user gives for them, and tells each condition's threshold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from otel_train.errors import ConfigError
from otel_train.watch.conditions import CONDITIONS, Condition

WORDS_FOR_OFF: Final = frozenset({"off", "none", "false", "no", "0"})
WORDS_FOR_ON: Final = frozenset({"on", "true", "yes"})


# Conditions whose limit is a multiple of the usual step time, and the key of the least one in seconds.
OF_STEP_TIMES: Final = {"stalled": "stalled_min_s", "hung": "hung_min_s"}


@dataclass(frozen=True, slots=True)
class AlertSetting:
    """One key of `alerts`: default, the highest value that makes sense, and one sentence. 0 always means off."""

    name: str
    default: float
    help: str
    most: float = math.inf
    unit: str = ""


_ROWS: Final = (
    AlertSetting("plateau_steps", 2000, "Steps without improvement of the loss.", unit="steps"),
    AlertSetting("plateau_percent", 1.0, "What counts as an improvement, in percent of the best value.", 100, "%"),
    AlertSetting(
        "overfit_gap", 0.1, "Validation loss above training loss, as a share of the training loss at the beginning."
    ),
    AlertSetting("nonfinite", 1, "Values that are not finite.", unit="values"),
    AlertSetting("gradient_max", 10.0, "Gradient norm, in multiples of the median of the last 100."),
    AlertSetting("gradient_min", 1e-7, "Gradient norm that is practically none."),
    AlertSetting("stalled_factor", 10, "Time without a step, in multiples of the usual step time."),
    AlertSetting("stalled_min_s", 120, "Time without a step that is never too long.", unit="s"),
    AlertSetting("failed", 1, "Whether a failed run alerts: 1 or 0.", 1),
    AlertSetting("lost_s", 120, "Time without a heartbeat.", unit="s"),
    AlertSetting("data_wait_share", 0.2, "Share of the step time spent waiting for data.", 1),
    AlertSetting("dead_share", 0.5, "Share of a layer's units that give nothing but zero.", 1),
    AlertSetting("amp_skipped_share", 0.5, "Share of the last 100 optimizer steps that a loss scaler skipped.", 1),
    AlertSetting("samples_bad_share", 0.0001, "Share of a checked batch that is not finite or constant.", 1),
    AlertSetting("samples_drift", 0.1, "Divergence of a checked batch from the first ones.", 1),
    AlertSetting("memory_full_in_s", 3600, "Time until growing memory is full, at least.", unit="s"),
    AlertSetting("straggler", 1.5, "By how much a rank's own work makes steps longer than they would be among equals."),
    AlertSetting("hung_factor", 10, "Time without a step of a rank, in multiples of the usual step time."),
    AlertSetting("hung_min_s", 30, "Time without a step of a rank that is never too long.", unit="s"),
    AlertSetting("rank_lost_s", 120, "Time without a heartbeat of one rank while others live.", unit="s"),
    AlertSetting("gpu_utilization", 0.6, "Mean share of time that a GPU is busy, at least.", 1),
    AlertSetting("gpu_idle_s", 600, "Time over which that mean is taken.", unit="s"),
    AlertSetting("gpu_temperature", 85, "Temperature of a GPU.", unit="Cel"),
    AlertSetting("gpu_throttled", 1, "Whether a GPU that is slowed down alerts: 1 or 0.", 1),
    AlertSetting("gpu_ecc", 1, "Uncorrected memory errors of a GPU while the run goes on.", unit="errors"),
    AlertSetting("disk_share", 0.95, "Share of the run folder's file system in use.", 1),
    AlertSetting("memory_share", 0.95, "Share of host memory, or of the control group's limit, in use.", 1),
)

ALERT_SETTINGS: Final[dict[str, AlertSetting]] = {row.name: row for row in _ROWS}


class Thresholds:
    """The thresholds of one run: defaults, and what the user gave in their place."""

    def __init__(self, given: Mapping[str, Any] | None = None, *, field: str = "alerts") -> None:
        """Check `given`, a number by key; 0, None or "off" switches off. ConfigError names key, value and fix."""
        self._values: dict[str, float] = {name: row.default for name, row in ALERT_SETTINGS.items()}
        for key, value in (given or {}).items():
            if key not in ALERT_SETTINGS:
                raise ConfigError(f"{field}[{key!r}]", value, f"no such alert; there are {', '.join(ALERT_SETTINGS)}")
            self._values[key] = _number(ALERT_SETTINGS[key], value, field)

    def __getitem__(self, key: str) -> float:
        """Return the number of a key; 0 where it is switched off."""
        return self._values[key]

    def limit(self, condition: Condition, usual: float | None = None) -> float:
        """Return what the value of a condition is compared with, in the value's unit; never reached where it is off.

        `usual` is the usual step time in seconds, which the limits of `OF_STEP_TIMES` are made of.
        """
        never = 0.0 if condition.comparison == "<" else math.inf
        number = self._values[condition.setting]
        if not number or any(not self._values[key] for key in condition.also if key == "gpu_idle_s"):
            return never
        if condition.name in OF_STEP_TIMES:
            return never if usual is None else max(number * usual, self._values[OF_STEP_TIMES[condition.name]])
        return number

    def limits(self, usual: float | None = None) -> dict[str, float]:
        """Return the limit of each condition by its name."""
        return {name: self.limit(condition, usual) for name, condition in CONDITIONS.items()}


def _number(row: AlertSetting, value: Any, field: str) -> float:
    text = str(value).strip().lower()
    if value is None or text in WORDS_FOR_OFF:
        return 0.0
    if text in WORDS_FOR_ON:
        return row.default
    limit = "of at least 0" if row.most == math.inf else f"from 0 to {row.most:g}"
    fix = f'use a number {limit} (the default is {row.default:g}), or "off"'
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{field}[{row.name!r}]", value, fix) from None
    if not 0 <= number <= row.most or number == math.inf:
        raise ConfigError(f"{field}[{row.name!r}]", value, fix)
    return number
