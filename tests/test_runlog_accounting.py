"""What was recorded and what was not, by cause."""

from __future__ import annotations

import threading

from otel_train.runlog.accounting import Accounting


def test_the_line_names_every_signal_and_every_cause() -> None:
    """Thousands have commas, one is singular, causes stand in parentheses."""
    accounting = Accounting()
    accounting.recorded.update({"metrics": 1_200, "logs": 1, "traces": 14})
    assert accounting.line() == "1,200 points, 1 log record, 14 spans; nothing dropped"
    accounting.drop("metrics", "refused", 3)
    accounting.drop("traces", "queue full", 1)
    accounting.drop("logs", "queue full", 0)
    assert accounting.line() == (
        "1,200 points, 1 log record, 14 spans; dropped: 3 points (refused), 1 span (queue full)"
    )


def test_counts_add_up_and_counts_of_others_are_taken_over() -> None:
    """Two drops of one cause are summed; a count that is kept elsewhere replaces the former."""
    accounting = Accounting()
    for items in (2, 3):
        accounting.drop("metrics", "refused", items)
        accounting.set_dropped("metrics", "buffer full", items * 10)
    accounting.set_dropped("logs", "disk not writable", 0)
    assert accounting.causes("metrics") == {"refused": 5, "buffer full": 30}
    assert accounting.causes("logs") == {}
    accounting.recorded["metrics"] = 7
    assert accounting.to_dict() == {
        "recorded": {"metrics": 7},
        "dropped": {"metrics": {"refused": 5, "buffer full": 30}},
    }


def test_drops_of_many_threads_add_up() -> None:
    """Eight threads with 2,000 drops each are 16,000."""
    accounting = Accounting()

    def drop() -> None:
        for _ in range(2_000):
            accounting.drop("logs", "queue full", 1)

    threads = [threading.Thread(target=drop) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert accounting.causes("logs") == {"queue full": 16_000}
