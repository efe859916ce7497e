"""Log records and spans on the page: bounded, in order, nothing left out unsaid; texts for the terminal."""

from __future__ import annotations

import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_train.record.entries import LogEntry, SpanEntry
from otel_train.view import text
from otel_train.view.log_list import LogKeeper, LogRow, payload
from otel_train.view.timeline import MAX_BARS, SpanRow, timeline

S = 1_000_000_000


def entry(number: int, severity: int = 9, **more: object) -> LogRow:
    attributes = {key.replace("__", "."): value for key, value in more.items()}
    return LogRow(
        LogEntry(
            time_ns=number * S, severity_number=severity, severity_text="", body=f"r{number}", attributes=attributes
        ),
        1,
        0,
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("event", "attributes", "place"),
    [
        ("checkpoint.saved", {"step": 7, "epoch": 1}, (7, 1)),
        ("checkpoint.saved", {"step": 7, "dl.step": 8, "dl.epoch": 2}, (8, 2)),
        # The step of a model that was loaded is one of the run that made it.
        ("checkpoint.loaded", {"step": 7, "epoch": 1}, (None, None)),
        ("", {"step": 7}, (None, None)),
    ],
)
def test_a_record_stands_at_its_step(event: str, attributes: dict[str, int], place: tuple[object, object]) -> None:
    """Also that of a checkpoint of which only its own description says the place, as older runs have it."""
    keeper = LogKeeper()
    said = LogEntry(
        time_ns=S, severity_number=9, severity_text="INFO", body="said", attributes=dict(attributes), event_name=event
    )
    keeper.add(LogRow(said, 1, 0))
    made = payload(keeper, 0)
    row = dict(zip(made["columns"], made["rows"][0], strict=True))
    assert (row["step"], row["epoch"]) == place


@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from([5, 9, 13, 17])), max_size=80), st.integers(1, 40))
def test_kept_records_are_the_severe_ones_and_the_newest_of_the_rest(found: list[tuple[int, int]], limit: int) -> None:
    """Order is by time, the number is bounded, and what is left out is counted."""
    keeper = LogKeeper(limit)
    for number, severity in found:
        keeper.add(entry(number, severity))
    made = payload(keeper, 0)
    assert made["seen"] == len(found)
    assert made["left_out"] == max(0, len(found) - limit)
    times = [row[0] for row in made["rows"]]
    assert times == sorted(times)
    severe = sum(1 for _, severity in found if severity >= 13)
    assert sum(1 for row in made["rows"] if row[1] in ("WARN", "ERROR")) == min(severe, limit)


def test_a_record_keeps_step_event_attributes_and_traceback() -> None:
    """What the page shows of one record."""
    keeper = LogKeeper()
    keeper.add(
        entry(3, 17, dl__step=7, event__name="health.nonfinite", metric="loss", exception__stacktrace="Traceback")
    )
    made = payload(keeper, S)
    row = dict(zip(made["columns"], made["rows"][0], strict=True))
    assert (row["elapsed_s"], row["level"], row["body"], row["step"]) == (2.0, "ERROR", "r3", 7)
    assert (row["event"], row["stacktrace"], row["attributes"]) == ("health.nonfinite", "Traceback", {"metric": "loss"})


def test_long_texts_are_cut_and_all_together_are_bounded() -> None:
    """The newest records stay where the characters of all are too many."""
    keeper = LogKeeper()
    for number in range(10):
        keeper.add(entry(number))
    keeper.add(LogRow(LogEntry(time_ns=99 * S, severity_number=9, severity_text="", body="x" * 5_000), 1, 0))
    made = payload(keeper, 0, max_characters=4_300)
    assert made["rows"][-1][2].endswith("… [1,000 more characters]")
    assert (len(made["rows"]), made["left_out"]) == (4, 7)


def span(name: str, start_s: float, end_s: float, span_id: int = 1, parent: int = 0, **attributes: object) -> SpanRow:
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    entry = SpanEntry(
        name=name,
        trace_id=1,
        span_id=span_id,
        parent_span_id=parent,
        start_ns=round(start_s * S),
        end_ns=round(end_s * S),
        attributes=named,
    )  # type: ignore[arg-type]
    return SpanRow(entry, 1, 0)


def test_spans_lie_in_the_lanes_of_their_kind() -> None:
    """Stages, epochs, evaluations, checkpoints, steps, phases, and others."""
    rows = [
        span("preprocess", 0, 2, dl__stage="preprocess"),
        span("epoch", 2, 6, dl__epoch=0),
        span("evaluation", 5, 6),
        span("checkpoint.save", 6, 7),
        span("step", 2, 3, dl__step=0),
        span("forward", 2, 2.5, phase="forward"),
        span("GET /data", 2, 3),
    ]
    lanes = {lane["lane"]: [bar["name"] for bar in lane["bars"]] for lane in timeline(rows, 0, {1: 10 * S})["lanes"]}
    assert lanes == {
        "stage": ["preprocess"],
        "epoch": ["epoch 0"],
        "evaluation": ["evaluation"],
        "checkpoint": ["checkpoint.save"],
        "step": ["step 0"],
        "phase": ["forward"],
        "span": ["GET /data"],
    }


