"""The server reads a long run only once the page has drawn its first chart."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from otel_train.view import first_look
from otel_train.view.live import Change, LiveRun
from otel_train.view.serving import held_runs, run_routes
from tests.runs import RunBuilder
from tests.serving import serve_in_thread


@pytest.mark.parametrize("asked", [True, False])
def test_the_first_chart_of_a_long_run_is_drawn_before_the_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    """The rest is read once the page that is drawing it asks for it; where no page draws, at once."""
    builder = RunBuilder(tmp_path).attempt().log({"acc": [0.5, 0.9], "loss": [2.0, 1.0]}, steps=[0, 1])
    monkeypatch.setattr(first_look, "LONG_BYTES", 1)
    monkeypatch.setattr(run_routes, "EARLY_AFTER_S", 0.01)
    monkeypatch.setattr(held_runs, "FIRST_ALONE_S", 1000.0)
    was_read, refresh = threading.Event(), LiveRun.refresh

    def told(live: LiveRun, payload: bool = True) -> Change:
        change = refresh(live, payload)
        was_read.set()
        return change

    monkeypatch.setattr(LiveRun, "refresh", told)
    with serve_in_thread(tmp_path) as served:
        address = f"api/run/{builder.run_id}?parts="
        if asked:
            assert served.get(address + "head").json["early"] is True
        first = served.get(address + "first").json
        held = served.server.site.runs.get(builder.run_id)
        assert held is not None
        assert first["early"] is True
        assert [(chart["title"], chart["lines"][0]["y"]) for chart in first["charts"]["metrics"]] == [("loss", [2, 1])]
        if asked:
            assert not held.is_read
            whole = served.get(address + "head,metrics").json
            assert {chart["title"] for chart in whole["charts"]["metrics"]} == {"acc", "loss"}
            assert "early" not in whole
        assert was_read.wait(30)
        assert held.is_read
        assert served.get(address + "first").json == {}
