"""Mean, deviation and dead units of activations, beside the same computed from outputs that the test itself catches."""

from __future__ import annotations

from typing import Any

import pytest

from otel_train.watch.model_activations import is_activation
from tests.model_watching import Sampled, hooks_of, network, sampled, train_step

torch: Any = pytest.importorskip("torch")
nn = torch.nn

__all__ = ["sampled"]


class Caught:
    """The outputs of chosen modules in training, as a hook of the test's own sees them."""

    def __init__(self, model: Any, *names: str) -> None:
        self.outputs: dict[str, list[Any]] = {name: [] for name in names}
        for name in names:
            model.get_submodule(name).register_forward_hook(
                lambda module, inputs, output, name=name: self.outputs[name].append(output.detach().double().clone())
            )

    def all(self, name: str) -> Any:
        return torch.cat([output.reshape(-1) for output in self.outputs[name]])


def test_planted_dead_features_are_counted_and_one_that_lives_once_is_not(sampled: Sampled) -> None:
    """Of 20 units five have a bias of -100; a sixth would, but one sample of the window wakes it."""
    model = network(8, 20, 4)
    with torch.no_grad():
        model[0].bias[:6] = -100.0
        model[0].weight[:6] = 0.0
        model[0].weight[5, 0] = 1.0
        model[0].weight[6:] = 0.0
        model[0].bias[6:] = 1.0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    inputs = torch.zeros(64, 8)
    watch = sampled.watch(model, optimizer)
    train_step(model, optimizer, inputs, torch.zeros(64, 4))
    inputs[17, 0] = 101.0
    train_step(model, optimizer, inputs, torch.zeros(64, 4))
    watch.close()
    assert sampled.values("dl.activation.dead", "1") == [6 / 20, 5 / 20]


