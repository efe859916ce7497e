"""Makes panels of each kind, complete but for their place and number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    heatmap,
    logs,
    stat,
    statetimeline,
    table,
    timeseries,
    trend,
    xychart,
)
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models.dashboard import DataTransformerConfig, Threshold, ThresholdsMode, ValueMap
from grafana_foundation_sdk.models.xychart import XYShowMode

from grafana.source.looks import SPLIT_COLORS, fixed, legend, set_to, threshold_line, tooltip
from grafana.source.queries.health import THRESHOLD
from grafana.source.query import Query
from grafana.source.stores import source_of, targets

PLUGIN_VERSION: Final = "12.3.0"
# Shorter than a step of most trainings; Grafana asks for no more points than a panel is wide.
FINEST: Final = "100ms"
MACHINE: Final = "1s"


@dataclass(frozen=True, slots=True)
class Tile:
    """A panel to be placed: its builder, its size in the grid of 24 columns, and its number where links need it."""

    builder: Any
    width: int
    height: int
    number: int | None = None
    repeat: str = ""
    per_row: int = 4


def _begin(builder: Any, title: str, description: str, queries: tuple[Query, ...], unit: str) -> Any:
    begun = builder.title(title).description(description).datasource(source_of(queries)).targets(targets(queries))
    return begun.unit(unit) if unit else begun


def _end(
    panel: Any,
    width: int,
    height: int,
    *,
    links: Sequence[Mapping[str, Any]] = (),
    repeat: str = "",
    per_row: int = 4,
) -> Tile:
    if links:
        panel = panel.data_links(_raw(links))
    if repeat:
        panel = panel.repeat(repeat).repeat_direction("h").max_per_row(per_row)
    return Tile(panel, width, height, repeat=repeat, per_row=per_row)


def number(
    title: str,
    description: str,
    queries: tuple[Query, ...],
    unit: str,
    *,
    width: int = 3,
    height: int = 4,
    mapping: ValueMap | None = None,
    limits: Mapping[float, str] | None = None,
    decimals: int | None = None,
    names: bool = False,
    links: Sequence[Mapping[str, Any]] = (),
) -> Tile:
    """Return one value, or a few by name. `limits`: colours from these values on."""
    panel = _begin(stat.Panel(), title, description, queries, unit)
    panel = panel.color_mode(common_models.BigValueColorMode.VALUE).graph_mode(common_models.BigValueGraphMode.NONE)
    panel = panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False))
    text = common_models.BigValueTextMode.VALUE_AND_NAME if names else common_models.BigValueTextMode.VALUE
    panel = panel.text_mode(text).no_value("-")
    steps = [Threshold(value=None, color="text"), *(Threshold(value, color) for value, color in (limits or {}).items())]
    panel = panel.thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    if mapping is not None:
        panel = panel.mappings([mapping])
    if decimals is not None:
        panel = panel.decimals(decimals)
    return _end(panel, width, height, links=links)


def curves(
    title: str,
    description: str,
    queries: tuple[Query, ...],
    unit: str,
    *,
    width: int = 8,
    height: int = 8,
    interval: str = MACHINE,
    calculations: Sequence[str] = (),
    links: Sequence[Mapping[str, Any]] = (),
    stacked: bool = False,
    at_least: float | None = None,
    at_most: float | None = None,
    units: Mapping[str, str] | None = None,
    repeat: str = "",
    logarithmic: bool = False,
    usual: tuple[float, float] | None = None,
) -> Tile:
    """Return values over time.

    `usual`: from where to where a value is as it should be, as a green area. `units`: other units, by the name of the
    series, on an axis to the right.
    """
    panel = _begin(timeseries.Panel(), title, description, queries, unit)
    panel = panel.interval(interval).legend(legend(*calculations)).tooltip(tooltip())
    panel = panel.line_width(1).fill_opacity(30 if stacked else 0).span_nulls(False)
    panel = panel.show_points(common_models.VisibilityMode.AUTO)
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A"))
    if at_least is not None:
        panel = panel.axis_soft_min(at_least)
    if at_most is not None:
        panel = panel.axis_soft_max(at_most)
    if logarithmic:
        panel = panel.scale_distribution(
            common.ScaleDistributionConfig().type(common_models.ScaleDistribution.LOG).log(10)
        )
    if usual is not None:
        steps = [Threshold(None, "transparent"), Threshold(usual[0], "green"), Threshold(usual[1], "transparent")]
        panel = panel.thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
        area = common_models.GraphThresholdsStyleMode.AREA
        panel = panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(area))
    if any(getattr(query, "legend", "") == THRESHOLD for query in queries):
        panel = panel.override_by_name(THRESHOLD, threshold_line())
    for name, other in (units or {}).items():
        panel = panel.override_by_name(name, set_to(unit=other, custom__axisPlacement="right"))
    for split, color in SPLIT_COLORS.items():
        if any("{{split}}" in getattr(query, "legend", "") for query in queries):
            panel = panel.override_by_name(split, set_to(color=fixed(color)))
    return _end(panel, width, height, links=links, repeat=repeat)


def by_step(
    title: str,
    description: str,
    queries: tuple[Query, ...],
    unit: str,
    *,
    width: int = 12,
    height: int = 9,
    links: Sequence[Mapping[str, Any]] = (),
    repeat: str = "",
) -> Tile:
    """Return values of one run by step: the series called `step` becomes the x axis.

    At each step the last value counts. Without the grouping the panel refuses a step that stands twice, as it does
    while an evaluation runs.
    """
    aggregated = {split: {"operation": "aggregate", "aggregations": ["lastNotNull"]} for split in SPLIT_COLORS}
    transformations = [
        DataTransformerConfig("joinByField", options={"byField": "Time", "mode": "outer"}),
        DataTransformerConfig(
            "groupBy", options={"fields": {"step": {"operation": "groupby", "aggregations": []}, **aggregated}}
        ),
        DataTransformerConfig("sortBy", options={"fields": {}, "sort": [{"field": "step"}]}),
        DataTransformerConfig("renameByRegex", options={"regex": r"(.*) \(lastNotNull\)", "renamePattern": "$1"}),
    ]
    panel = _begin(trend.Panel(), title, description, queries, unit)
    panel = panel.interval(FINEST).max_data_points(2000).legend(legend()).tooltip(tooltip()).x_field("step")
    panel = panel.line_width(1).span_nulls(True).transformations(transformations)
    panel = panel.override_by_name("step", set_to(unit="none", decimals=0))
    for split, color in SPLIT_COLORS.items():
        panel = panel.override_by_name(split, set_to(color=fixed(color)))
    return _end(panel, width, height, links=links, repeat=repeat)


def runs_by_step(
    title: str,
    description: str,
    queries: tuple[Query, ...],
    unit: str,
    *,
    width: int = 24,
    height: int = 11,
    repeat: str = "",
) -> Tile:
    """Return several runs by step: rows of step and value are joined, and parted by run."""
    transformations = [
        DataTransformerConfig("merge", options={}),
        DataTransformerConfig(
            "partitionByValues", options={"fields": ["run"], "keepFields": False, "naming": {"asLabels": True}}
        ),
    ]
    panel = _begin(xychart.Panel(), title, description, queries, unit)
    panel = panel.interval(FINEST).max_data_points(2000).legend(legend()).transformations(transformations)
    panel = panel.tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.SINGLE))
    panel = panel.show(XYShowMode.LINES).line_width(1).series([xychart.XYSeriesConfig()])
    panel = panel.point_size(xychart.XychartFieldConfigPointSize().fixed(2))
    # The step, of the first query, is the x axis.
    panel = panel.override_by_name("Value #A", set_to(unit="none", decimals=0))
    return _end(panel, width, height, repeat=repeat, per_row=3)


def distribution(
    title: str, description: str, queries: tuple[Query, ...], unit: str, *, width: int = 12, height: int = 9
) -> Tile:
    """Return a native histogram over time: a column for each time, brighter where more values are."""
    panel = _begin(heatmap.Panel(), title, description, queries, unit).interval("15s").calculate(False)
    colors = heatmap.HeatmapColorOptions().mode(heatmap_models.HeatmapColorMode.SCHEME).scheme("Viridis").steps(64)
    # The eye sees few of many: roots keep the thin ends of a distribution visible.
    panel = panel.color(colors.scale(heatmap_models.HeatmapColorScale.EXPONENTIAL).exponent(0.5).reverse(False))
    panel = panel.y_axis(heatmap.YAxisConfig().unit(unit)).show_legend()
    panel = panel.filter_values(heatmap.FilterValueRange().le(1e-9)).cell_gap(0)
    return Tile(panel.tooltip(heatmap.HeatmapTooltip().mode(common_models.TooltipDisplayMode.SINGLE)), width, height)


def timeline(
    title: str, description: str, queries: tuple[Query, ...], mapping: ValueMap, *, width: int = 24, height: int = 8
) -> Tile:
    """Return states over time, a bar for each series."""
    panel = _begin(statetimeline.Panel(), title, description, queries, "none")
    panel = panel.interval("15s").legend(legend()).tooltip(tooltip()).mappings([mapping])
    panel = panel.show_value(common_models.VisibilityMode.NEVER).row_height(0.8).merge_values(True).fill_opacity(70)
    return Tile(panel, width, height)


def _table(title: str, description: str, queries: tuple[Query, ...], unit: str) -> Any:
    panel = _begin(table.Panel(), title, description, queries, unit).show_header(True)
    # The builder's footer is of an older form.
    panel._internal.options.footer = None
    return panel.cell_height(common_models.TableCellHeight.SM)


def cells(
    title: str,
    description: str,
    queries: tuple[Query, ...],
    columns: Mapping[str, str],
    looks: Mapping[str, Mapping[str, Any]],
    *,
    hidden: Sequence[str] = (),
    sort: tuple[str, bool] | None = None,
    width: int = 24,
    height: int = 10,
) -> Tile:
    """Return a table of rows that several queries fill.

    `columns` names the fields that stay, in their order, and what they are called; `looks` gives properties by that
    name. A hidden column is there for links. `sort` is a column's name and whether the greatest comes first.
    """
    order = {field: place for place, field in enumerate(columns)}
    renamed = {field: name for field, name in columns.items() if field != name}
    transformations = [
        DataTransformerConfig("merge", options={}),
        DataTransformerConfig(
            "organize",
            options={
                "excludeByName": {},
                "includeByName": dict.fromkeys(columns, True),
                "indexByName": order,
                "renameByName": renamed,
            },
        ),
    ]
    panel = _table(title, description, queries, "string").transformations(transformations).filterable(True)
    for name, properties in looks.items():
        panel = panel.override_by_name(name, set_to(**properties))
    for name in hidden:
        # The first is what this version's table reads, the second what older ones do.
        panel = panel.override_by_name(name, set_to(custom__hideFrom__viz=True, custom__hidden=True))
    if sort is not None:
        panel = panel.sort_by([common.TableSortByFieldState().display_name(sort[0]).desc(sort[1])])
    return Tile(panel, width, height)


def spans(
    title: str,
    description: str,
    queries: tuple[Query, ...],
    *,
    width: int = 12,
    height: int = 9,
    number: int | None = None,
) -> Tile:
    """Return spans that a search finds; their ids are links to the traces."""
    return Tile(_table(title, description, queries, ""), width, height, number)


def lines(title: str, description: str, queries: tuple[Query, ...], *, width: int = 24, height: int = 9) -> Tile:
    """Return log records, the newest first; a record's details have the link to its trace."""
    panel = _begin(logs.Panel(), title, description, queries, "").show_time(True).enable_log_details(True)
    panel = panel.show_labels(False).show_common_labels(False).wrap_log_message(True).prettify_log_message(False)
    panel = panel.sort_order(common_models.LogsSortOrder.DESCENDING)
    return Tile(panel.dedup_strategy(common_models.LogsDedupStrategy.NONE), width, height)


def _raw(links: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return data links where the builder wants builders of dashboard links, which are of another form."""
    return [_Raw(dict(link)) for link in links]


class _Raw:
    def __init__(self, value: dict[str, Any]) -> None:
        self._value = value

    def build(self) -> Any:
        return self._value
