"""Norms of gradients, weights and updates of real trainings, each beside the same computed in 64 bits."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

from otel_train.watch.model_tensors import norms_of
from tests.model_watching import Sampled, network, norm, sampled, train_step

torch: Any = pytest.importorskip("torch")
nn = torch.nn
# Imported before anything is watched, as scripts do.
from torch.nn.utils import clip_grad_norm_  # noqa: E402

__all__ = ["sampled"]


def batch(inputs: int = 8, outputs: int = 4, size: int = 16) -> tuple[Any, Any]:
    return torch.randn(size, inputs), torch.randn(size, outputs)


def test_norms_and_ratio_of_a_plain_step_by_layer_and_for_the_whole(sampled: Sampled) -> None:
    """Gradient, weight and update of each layer and of all, against 64-bit norms of the tensors themselves."""
    model = network(8, 32, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    watch = sampled.watch(model, optimizer)
    for step in range(3):
        before = copy.deepcopy(model)
        train_step(model, optimizer, *batch())
        groups = {None: ["0", "2"], "0": ["0"], "2": ["2"]}
        for layer, names in groups.items():
            new = [parameter for name in names for parameter in model.get_submodule(name).parameters()]
            old = [parameter for name in names for parameter in before.get_submodule(name).parameters()]
            gradient = sampled.values("dl.grad.norm", layer)[step]
            assert gradient == pytest.approx(norm([one.grad for one in new]), rel=1e-6)
            assert sampled.values("dl.weight.norm", layer)[step] == pytest.approx(norm(old), rel=1e-6)
            moved = norm([one.double() - other.double() for one, other in zip(new, old, strict=True)])
            assert sampled.values("dl.update.ratio", layer)[step] == pytest.approx(moved / norm(old), rel=1e-5)
    watch.close()
    assert sampled.values("dl.grad.norm.clipped") == []
    assert sampled.layers_of("dl.grad.norm") == ["0", "2"]


@pytest.mark.parametrize("imported_by_name", [False, True])
def test_norms_are_those_before_clipping(sampled: Sampled, imported_by_name: bool) -> None:
    """Also where `clip_grad_norm_` was imported by name: the whole is its return value, the layers are not scaled."""
    model = network(8, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = sampled.watch(model, optimizer)
    clip = clip_grad_norm_ if imported_by_name else torch.nn.utils.clip_grad_norm_
    for step in range(2):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(torch.randn(16, 8)), torch.randn(16, 4)).backward()
        layers = {name: norm([one.grad for one in model.get_submodule(name).parameters()]) for name in ("0", "2")}
        total = clip(model.parameters(), 0.01)
        optimizer.step()
        assert sampled.values("dl.grad.norm")[step] == pytest.approx(float(total), rel=1e-6)
        for name, value in layers.items():
            assert sampled.values("dl.grad.norm", name)[step] == pytest.approx(value, rel=1e-6)
        got = norm([one.grad for one in model.parameters()])
        assert got == pytest.approx(0.01, rel=1e-3)
        assert sampled.values("dl.grad.norm.clipped")[step] == pytest.approx(got, rel=1e-6)
    watch.close()


def test_clipping_by_the_two_public_halves_and_by_value_is_seen(sampled: Sampled) -> None:
    """`get_total_norm` with `clip_grads_with_norm_`, and `clip_grad_value_` after it: the first gradient counts."""
    model = network(8, 32, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = sampled.watch(model, optimizer)
    torch.nn.functional.mse_loss(model(torch.randn(16, 8)), torch.randn(16, 4)).backward()
    before = norm([one.grad for one in model.parameters()])
    total = torch.nn.utils.get_total_norm([one.grad for one in model.parameters()])
    torch.nn.utils.clip_grads_with_norm_(model.parameters(), 0.5 * before, total)
    torch.nn.utils.clip_grad_value_(model.parameters(), 1e-3)
    optimizer.step()
    watch.close()
    assert sampled.values("dl.grad.norm") == [pytest.approx(before, rel=1e-6)]
    got = norm([one.grad for one in model.parameters()])
    assert got < 0.4 * before
    assert sampled.values("dl.grad.norm.clipped") == [pytest.approx(got, rel=1e-6)]


def test_a_step_left_out_after_clipping_does_not_leave_its_gradient_to_the_next(sampled: Sampled) -> None:
    """Clipped and thrown away, as some do where the norm is too large: the next step tells of its own gradient."""
    model = network(8, 16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = sampled.watch(model, optimizer)
    torch.nn.functional.mse_loss(model(1e3 * torch.randn(16, 8)), torch.randn(16, 4)).backward()
    assert float(clip_grad_norm_(model.parameters(), 1.0)) > 100
    total = train_step(model, optimizer, *batch(), clip=0.01)
    watch.close()
    assert sampled.values("dl.grad.norm") == [pytest.approx(total, rel=1e-6)]


def test_only_the_optimizers_step_counts_under_accumulation(sampled: Sampled) -> None:
    """Four micro-batches a step, every second step sampled: the norm is that of the sum of the gradients."""
    model = network(8, 16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = sampled.watch(model, optimizer, every=2)
    expected = []
    for step in range(4):
        optimizer.zero_grad()
        parts: list[list[Any]] = []
        for _ in range(4):
            loss = torch.nn.functional.mse_loss(model(torch.randn(4, 8)), torch.randn(4, 4)) / 4
            parts.append(list(torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)))
            loss.backward()
        optimizer.step()
        if step % 2 == 0:
            expected.append(norm([sum(one.double() for one in column) for column in zip(*parts, strict=True)]))
    watch.close()
    assert sampled.values("dl.grad.norm") == pytest.approx(expected, rel=1e-6)
    assert sampled.done == [1, 2, 3, 4]
    assert sampled.values("dl.optimizer.step") == [1, 3]


def test_shared_parameters_count_once_and_frozen_layers_have_no_gradient(sampled: Sampled) -> None:
    """An embedding tied to the head, and a frozen layer between: one norm for the tied one, a weight norm alone."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(11, 6)
            self.frozen = nn.Linear(6, 6)
            self.body = nn.Linear(6, 6)
            self.head = nn.Linear(6, 11, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens: Any) -> Any:
            return self.head(self.body(self.frozen(self.embedding(tokens))))

    model = Tied()
    model.frozen.requires_grad_(False)
    optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1)
    watch = sampled.watch(model, optimizer)
    torch.nn.functional.cross_entropy(model(torch.arange(11)), torch.arange(11)).backward()
    weights = norm(model.parameters())
    assert len(list(model.parameters())) == 5
    optimizer.step()
    watch.close()
    assert sampled.layers_of("dl.grad.norm") == ["embedding", "body"]
    assert sampled.layers_of("dl.update.ratio") == ["embedding", "body"]
    assert sampled.layers_of("dl.weight.norm") == ["embedding", "frozen", "body"]
    assert sampled.layers_of("dl.grad.distribution") == ["embedding", "body"]
    assert sampled.values("dl.weight.norm") == [pytest.approx(weights, rel=1e-6)]
    assert sampled.values("dl.weight.norm", "frozen") == [pytest.approx(norm(model.frozen.parameters()), rel=1e-6)]
    tied = [model.embedding.weight.grad]
    assert sampled.values("dl.grad.norm", "embedding") == [pytest.approx(norm(tied), rel=1e-6)]
    (layers, _), *_ = sampled.layers
    assert (layers.labels, layers.frozen) == (("embedding", "frozen", "body"), ("frozen",))


