"""Builds the alerts of runs: each condition's value, compared with the run's own threshold, while the run goes on.

The value is aggregated by run, card or host, and the threshold by run, so several attempts, ranks and hosts never make
a many-to-many match. A value is the extreme of the last 30 s, so that a spike between two evaluations is seen; in a gap
of the data the last one of two minutes stands. What ended, or has sent no heartbeat for two minutes, is not running.
"""

from __future__ import annotations

from deploy.prometheus.source.alert import Alert, Recording
from deploy.prometheus.source.notification import (
    list_text,
    place_text,
    run_links,
    threshold_text,
    value_text,
)
from deploy.prometheus.source.series import indent, number, rise
from otel_train.otlp.prometheus_names import known_name, label_name
from otel_train.watch.conditions import CONDITIONS, Condition

RUN = ("run_id", "run_name", "service_name")
HOST = (*RUN, "host_name")
RANK = (*HOST, "dl_rank")
CARD = (*HOST, "hw_id", "hw_name", "physical_index")
# What an alert's subject is, where it is not the run as a whole.
SUBJECT = {
    "gpu_idle": CARD,
    "gpu_hot": CARD,
    "gpu_throttled": CARD,
    "gpu_ecc": CARD,
    "disk_full": HOST,
    "memory_full": HOST,
    "memory_growth": HOST,
    "straggler": RANK,
    "rank_lost": RANK,
}
# Matchers that a condition's `where`, which knows equality only, cannot say. The power cap, clocks that somebody set
# and idleness hold a clock down too, and are no faults.
MATCHERS = {
    "gpu_throttled": 'reason=~"hw_slowdown|hw_thermal_slowdown|sw_thermal_slowdown|hw_power_brake_slowdown"',
}
# Of several ranks all must stand still: one that waits in a barrier while rank 0 evaluates does not.
LEAST_OF_RANKS = {"stalled"}
# A time that only grows: what counts is the last.
LAST_COUNTS = {"stalled", "hung"}
# Built-in thresholds that are not the number of the setting: a factor and a least time make one of seconds.
BUILT_IN = {"stalled": 120.0, "hung": 30.0}
HEARTBEAT_LIMIT_S = 120
# A rank is lost only where another one of its attempt is surely alive: four heartbeats.
ALIVE_S = 60
# Values whose newest point is looked at, since a training that makes a step in minutes counts its NaN as seldom.
LOSSES_AND_GRADIENTS = ("train_loss", "train_grad_norm")
# That of the whole gradient, by `run.watch`. A loss scaler's search begins with gradients that overflow.
SAMPLED_NORM = 'dl_grad_norm{layer=""}'
SCALE = "dl_amp_scale"
# The SDK takes Loss for the loss as well.
THE_LOSS = "(?i)train[.]loss"
# How long a run that failed or was lost is told of: longer than a store or a Collector is usually away.
END_WINDOW = "10m"
LOST_WINDOW = "15m"

# Of the rules of ranks: see rollups.py.
BY_RANK_STRAGGLER = "rank:straggler"
HEARTBEAT = known_name("dl.run.heartbeat")
STATE = known_name("dl.run.state")
THRESHOLD = known_name("dl.alert.threshold")
RUNNING = "run:running"
RUNNING_ATTEMPT = "run_attempt:running"


def facts() -> list[Recording]:
    """Return what other rules and dashboards need to know of runs; evaluated before the alerts of the same group."""
    attempt = ("run_id", "run_attempt", *RUN[1:])
    return [
        Recording(
            name=RUNNING_ATTEMPT,
            expr=f'max by ({", ".join(attempt)}) ({STATE}{{state="running"}} == 1)\n'
            f"and on (run_id, run_attempt)\n"
            f"(time() - max by (run_id, run_attempt) ({HEARTBEAT}) < {HEARTBEAT_LIMIT_S})",
            description="1 for each attempt that is running and has sent a heartbeat within two minutes.",
        ),
        Recording(
            name=RUNNING,
            expr=f"max by ({', '.join(RUN)}) ({RUNNING_ATTEMPT})",
            description="1 for each run that is running; nothing for runs that ended.",
        ),
    ]