def test_a_batch_of_an_evaluation_leads_to_no_step() -> None:
    """Batch 1 of a validation, its wait and what that did are not at step 1; a step of training and its phase are."""
    rows = []
    for first, split in ((10, "train"), (20, "val")):
        for place, (name, attributes) in enumerate(
            (("step", {"split": split}), ("data_wait", {"phase": "data_wait"}), ("fetch", {}))
        ):
            parent = first + place - 1 if place else 0
            entry = SpanEntry(
                name=name,
                trace_id=7,
                span_id=first + place,
                parent_span_id=parent,
                start_ns=first * S,
                end_ns=(first + 1) * S,
                attributes={"dl.step": 1, **attributes},
            )
            rows.append(SpanRow(entry, 1, 0))
    bars = [bar for lane in timeline(rows, 0, {1: 60 * S})["lanes"] for bar in lane["bars"]]
    told = {(bar["name"], bar["start"]): bar.get("step") for bar in bars}
    assert told == {
        ("step 1", 10): 1,
        ("data_wait", 10): 1,
        ("fetch", 10): 1,
        ("val batch 1", 20): None,
        ("data_wait", 20): None,
        ("fetch", 20): None,
    }


def test_a_stage_that_was_announced_and_never_ended_is_drawn_truncated_to_the_last_sign_of_life() -> None:
    """The announcement of one that ended is not drawn beside it."""
    rows = [
        span("train (started)", 1, 1, 10, 5, dl__announces="5", dl__span__name="train", dl__stage="train"),
        span("clean (started)", 0, 0, 11, 6, dl__announces="6", dl__span__name="clean", dl__stage="clean"),
        span("clean", 0, 1, 6, dl__stage="clean"),
    ]
    made = timeline(rows, 0, {1: 9 * S})
    bars = made["lanes"][0]["bars"]
    assert [(bar["name"], bar["seconds"], bar.get("truncated", False)) for bar in bars] == [
        ("clean", 1.0, False),
        ("train", 8.0, True),
    ]
    assert made["truncated"] == 1


def test_overlapping_spans_of_a_lane_get_rows_of_their_own() -> None:
    """A nested stage lies below its parent."""
    rows = [
        span("outer", 0, 9, dl__stage="outer"),
        span("inner", 1, 2, dl__stage="inner"),
        span("next", 3, 4, dl__stage="next"),
    ]
    (lane,) = timeline(rows, 0, {1: 10 * S})["lanes"]
    assert lane["rows"] == 2
    assert [bar["row"] for bar in lane["bars"]] == [0, 1, 1]


def test_the_bar_of_a_run_is_as_long_as_its_attempt() -> None:
    """The span of a run is a mark without length; truncated where its attempt has no end, once for all ranks."""
    rows = [span("run", 1, 1, 5), span("run", 20, 20, 6), span("run", 21, 21, 7), span("run it", 3, 3, 8)]
    rows[1].attempt = rows[2].attempt = 2
    rows[2].rank = 1
    made = timeline(rows, 0, {1: 9 * S, 2: 30 * S}, {2})
    (lane,) = made["lanes"]
    bars = {bar["id"][-1]: (bar["start"], bar["seconds"], bar.get("truncated", False)) for bar in lane["bars"]}
    assert bars == {"5": (1, 8, True), "6": (20, 10, False), "7": (21, 0, False), "8": (3, 0, False)}
    assert [bar["row"] for bar in lane["bars"] if bar["name"] == "run"] == [0, 0, 0]
    assert made["truncated"] == 1


def test_short_waits_of_sampled_steps_make_no_lane() -> None:
    """Below a hundredth of the steps they are told in words; longer ones are drawn, as are those beside phases."""
    steps = [span("step", 0, 10, 1), span("step", 20, 30, 2)]
    short = [span("data_wait", at, at + 0.05, 3, phase="data_wait") for at in (0, 20)]
    made = timeline([*steps, *short], 0, {1: 30 * S})
    assert [lane["lane"] for lane in made["lanes"]] == ["step"]
    assert (made["seen"], made["notes"]) == (
        2,
        ["Not drawn: the wait for data of the sampled steps, 100 ms together."],
    )
    made = timeline([*steps, *short, span("data_wait", 0, 0.1, 4, phase="data_wait")], 0, {1: 30 * S})
    assert [(lane["title"], len(lane["bars"])) for lane in made["lanes"]] == [
        ("Sampled steps", 2),
        ("Wait for data", 3),
    ]
    made = timeline([*steps, *short, span("forward", 1, 2, 4, phase="forward")], 0, {1: 30 * S})
    assert [(lane["title"], len(lane["bars"])) for lane in made["lanes"]] == [("Sampled steps", 2), ("Phases", 3)]