def test_the_ratio_is_that_of_what_has_a_gradient(sampled: Sampled) -> None:
    """A frozen bias beside a trained weight does not make the ratio smaller."""
    model = nn.Linear(4, 4)
    model.bias.requires_grad_(False)
    with torch.no_grad():
        model.bias.fill_(1e6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    watch = sampled.watch(model, optimizer)
    old = model.weight.detach().clone()
    train_step(model, optimizer, *batch(4, 4))
    watch.close()
    expected = norm([model.weight.detach().double() - old.double()]) / norm([old])
    assert sampled.values("dl.update.ratio") == [pytest.approx(expected, rel=1e-5)]


def test_several_optimizers_tell_of_their_own_parameters(sampled: Sampled) -> None:
    """Two halves with an optimizer each, the second one stepping half as often: each has its own series."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    body = torch.optim.SGD(model[0].parameters(), lr=0.1)
    head = torch.optim.SGD(model[2].parameters(), lr=0.1)
    watch = sampled.watch(model, {"body": body, "head": head})
    expected: dict[str, list[float]] = {"body": [], "head": []}
    for step in range(4):
        torch.nn.functional.mse_loss(model(torch.randn(16, 8)), torch.randn(16, 4)).backward()
        for name, optimizer, part in (("body", body, model[0]), ("head", head, model[2])):
            if name == "body" or step % 2:
                expected[name].append(norm([one.grad for one in part.parameters()]))
                optimizer.step()
                optimizer.zero_grad()
    watch.close()
    for name, values in expected.items():
        assert sampled.values("dl.grad.norm", optimizer=name) == pytest.approx(values, rel=1e-6)
    assert sampled.values("dl.grad.norm", "0", optimizer="body") == pytest.approx(expected["body"], rel=1e-6)
    assert sampled.values("dl.grad.norm", "0", optimizer="head") == []
    assert sampled.values("dl.optimizer.tried", optimizer="head") == [1, 2]


def test_parameters_of_an_optimizer_that_are_not_the_models_do_not_count(sampled: Sampled) -> None:
    """One optimizer for two models, one of them watched."""
    model, other = nn.Linear(4, 4), nn.Linear(4, 4)
    optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    watch = sampled.watch(model, optimizer)
    optimizer.zero_grad()
    other(model(torch.randn(8, 4))).square().mean().backward()
    optimizer.step()
    watch.close()
    assert sampled.values("dl.grad.norm") == [pytest.approx(norm([p.grad for p in model.parameters()]), rel=1e-6)]


def test_modules_made_later_are_seen_at_the_next_sampling(sampled: Sampled) -> None:
    """A layer that is added after the first step, with its own parameter group."""
    model = nn.Sequential(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = sampled.watch(model, optimizer)
    train_step(model, optimizer, *batch(8, 8))
    model.append(nn.Linear(8, 4))
    optimizer.add_param_group({"params": model[1].parameters()})
    train_step(model, optimizer, *batch())
    watch.close()
    assert sampled.layers_of("dl.grad.norm") == ["0", "1"]
    assert len(sampled.values("dl.grad.norm", "0")) == 2
    assert sampled.values("dl.grad.norm", "1") == [pytest.approx(norm([p.grad for p in model[1].parameters()]))]
    assert [layers.labels for layers, _ in sampled.layers][-1] == ("0", "1")


def test_the_closure_of_lbfgs_gives_the_gradient_at_the_first_look(sampled: Sampled) -> None:
    """Its gradients are made within the step: that at the weights before it, and the whole step's update."""
    model = nn.Linear(6, 3)
    inputs, targets = batch(6, 3)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)
    watch = sampled.watch(model, optimizer)
    looks = []

    def closure() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        looks.append(norm([one.grad for one in model.parameters()]))
        return loss

    for step in range(2):
        old = copy.deepcopy(model)
        looks.clear()
        returned = optimizer.step(closure)
        assert len(looks) > 1
        assert isinstance(returned, torch.Tensor)
        assert sampled.values("dl.grad.norm")[step] == pytest.approx(looks[0], rel=1e-6)
        moved = [new.double() - past.double() for new, past in zip(model.parameters(), old.parameters(), strict=True)]
        ratio = norm(moved) / norm(old.parameters())
        assert sampled.values("dl.update.ratio")[step] == pytest.approx(ratio, rel=1e-5)
    watch.close()