def run_alerts() -> list[Alert]:
    """Return an alert for each condition."""
    return [_alert(condition) for condition in CONDITIONS.values()]


def alert_name(condition: str) -> str:
    """Return the alert's name for a condition: RunGpuIdle for gpu_idle."""
    return "Run" + "".join(word.capitalize() for word in condition.split("_"))


def built_in(condition: Condition) -> float:
    """Return the threshold, in the value's unit, for a run that gives none."""
    return BUILT_IN.get(condition.name, condition.threshold)


def selector(condition: Condition, *more: str) -> str:
    """Return the series of a condition's metric, with further matchers."""
    matchers = [f'{label_name(attribute)}="{value}"' for attribute, value in condition.where]
    if condition.name in MATCHERS:
        matchers.append(MATCHERS[condition.name])
    inner = ",".join([*matchers, *more])
    name = known_name(condition.metric)
    return f"{name}{{{inner}}}" if inner else name


def _alert(condition: Condition) -> Alert:
    name = alert_name(condition.name)
    subject = SUBJECT.get(condition.name, RUN)
    where = " on {{ $labels.host_name }}" if "host_name" in subject else ""
    where = ", rank {{ $labels.dl_rank }}" + where if "dl_rank" in subject else where
    card = " (GPU {{ $labels.physical_index }}, {{ $labels.hw_name }})" if "hw_id" in subject else ""
    value = _value_text(condition)
    threshold = threshold_text(condition.name, condition.unit, number(built_in(condition)))
    is_state = condition.unit == "state"
    figures = value if is_state else f"{value}, threshold {threshold}"
    return Alert(
        name=name,
        condition=condition.name,
        title=condition.title,
        severity=condition.severity,
        expr=_expression(condition, subject),
        # A lost run's heartbeats may wait in a queue for as long as the Collector takes to send again.
        for_s=30 if condition.name == "lost" else condition.for_s,
        labels={"project": "{{ $labels.service_name }}", "service_name": ""},
        annotations={
            "summary": f"{condition.title}: {{{{ $labels.run_name }}}}{where}{card}",
            "description": f"{figures}.{_place(condition, subject)} {condition.meaning}",
            "value": value,
            **({} if is_state else {"threshold": threshold}),
            **run_links(name),
        },
        summary=condition.summary,
        threshold=_threshold_note(condition),
        meaning=condition.meaning,
        look_at=condition.look_at,
        remedies=condition.remedies,
    )


def _value_text(condition: Condition) -> str:
    if condition.name == "failed":
        return "failed"
    if condition.name == "gpu_throttled":
        of_card = selector(condition, "run_id=%q", "host_name=%q", "hw_id=%q")
        which = "$labels.run_id $labels.host_name $labels.hw_id"
        return list_text(f"{of_card} == 1", which, "{{ .Labels.reason }}", label="reason")
    return value_text(condition.unit)


def _place(condition: Condition, subject: tuple[str, ...]) -> str:
    """Return template text that says of a run's alert which metric or rank it is about."""
    if condition.name == "nonfinite":
        counts = f"sum by (metric) (last_over_time({selector(condition, 'run_id=%q')}[2m])) > 0"
        count = "{{ .Labels.metric }} ({{ .Value }} in all)"
        return " Metrics: " + list_text(counts, "$labels.run_id", count, label="metric") + "."
    if condition.name == "lost":
        beats = f"last_over_time({selector(condition, 'run_id=%q')}[{LOST_WINDOW}])"
        ages = f"topk(5, time() - max by (dl_rank, host_name) ({beats}) > 60)"
        rank = "rank {{ .Labels.dl_rank }} on {{ .Labels.host_name }}"
        return " Silent: " + list_text(ages, "$labels.run_id", rank, label="dl_rank") + "."
    if subject != RUN or condition.name in ("failed", "plateau"):
        return ""
    return place_text(selector(condition, "run_id=%q"), lowest=condition.comparison == "<")


