"""Samples and tokens a second, for the rank and for the job, window by window, against what was planted."""

from __future__ import annotations

from typing import Any

import pytest

from otel_train.clock import NS_PER_S
from otel_train.errors import ConfigError
from otel_train.record.amounts import FIRST_BATCH, NEXT_BATCH
from otel_train.record.steps import StepLoop
from otel_train.watch.throughput import Throughput
from tests.accounting import CHECKPOINT, EVALUATION, OTHER, WALL_NS, Accounting


def test_micro_batches_of_an_optimizer_step_add_up() -> None:
    """Two optimizer steps of 2.0 s, each of 1,000, 900, 1,100 and 1,000 tokens, on two ranks that are alike."""
    run = Accounting(ranks=2)
    loop = run.loop(accumulate=4)
    run.optimizer_steps.accumulates(4, run.log)
    for number in range(8):
        run.amounts.count(None, (1000, 900, 1100, 1000)[number % 4])
        run.step(loop, number, 0.5)
    values = run.heartbeat(ended=True)
    assert values["dl.rank.tokens"] == 8_000
    assert values["dl.micro_step"] == 8
    assert values["dl.optimizer.step"] == 2
    ((time_ns, rates),) = run.written
    assert rates == {
        "dl.rank.tokens_per_second": 2_000.0,
        "dl.job.tokens_per_second": 4_000.0,
        "dl.optimizer.step": 2,
        "dl.step": 7,
    }
    assert time_ns == WALL_NS + run.now_ns
    assert "dl.rank.samples" not in values


def test_an_evaluation_between_two_windows_is_in_neither() -> None:
    """20 steps of 1 s and 1,000 tokens, 30 s of evaluation after step 10: 1,000 a second in both windows of ten."""
    run = Accounting()
    loop = run.loop()
    for number in range(20):
        run.amounts.count(None, 1000)
        run.step(loop, number, 1.0, during=(lambda: run.aside(EVALUATION, 30.0)) if number == 9 else None)
        run.settle()
    values = run.heartbeat(ended=True)
    assert run.rates("dl.rank.tokens_per_second") == [1_000.0, 1_000.0]
    assert run.rates("dl.step") == [9, 19]
    assert values["dl.time evaluation"] == 30.0
    assert values["dl.time productive"] == 20.0
    assert values["dl.productive.share"] == 0.4
    assert run.rates("dl.job.tokens_per_second") == []


@pytest.mark.parametrize("state", [EVALUATION, CHECKPOINT, OTHER])
def test_whatever_is_no_training_leaves_the_rate_alone(state: str) -> None:
    """A minute within a step, and one between two loops: 32 samples a second all the same."""
    run = Accounting()
    for epoch in range(2):
        loop = run.loop()
        run.recording.buffer.extend((FIRST_BATCH, 10 * epoch, None, 16, None, loop))
        for number in range(10 * epoch, 10 * epoch + 10):
            run.step(loop, number, 0.5, during=(lambda: run.aside(state, 60.0)) if number == 3 else None)
        run.aside(state, 60.0)
    run.settle(ended=True)
    assert run.rates("dl.rank.samples_per_second") == [32.0, 32.0]


def test_waiting_for_data_counts_as_training_time() -> None:
    """Steps of 1 s of which 0.75 s is waiting: 8 samples a second, not 32."""
    run = Accounting()
    loop = run.loop()
    run.recording.buffer.extend((FIRST_BATCH, 0, None, 8, None, loop))
    for number in range(10):
        run.step(loop, number, 1.0, waited_s=0.75)
    run.settle(ended=True)
    assert run.rates("dl.rank.samples_per_second") == [8.0]


def test_batches_of_changing_size_are_counted_each() -> None:
    """Nine batches of 32 and a last one of 5, twice: 293 samples in each window of 5 s."""
    run = Accounting()
    for epoch in range(2):
        loop = run.loop()
        run.recording.buffer.extend((FIRST_BATCH, 10 * epoch, None, 32, None, loop))
        for number in range(10 * epoch, 10 * epoch + 10):
            if number % 10 == 9:
                run.recording.buffer.extend((NEXT_BATCH, number, None, 5, None, loop))
            run.step(loop, number, 0.5)
    values = run.heartbeat(ended=True)
    assert values["dl.rank.samples"] == 2 * 293
    assert run.rates("dl.rank.samples_per_second") == [293 / 5, 293 / 5]


def test_what_the_user_counts_goes_before_the_shape() -> None:
    """Batches of 32 rows with 20 tokens each by their shape, of which the user counts 100 tokens: samples stay."""
    run = Accounting()
    loop = run.loop()
    run.recording.buffer.extend((FIRST_BATCH, 0, None, 32, 640, loop))
    for number in range(10):
        run.amounts.count(None, 60)
        run.amounts.count(None, 40)
        run.step(loop, number, 0.5)
    values = run.heartbeat(ended=True)
    assert (values["dl.rank.samples"], values["dl.rank.tokens"]) == (320, 1_000)
    assert run.rates("dl.rank.tokens_per_second") == [200.0]


