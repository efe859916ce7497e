"""Which layers there are under which names, and that there are never more than 64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from otel_train.testing import recorded
from otel_train.watch.model_layers import MOST_LAYERS, grouped, survey
from tests.model_watching import Sampled, network, sampled, train_step

torch: Any = pytest.importorskip("torch")
nn = torch.nn

__all__ = ["sampled"]


def test_up_to_sixty_four_layers_are_each_their_own() -> None:
    """The names of the modules that own parameters, in order of definition."""
    model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(64)])
    layers = survey(model)
    assert layers.labels == tuple(str(number) for number in range(64))
    assert layers.groups == {}


def test_of_more_layers_whole_blocks_are_told() -> None:
    """A transformer of twelve blocks with seven layers each: cut after the block's number; what has none stays."""
    parts = ("attention.query", "attention.key", "attention.value", "norm", "mlp.0", "mlp.2", "out")
    names = ["embedding", *(f"encoder.layers.{n}.{part}" for n in range(12) for part in parts), "head"]
    labels = grouped(names)
    assert list(dict.fromkeys(labels.values())) == [
        "embedding",
        *(f"encoder.layers.{n}" for n in range(12)),
        "head",
    ]


def test_the_innermost_number_is_cut_last() -> None:
    """Stages of blocks of two layers: the blocks remain as long as they are few enough."""
    names = [f"stages.{s}.blocks.{b}.{part}" for s in range(4) for b in range(10) for part in ("conv", "norm")]
    assert set(grouped(names).values()) == {f"stages.{s}.blocks.{b}" for s in range(4) for b in range(10)}
    assert set(grouped(names, 12).values()) == {f"stages.{s}" for s in range(4)}


def test_neighbours_are_put_together_where_blocks_are_too_many() -> None:
    """Two hundred layers in a row: fifty groups of four neighbours."""
    labels = grouped([str(number) for number in range(200)])
    assert list(dict.fromkeys(labels.values())) == [f"{n}-{n + 3}" for n in range(0, 200, 4)]
    assert labels["7"] == "4-7"
    blocks = grouped([f"layers.{number}.{part}" for number in range(130) for part in "ab"])
    assert blocks["layers.129.b"] == "layers.129"
    assert blocks["layers.5.a"] == "layers.3-5"


@pytest.mark.parametrize(
    "names",
    [
        [f"name{number}" for number in range(500)],
        [f"a{number}.b{number}.c" for number in range(500)],
        [f"a{number % 90}.{number}" for number in range(500)],
        [f"a{number}.0.b.1.c" for number in range(300)],
        [".".join(str((number >> bit) & 1) for bit in range(9)) for number in range(512)],
    ],
)
def test_there_are_never_more_groups_than_allowed(names: list[str]) -> None:
    """Names without numbers, or with too many parents for them: coarser, until they are few enough."""
    labels = grouped(names)
    assert set(labels) == set(names)
    assert 1 < len(set(labels.values())) <= MOST_LAYERS


def test_wrappers_leave_no_trace_in_the_names() -> None:
    """torch.compile, data parallelism and checkpointing put modules of their own in between."""
    model = network(4, 4, 2)
    assert survey(torch.compile(model, backend="eager")).labels == ("0", "2")
    # Else the tests that follow would count as compiling too.
    torch._dynamo.reset()
    assert survey(nn.DataParallel(model)).labels == ("0", "2")
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    assert survey(nn.Sequential(checkpoint_wrapper(nn.Linear(2, 2)))).labels == ("0",)
    assert survey(nn.Linear(2, 2)).labels == ("(model)",)


def test_lazy_and_empty_modules_come_once_they_have_values() -> None:
    """A lazy layer has no size before its first call; one on the meta device never has numbers."""
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 2), nn.Linear(2, 2, device="meta"))
    assert survey(model).labels == ("2",)
    model[:3](torch.randn(2, 3))
    assert survey(model).labels == ("0", "2")


def test_two_hundred_layers_are_recorded_as_blocks_and_the_run_says_so(start: Callable[..., Any]) -> None:
    """Series of at most 64 layers, right by group; run.json and a notice list what is put together."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(3, 3), nn.ReLU()) for _ in range(200)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = start()
    run.watch(model, optimizer)
    train_step(model, optimizer, torch.randn(4, 3), torch.randn(4, 3))
    record = recorded(run)
    run.finish()
    layers = {point.attributes["layer"] for point in record.named("dl.weight.norm") if "layer" in point.attributes}
    assert len(layers) == 50
    assert len({point.attributes["layer"] for point in record.named("dl.activation.dead")}) == 50
    (first,) = [point for point in record.named("dl.weight.norm") if point.attributes.get("layer") == "0-3"]
    squares = sum(float(one.detach().double().square().sum()) for block in model[:4] for one in block.parameters())
    # The weights before the step, which moved them by next to nothing: two hundred layers let no gradient through.
    assert first.value == pytest.approx(squares**0.5, rel=1e-4)
    notices = [log.body for log in record.events("otel_train.notice")]
    assert any("model has 200 layers, more than 64: they are recorded as 50 groups, 0-3, 4-7" in one for one in notices)
    watched = recorded(record.path).info["attempts"][0]["watched"]["model"]
    assert watched["groups"]["0-3"] == 4
    assert watched["activation_groups"]["4-7"] == 4
    assert len(watched["layers"]) == 50


def test_frozen_layers_are_said(start: Callable[..., Any]) -> None:
    """run.json and a notice name the layers that no gradient reaches."""
    model = network(4, 4, 2)
    model[0].requires_grad_(False)
    with start() as run:
        run.watch(model, torch.optim.SGD(model.parameters(), lr=0.1), name="net")
    record = recorded(run)
    assert record.info["attempts"][0]["watched"]["net"]["frozen"] == ["0"]
    (notice,) = [log.body for log in record.events("otel_train.notice")]
    assert notice == "watch: frozen, and so without a gradient, in net: 0"


def test_layers_are_told_anew_where_a_layer_is_thawed(sampled: Sampled) -> None:
    """Gradual unfreezing: the layer has a gradient from then on, and is no longer called frozen."""
    model = network(4, 4, 2)
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = sampled.watch(model, optimizer)
    train_step(model, optimizer, torch.randn(4, 4), torch.randn(4, 2))
    model[0].requires_grad_(True)
    train_step(model, optimizer, torch.randn(4, 4), torch.randn(4, 2))
    watch.close()
    assert [layers.frozen for layers, _ in sampled.layers] == [("0",), ("0",), ()]
    assert len(sampled.values("dl.grad.norm", "0")) == 1
    assert len(sampled.values("dl.grad.norm", "2")) == 2


def test_a_lazy_layer_counts_once_its_first_pass_has_made_it(sampled: Sampled) -> None:
    """Its parameter takes no hook before; the first step's norms hold its gradient all the same."""
    model = nn.Sequential(nn.LazyLinear(6), nn.ReLU(), nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    watch = sampled.watch(model, optimizer)
    inputs, targets = torch.randn(4, 5), torch.randn(4, 2)
    for _ in range(2):
        train_step(model, optimizer, inputs, targets)
    watch.close()
    expected = sum(float(one.grad.double().square().sum()) for one in model[0].parameters()) ** 0.5
    assert sampled.values("dl.grad.norm", "0") == [pytest.approx(expected, rel=1e-6)] * 2
    assert sampled.guard.faults == 0