def _threshold_note(condition: Condition) -> str:
    comparison = {">": "above", ">=": "at or above", "<": "below"}[condition.comparison]
    keys = ", ".join(f"`{key}`" for key in (condition.setting, *condition.also))
    what = {
        "lost": "the age of ",
        "rank_lost": "the age of a rank's ",
        "nonfinite": "what is new within two minutes of ",
        "gpu_ecc": "what is new within ten minutes of ",
    }.get(condition.name, "")
    return (
        f"{what}`{selector(condition)}` {comparison} {number(built_in(condition))} ({condition.unit}). "
        f"A run sets its own by `init(alerts={{…}})`: {keys}."
    )


def _expression(condition: Condition, subject: tuple[str, ...]) -> str:
    own = {
        "failed": _failed,
        "lost": _lost,
        "rank_lost": _rank_lost,
        "straggler": _straggler,
        "nonfinite": _nonfinite,
        "plateau": _plateau,
    }.get(condition.name)
    if own is not None:
        return own(condition)
    series = selector(condition)
    value = f"{_worst(condition)} by ({', '.join(subject)}) ({_recent(condition, series)})"
    return _while_running(_compared(condition, value, f"last_over_time({series}[2m])"))


def _worst(condition: Condition) -> str:
    return "min" if condition.comparison == "<" or condition.name in LEAST_OF_RANKS else "max"


def _recent(condition: Condition, series: str) -> str:
    """Return the value that counts of each series: the worst of the last 30 s, in a gap the last of two minutes."""
    if condition.name == "gpu_ecc":
        # Counted since the driver was loaded: only what it rose by counts, and a reset is no error.
        return f"last_over_time({series}[10m]) - min_over_time({series}[10m])"
    if condition.for_s or condition.name in LAST_COUNTS:
        # The rule, or the value, waits by itself: what was high for a moment must not last.
        return f"last_over_time({series}[2m])"
    return f"{_worst(condition)}_over_time({series}[30s]) or last_over_time({series}[2m])"


def _compared(condition: Condition, value: str, present: str, window: str = "2m") -> str:
    """Return the comparison of a value with the run's threshold; the built-in one where the run gives none."""
    return (
        f"{value}\n{condition.comparison} on (run_id) group_left ()\n(\n"
        f"  {_threshold(condition, window)}\n"
        f"  or\n  group by (run_id) ({present}) * {number(built_in(condition))}\n)"
    )


def _threshold(condition: Condition, window: str = "2m") -> str:
    return f'max by (run_id) (last_over_time({THRESHOLD}{{alert="{condition.name}"}}[{window}]))'


def _while_running(expression: str) -> str:
    return f"(\n{indent(expression)}\n)\nand on (run_id) {RUNNING}"


def _not_switched_off(condition: Condition, expression: str, window: str = "2m") -> str:
    return f"(\n{indent(expression)}\n)\nunless on (run_id) ({_threshold(condition, window)} == +Inf)"


def _plateau(condition: Condition) -> str:
    """The metric that is judged is validation's loss, else training's, else the one that improved last."""
    run = ", ".join(RUN)
    name = known_name(condition.metric)
    value = "\nor on (run_id)\n".join(
        f"{worst} by ({run}) ({_recent(condition, name + labels)})"
        for worst, labels in (
            ("max", f'{{metric=~"{THE_LOSS}",split="val"}}'),
            ("max", f'{{metric=~"{THE_LOSS}"}}'),
            ("min", ""),
        )
    )
    compared = _compared(condition, f"(\n{indent(value)}\n)", f"last_over_time({name}[2m])")
    return _while_running(compared)


def _straggler(condition: Condition) -> str:
    """The score by the rules of ranks; that which the ranks tell themselves where own work is not known here."""
    score = f"max by ({', '.join(RANK)}) (last_over_time({BY_RANK_STRAGGLER}[2m]))"
    told = f"max by ({', '.join(RANK)}) (last_over_time({selector(condition)}[2m]))"
    value = f"(\n  {score}\n  or\n  {told}\n)"
    present = f"last_over_time({BY_RANK_STRAGGLER}[2m]) or last_over_time({selector(condition)}[2m])"
    return _while_running(_compared(condition, value, present))


