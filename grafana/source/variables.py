"""Makes the variables at the top of dashboards: the data sources, the project, the run, and what it logged."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders.dashboard import CustomVariable, DatasourceVariable, QueryVariable
from grafana_foundation_sdk.models.dashboard import VariableHide, VariableOption, VariableRefresh, VariableSort

from grafana.source.fragments import PROJECTS, THIS_RUN, heartbeat
from grafana.source.stores import PROMETHEUS
from otel_train.semconv import SPLITS

# Metrics that a user logged, whatever their names.
LOGGED: Final = '__name__=~"train_.+"'
DEFAULT_MEASURE: Final = "train_loss"


def sources() -> list[DatasourceVariable]:
    """Return the variables of the three data sources: the ones of the stack, or those that an import finds."""
    kinds = {"prometheus": "Prometheus", "loki": "Loki", "tempo": "Tempo"}
    return [
        DatasourceVariable(kind)
        .label(label)
        .type(kind)
        .hide(VariableHide.HIDE_VARIABLE)
        .current(VariableOption(text=label, value=kind))
        for kind, label in kinds.items()
    ]


def _query(name: str, label: str, query: str, help_text: str) -> QueryVariable:
    variable = QueryVariable(name).label(label).description(help_text).datasource(PROMETHEUS)
    variable = variable.query({"query": query, "refId": f"{name}-values", "qryType": 5}).definition(query)
    return variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).options([])


def _all(variable: QueryVariable, all_value: str = "") -> QueryVariable:
    chosen = VariableOption(selected=True, text=["All"], value=["$__all"])
    variable = variable.multi(True).include_all(True).current(chosen)
    return variable.all_value(all_value) if all_value else variable


def projects() -> QueryVariable:
    """Return the projects that had runs within the range, all of them at first."""
    variable = _query(
        "project", "Project", f"label_values({heartbeat()}, job)", "Projects: the name that init() was given."
    )
    return _all(variable.sort(VariableSort.ALPHABETICAL_ASC), ".+")


def run() -> QueryVariable:
    """Return the runs within the range, the newest first."""
    variable = _query("run_id", "Run", f"label_values({heartbeat()}, run_id)", "The run, by its id.")
    return variable.sort(VariableSort.ALPHABETICAL_DESC)


def runs() -> QueryVariable:
    """Return several of the runs within the range, the newest first."""
    query = f"label_values({heartbeat(PROJECTS)}, run_id)"
    variable = _query("runs", "Runs", query, "The runs that are laid over each other.")
    return _all(variable.sort(VariableSort.ALPHABETICAL_DESC))


def project_of_the_run() -> QueryVariable:
    """Return the project of the chosen run, by which Loki finds its records; not shown.

    A namespace before the name, as Prometheus writes it, is no part of Loki's service_name.
    """
    query = f"label_values({heartbeat(THIS_RUN)}, job)"
    variable = _query("project", "Project", query, "The project of the run.").regex("/(?:.+\\/)?(.+)/")
    return variable.hide(VariableHide.HIDE_VARIABLE)


def measure(of_runs: str) -> QueryVariable:
    """Return the metric that stands in the foreground: the loss, where there is one."""
    query = f"label_values({{{LOGGED},{of_runs}}}, __name__)"
    variable = _query("measure", "Metric", query, "The metric that tables and large panels show.")
    chosen = VariableOption(selected=True, text=DEFAULT_MEASURE, value=DEFAULT_MEASURE)
    return variable.sort(VariableSort.ALPHABETICAL_ASC).current(chosen)


def every_metric(of_runs: str) -> QueryVariable:
    """Return all metrics that were logged: panels are repeated over them."""
    query = f"label_values({{{LOGGED},{of_runs}}}, __name__)"
    variable = _query("metric", "Shown", query, "The metrics that have a panel each.")
    return _all(variable.sort(VariableSort.ALPHABETICAL_ASC))


def layer(selector: str) -> QueryVariable:
    """Return the layers of the model, one of which has its distributions shown."""
    query = f"label_values({selector}, layer)"
    variable = _query("layer", "Layer", query, "The layer whose weights and gradients are shown as distributions.")
    return variable.sort(VariableSort.DISABLED)


def split() -> CustomVariable:
    """Return the split that runs are compared by; training's values may have none."""
    values = {"train": "train|", **{name: name for name in SPLITS[1:]}}
    options = [VariableOption(selected=text == "train", text=text, value=value) for text, value in values.items()]
    variable = CustomVariable("split").label("Split").description("Training, validation or test.")
    written = ",".join(f"{text} : {value}" for text, value in values.items())
    return variable.values(written).options(options).current(options[0])