def test_more_spans_than_a_page_holds_leave_out_the_shortest_steps() -> None:
    """Stages stay; what is left out is counted by lane."""
    rows = [span("step", number, number + (0.1 if number % 2 else 0.9)) for number in range(MAX_BARS + 500)]
    rows.append(span("train", 0, MAX_BARS, dl__stage="train"))
    lanes = {lane["lane"]: lane for lane in timeline(rows, 0, {1: 10**6 * S})["lanes"]}
    assert len(lanes["stage"]["bars"]) == 1
    assert lanes["step"]["left_out"] == 501
    assert sum(1 for bar in lanes["step"]["bars"] if bar["seconds"] > 0.5) == (MAX_BARS + 500) // 2


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 ms"),
        (3.2e-8, "32 ns"),
        (0.000119093, "119 µs"),
        (0.00099996, "1 ms"),
        (0.0123, "12.3 ms"),
        (0.4806, "481 ms"),
        (0.9996, "1.0 s"),
        (12.34, "12.3 s"),
        (245, "4 min 05 s"),
        (11_520, "3 h 12 min"),
        (190_800, "2 d 5 h"),
        (59.97, "1 min 00 s"),
    ],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    """From nanoseconds to days, below a minute in three digits."""
    assert text.duration(seconds) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.05, "0.05"),
        (1234567, "1,234,567"),
        (2.0, "2"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Inf"),
        (None, ""),
        (1 / 3, "0.333333"),
    ],
)
def test_numbers_in_words(value: float | None, words: str) -> None:
    """Six digits, names for what is not finite, nothing for nothing."""
    assert text.number(value) == words


def test_sizes_in_words() -> None:
    """Binary units."""
    assert [text.size(count) for count in (0, 1023, 1024, 18 * 1024**3, None)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "18.0 GiB",
        "",
    ]


@pytest.mark.parametrize("value", [None, "5", [5], {}, math.nan, -math.inf, 10**400])
def test_what_is_no_finite_number_has_no_words(value: object) -> None:
    """A damaged description may hold anything in the place of a size or a duration."""
    assert (text.size(value), text.duration(value)) == ("", "")


def test_tables_align_and_colour_only_on_a_terminal() -> None:
    """Plain text elsewhere; the state's colour does not change the columns."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    rows = [["a", "failed", "1"], ["bb", "finished", "22"]]
    plain = text.table(("id", "status", "n"), rows, text.Paint(io.StringIO(), {}), right=(2,), state_column=1)
    assert plain == "id  status     n\na   failed     1\nbb  finished  22"
    coloured = text.table(("id", "status", "n"), rows, text.Paint(Terminal(), {}), right=(2,), state_column=1)
    assert "\x1b[31mfailed  \x1b[0m" in coloured
    assert not text.Paint(Terminal(), {"NO_COLOR": "1"}).on
    assert text.plain("a\x1b[2Jb\u202ec\td") == r"a\x1b[2Jb\u202ec" + "\td"


def test_bars_and_records_name_their_span_so_that_one_leads_to_the_other() -> None:
    """Ids as hex of 16 digits, the parent's too, the step as a number; of an open span that which was announced."""
    rows = [
        span("epoch", 0, 9, 0xB1, 0xA1, dl__epoch=0),
        span("step", 1, 2, 0xC1, dl__step=12),
        span("train (started)", 1, 1, 0xD1, 0xFFFFFFFFFFFFFFFF, dl__announces="f" * 16, dl__span__name="train"),
    ]
    made = timeline(rows, 0, {1: 9 * S})
    bars = {bar["name"]: bar for lane in made["lanes"] for bar in lane["bars"]}
    assert made["traces"] == [f"{1:032x}"]
    assert {bar["trace"] for bar in bars.values()} == {0}
    assert (bars["epoch 0"]["id"], bars["epoch 0"]["parent"]) == ("00000000000000b1", "00000000000000a1")
    assert "step" not in bars["epoch 0"]
    assert (bars["step 12"]["id"], bars["step 12"]["step"]) == ("00000000000000c1", 12)
    assert bars["train"]["id"] == "f" * 16
    keeper = LogKeeper()
    for row in (entry(1), entry(2)):
        row.entry.span_id = 0xC1 if row.entry.time_ns == S else 0
        keeper.add(row)
    listed = payload(keeper, 0)
    column = listed["columns"].index("span")
    assert [row[column] for row in listed["rows"]] == ["00000000000000c1", ""]