def test_a_closure_by_name_that_clips_gives_both_norms(sampled: Sampled) -> None:
    """As Lightning does it: forward, backward and clipping within the closure of a plain optimizer."""
    model = network(8, 16, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    watch = sampled.watch(model, optimizer)
    totals = []

    def closure() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(torch.randn(16, 8)), torch.randn(16, 4))
        loss.backward()
        totals.append(float(clip_grad_norm_(model.parameters(), 0.01)))
        return loss

    optimizer.step(closure=closure)
    optimizer.step(closure=closure)
    watch.close()
    assert sampled.values("dl.grad.norm") == pytest.approx(totals, rel=1e-6)
    assert sampled.values("dl.grad.norm.clipped") == pytest.approx([0.01, 0.01], rel=1e-3)


# Sick networks -------------------------------------------------------------------------------------------------------


def deep(gain: float, layers: int = 12) -> Any:
    model = nn.Sequential(*[nn.Linear(16, 16, bias=False) for _ in range(layers)])
    with torch.no_grad():
        for layer in model:
            layer.weight.copy_(gain * torch.linalg.qr(torch.randn(16, 16)).Q)
    return model


@pytest.mark.parametrize("gain", [60.0, 0.001])
def test_exploding_and_vanishing_gradients_are_right_in_each_layer(sampled: Sampled, gain: float) -> None:
    """Norms from about 1e20 and down to about 1e-33, where squares in 32 bits are infinite or zero."""
    model = deep(gain)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    watch = sampled.watch(model, optimizer)
    model(torch.randn(4, 16)).sum().backward()
    optimizer.step()
    watch.close()
    for layer in range(12):
        expected = norm([model[layer].weight.grad])
        assert math.isfinite(expected)
        assert expected > 0
        assert sampled.values("dl.grad.norm", str(layer)) == [pytest.approx(expected, rel=1e-5)]
    whole = norm([one.grad for one in model.parameters()])
    assert (whole > 1e19) if gain > 1 else (whole < 1e-30)
    assert sampled.values("dl.grad.norm") == [pytest.approx(whole, rel=1e-5)]
    assert sampled.values("dl.grad.nonfinite", "0") == []


