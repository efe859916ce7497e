"""What a filter text means, how it is printed, and what is said of one that cannot be understood."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_train.clock import from_iso
from otel_train.view.filter_syntax import Choice, Comparison, Either, Every, Literal, Not, Tree, parse, write
from otel_train.view.filtering import FilterError, parse_filter
from otel_train.view.index_row import IndexRow, Values
from otel_train.view.run_columns import Columns

NOW = from_iso("2026-02-01T12:00:00Z")
NAN = math.nan


# Other tests may have the machine: how long an example takes says nothing.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def row(run_id: str, **facts: Any) -> IndexRow:
    metrics = {key: Values(*numbers) for key, numbers in facts.pop("metrics", {}).items()}
    return IndexRow(run_id=run_id, path=f"/runs/{run_id}", metrics=metrics, **facts)


A = row(
    "a",
    run_name="lucid bison",
    project="digits",
    state="failed",
    tags=["base", "Wide"],
    host="gpu-node-3",
    created_ns=from_iso("2026-01-31T10:30:15Z"),
    duration_s=5400.0,
    step=100.0,
    epoch=3.0,
    attempt=2,
    ranks=8,
    metrics={"val/loss": (0.25, 0.125, 2.0, "min"), "train/loss": (0.1, 0.1, 3.0, "min"), "grad_norm": (4.0, 1.0, 9.0)},
    config={"lr": 1e-3, "model.depth": 12, "opt": "Adam", "amp": True, "seed": 2**63 - 1, "layers": "[64, 32]"},
)
B = row(
    "b",
    project="digits",
    state="finished",
    created_ns=from_iso("2026-02-01T00:00:00Z"),
    duration_s=60.0,
    metrics={"train/loss": (0.5, 0.5, 1.0, "min"), "val/accuracy": (0.75, 0.5, 0.875, "max")},
    config={"lr": "3e-4", "opt": "sgd", "amp": False, "scheduler": None},
)
C = row(
    "c",
    state="lost",
    created_ns=from_iso("2026-01-20T00:00:00Z"),
    metrics={"loss": (NAN, 1.0, 2.0, "min"), "ood/loss": (7.0, 7.0, 7.0, "min"), "my metric": (1.0,)},
    config={"lr": 1, "note": "it's \"5\" o'clock", "name with and": "x"},
)
ROWS = [A, B, C]


def meant(text: str, columns: Columns | None = None) -> str:
    """The ids of the rows that a filter means, with the known columns and without them."""
    found = parse_filter(text, columns=columns, now_ns=NOW)
    return "".join(one.run_id for one in ROWS if found.matches(one))


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", "abc"),
        ("   ", "abc"),
        # States, names, texts.
        ("state = failed", "a"),
        ("STATE == Failed", "a"),
        ("status != failed", "bc"),
        ("state in (failed, lost)", "ac"),
        ("state not in (failed, lost)", "b"),
        ("state ~ ED", "ab"),
        ('name = "lucid bison"', "a"),
        ("name ~ BISON", "a"),
        ("name = null", "bc"),
        ("name != null", "a"),
        ("project = digits and id = b", "b"),
        ("project = Digits", ""),
        ("host > gpu-node-2", "a"),
        # Tags are several.
        ("tag = base", "a"),
        ("tags = base and tags = Wide", "a"),
        ("tag = wide", ""),
        ("tags ~ wid", "a"),
        ("tag != base", ""),
        ("not tag = base", "bc"),
        ("tag in (x, Wide)", "a"),
        ("tags = null", "bc"),
        # Metrics: bare means without a split, else val, train, test, any; the last value.
        ("loss < 0.3", "a"),
        ("loss = 0.25", "a"),
        ("loss >= 0.5", "b"),
        ("train/loss < 0.3", "a"),
        ("val/loss = 0.25 or train/loss = 0.5", "ab"),
        ("ood/loss > 6", "c"),
        ("loss = nan", "c"),
        ("loss != nan", "ab"),
        ("loss != 0.25", "bc"),
        ("loss < inf", "ab"),
        ("best.loss = 0.125", "a"),
        ("last.loss = 0.25", "a"),
        ("min.loss <= 0.5 and max.loss >= 1", "ab"),
        ("best.accuracy = 0.875", "b"),
        ("best.grad_norm > 0", ""),
        ("max.grad_norm = 9", "a"),
        ("`my metric` = 1.0", "c"),
        ("grad_norm in (3, 4)", "a"),
        ("accuracy = null", "ac"),
        # Configuration: numbers with numbers, also where a text holds one; else texts.
        ("config.lr >= 1e-3", "ac"),
        ("config.lr < 1e-3", "b"),
        ("config.lr = 0.001", "a"),
        ("config.lr = 0.0003", "b"),
        ("config.lr = 1.0", "c"),
        ('config.lr = "3e-4"', "b"),
        ("config.model.depth > 10", "a"),
        ("config.opt = Adam", "a"),
        ("config.opt ~ adam", "a"),
        ("config.opt < b", "a"),
        ("config.amp = true", "a"),
        ("config.amp = False", "b"),
        ("config.amp = 1", ""),
        ("config.amp != true", "b"),
        ("config.seed = 9223372036854775807", "a"),
        ("config.seed = 9223372036854775806", ""),
        ("config.scheduler = null", "abc"),
        ("config.layers ~ 64", "a"),
        (r"""config.note = "it's \"5\" o'clock" """, "c"),
        ("config.`x` = 1 or config.note ~ clock", None),
        ("`config.name with and` = x", "c"),
        # Numbers of the run, durations, times.
        ("step > 99 and epoch <= 3 and attempts = 2 and ranks in (8)", "a"),
        ("step = null", "bc"),
        ("duration > 1h", "a"),
        ("duration = 1h30m", "a"),
        ("duration <= 60", "b"),
        ("duration < 2m", "b"),
        ("started = 2026-01-31", "a"),
        ("started != 2026-01-31", "bc"),
        ("started > 2026-01-31", "b"),
        ("started >= 2026-01-31", "ab"),
        ("started <= 2026-01-31", "ac"),
        ("started < 2026-01-31", "c"),
        ("started = 2026-01", "ac"),
        ("started < 2026", ""),
        ("started = 2026-01-31T10:30", "a"),
        ("started = 2026-01-31T10:30:15", "a"),
        ('started = "2026-01-31 11:30+01:00"', "a"),
        ("started > 7d", "ab"),
        ("started > -7d", "ab"),
        ("started < 12h", "ac"),
        ("started = today", "b"),
        ("started = yesterday", "a"),
        ("started < now", "abc"),
        # Joining: `and` before `or`, `not` before both, and exactly the others.
        ("state = lost or state = failed and step > 500", "c"),
        ("(state = lost or state = failed) and step < 500", "a"),
        ("not loss < 0.3", "bc"),
        ("not (loss < 0.3 or not loss < 0.3)", ""),
        ("not not loss < 0.3", "a"),
        ("NOT step > 5 AND state IN (lost)", "c"),
    ],
)
def test_a_filter_means_these_runs(text: str, ids: str | None) -> None:
    """The runs of each text, worked out by hand; the same whether the columns are known or not."""
    if ids is None:
        with pytest.raises(FilterError):
            parse_filter(text)
        return
    assert meant(text) == ids
    assert meant(text, Columns(ROWS)) == ids


@pytest.mark.parametrize(
    ("text", "position", "length", "words"),
    [
        ("loss <", 6, 1, "expected a value after '<', found the end"),
        ("loss 0.2", 5, 3, "expected =, !=, <, <=, >, >=, ~ or in after 'loss'"),
        ("loss", 4, 1, "expected ="),
        ("< 0.2", 0, 1, "expected a name such as loss, state or config.lr, found '<'"),
        ("and = 1", 0, 3, "expected a name"),
        ("loss = and", 7, 3, "in quotes it is a text"),
        ("(loss < 1", 0, 1, "this '(' is not closed"),
        ("loss < 1)", 8, 1, "this ')' closes nothing"),
        ("loss < 1 step > 2", 9, 4, "expected 'and' or 'or' before 'step'; a value of several words"),
        ("(loss < 1 step > 2)", 10, 4, "expected 'and', 'or' or ')' before 'step'"),
        ('name = "x', 7, 2, 'this " is not closed'),
        ("`a b = 1", 0, 8, "this ` is not closed"),
        ('"loss" < 1', 0, 6, "a name with spaces stands in backquotes"),
        ("loss < 1 && step > 2", 9, 2, "write 'and' instead of '&&'"),
        ("loss < 1 | step > 2", 9, 1, "write 'or' instead of '|'"),
        ("!state = failed", 0, 1, "write 'not' instead of '!'"),
        ("state in failed", 9, 6, "expected '(' after 'in'"),
        ("state in (failed", 9, 1, "this '(' is not closed"),
        ("state in (failed lost)", 17, 4, "expected ',' or ')' before 'lost'"),
        ("state in ()", 10, 1, "expected a value after '('"),
        ("`` = 1", 0, 2, "an empty name"),
        ("state = faild", 8, 5, "near it: failed"),
        ("state < failed", 8, 6, "states have no order"),
        ("tag < x", 6, 1, "tags have no order"),
        ("step > many", 7, 4, "step is a number"),
        ("step ~ 1", 7, 1, "'~' looks into texts; step is a number"),
        ("loss < high", 7, 4, "loss is a number"),
        ("duration > long", 11, 4, "duration is a duration: give seconds"),
        ("started > 31.1.2026", 10, 9, "started is a time: give a date such as 2026-01-31"),
        ("started > 2026-02-30", 10, 10, "started is a time"),
        ("started ~ 2026", 10, 4, "'~' looks into texts"),
        ("step < null", 7, 4, "use = or !="),
        ("los < 1", 0, 3, "no run has 'los'; near it: loss"),
        ("state = failed and best.los < 1", 19, 8, "no run has 'best.los'; near it: best.loss"),
        ("config.lrr = 1", 0, 10, "no run has the configuration key 'lrr'; near it: config.lr"),
        ("opt = adam", 0, 3, "near it: config.opt"),
        ("`my metrik` = 1", 0, 11, "no run has 'my metrik'; near it: `my metric`"),
        ("(" * 60 + "step = 1" + ")" * 60, 51, 1, "nested more than 50 deep"),
        ("not " * 60 + "step = 1", 204, 3, "nested more than 50 deep"),
        ("x" * 10_001, 10_000, 1, "longer than 10,000 characters"),
    ],
)
def test_a_fault_says_what_and_where(text: str, position: int, length: int, words: str) -> None:
    """The message, and the place in characters from 0 on."""
    with pytest.raises(FilterError) as caught:
        parse_filter(text, columns=Columns(ROWS), now_ns=NOW)
    assert words in caught.value.message
    assert (caught.value.position, caught.value.length) == (position, length)


def test_where_there_are_no_runs_any_name_may_be() -> None:
    """An empty folder is no reason to refuse a filter that was sent from elsewhere."""
    assert str(parse_filter("los < 1 and config.x = 2", columns=Columns([]))) == "los < 1 and config.x = 2"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("loss < high", "loss < high\n       ^^^^"),
        ("loss <", "loss <\n      ^"),
        ("name = \u6f22\u5b57 x", "name = \u6f22\u5b57 x\n            ^"),
        ("a = b\n\x1b[31m = 2", "a = b \\x1b[31m = 2\n      ^^^^^^^^"),
    ],
)
def test_a_fault_is_pointed_at(text: str, shown: str) -> None:
    """Carets stand below what is wrong, also behind wide characters; what would steer a terminal is escaped."""
    with pytest.raises(FilterError) as caught:
        parse_filter(text, columns=Columns(ROWS))
    assert caught.value.pointed(text) == shown


@UNHURRIED
@given(st.text(alphabet=st.one_of(st.sampled_from("()=<>!~,&|\"'`\\ andortiloss.cfgbe0123456789e-+"), st.characters())))
def test_no_text_raises_anything_else(text: str) -> None:
    """Whatever is typed is understood or refused with a place within it, or just behind it."""
    fault: FilterError | None = None
    try:
        found = parse_filter(text, columns=Columns(ROWS), now_ns=NOW)
    except FilterError as caught:
        fault = caught
    if fault is not None:
        assert 0 <= fault.position <= len(text)
        assert fault.length >= 1
        assert "^" in fault.pointed(text)
        return
    for one in ROWS:
        assert found.matches(one) in (True, False)
    assert parse(str(found)) == found.tree


NAMES = st.one_of(st.sampled_from(["loss", "state", "config.lr", "and", "a b", "`", "\\", "x\\`"]), st.text(min_size=1))
WORDS = st.text(st.characters(exclude_characters="()=<>!~,&|\"'`", exclude_categories=("Z", "C")), min_size=1)
LITERALS = st.one_of(
    st.builds(Literal, WORDS.filter(lambda word: word.lower() not in ("and", "or", "not", "in") and word.strip())),
    st.builds(Literal, st.text(), st.just(True)),
)
TREES = st.recursive(
    st.one_of(
        st.builds(Comparison, NAMES, st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "~"]), LITERALS),
        st.builds(Choice, NAMES, st.lists(LITERALS, min_size=1, max_size=3).map(tuple)),
    ),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(Every, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Either, st.lists(inner, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=8,
)


@UNHURRIED
@given(TREES)
def test_what_is_printed_parses_into_the_same_tree(tree: Tree) -> None:
    """Brackets and quotes stand where they are needed, for whatever names and values."""
    assert parse(write(tree)) == tree


NUMBERS = st.one_of(st.sampled_from([0.1, 0.25, 0.5, 1.0, 4.0, NAN, math.inf, -math.inf]), st.floats(-10, 10))
SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}
Means = tuple[str, Callable[[IndexRow], bool]]


@st.composite
def _of_metric(draw: st.DrawFn) -> Means:
    key, places = draw(
        st.sampled_from(
            [
                ("loss", ("loss", "val/loss", "train/loss", "ood/loss")),
                ("val/loss", ("val/loss",)),
                ("grad_norm", ("grad_norm",)),
            ]
        )
    )
    part = draw(st.sampled_from(["", "last.", "min.", "max.", "best."]))
    sign, number = draw(st.sampled_from(sorted(SIGNS))), draw(NUMBERS)

    def holds(one: IndexRow) -> bool:
        for place in places:
            if place in one.metrics:
                values = one.metrics[place]
                chosen = {"": values.last, "last.": values.last, "min.": values.low, "max.": values.high}
                found = chosen.get(part, {"min": values.low, "max": values.high}.get(values.goal))
                if found is None:
                    return False
                if math.isnan(found) and math.isnan(number):
                    return sign == "="
                return SIGNS[sign](found, number)
        return False

    return f"{part}{key} {sign} {number!r}", holds


@st.composite
def _of_state(draw: st.DrawFn) -> Means:
    states = draw(st.lists(st.sampled_from(["failed", "lost", "finished", "running"]), min_size=1))
    return f"state in ({', '.join(states)})", lambda one: one.state in states


MEANINGS = st.recursive(
    st.one_of(_of_metric(), _of_state()),
    lambda inner: st.one_of(
        inner.map(lambda one: (f"not ({one[0]})", lambda row: not one[1](row))),
        st.tuples(inner, inner).map(
            lambda two: (f"({two[0][0]}) and ({two[1][0]})", lambda row: two[0][1](row) and two[1][1](row))
        ),
        st.tuples(inner, inner).map(
            lambda two: (f"({two[0][0]}) or ({two[1][0]})", lambda row: two[0][1](row) or two[1][1](row))
        ),
    ),
    max_leaves=6,
)


@UNHURRIED
@given(MEANINGS)
def test_a_filter_means_what_plain_python_says(meaning: Means) -> None:
    """Conditions on metrics and states, joined in whatever way, beside functions that say the same."""
    text, holds = meaning
    known, unknown = parse_filter(text, columns=Columns(ROWS), now_ns=NOW), parse_filter(text, now_ns=NOW)
    for one in ROWS:
        assert known.matches(one) == holds(one), text
        assert unknown.matches(one) == holds(one), text