def test_a_window_with_a_batch_of_unknown_size_has_no_rate() -> None:
    """Of twenty batches one tells nothing: its window says nothing, the next one does."""
    run = Accounting()
    loop = run.loop()
    run.recording.buffer.extend((FIRST_BATCH, 0, None, None, None, loop))
    run.step(loop, 0, 0.5)
    run.recording.buffer.extend((NEXT_BATCH, 1, None, 4, None, loop))
    for number in range(1, 20):
        run.step(loop, number, 0.5)
    run.settle(ended=True)
    assert [values.get("dl.rank.samples_per_second") for _, values in run.written] == [8.0]
    assert run.rates("dl.step") == [19]


def test_windows_last_ten_steps_and_five_seconds_and_not_over_thirty() -> None:
    """Steps of 10 ms: 500 a window. Of 1 s: ten. Of 12 s: three. And only an optimizer step ends one."""
    for took_s, accumulate, steps in ((0.01, 1, 500), (1.0, 1, 10), (12.0, 1, 3), (1.0, 4, 32)):
        throughput, ended = Throughput(), []
        for number in range(1, 1001):
            ends_update = number % accumulate == 0
            ns = round(number * took_s * NS_PER_S)
            window = throughput.take(number, None, ns, ns, 1, None, ends_update)
            if window is not None:
                ended.append(window)
        assert {window.micro_batches for window in ended} == {steps}
        assert {window.updates for window in ended} == {steps // accumulate}
        assert [window.step for window in ended] == [steps * (count + 1) for count in range(len(ended))]


def test_the_end_of_a_long_run_makes_no_window_of_three_steps() -> None:
    """23 steps of 1 s: two windows, and the three left are too few to compare; of 3 steps in all there is one."""
    for steps, windows in ((23, [9, 19]), (3, [2])):
        run = Accounting()
        loop = run.loop()
        run.recording.buffer.extend((FIRST_BATCH, 0, None, 1, None, loop))
        for number in range(steps):
            run.step(loop, number, 1.0)
        run.settle(ended=True)
        assert run.rates("dl.step") == windows


def test_a_loop_by_hand_is_timed_from_count_to_count() -> None:
    """No run.steps: ten counts of 50 samples, 2 s apart; the first begins the time. An evaluation is left out."""
    run = Accounting()
    run.pass_s(3.0)
    for number in range(11):
        run.amounts.count(50, None)
        run.pass_s(2.0)
        if number == 4:
            run.aside(EVALUATION, 100.0)
    values = run.heartbeat(ended=True)
    assert values["dl.rank.samples"] == 550
    assert run.rates("dl.rank.samples_per_second") == [25.0]
    assert values["dl.time start-up"] == 3.0
    assert values["dl.time productive"] == 20.0
    assert values["dl.time evaluation"] == 100.0
    assert values["dl.time idle"] == 2.0


def test_what_is_no_amount_is_said_at_the_call() -> None:
    """Negative, half, of no number: ConfigError names the argument, and nothing is counted."""
    run = Accounting()
    wrong: list[dict[str, Any]] = [{"samples": -1}, {"tokens": 2.5}, {"tokens": "many"}, {"samples": True}]
    for values in wrong:
        with pytest.raises(ConfigError) as raised:
            run.amounts.count(values.get("samples"), values.get("tokens"))
        assert raised.value.field in values
    assert run.recording.buffer.entries == []


def test_counts_may_be_tensors_and_numbers_of_numpy() -> None:
    """A sum of a mask as torch gives it, and NumPy's integers, count as what they hold."""
    torch = pytest.importorskip("torch")
    numpy = pytest.importorskip("numpy")
    run = Accounting()
    loop = run.loop()
    run.amounts.count(numpy.int64(3), torch.tensor([1, 0, 1, 1]).sum())
    run.amounts.count(4.0, None)
    run.step(loop, 0, 1.0)
    values = run.heartbeat()
    assert (values["dl.rank.samples"], values["dl.rank.tokens"]) == (7, 3)


def test_micro_batches_left_over_make_no_optimizer_step() -> None:
    """Epochs of ten batches, four to a step: two steps each, and each epoch begins to count anew."""
    run = Accounting()
    run.optimizer_steps.accumulates(4, run.log)
    number = 0
    for _ in range(3):
        loop: StepLoop[Any] = run.loop(accumulate=4)
        run.recording.buffer.extend((FIRST_BATCH, number, None, 1, None, loop))
        for _ in range(10):
            run.step(loop, number, 1.0)
            number += 1
    values = run.heartbeat(ended=True)
    assert (values["dl.optimizer.step"], values["dl.micro_step"]) == (6, 30)


def test_a_resumed_training_counts_its_own_micro_batches_and_all_optimizer_steps() -> None:
    """It goes on at micro-batch 40, four to a step: after eight more it is at optimizer step 12."""
    run = Accounting()
    run.log.step = 40
    run.optimizer_steps.accumulates(4, run.log)
    loop = run.loop(accumulate=4)
    for number in range(40, 48):
        run.amounts.count(5, None)
        run.step(loop, number, 1.0)
    values = run.heartbeat(ended=True)
    assert values["dl.optimizer.step"] == 12
    assert values["dl.micro_step"] == 8
    assert values["dl.rank.samples"] == 40
    assert run.rates("dl.rank.samples_per_second") == [5.0]