def _nonfinite(condition: Condition) -> str:
    """New values of two minutes; or a loss or gradient whose newest value is none, since steps may be slower."""
    run = ", ".join(RUN)
    series = selector(condition)
    new = f"sum by ({run}) (\n{indent(rise(series, '2m'))}\n)"
    counts = [f"count by ({run}) ({name} * 0 != 0)" for name in LOSSES_AND_GRADIENTS]
    counts.append(f"(count by ({run}) ({SAMPLED_NORM} * 0 != 0) unless on (run_id) {SCALE})")
    now = "\nor\n".join(counts)
    compared = _compared(condition, new, f"last_over_time({series}[2m])")
    return _while_running(f"{compared}\nor\n{_not_switched_off(condition, now)}")


def _failed(condition: Condition) -> str:
    """A rank said that it failed, within the last minutes, and no other attempt of that run goes on since."""
    failed = f"max_over_time({selector(condition)}[{END_WINDOW}]) == 1"
    run = ", ".join(RUN)
    value = (
        f"max by ({run}) (\n"
        f"  {failed}\n"
        f"  unless on (run_id)\n"
        f"  ({RUNNING_ATTEMPT} unless on (run_id, run_attempt) ({failed}))\n)"
    )
    return _compared(condition, value, f"last_over_time({STATE}[{LOST_WINDOW}])", LOST_WINDOW)


def _lost(condition: Condition) -> str:
    """All ranks' newest heartbeats are old, and none of that attempt said that it ended; or somebody found it dead.

    Where Prometheus itself was away, heartbeats wait in the Collector's queue: nothing is said for its first 90 s.
    Until it has scraped itself it does not know of its start; the alert's `for` covers that.
    """
    beat = f"last_over_time({HEARTBEAT}[{LOST_WINDOW}])"
    run = ", ".join(RUN)
    silent = (
        f"min by ({run}) (\n"
        f"{indent(_age_of_newest(beat))}"
        f'(last_over_time({STATE}{{state="running"}}[{LOST_WINDOW}]) == 1)\n'
        "  unless on (run_id, run_attempt)\n"
        f'  (last_over_time({STATE}{{state!="running"}}[{LOST_WINDOW}]) == 1)\n)'
    )
    marked = f'(last_over_time({STATE}{{state="lost"}}[{END_WINDOW}]) == 1)'
    found = f"max by ({run}) (\n{indent(_age_of_newest(beat))}{marked}\n)"
    compared = _compared(condition, silent, beat, LOST_WINDOW)
    told = f"{indent(compared)}\n  or\n{indent(_not_switched_off(condition, found, LOST_WINDOW))}"
    return f"(\n{told}\n)\n{_prometheus_away()}"


def _rank_lost(condition: Condition) -> str:
    """A rank's newest heartbeat is old, and another rank of its attempt is alive."""
    beat = f"last_over_time({HEARTBEAT}[{LOST_WINDOW}])"
    silent = (
        f"max by ({', '.join(RANK)}) (\n"
        f"{indent(_age_of_newest(beat))}"
        f'(last_over_time({STATE}{{state="running"}}[{LOST_WINDOW}]) == 1)\n'
        "  and on (run_id, run_attempt)\n"
        f"  (time() - max by (run_id, run_attempt) ({HEARTBEAT}) < {ALIVE_S})\n)"
    )
    return f"(\n{indent(_compared(condition, silent, beat, LOST_WINDOW))}\n)\n{_prometheus_away()}"


def _age_of_newest(beat: str) -> str:
    """Return the beginning of a match with states: the age of each rank's newest heartbeat, of whatever attempt."""
    newest = f"{beat} == on (run_id, dl_rank) group_left () max by (run_id, dl_rank) ({beat})"
    return f"time() - ({newest})\nand on (run_id, run_attempt, dl_rank)\n"


def _prometheus_away() -> str:
    return 'unless on () (time() - max(process_start_time_seconds{job="prometheus"}) < 90)'
