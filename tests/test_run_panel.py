"""What a run shows of itself in a notebook: right values, no markup of anybody else's, nothing that waits."""

from __future__ import annotations

import html.parser
import logging
import math
import sys
from collections.abc import Callable
from typing import Any

import pytest

import otel_train
from otel_train.record.entries import LogEntry
from otel_train.run.panel import Facts, Row, as_html, duration
from otel_train.run.warned import Warned
from otel_train.semconv import SEVERITIES
from tests.scripts import own_threads

Start = Callable[..., Any]
HOSTILE = "<img src=x onerror=alert(1)>\"'&<script>alert(2)</script>"


class Seen(html.parser.HTMLParser):
    """What a reader sees of some HTML: words and rows of a table; and which elements and attributes it is made of."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        self.elements: set[str] = set()
        self.attributes: dict[str, set[str]] = {}
        self._cell = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        for name, value in attributes:
            self.attributes.setdefault(name, set()).add(value or "")
        if tag == "tr":
            self.rows.append([])
        self._cell = tag in ("td", "th") or (self._cell and tag == "span")
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self._cell:
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(self.words)


def test_the_panel_has_the_latest_and_the_best_values(start: Start) -> None:
    """Of 40 steps the last and the lowest loss, each with its step, and the count of what was not finite."""
    run = start(project="digits", name="small-net")
    run.define("accuracy", goal="max")
    losses = [abs(step - 25) + 0.5 for step in range(40)]
    for step in run.steps(range(40)):
        run.log({"loss": losses[step], "lr": 0.001})
    run.log({"accuracy": 0.25}, split="val", step=10)
    run.log({"accuracy": 0.875}, split="val", step=20)
    run.log({"accuracy": math.nan}, split="val", step=30)
    assert run.flush()
    seen = Seen(run._repr_html_())
    best = losses.index(min(losses))
    assert seen.rows == [
        ["metric", "last", "best"],
        ["train/loss", f"{losses[39]:g} @39", f"{losses[best]:g} @{best}"],
        ["lr", "0.001 @39", ""],
        ["val/accuracy (1 not finite)", "NaN @30", "0.875 @20"],
    ]
    assert (best, losses[39]) == (25, 14.5)
    assert seen.words[:2] == ["small-net", "running"]
    assert f"digits · {run.id}" in seen.words
    assert str(run.path) in seen.words
    assert f"otel-train ui {run.path.parent}" in seen.words


def test_the_panel_says_how_far_the_run_is(start: Start) -> None:
    """After the third of four epochs of ten steps: 75 per cent, epoch and step, and some time left."""
    run = start(console=None)
    for epoch in run.epochs(4):
        if epoch == 3:
            assert run.flush()
            seen = Seen(run._repr_html_())
            break
        for _ in run.steps(range(10)):
            pass
    (line,) = [words for words in seen.words if "so far" in words]
    assert line.startswith("75 % · epoch 3 · step 29 · ")
    assert " left" in line
    assert seen.attributes["aria-valuenow"] == {"75"}


@pytest.mark.parametrize(("status", "reason"), [("finished", None), ("failed", "no data"), ("killed", "SIGTERM")])
def test_the_panel_says_how_the_run_ended(start: Start, status: str, reason: str | None) -> None:
    """The state in words and the reason; no time is left, and the last values stay."""
    run = start()
    for _ in run.steps(range(5)):
        run.log({"loss": 1.0})
    run.finish(status, reason=reason)
    seen = Seen(run._repr_html_())
    assert seen.words[1] == status
    assert (reason in seen.words) is (reason is not None)
    assert " left" not in seen.text
    assert seen.rows[1] == ["train/loss", "1 @4", "1 @0"]


def test_warnings_and_conditions_that_hold_are_told(start: Start) -> None:
    """The last warnings with their step; a condition as long as it holds."""
    run = start()
    for step in run.steps(range(8)):
        if step >= 2:
            logging.getLogger("mine").warning("odd batch %d", step)
        run.log({"loss": math.inf if step == 3 else 1.0})
    assert run.flush()
    seen = Seen(run._repr_html_())
    # The four newest, and what was not finite holds.
    assert [words.strip() for words in seen.words if words.strip().startswith("odd batch")] == [
        f"odd batch {step}" for step in (4, 5, 6, 7)
    ]
    assert "step 7" in seen.words
    (condition,) = [words.strip() for words in seen.words if "inf" in words.lower() and "loss" in words]
    assert "step 3" in condition
    assert "step 3 (holds)" in seen.words


def test_a_condition_that_is_over_holds_no_more() -> None:
    """Each by its metric; a plateau is one, by whichever metric it is judged; what is mild is no warning."""

    def event(name: str, severity: str = "WARN", **attributes: Any) -> LogEntry:
        return LogEntry(
            time_ns=1,
            severity_number=SEVERITIES[severity],
            severity_text=severity,
            body=name,
            attributes=attributes,
            event_name=name,
        )

    warned = Warned()
    began = [
        event("health.overfit", metric="train.loss"),
        event("health.overfit", metric="train.error"),
        event("health.plateau", metric="train.loss"),
    ]
    for entry in [*began, event("model.best", "INFO"), event("disk", "ERROR")]:
        warned.see(entry)
    assert warned.holding() == began
    warned.see(event("health.overfit", "INFO", metric="train.loss", cleared=True))
    warned.see(event("health.plateau", "INFO", metric="train.error", cleared=True))
    assert warned.holding() == [began[1]]
    assert [entry.event_name for entry in warned.last] == ["health.overfit"] * 2 + ["health.plateau", "disk"]
    for number in range(100):
        warned.see(event(f"w{number}"))
    assert [entry.body for entry in warned.last] == [f"w{number}" for number in range(80, 100)]


def test_no_text_of_the_run_becomes_markup(start: Start) -> None:
    """Names, keys, warnings and reasons are texts: the elements are those of the panel itself."""
    run = start(project=HOSTILE, name=HOSTILE)
    run.log({HOSTILE: 1.0})
    logging.getLogger("mine").error(HOSTILE)
    logging.getLogger("mine").error("a file \udcff and \x1b[31m red")
    run.finish("failed", reason=HOSTILE)
    made = run._repr_html_()
    seen = Seen(made)
    assert seen.elements <= {"div", "span", "strong", "table", "thead", "tbody", "tr", "th", "td", "code", "br"}
    assert set(seen.attributes) <= {"style", "role", "aria-valuemin", "aria-valuemax", "aria-valuenow"}
    assert seen.words[0] == HOSTILE
    assert seen.rows[1][0] == HOSTILE
    assert HOSTILE in [words.strip() for words in seen.words[5:]]
    assert made.encode("utf-8").decode("utf-8") == made


def test_a_run_that_records_nothing_says_so(root: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_SDK_DISABLED: one sentence, and no thread."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    run = otel_train.init(name="<b>n</b>")
    seen = Seen(run._repr_html_())
    assert seen.words == ["<b>n</b>", "not recorded", "OTEL_SDK_DISABLED is set"]
    assert seen.elements == {"div", "strong", "span"}
    assert own_threads() == []


def test_outside_of_a_notebook_the_run_prints_itself(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing can be changed later the text is printed, and no thread is started."""
    run = start()
    run._ipython_display_()
    assert capsys.readouterr().out == f"<Run {run.id}>\n"
    assert not [thread for thread in own_threads() if thread.startswith("otel-train-panel")]
    bundle = run._repr_mimebundle_()
    assert bundle["text/plain"] == f"<Run {run.id}>"
    assert Seen(bundle["text/html"]).words[0] == run.name