def test_a_unit_that_lives_in_one_micro_batch_is_alive(sampled: Sampled) -> None:
    """The window of an accumulated step is all its micro-batches; that of `window=2` the step before too."""
    model = network(2, 4, 1)
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.fill_(-1.0)
        for unit in range(3):
            model[0].weight[unit, 0] = float(unit + 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def step(*firsts: float) -> None:
        for first in firsts:
            inputs = torch.zeros(5, 2)
            inputs[3, 0] = first
            model(inputs).sum().backward()
        optimizer.step()

    watch = sampled.watch(model, optimizer, every=3, window=2)
    # Unit n lives where its input is over 1/(n+1). Sampled are steps 0, 3 and 6, with the step before from 2 on.
    step(0.0, 0.4, 0.0)
    step(9.0)
    step(0.6)
    step(0.0, 0.4)
    step(9.0)
    step(0.0)
    step(0.4)
    watch.close()
    assert sampled.values("dl.activation.dead", "1") == [3 / 4, 2 / 4, 3 / 4]


def test_units_of_convolutions_are_channels_and_of_what_follows_features(sampled: Sampled) -> None:
    """Channels of two- and one-dimensional convolutions, also behind a normalisation; features of a linear layer."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.plane = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
            self.line = nn.Sequential(nn.Conv1d(16, 8, 3, padding=1), nn.ReLU())
            self.flat = nn.Sequential(nn.Linear(16, 10), nn.ReLU6())
            self.out = nn.Linear(10, 2)

        def forward(self, images: Any) -> Any:
            planes = self.plane(images)
            lines = self.line(planes.reshape(-1, 16, 16))
            return self.out(self.flat(lines))

    model = Model()
    with torch.no_grad():
        model.plane[1].bias[:1] = -100.0
        model.line[0].bias[:2] = -100.0
        model.flat[0].bias[:3] = -100.0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    watch = sampled.watch(model, optimizer)
    caught = Caught(model, "plane.2", "line.1", "flat.1")
    model(torch.randn(6, 1, 8, 8)).sum().backward()
    optimizer.step()
    watch.close()
    (plane,), (line,), (flat,) = (caught.outputs[name] for name in ("plane.2", "line.1", "flat.1"))
    expected = {
        "plane.2": float((plane.amax((0, 2, 3)) == 0).double().mean()),
        "line.1": float((line.amax((0, 2)) == 0).double().mean()),
        "flat.1": float((flat.amax((0, 1)) == 0).double().mean()),
    }
    assert expected["plane.2"] >= 1 / 4
    assert expected["line.1"] >= 2 / 8
    assert expected["flat.1"] >= 3 / 10
    assert {name: sampled.values("dl.activation.dead", name) for name in expected} == {
        name: [pytest.approx(value)] for name, value in expected.items()
    }


def test_mean_and_deviation_are_those_of_the_whole_window(sampled: Sampled) -> None:
    """Over uneven micro-batches, also where the mean is far from zero by many deviations."""

    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(8, 32)
            self.act = nn.Sigmoid()
            self.second = nn.Linear(32, 16)
            self.gate = nn.GELU()

        def forward(self, inputs: Any) -> Any:
            return self.gate(self.second(self.act(0.01 * self.first(inputs) + 4.0)))

    model = Shifted()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    watch = sampled.watch(model, optimizer)
    caught = Caught(model, "act", "gate")
    for size in (3, 50, 11):
        model(torch.randn(size, 8)).sum().backward()
    optimizer.step()
    watch.close()
    for name in ("act", "gate"):
        outputs = caught.all(name)
        assert sampled.values("dl.activation.mean", name) == [pytest.approx(float(outputs.mean()), rel=1e-6)]
        deviation = float(outputs.std(correction=0))
        # A square of the mean in 32 bits would be a hundred times the square of the deviation away from it.
        assert sampled.values("dl.activation.std", name) == [pytest.approx(deviation, rel=1e-4)]
        assert sampled.values("dl.activation.dead", name) == []


def test_evaluation_and_what_makes_no_gradient_does_not_count(sampled: Sampled) -> None:
    """Between two steps the model is evaluated, in both ways that people do it; the window has the training alone."""
    model = network(4, 6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    watch = sampled.watch(model, optimizer)
    inputs = torch.randn(8, 4)
    expected = float(torch.relu(model[0](inputs)).detach().double().mean())
    model.eval()
    model(100 * torch.randn(8, 4))
    model.train()
    with torch.no_grad():
        model(100 * torch.randn(8, 4))
    train_step(model, optimizer, inputs, torch.zeros(8, 2))
    watch.close()
    assert sampled.values("dl.activation.mean", "1") == [pytest.approx(expected, rel=1e-6)]


def test_one_module_that_is_called_as_several_layers_has_the_units_of_each(sampled: Sampled) -> None:
    """One ReLU after two layers of three units, as ResNet's blocks have it: dead in one place is dead there."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.relu = nn.Linear(3, 3), nn.Linear(3, 3), nn.ReLU()

        def forward(self, inputs: Any) -> Any:
            return self.relu(self.second(self.relu(self.first(inputs))))

    model = Twice()
    with torch.no_grad():
        model.first.weight.zero_()
        model.first.bias.copy_(torch.tensor([-1.0, 1.0, 1.0]))
        model.second.weight.zero_()
        model.second.bias.copy_(torch.tensor([1.0, -1.0, -1.0]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    watch = sampled.watch(model, optimizer)
    for _ in range(2):
        model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    watch.close()
    assert sampled.values("dl.activation.dead", "relu") == [3 / 6]


def test_without_activation_modules_the_layers_outputs_are_told_and_nothing_is_dead(sampled: Sampled) -> None:
    """`torch.relu` within a forward is seen by nobody: mean and deviation of the linear layers instead."""

    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, inputs: Any) -> Any:
            return self.second(torch.relu(self.first(inputs) - 100.0))

    model = Functional()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    watch = sampled.watch(model, optimizer)
    caught = Caught(model, "first")
    train_step(model, optimizer, torch.randn(8, 4), torch.zeros(8, 2))
    watch.close()
    assert sampled.layers_of("dl.activation.mean") == ["first", "second"]
    mean = float(caught.all("first").mean())
    assert sampled.values("dl.activation.mean", "first") == [pytest.approx(mean, rel=1e-5)]
    assert sampled.layers_of("dl.activation.dead") == []


def test_a_leaky_relu_has_no_dead_units(sampled: Sampled) -> None:
    """It lets a gradient through everywhere: mean and deviation alone."""
    model = network(4, 6, 2, activation=nn.LeakyReLU)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    watch = sampled.watch(model, optimizer)
    train_step(model, optimizer, torch.randn(8, 4), torch.zeros(8, 2))
    watch.close()
    assert len(sampled.values("dl.activation.std", "1")) == 1
    assert sampled.layers_of("dl.activation.dead") == []


def test_outputs_in_half_precision_are_summed_in_full(sampled: Sampled) -> None:
    """Under autocast the outputs are bfloat16; 100,000 of them have a mean beyond its eight bits."""
    model = network(4, 5000, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    watch = sampled.watch(model, optimizer)
    caught = Caught(model, "1")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(torch.randn(20, 4))
    output.float().sum().backward()
    optimizer.step()
    watch.close()
    assert caught.outputs["1"][0].numel() == 100_000
    mean, deviation = float(caught.all("1").mean()), float(caught.all("1").std(correction=0))
    assert sampled.values("dl.activation.mean", "1") == [pytest.approx(mean, rel=1e-5)]
    assert sampled.values("dl.activation.std", "1") == [pytest.approx(deviation, rel=1e-5)]


def test_recomputed_activations_change_nothing(sampled: Sampled) -> None:
    """Activation checkpointing runs the forward twice: mean, deviation and dead share are as without it."""
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self, reentrant: bool | None) -> None:
            super().__init__()
            self.block = network(8, 16, 8)
            self.reentrant = reentrant

        def forward(self, inputs: Any) -> Any:
            if self.reentrant is None:
                return self.block(inputs)
            return checkpoint(self.block, inputs, use_reentrant=self.reentrant)

    inputs = torch.randn(10, 8, requires_grad=True)
    weights = Checkpointed(None).state_dict()
    weights["block.0.bias"][:4] = -100.0
    for reentrant in (None, False, True):
        model = Checkpointed(reentrant)
        model.load_state_dict(weights)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        watch = sampled.watch(model, optimizer)
        model(inputs).sum().backward()
        optimizer.step()
        watch.close()
    for name in ("mean", "std", "dead"):
        plain, *others = sampled.values(f"dl.activation.{name}", "block.1")
        assert others == [pytest.approx(plain, rel=1e-6)] * 2
    assert sampled.values("dl.activation.dead", "block.1")[0] >= 4 / 16


def test_what_runs_within_a_transformation_of_functions_is_left_out(sampled: Sampled) -> None:
    """Values of torch.func's vmap and grad must not outlive it; those of the step itself have their mean as ever."""
    model = network(8, 20, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    seen = Caught(model, "1")
    watch = sampled.watch(model, optimizer)
    weights = {name: value.detach() for name, value in model.named_parameters()}

    def total(values: Any, inputs: Any) -> Any:
        return torch.func.functional_call(model, values, (inputs,)).sum()

    inputs = torch.randn(5, 8)
    per_sample = torch.func.vmap(torch.func.grad(total), in_dims=(None, 0))(weights, inputs)
    assert per_sample["0.weight"].shape == (5, 20, 8)
    torch.func.vmap(model)(inputs)
    seen.outputs["1"].clear()
    train_step(model, optimizer, inputs, torch.zeros(5, 4))
    watch.close()
    assert sampled.values("dl.activation.mean", "1") == [pytest.approx(seen.all("1").mean().item(), rel=1e-6)]
    dead = (seen.all("1").reshape(5, 20) == 0).all(0).double().mean().item()
    assert sampled.values("dl.activation.dead", "1") == [dead]


def test_nothing_is_hooked_where_no_activations_are_wanted(sampled: Sampled) -> None:
    """`activations=False` leaves the modules alone."""
    model = network(4, 6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    watch = sampled.watch(model, optimizer, activations=False)
    assert not [hook for hook in hooks_of(model) if "forward" in hook]
    train_step(model, optimizer, torch.randn(8, 4), torch.zeros(8, 2))
    watch.close()
    assert sampled.layers_of("dl.activation.mean") == []
    assert sampled.layers_of("dl.grad.norm") == ["0", "2"]


def test_a_window_in_which_nothing_was_seen_is_said_once(sampled: Sampled) -> None:
    """A model whose forward bypasses its modules' calls."""

    class Bypassing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.act = nn.Linear(4, 4), nn.ReLU()

        def forward(self, inputs: Any) -> Any:
            return self.act.forward(self.first.forward(inputs))

    model = Bypassing()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    watch = sampled.watch(model, optimizer)
    train_step(model, optimizer, torch.randn(8, 4), torch.zeros(8, 4))
    watch.close()
    assert sampled.said == ["watch: no activation was seen; those in compiled code, and functions, are not"]


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.ReLU(), True),
        (nn.GELU(), True),
        (nn.SiLU(), True),
        (nn.Linear(2, 2), False),
        (nn.Dropout(), False),
        (nn.MultiheadAttention(4, 2), False),
        (nn.Sequential(nn.ReLU()), False),
    ],
)
def test_what_counts_as_an_activation(module: Any, expected: bool) -> None:
    """By the class's name, of modules without others within."""
    assert is_activation(module) is expected
