"""Writes the tests of how runs end: failed and lost are told once each, everything else is silent."""

from __future__ import annotations

from typing import Any

from deploy.prometheus.source.expected import labels_of
from deploy.prometheus.source.scenario import STEP_S, Run, Scene, as_test

POINTS = 12
LAST_S = (POINTS - 1) * STEP_S
SEEN_S = 10
OFF = float("inf")


def end_tests() -> list[dict[str, Any]]:
    """Return the tests."""
    return [
        as_test("failed", _failed()),
        as_test("lost", _lost()),
        as_test("lost, while Prometheus itself has just begun", [_prometheus_began()]),
    ]


def _all(*runs: Run) -> list[dict[str, str]]:
    return [series for run in runs for series in run.own(all_states=True)]


def _failed() -> list[Scene]:
    run = Run("fails", points=POINTS, end="failed")
    fires = labels_of("failed", run)
    once = Scene(run.run_id, _all(run)).at(LAST_S - 5).at(LAST_S + SEEN_S, fires).at(LAST_S + 300, fires)
    once.at(LAST_S + 590, fires).at(LAST_S + 610).at(LAST_S + 1200)

    run = Run("fails-and-is-resumed", points=POINTS, end="failed")
    again = Run(run.run_id, attempt=2, start=POINTS + 8)
    resumed = Scene(run.run_id, _all(run, again)).at(again.start * STEP_S - 5, labels_of("failed", run))
    resumed.at(again.start * STEP_S + SEEN_S)

    run = Run("fails-while-another-rank-hangs", points=POINTS, end="failed")
    hanging = Scene(run.run_id, _all(run, Run(run.run_id, rank=1, host="node-2")))
    hanging.at(LAST_S + SEEN_S, labels_of("failed", run)).at(LAST_S + 300, labels_of("failed", run))

    run = Run("fails-and-other-ranks-vanish", points=POINTS, end="failed")
    vanished = Scene(run.run_id, _all(run, Run(run.run_id, rank=1, host="node-2", points=POINTS)))
    vanished.at(LAST_S + SEEN_S, labels_of("failed", run)).at(LAST_S + 300, labels_of("failed", run)).at(LAST_S + 800)

    run = Run("fails-switched-off", points=POINTS, end="failed", thresholds={"failed": OFF})
    off = Scene(run.run_id, _all(run)).at(LAST_S + SEEN_S).at(LAST_S + 200)

    run = Run("finishes", points=POINTS, end="finished")
    finished = Scene(run.run_id, _all(run))
    for after_s in (0, 5, 60, 200, 600, 1200):
        finished.at(LAST_S + after_s)
    return [once, resumed, hanging, vanished, off, finished]


def _lost() -> list[Scene]:
    run = Run("is-killed", points=POINTS)
    fires = labels_of("lost", run)
    killed = Scene(run.run_id, _all(run)).at(LAST_S + 60).at(LAST_S + 120).at(LAST_S + 155, fires)
    killed.at(LAST_S + 890, fires).at(LAST_S + 905).at(LAST_S + 1000)

    run = Run("is-killed-and-resumed", points=POINTS)
    again = Run(run.run_id, attempt=2, start=POINTS + 20)
    resumed = Scene(run.run_id, _all(run, again)).at(again.start * STEP_S - 5, labels_of("lost", run))
    resumed.at(again.start * STEP_S + SEEN_S)

    run = Run("loses-one-rank-of-two", points=POINTS)
    told = labels_of("rank_lost", run)
    one = Scene(run.run_id, _all(run, Run(run.run_id, rank=1, host="node-2"))).at(LAST_S + 120)
    one.at(LAST_S + 155, told).at(LAST_S + 890, told).at(LAST_S + 905)

    run = Run("loses-all-ranks-one-by-one", points=POINTS)
    both = Scene(run.run_id, _all(run, Run(run.run_id, rank=1, host="node-2", points=POINTS + 8))).at(LAST_S + 115)
    both.at(LAST_S + 155, labels_of("rank_lost", run)).at(LAST_S + 120 + 155, labels_of("lost", run))

    run = Run("loses-a-rank-that-had-ended", points=POINTS, end="finished")
    ended = Scene(run.run_id, _all(run, Run(run.run_id, rank=1, host="node-2"))).at(LAST_S + 155).at(LAST_S + 300)

    run = Run("loses-a-rank-and-goes-on-without-it", points=POINTS)
    rest = [Run(run.run_id, rank=1, host="node-2", points=POINTS), Run(run.run_id, attempt=2, start=POINTS + 4)]
    smaller = Scene(run.run_id, _all(run, *rest)).at(LAST_S + 155).at(LAST_S + 400)

    run = Run("loses-one-rank-switched-off", points=POINTS, thresholds={"rank_lost": OFF})
    silenced = Scene(run.run_id, _all(run, Run(run.run_id, rank=1, host="node-2"))).at(LAST_S + 155).at(LAST_S + 300)

    run = Run("is-found-dead", points=POINTS, end="lost")
    found = Scene(run.run_id, _all(run)).at(LAST_S - 5).at(LAST_S + 40, labels_of("lost", run))
    found.at(LAST_S + 590, labels_of("lost", run)).at(LAST_S + 610)

    run = Run("is-silent-for-a-minute-and-a-half", gap=(50, 56))
    silent = Scene(run.run_id, _all(run))
    for point in range(50, 60):
        silent.at(point * STEP_S + 10)

    run = Run("is-cut-off-for-five-minutes", gap=(30, 50))
    cut_s, back_s = 29 * STEP_S, 50 * STEP_S
    cut_off = Scene(run.run_id, _all(run)).at(cut_s + 140).at(cut_s + 160, labels_of("lost", run))
    cut_off.at(back_s - 5, labels_of("lost", run)).at(back_s + SEEN_S).at(back_s + 300)

    run = Run("is-killed-and-has-patience", points=POINTS, thresholds={"lost": 400})
    patient = Scene(run.run_id, _all(run)).at(LAST_S + 390).at(LAST_S + 440, labels_of("lost", run))

    run = Run("is-killed-switched-off", points=POINTS, thresholds={"lost": OFF})
    off = Scene(run.run_id, _all(run)).at(LAST_S + 155).at(LAST_S + 400)

    run = Run("begins", start=4, thresholds={"lost": 120, "failed": 1})
    begins = Scene(run.run_id, _all(run)).at(60).at(65).at(75).at(120)
    return [killed, resumed, one, both, ended, smaller, silenced, found, silent, cut_off, patient, off, begins]


def _prometheus_began() -> Scene:
    """It began 135 s after the run's last heartbeat, and says nothing for 90 s: heartbeats may wait in a queue."""
    run = Run("is-killed", points=POINTS)
    began = POINTS + 8
    start = {
        "series": 'process_start_time_seconds{job="prometheus"}',
        "values": f"0x{began - 1} {began * STEP_S}x60",
    }
    scene = Scene(run.run_id, [*run.own(), start]).at(LAST_S + 155)
    return scene.at(began * STEP_S + 85).at(began * STEP_S + 130, labels_of("lost", run))