def test_a_rank_that_waits_for_its_run_shows_that(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The panel of a rank that does not know the run's id yet waits for nobody."""
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "OTEL_TRAIN_LAUNCH_KEY": "panel"}.items():
        monkeypatch.setenv(name, value)
    run = start()
    run.log({"loss": 1.0})
    seen = Seen(run._repr_html_())
    assert seen.words[:2] == ["(waiting for rank 0)", "running"]
    assert any("rank 1 of 2" in words for words in seen.words)
    run.finish()


def test_many_metrics_are_cut() -> None:
    """Twelve rows and a count: a panel is small."""
    rows = [Row(f"m{number}", float(number), number) for number in range(30)]
    seen = Seen(as_html(Facts(name="n", run_id="r", state="running", rows=rows)))
    assert [row[0] for row in seen.rows[1:]] == [f"m{number}" for number in range(12)]
    assert "18 more metrics" in seen.words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "0 s"), (59.4, "59 s"), (245, "4 min 05 s"), (11_520, "3 h 12 min"), (190_800, "2 d 5 h")],
)
def test_durations_are_short(seconds: float, words: str) -> None:
    """Two units at most."""
    assert duration(seconds) == words


def test_recording_loads_nothing_of_the_view() -> None:
    """`import otel_train`, and looking up `show`, load neither the room above nor the panel."""
    import subprocess

    text = (
        "import sys, otel_train; otel_train.show; "
        "print([name for name in sys.modules if name.startswith(('otel_train.view', 'otel_train.run.panel'))])"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
