"""Models and steps that torch.compile has compiled: right values, and no compilation more than without a watch."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.model_watching import Sampled, hooks_of, network, norm, sampled

torch: Any = pytest.importorskip("torch")
nn = torch.nn

__all__ = ["sampled"]
# The first compilation on a machine makes headers first, which takes a minute or two.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
needs_a_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++"))), reason="no C++ compiler, which inductor needs, is on the PATH"
)


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    """Nothing is compiled before, nor counts as compiled after the test."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def steps(model: Any, optimizer: Any, inputs: list[Any]) -> list[tuple[list[Any], Any]]:
    """Train by plain steps; return gradients and a copy of the weights before each."""
    found = []
    for one in inputs:
        before = [parameter.detach().clone() for parameter in model.parameters()]
        optimizer.zero_grad()
        model(one).square().mean().backward()
        found.append(([parameter.grad.clone() for parameter in model.parameters()], before))
        optimizer.step()
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=needs_a_compiler)])
@pytest.mark.parametrize("watched", ["the model", "the compiled one"])
def test_a_compiled_model_is_compiled_once_and_its_values_are_right(
    sampled: Sampled, backend: str, watched: str
) -> None:
    """The second step is the first that is sampled; gradients and weights against 64 bits, no activations."""
    model = network(8, 16, 4)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = sampled.watch(model if watched == "the model" else compiled, optimizer, every=2)
    found = steps(compiled, optimizer, [torch.randn(5, 8) for _ in range(6)])
    watch.close()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert sampled.values("dl.grad.norm") == pytest.approx([norm(found[step][0]) for step in (1, 3, 5)], rel=1e-6)
    assert sampled.values("dl.weight.norm") == pytest.approx([norm(found[step][1]) for step in (1, 3, 5)], rel=1e-6)
    assert sampled.layers_of("dl.update.ratio") == ["0", "2"]
    assert sampled.layers_of("dl.activation.mean") == []
    assert set(sampled.said) == {"watch: no activation was seen; those in compiled code, and functions, are not"}
    assert hooks_of(model, optimizer) == []


def test_activations_outside_of_the_compiled_part_are_seen(sampled: Sampled) -> None:
    """One block is compiled in place, the other one is not."""
    model = nn.Sequential(network(8, 16, 8), nn.ReLU(), network(8, 16, 4))
    model[0].compile(backend="eager", fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = sampled.watch(model, optimizer)
    steps(model, optimizer, [torch.randn(5, 8) for _ in range(3)])
    watch.close()
    assert sampled.layers_of("dl.activation.mean") == ["1", "2.1"]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_a_compiled_optimizer_step_is_sampled(sampled: Sampled) -> None:
    """The step leaves its graph for the hooks, and moves the weights as it does without them."""
    model = network(8, 16, 4)
    twin = copy.deepcopy(model)
    inputs = [torch.randn(5, 8) for _ in range(4)]
    plain = torch.optim.SGD(twin.parameters(), lr=0.1)
    expected = steps(twin, plain, inputs)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = sampled.watch(model, optimizer)
    step = torch.compile(optimizer.step, backend="eager")
    for one in inputs:
        optimizer.zero_grad()
        model(one).square().mean().backward()
        step()
    watch.close()
    assert sampled.values("dl.grad.norm") == pytest.approx([norm(gradients) for gradients, _ in expected], rel=1e-6)
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_whole_step_in_one_compiled_function_with_clipping(sampled: Sampled) -> None:
    """Forward, backward and clipping in one graph, the step outside: what is sampled is what the optimizer gets."""
    model = network(8, 16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_of(inputs: Any) -> Any:
        return model(inputs).square().mean()

    compiled = torch.compile(loss_of, backend="aot_eager", fullgraph=True)
    watch = sampled.watch(model, optimizer)
    totals = []
    for _ in range(3):
        optimizer.zero_grad()
        compiled(torch.randn(5, 8)).backward()
        totals.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)))
        optimizer.step()
    watch.close()
    assert sampled.values("dl.grad.norm") == pytest.approx(totals[1:], rel=1e-6)
    assert sampled.values("dl.grad.norm.clipped") == pytest.approx([1e-3, 1e-3], rel=1e-2)
