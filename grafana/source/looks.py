"""Colours, units, value mappings and other looks that panels share."""

from __future__ import annotations

from typing import Any, Final

from grafana_foundation_sdk.builders import common
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, SortOrder, TooltipDisplayMode
from grafana_foundation_sdk.models.dashboard import DynamicConfigValue, ValueMap, ValueMappingResult

from grafana.source.fragments import SILENT_CODE, STATE_CODES
from otel_train.semconv import METRICS

# Grafana's units by those of OTLP (UCUM); a number without unit has none.
UNITS: Final = {
    "": "none",
    "1": "percentunit",
    "s": "s",
    "By": "bytes",
    "Hz": "hertz",
    "W": "watt",
    "Cel": "celsius",
}
STATE_COLORS: Final = {
    "finished": "blue",
    "running": "green",
    "interrupted": "yellow",
    "silent": "orange",
    "killed": "dark-orange",
    "lost": "purple",
    "failed": "red",
}
# The same in all panels; a split of another name gets a colour by itself.
SPLIT_COLORS: Final = {"train": "blue", "val": "orange", "test": "green", "value": "blue"}


def unit_of(metric: str) -> str:
    """Return Grafana's unit of one of our metrics; KeyError where there is none for it."""
    return UNITS[METRICS[metric].unit]


def state_mapping() -> ValueMap:
    """Return the names and colours of the numbers that stand for a run's state."""
    codes = {**STATE_CODES, "silent": SILENT_CODE}
    return ValueMap(
        {
            str(code): ValueMappingResult(text=state, color=STATE_COLORS[state], index=place)
            for place, (state, code) in enumerate(sorted(codes.items(), key=lambda item: item[1]))
        }
    )


def up_mapping() -> ValueMap:
    """Return the names of 1 and 0 for a program that answers or does not."""
    return ValueMap(
        {
            "0": ValueMappingResult(text="down", color="red", index=0),
            "1": ValueMappingResult(text="up", color="green", index=1),
        }
    )


def legend(*calculations: str) -> common.VizLegendOptions:
    """Return a visible legend, as a table where it has calculated columns."""
    mode = LegendDisplayMode.TABLE if calculations else LegendDisplayMode.LIST
    shown = common.VizLegendOptions().show_legend(True).display_mode(mode).placement(LegendPlacement.BOTTOM)
    return shown.calcs(list(calculations))


def tooltip() -> common.VizTooltipOptions:
    """Return a tooltip of all series at a time, the greatest first."""
    return common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)


def set_to(**properties: Any) -> list[DynamicConfigValue]:
    """Return the properties of an override; a double underscore stands for a dot."""
    return [DynamicConfigValue(name.replace("__", "."), value) for name, value in properties.items()]


def fixed(color: str) -> dict[str, str]:
    """Return one colour, whatever the value."""
    return {"mode": "fixed", "fixedColor": color}


def threshold_line() -> list[DynamicConfigValue]:
    """Return how the line of an alert's threshold looks: red and dashed, without points or fill."""
    return set_to(
        color=fixed("red"),
        custom__lineStyle={"fill": "dash", "dash": [10, 10]},
        custom__lineWidth=1,
        custom__fillOpacity=0,
        custom__showPoints="never",
    )