def test_a_gradient_that_is_not_finite_is_named_where_it_began(sampled: Sampled) -> None:
    """NaN is born in the middle, of a layer that is defined last: those before it get it too, those after do not."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(8, 4)
            self.first = nn.Linear(8, 8)
            self.middle = nn.Linear(8, 8)
            self.bad = False

        def forward(self, inputs: Any) -> Any:
            hidden = self.middle(self.first(inputs))
            if self.bad:
                # Its value is finite, its gradient is 0 * inf.
                hidden = hidden + torch.sqrt(0.0 * hidden.square())
            return self.head(hidden)

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    watch = sampled.watch(model, optimizer)
    weights = copy.deepcopy(model.state_dict())
    for bad in (False, True, True):
        model.bad = bad
        train_step(model, optimizer, *batch())
        model.load_state_dict(weights)
    watch.close()
    assert math.isfinite(sampled.values("dl.grad.norm")[0])
    assert [math.isnan(value) for value in sampled.values("dl.grad.norm")] == [False, True, True]
    assert [math.isnan(value) for value in sampled.values("dl.grad.norm", "head")] == [False, False, False]
    assert sampled.layers_of("dl.grad.nonfinite") == ["middle"]
    assert sampled.values("dl.grad.nonfinite", "middle") == [1, 2]
    (occurrence,) = [one for read in sampled.reads for one in read.occurrences]
    assert occurrence.event == "gradient.nonfinite"
    assert occurrence.body == "the gradient is not finite; it began in middle (2 of 3 layers)"
    assert occurrence.attributes == {"layer": "middle", "layers": 2}
    # What is not finite is in no bucket, and in no sum.
    counted = sampled.distribution("dl.grad.distribution", "middle")
    assert counted.count == 8 * 8 + 8
    assert math.isfinite(counted.sum)


# Without an optimizer of torch's -------------------------------------------------------------------------------------


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_without_an_optimizer_weights_moved_by_hand_make_the_step(sampled: Sampled, micro_batches: int) -> None:
    """Gradient, weight and ratio of every second step, all its micro-batches; evaluation counts for nothing."""
    model = network(8, 16, 4)
    watch = sampled.watch(model, None, every=2)
    expected = []
    for step in range(5):
        before = copy.deepcopy(model)
        for _ in range(micro_batches):
            torch.nn.functional.mse_loss(model(torch.randn(16, 8)), torch.randn(16, 4)).backward()
        gradient = norm([one.grad for one in model.parameters()])
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
        moved = [new.double() - old.double() for new, old in zip(model.parameters(), before.parameters(), strict=True)]
        if step % 2 == 0:
            expected.append((gradient, norm(before.parameters()), norm(moved) / norm(before.parameters())))
        model.eval()
        model(torch.randn(2, 8))
        model.train()
        with torch.no_grad():
            model(torch.randn(2, 8))
    watch.close()
    for place, name in enumerate(("dl.grad.norm", "dl.weight.norm", "dl.update.ratio")):
        assert sampled.values(name) == pytest.approx([row[place] for row in expected], rel=1e-5)
    assert len(sampled.values("dl.activation.dead", "1")) == 3
    assert sampled.values("dl.optimizer.step") == []


def test_an_optimizer_is_found_at_its_first_step_with_accumulation(sampled: Sampled) -> None:
    """No optimizer is given: from its first step on it alone counts, and one of another model is left alone."""
    model, other = network(8, 16, 4), nn.Linear(4, 4)
    watch = sampled.watch(model, None)
    foreign = torch.optim.SGD(other.parameters(), lr=0.1)
    other(torch.randn(2, 4)).sum().backward()
    foreign.step()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected = []
    for _ in range(2):
        optimizer.zero_grad()
        for _ in range(2):
            torch.nn.functional.mse_loss(model(torch.randn(16, 8)), torch.randn(16, 4)).backward()
        expected.append(norm([one.grad for one in model.parameters()]))
        optimizer.step()
    watch.close()
    assert sampled.values("dl.grad.norm") == pytest.approx(expected, rel=1e-6)
    assert sampled.done == [1, 2]
    assert len(foreign._optimizer_step_pre_hooks) == 0


def test_an_optimizer_for_each_parameter_makes_no_series_without_end(sampled: Sampled) -> None:
    """Ten optimizers of one model, found one by one: eight are watched, and that is said."""
    model = network(*[4] * 6)
    watch = sampled.watch(model, None)
    model(torch.randn(3, 4)).square().mean().backward()
    for parameter in model.parameters():
        torch.optim.SGD([parameter], lr=0.1).step()
    watch.close()
    named = {dict(one.attributes).get("optimizer") for read in sampled.reads for one in read.points}
    assert named == {None, *map(str, range(1, 8))}
    assert sampled.said[:1] == ["watch: more than 8 optimizers train one model; the others are not watched"]


# Tensors of all kinds ------------------------------------------------------------------------------------------------


def test_norms_of_all_kinds_of_tensors_at_once() -> None:
    """Half, bfloat16, double, empty and huge ones in one call."""
    tensors = [
        torch.full((1000,), 300.0, dtype=torch.float16),
        torch.ones(7, dtype=torch.bfloat16),
        torch.full((3,), 1e200, dtype=torch.float64),
        torch.empty(0),
        torch.full((5,), 1e25),
        torch.full((5,), 1e-30),
    ]
    (norms,) = norms_of(tensors)
    assert norms.places == [0, 1, 2, 3, 4, 5]
    expected = [float(one.double().norm()) for one in tensors]
    assert norms.vector.tolist() == pytest.approx(expected, rel=1e-6)


def test_sparse_gradients_on_the_cpu_are_read_with_their_repeats_added(sampled: Sampled) -> None:
    """A token that occurs twice has one gradient, the sum."""
    model = nn.Embedding(10, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.1)
    watch = sampled.watch(model, optimizer)
    model(torch.tensor([1, 1, 2])).sum().backward()
    optimizer.step()
    watch.close()
    assert sampled.values("dl.grad.norm") == [pytest.approx(math.sqrt(4 * 2**2 + 4 * 1), rel=1e-6)]


def test_complex_parameters_count_both_their_parts(sampled: Sampled) -> None:
    """The norm of a complex tensor is that of its parts."""
    model = nn.Module()
    model.register_parameter("weight", nn.Parameter(torch.tensor([3 + 4j, 0j])))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = sampled.watch(model, optimizer)
    model.weight.abs().sum().backward()
    optimizer.step()
    watch.close()
    assert sampled.values("dl.weight.norm") == [pytest.approx(5.0)]
