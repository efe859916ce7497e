"""FLOPs that are given, and those that torch counts, by time and by the card's peak."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from otel_train.errors import ConfigError
from otel_train.record.amounts import FIRST_BATCH
from otel_train.testing import recorded
from otel_train.watch.device_peaks import FORMATS, peak_flops
from tests.accounting import EVALUATION, Accounting

H100 = "NVIDIA H100 80GB HBM3"


def trained(run: Accounting, *, samples: int | None = 8, tokens: int | None = 4096) -> list[float]:
    """Ten steps of 1 s, and 50 s of evaluation; return the utilisation."""
    loop = run.loop()
    run.recording.buffer.extend((FIRST_BATCH, 0, None, samples, tokens, loop))
    for number in range(10):
        run.step(loop, number, 1.0, during=(lambda: run.aside(EVALUATION, 50.0)) if number == 5 else None)
    run.settle(ended=True)
    return run.rates("dl.mfu")


@pytest.mark.parametrize(
    ("given", "share"),
    [
        ({"per_token": 42e9}, 42e9 * 4096 / 989e12),
        ({"per_sample": 21e12}, 21e12 * 8 / 989e12),
        ({"per_step": 400e12}, 400e12 / 989e12),
        ({"per_step": 400e12, "peak": "tf32"}, 400e12 / 494.5e12),
        ({"per_step": 400e12, "peak": 2e15}, 0.2),
    ],
)
def test_given_flops_by_the_peak_of_the_card(given: dict[str, Any], share: float) -> None:
    """An H100 at 8 samples of 512 tokens a second; evaluation is no training time."""
    run = Accounting(device_name=H100)
    run.flops.give(**{"per_sample": None, "per_token": None, "per_step": None, "peak": None, **given})
    assert trained(run) == [pytest.approx(share)]


def test_without_flops_without_peak_or_without_amounts_nothing_is_said() -> None:
    """Nothing given; a card nobody knows; the CPU; tokens that are not known."""
    assert trained(Accounting(device_name=H100)) == []
    for device_name, tokens in (("Some Accelerator", 4096), (None, 4096), (H100, None)):
        run = Accounting(device_name=device_name)
        run.flops.give(per_sample=None, per_token=1e9, per_step=None, peak=None)
        assert trained(run, tokens=tokens) == []


def test_a_peak_that_is_given_counts_on_any_device() -> None:
    """On the CPU, 3 TFLOP/s at most by its user's word, of which 1.5 were done."""
    run = Accounting()
    run.flops.give(per_sample=None, per_token=None, per_step=1.5e12, peak=3e12)
    assert trained(run) == [0.5]


def test_a_card_that_comes_into_use_later_is_looked_up_then() -> None:
    """`run.flops` stands before the model is moved to the device."""
    name: list[str | None] = [None]
    run = Accounting()
    run.flops._device_name = lambda: name[0]
    run.flops.give(per_sample=None, per_token=None, per_step=98.9e12, peak=None)
    name[0] = H100
    assert trained(run) == [pytest.approx(0.1)]


def test_what_is_no_flops_is_said_at_the_call() -> None:
    """None or two of the three, no number, an unknown format: ConfigError, and what was said before stays."""
    run = Accounting(device_name=H100)
    run.flops.give(per_sample=None, per_token=None, per_step=98.9e12, peak=None)
    wrong: list[dict[str, Any]] = [
        {},
        {"per_token": 1e9, "per_sample": 1e9},
        {"per_token": -1},
        {"per_token": float("nan")},
        {"per_token": "6N"},
        {"per_step": 1e9, "peak": "fp8"},
        {"per_step": 1e9, "peak": 0},
    ]
    for given in wrong:
        with pytest.raises(ConfigError):
            run.flops.give(**{"per_sample": None, "per_token": None, "per_step": None, "peak": None, **given})
    assert trained(run) == [pytest.approx(0.1)]


