"""Mixed precision on the CPU: unscaled values, the scale, and the steps that the scaler leaves out."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.model_watching import Sampled, network, norm, sampled

torch: Any = pytest.importorskip("torch")
nn = torch.nn

__all__ = ["sampled"]

HUGE = 2.0**126


def scaler_of(scale: float, **options: Any) -> Any:
    return torch.amp.GradScaler("cpu", init_scale=scale, **options)


def plain_gradients(model: Any, inputs: Any) -> list[Any]:
    """The gradients without any scale."""
    return list(torch.autograd.grad(model(inputs).square().mean(), list(model.parameters())))


def amp_step(model: Any, optimizer: Any, scaler: Any, inputs: Any, clip: float | None = None) -> None:
    optimizer.zero_grad()
    scaler.scale(model(inputs).square().mean()).backward()
    if clip is not None:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    scaler.step(optimizer)
    scaler.update()


def optimizers(model: Any) -> dict[str, Any]:
    return {
        "plain": torch.optim.SGD(model.parameters(), lr=1e-9),
        "fused": torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True),
    }


@pytest.mark.parametrize("kind", ["plain", "fused"])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("clip", [None, 1e-3])
def test_gradients_are_those_without_the_loss_scale(
    sampled: Sampled, kind: str, given: bool, clip: float | None
) -> None:
    """Of plain and of fused optimizers, which unscale by themselves; the scaler given or found; clipped or not."""
    model = network(8, 16, 4)
    optimizer = optimizers(model)[kind]
    scaler = scaler_of(1000.0)
    watch = sampled.watch(model, optimizer, scaler=scaler if given else None)
    for step in range(2):
        inputs = torch.randn(8, 8)
        expected = plain_gradients(model, inputs)
        amp_step(model, optimizer, scaler, inputs, clip)
        assert sampled.values("dl.grad.norm")[step] == pytest.approx(norm(expected), rel=1e-5)
        assert sampled.values("dl.grad.norm", "2")[step] == pytest.approx(norm(expected[2:]), rel=1e-5)
        if clip is not None:
            assert sampled.values("dl.grad.norm.clipped")[step] == pytest.approx(clip, rel=1e-2)
        counted = sampled.distribution("dl.grad.distribution", "2").sum
        assert math.isfinite(counted)
    watch.close()
    assert sampled.values("dl.amp.scale") == [1000.0, 1000.0]
    assert sampled.values("dl.optimizer.skipped")[-1] == 0


@pytest.mark.parametrize("kind", ["plain", "fused"])
def test_skipped_steps_are_counted_and_show_nothing_else(sampled: Sampled, kind: str) -> None:
    """The scale is so high that the first steps overflow: each is counted, with the scale that it had."""
    model = network(8, 16, 4)
    optimizer = optimizers(model)[kind]
    scaler = scaler_of(HUGE, backoff_factor=2.0**-32)
    watch = sampled.watch(model, optimizer)
    taken, scales = [], []
    for _ in range(6):
        inputs = 1e3 * torch.randn(8, 8)
        expected = norm(plain_gradients(model, inputs))
        before = [one.detach().clone() for one in model.parameters()]
        scales.append(scaler.get_scale())
        amp_step(model, optimizer, scaler, inputs)
        if any(not torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True)):
            taken.append(expected)
    watch.close()
    skipped = 6 - len(taken)
    assert 1 <= skipped <= 4
    assert sampled.values("dl.amp.scale") == scales
    assert sampled.values("dl.grad.norm") == pytest.approx(taken, rel=1e-5)
    assert sampled.values("dl.optimizer.skipped") == [min(step + 1, skipped) for step in range(6)]
    assert sampled.values("dl.optimizer.tried") == [1, 2, 3, 4, 5, 6]
    assert sampled.values("dl.optimizer.step")[-1] == len(taken)
    assert sampled.layers_of("dl.grad.nonfinite") == []
    assert [one for read in sampled.reads for one in read.occurrences] == []
    counted = sampled.distribution("dl.grad.distribution", "0").count
    assert counted == len(taken) * (8 * 16 + 16)


@pytest.mark.parametrize("kind", ["plain", "fused"])
def test_skipped_steps_between_two_samplings_are_counted_too(sampled: Sampled, kind: str) -> None:
    """Two steps are sampled; inputs of steps 3 and 4 overflow, and that of the last, which nobody samples."""
    model = network(8, 16, 4)
    optimizer = optimizers(model)[kind]
    scaler = scaler_of(2.0**10)
    watch = sampled.watch(model, optimizer, every=10)
    for step in range(16):
        inputs = torch.full((8, 8), float("inf")) if step in (3, 4, 15) else torch.randn(8, 8)
        amp_step(model, optimizer, scaler, inputs)
    watch.close()
    assert sampled.values("dl.optimizer.skipped")[-1] == 3
    assert sampled.values("dl.optimizer.tried")[-1] == 16
    assert len(sampled.values("dl.grad.norm")) == 2
    assert all(math.isfinite(value) for value in sampled.values("dl.grad.norm"))


def test_a_skipped_step_does_not_use_up_its_sampling(sampled: Sampled) -> None:
    """The step that is due is left out: the next one is sampled in its place, with its own activations only."""
    model = network(8, 16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = scaler_of(2.0**10)
    watch = sampled.watch(model, optimizer, every=100)
    amp_step(model, optimizer, scaler, torch.full((8, 8), float("inf")), clip=1.0)
    inputs = torch.randn(8, 8)
    expected = norm(plain_gradients(model, inputs))
    mean = float(torch.relu(model[0](inputs)).detach().double().mean())
    # The gradients for comparison ran the model too, while the window is open: begin that anew.
    watch.activations.again()
    amp_step(model, optimizer, scaler, inputs, clip=1.0)
    watch.close()
    assert sampled.values("dl.grad.norm") == [pytest.approx(expected, rel=1e-5)]
    assert sampled.values("dl.activation.mean", "1") == [pytest.approx(mean, rel=1e-5)]


def test_an_optimizer_that_nobody_gave_is_found_by_the_scaler(sampled: Sampled) -> None:
    """All its first steps are left out, so that its own hooks would never hear of it."""
    model = network(8, 16, 4)
    watch = sampled.watch(model, None)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = scaler_of(2.0**10)
    for _ in range(3):
        amp_step(model, optimizer, scaler, torch.full((8, 8), float("inf")))
    watch.close()
    assert sampled.values("dl.optimizer.skipped") == [1, 2, 3]
    assert sampled.values("dl.grad.norm") == []


def test_two_optimizers_under_one_scaler_skip_each_for_itself(sampled: Sampled) -> None:
    """Only the head's gradient overflows: its step is left out, the body's is not."""
    body, head = nn.Linear(4, 4), nn.Linear(4, 2)
    model = nn.Sequential(body, head)
    first = torch.optim.SGD(body.parameters(), lr=0.1)
    second = torch.optim.SGD(head.parameters(), lr=0.1)
    scaler = scaler_of(2.0**10)
    watch = sampled.watch(model, {"body": first, "head": second})
    hidden = body(torch.randn(3, 4))
    loss = hidden.sum() + head(hidden.detach()).sum() * 1e38
    scaler.scale(loss).backward()
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    watch.close()
    assert sampled.values("dl.optimizer.skipped", optimizer="body") == [0]
    assert sampled.values("dl.optimizer.skipped", optimizer="head") == [1]
    assert len(sampled.values("dl.grad.norm", optimizer="body")) == 1
    assert sampled.values("dl.grad.norm", optimizer="head") == []


def test_a_scaler_that_is_switched_off_changes_nothing(sampled: Sampled) -> None:
    """`GradScaler(enabled=False)`: no scale is recorded, nothing is skipped."""
    model = network(8, 16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = scaler_of(1.0, enabled=False)
    watch = sampled.watch(model, optimizer, scaler=scaler)
    inputs = torch.randn(8, 8)
    expected = norm(plain_gradients(model, inputs))
    amp_step(model, optimizer, scaler, inputs)
    watch.close()
    assert sampled.values("dl.grad.norm") == [pytest.approx(expected, rel=1e-6)]
    assert sampled.values("dl.amp.scale") == []
    assert sampled.values("dl.optimizer.skipped") == []


def test_without_an_optimizer_a_given_scaler_unscales(sampled: Sampled) -> None:
    """Weights are moved by hand from scaled gradients: the norm is that without the scale."""
    model = network(8, 16, 4)
    scaler = scaler_of(512.0)
    watch = sampled.watch(model, None, scaler=scaler)
    inputs = torch.randn(8, 8)
    scaler.scale(model(inputs).square().mean()).backward()
    expected = norm([one.grad for one in model.parameters()]) / 512.0
    watch.close()
    assert sampled.values("dl.grad.norm") == [pytest.approx(expected, rel=1e-6)]
