"""Writes the texts and links of notifications, as templates that Prometheus fills in when an alert fires.

The links hold the time at which the alert began. Prometheus keeps that in ALERTS_FOR_STATE from an alert's second
evaluation on; at the first it is now. Raw strings of Go stand in backquotes, so nothing is escaped twice.
"""

from __future__ import annotations

from otel_train.otlp.prometheus_names import known_name

THRESHOLD = known_name("dl.alert.threshold")
RUN_DASHBOARD = "otel-train-run"
PIPELINE_DASHBOARD = "otel-train-pipeline"
LOGS_DATASOURCE = "loki"
BEFORE_S = 1800
AFTER_S = 600


def formatted(unit: str) -> str:
    """Return the template function that writes a value of this unit."""
    if unit.startswith("share"):
        return "humanizePercentage"
    return "humanizeDuration" if unit == "s" else 'printf "%.4g"'


def unit_word(unit: str) -> str:
    """Return what stands after a number in this unit, with the space between."""
    if unit == "Cel":
        return " °C"
    words = unit.removeprefix("share").strip()
    return f" {words}" if words and unit not in ("s", "state") else ""


def value_text(unit: str) -> str:
    """Return template text for the alert's value with its unit."""
    return f"{{{{ $value | {formatted(unit)} }}}}{unit_word(unit)}"


def threshold_text(condition: str, unit: str, default: str) -> str:
    """Return template text for the run's own threshold, or the one that rules have where the run gives none."""
    query = f'max(last_over_time({THRESHOLD}{{alert="{condition}",run_id=%q}}[15m])) or vector({default})'
    return f"{{{{ printf `{query}` $labels.run_id | query | first | value | {formatted(unit)} }}}}{unit_word(unit)}"


def place_text(selector: str, *, lowest: bool) -> str:
    """Return template text that names metric, layer, rank and host of the worst series; nothing where there is none.

    `selector` has %q for the run's id.
    """
    worst = f"{'bottomk' if lowest else 'topk'}(1, last_over_time({selector}[2m]))"
    return (
        f"{{{{ with printf `{worst}` $labels.run_id | query }}}}{{{{ with first . }}}} Worst:"
        "{{ with .Labels.metric }} {{ . }},{{ end }}{{ with .Labels.layer }} layer {{ . }},{{ end }}"
        " rank {{ .Labels.dl_rank }} on {{ .Labels.host_name }}."
        "{{ end }}{{ end }}"
    )


def list_text(query: str, arguments: str, item: str, *, label: str) -> str:
    """Return template text that lists what a query finds, in the order of a label.

    `query` has %q for each of the arguments.
    """
    return (
        f"{{{{ range $i, $found := printf `{query}` {arguments} | query | sortByLabel `{label}` }}}}"
        f"{{{{ if $i }}}}, {{{{ end }}}}{{{{ with $found }}}}{item}{{{{ end }}}}{{{{ end }}}}"
    )


def run_links(name: str) -> dict[str, str]:
    """Return the annotations that lead from a run's alert to its dashboard and its logs at that time."""
    times = _times(name, "run_id=%q", " $labels.run_id")
    logql = "{{ $logs := printf `{service_name=%q} | run_id=%q` $labels.service_name $labels.run_id }}"
    panes = (
        f'{{"logs":{{"datasource":"{LOGS_DATASOURCE}",'
        f'"queries":[{{"refId":"A","datasource":{{"type":"loki","uid":"{LOGS_DATASOURCE}"}},"expr":%q}}],'
        '"range":{"from":"%s","to":"%s"}}}'
    )
    return {
        "dashboard": times
        + "{{ $externalLabels.grafana_url }}"
        + f"/d/{RUN_DASHBOARD}?var-run_id={{{{ $labels.run_id | urlquery }}}}&from={{{{ $from }}}}&to={{{{ $to }}}}",
        "logs": times
        + logql
        + "{{ $externalLabels.grafana_url }}/explore?schemaVersion=1&orgId=1&panes="
        + f"{{{{ printf `{panes}` $logs $from $to | urlquery }}}}",
    }


def pipeline_links(name: str) -> dict[str, str]:
    """Return the annotation that leads from an alert about the stack itself to its dashboard at that time."""
    link = f"/d/{PIPELINE_DASHBOARD}?from={{{{ $from }}}}&to={{{{ $to }}}}"
    return {"dashboard": _times(name, "part=%q", " $labels.part") + "{{ $externalLabels.grafana_url }}" + link}


def _times(name: str, matcher: str, argument: str) -> str:
    """Return template text that sets $from and $to, in ms, around the time at which this alert began."""
    began = f'min(ALERTS_FOR_STATE{{alertname="{name}",{matcher}}} or vector(time()))'
    return "".join(
        f"{{{{ ${variable} := printf `({began} {sign} {seconds}) * 1000`{argument}"
        ' | query | first | value | printf "%.0f" }}'
        for variable, sign, seconds in (("from", "-", BEFORE_S), ("to", "+", AFTER_S))
    )