@pytest.mark.parametrize(
    ("name", "bf16", "fp16", "tf32"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12, 989e12, 494.5e12),
        ("NVIDIA H100 PCIe", 756e12, 756e12, 378e12),
        ("NVIDIA H200", 989e12, 989e12, 494.5e12),
        ("NVIDIA H200 NVL", 836e12, 836e12, 418e12),
        ("NVIDIA GH200 480GB", 989e12, 989e12, 494.5e12),
        ("NVIDIA H20", 148e12, 148e12, 74e12),
        ("NVIDIA B200", 2250e12, 2250e12, 1125e12),
        ("NVIDIA GB200", 2500e12, 2500e12, 1250e12),
        ("NVIDIA A100-SXM4-80GB", 312e12, 312e12, 156e12),
        ("NVIDIA A100 80GB PCIe", 312e12, 312e12, 156e12),
        ("NVIDIA A10", 125e12, 125e12, 62.5e12),
        ("Tesla V100-SXM2-16GB", None, 125e12, None),
        ("Tesla V100-PCIE-32GB", None, 112e12, None),
        ("NVIDIA GeForce RTX 4090", 165.2e12, 165.2e12, 82.6e12),
        ("AMD Instinct MI300X", 1307.4e12, 1307.4e12, 653.7e12),
        # What has less than the card of that name, or a name that only begins alike.
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None, None, None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None, None, None),
        ("NVIDIA GeForce RTX 4090 D", None, None, None),
        ("NVIDIA A10G", None, None, None),
        ("NVIDIA L400", None, None, None),
        ("", None, None, None),
    ],
)
def test_cards_are_known_by_the_name_that_torch_says(
    name: str, bf16: float | None, fp16: float | None, tf32: float | None
) -> None:
    """Dense peaks as the makers publish them; None where there is no such unit or no such card."""
    found = [peak_flops(name, number_format) for number_format in FORMATS]
    assert found == [None if peak is None else pytest.approx(peak) for peak in (bf16, fp16, tf32)]


# Counted --------------------------------------------------------------------------------------------------------------


def matrix_flops(batch: int, *sizes: int) -> int:
    """FLOPs of forward and backward pass of linear layers, two for each weight and row: the output, the gradients.

    The first layer needs none for its input.
    """
    forward = sum(2 * batch * before * after for before, after in pairwise(sizes))
    return 3 * forward - 2 * batch * sizes[0] * sizes[1]


def test_counted_flops_are_those_of_the_matrices(start: Callable[..., Any]) -> None:
    """Two layers, 16 rows: 2·m·n·k for each product, as torch counts it; kept for each sample, since batches vary."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    run = start()
    model = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.Linear(40, 7))
    for step, batch in enumerate(run.steps([torch.randn(16, 30), torch.randn(4, 30)])):
        if step == 0:
            with run.count_flops(peak=1e12):
                model(batch).sum().backward()
    assert run.flop_count._count.per == "sample"
    assert run.flop_count._count.flops == matrix_flops(16, 30, 40, 7) / 16


def test_counted_flops_of_text_are_kept_for_each_token(start: Callable[..., Any]) -> None:
    """A batch of input_ids: 2 rows of 8 tokens through one layer; outside a loop the user says how many there were."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    run = start()
    embed, head = torch.nn.Embedding(50, 12), torch.nn.Linear(12, 50)
    for batch in run.steps([{"input_ids": torch.zeros(2, 8, dtype=torch.long)}]):
        with run.count_flops():
            head(embed(batch["input_ids"])).sum().backward()
    # Embeddings look up; the layer's input needs a gradient, since the embedding learns.
    whole = 3 * 2 * 16 * 12 * 50
    assert (run.flop_count._count.per, run.flop_count._count.flops) == ("token", whole / 16)
    with run.count_flops(samples=4):
        head(torch.randn(4, 12)).sum().backward()
    assert (run.flop_count._count.per, run.flop_count._count.flops) == ("sample", matrix_flops(4, 12, 50) / 4)
    with run.count_flops():
        head(torch.randn(4, 12)).sum().backward()
    assert (run.flop_count._count.per, run.flop_count._count.flops) == ("step", matrix_flops(4, 12, 50))


def test_a_block_without_operations_warns_and_keeps_what_was_known(
    start: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing that torch knows ran within: the earlier number stays."""
    pytest.importorskip("torch")
    run = start()
    run.flops(per_step=5.0, peak=1.0)
    with run.count_flops(peak=1.0):
        pass
    assert "count_flops" in caplog.text
    assert run.flop_count._count.flops == 5.0


def test_what_fails_within_is_the_users(start: Callable[..., Any]) -> None:
    """Its exception passes through, and nothing was counted."""
    torch = pytest.importorskip("torch")
    run = start()

    def fail() -> None:
        torch.zeros(2, 3) @ torch.zeros(3, 2)
        raise ValueError("the model's own")

    with pytest.raises(ValueError, match="the model's own"), run.count_flops():
        fail()
    assert run.flop_count._count is None


def test_a_run_writes_its_utilisation_beside_the_step(start: Callable[..., Any]) -> None:
    """Through the run log: the rate of a step times its FLOPs, by the peak that was given."""
    run = start()
    run.flops(per_sample=2e6, peak=1e9)
    for _ in run.steps(range(5)):
        run.count(samples=10)
    run.finish()
    record = recorded(run)
    (share,) = [point for point in record.points if point.name == "dl.mfu"]
    (rate,) = [point for point in record.points if point.name == "dl.rank.samples_per_second"]
    assert share.value == pytest.approx(rate.value * 2e6 / 1e9)
    assert (share.step, share.time_ns) == (4, rate.time_ns)
