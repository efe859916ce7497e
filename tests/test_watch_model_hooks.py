"""What a watch leaves to its user: no hook afterwards, no work between samplings, no fault, models that copy."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import otel_train
from otel_train.errors import ConfigError
from otel_train.run.guard import Guard
from otel_train.testing import recorded
from otel_train.watch import model_activations, model_sampler
from tests.model_watching import Sampled, hooks_of, network, norm, sampled, torch_functions, train_step

torch: Any = pytest.importorskip("torch")
nn = torch.nn

__all__ = ["sampled"]


def batch() -> tuple[Any, Any]:
    return torch.randn(6, 8), torch.randn(6, 4)


def trained(*sizes: int) -> tuple[Any, Any]:
    model = network(*(sizes or (8, 16, 4)))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


# Nothing stays -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("found", [False, True])
def test_unwatch_and_finish_leave_no_hook(start: Callable[..., Any], steps: int, found: bool) -> None:
    """Not on modules, parameters or optimizers, nor in torch's functions; wherever in its round a sampling is."""
    before = torch_functions()
    for ending in ("unwatch", "unwatch it", "finish", "watch anew"):
        model, optimizer = trained()
        run = start()
        run.watch(model, None if found else optimizer, every=2)
        assert hooks_of(model, optimizer) != []
        assert torch_functions() != before
        for _ in range(steps):
            train_step(model, optimizer, *batch(), clip=1.0)
        if ending == "watch anew":
            run.watch(model, optimizer, every=5)
        if ending != "finish":
            run.unwatch(model if ending == "unwatch it" else None)
            assert (hooks_of(model, optimizer), torch_functions()) == ([], before)
            points = len(recorded(run).named("dl.grad.norm"))
            train_step(model, optimizer, *batch())
            assert len(recorded(run).named("dl.grad.norm")) == points
        run.finish()
        assert (hooks_of(model, optimizer), torch_functions()) == ([], before)


def test_hooks_of_the_user_stay(sampled: Sampled) -> None:
    """Only what is ours goes."""
    model, optimizer = trained()
    model[1].register_forward_hook(lambda module, inputs, output: None)
    optimizer.register_step_post_hook(lambda optimizer, arguments, named: None)
    mine = hooks_of(model, optimizer)
    watch = sampled.watch(model, optimizer)
    train_step(model, optimizer, *batch())
    watch.close()
    assert hooks_of(model, optimizer) == mine


def test_a_patch_that_somebody_made_after_ours_is_left_alone(sampled: Sampled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Theirs stays, and ours within it hands through."""
    model, optimizer = trained()
    clip = sys.modules["torch.nn.utils.clip_grad"]
    original = clip._clip_grads_with_norm_
    watch = sampled.watch(model, optimizer)
    ours = clip._clip_grads_with_norm_
    calls = []

    def theirs(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        return ours(*arguments, **named)

    clip._clip_grads_with_norm_ = theirs
    watch.close()
    assert clip._clip_grads_with_norm_ is theirs
    train_step(model, optimizer, *batch(), clip=1e-3)
    assert calls == [1]
    assert norm([one.grad for one in model.parameters()]) == pytest.approx(1e-3, rel=1e-2)
    clip._clip_grads_with_norm_ = original


def test_a_watch_keeps_no_model_alive(sampled: Sampled) -> None:
    """Thrown away between two samplings, model and optimizer are gone at once, as they would be without a watch."""
    model, optimizer = trained()
    watch = sampled.watch(model, optimizer, every=10)
    train_step(model, optimizer, *batch())
    gone = weakref.ref(model), weakref.ref(optimizer)
    del model, optimizer
    gc.collect()
    assert [one() for one in gone] == [None, None]
    assert watch.model is None
    watch.close()


def test_copies_of_weights_are_gone_after_the_step(sampled: Sampled) -> None:
    """Between two samplings no tensor of ours is left that is as large as a weight."""
    model, optimizer = trained(8, 1237, 4)
    watch = sampled.watch(model, optimizer, every=5)

    def large() -> int:
        gc.collect()
        return sum(
            torch.is_tensor(one) and one.numel() == 8 * 1237 for one in gc.get_objects() if type(one) is torch.Tensor
        )

    optimizer.zero_grad()
    before = large()
    train_step(model, optimizer, *batch())
    optimizer.zero_grad()
    assert large() == before
    watch.close()


# Nothing is done between samplings -----------------------------------------------------------------------------------


def test_a_step_that_is_not_sampled_does_nothing_but_count(sampled: Sampled) -> None:
    """No hook stands on modules or parameters, we call no operation of torch's, and nothing is handed over."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Operations(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
            self.names.append(str(function))
            return function(*arguments, **(named or {}))

    def operations(model: Any, optimizer: Any) -> list[str]:
        with Operations() as seen:
            train_step(model, optimizer, *data, clip=1.0)
        return seen.names

    data = batch()
    model, optimizer = trained()
    train_step(model, optimizer, *data)
    plain = operations(model, optimizer)
    watch = sampled.watch(model, optimizer, every=4)
    sampled_step = operations(model, optimizer)
    assert len(sampled_step) > len(plain)
    for _ in range(2):
        assert [hook for hook in hooks_of(model, optimizer) if "optimizer" not in hook] == []
        assert operations(model, optimizer) == plain
    assert len(sampled.readings) == 1
    # Before the next sampled step there are hooks again.
    assert operations(model, optimizer) == plain
    assert [hook for hook in hooks_of(model, optimizer) if "forward" in hook] != []
    # What the first has made for all samplings is not made again.
    assert len(plain) < len(operations(model, optimizer)) <= len(sampled_step)
    watch.close()
    assert len(sampled.readings) == 2


@pytest.mark.gpu
def test_a_sampled_step_on_a_gpu_waits_for_nothing(sampled: Sampled) -> None:
    """Under set_sync_debug_mode("error") a whole step with clipping, all that is recorded switched on."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device: whether a sampled step waits for one cannot be seen here")
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10), nn.ReLU()).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = torch.randn(16, 1, 8, 8, device="cuda")
    watch = sampled.watch(model, optimizer)
    for step in range(4):
        if step == 1:
            torch.cuda.set_sync_debug_mode("error")
        try:
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            optimizer.step()
        except BaseException:
            torch.cuda.set_sync_debug_mode("default")
            raise
    torch.cuda.set_sync_debug_mode("default")
    expected = norm([one.grad for one in model.parameters()])
    torch.cuda.synchronize()
    watch.close()
    assert sampled.values("dl.grad.norm.clipped")[-1] == pytest.approx(expected, rel=1e-5)
    assert len(sampled.values("dl.activation.dead", "1")) == 4
    assert sampled.distribution("dl.grad.distribution", "0").count == 4 * (9 * 8 + 8)


# Faults --------------------------------------------------------------------------------------------------------------


def test_an_activation_that_could_not_be_measured_costs_its_sampling_alone(
    sampled: Sampled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device without memory in the midst of one output: the others count, and the next window is whole again."""
    model, optimizer = trained(8, 16, 4)
    sampled.guard = Guard(raises=False)
    watch = sampled.watch(model, optimizer)
    measure = torch.linalg.vector_norm

    def broken(*arguments: Any, **named: Any) -> Any:
        raise torch.OutOfMemoryError("planted")

    monkeypatch.setattr(torch.linalg, "vector_norm", broken)
    loss = model(batch()[0]).sum()
    monkeypatch.setattr(torch.linalg, "vector_norm", measure)
    loss.backward()
    optimizer.step()
    assert sampled.guard.faults == 1
    assert sampled.values("dl.activation.mean") == []
    assert len(sampled.values("dl.grad.norm")) == 1
    optimizer.zero_grad()
    train_step(model, optimizer, *batch())
    watch.close()
    assert len(sampled.values("dl.activation.mean", "1")) == 1
    assert sampled.guard.faults == 1
    assert hooks_of(model, optimizer) == []


def test_a_last_reading_that_fails_leaves_no_hook(sampled: Sampled, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is lost at the end: what it still had is not handed over, and every hook goes."""
    model, _ = trained()
    sampled.guard = Guard(raises=False)
    watch = sampled.watch(model, None)
    model(batch()[0]).sum().backward()

    def broken(*arguments: Any, **named: Any) -> Any:
        raise RuntimeError("planted")

    monkeypatch.setattr(model_sampler.StepSampler, "hand_over", broken)
    watch.close()
    assert sampled.guard.faults == 1
    assert hooks_of(model) == []


@pytest.mark.parametrize("place", ["survey", "clipping", "norms_of", "count", "activations", "update", "hand over"])
def test_no_fault_of_ours_reaches_training(sampled: Sampled, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Whatever breaks within a sampling: weights are as without a watch, and the fault is counted."""
    model, optimizer = trained()
    twin = copy.deepcopy(model)
    other = torch.optim.SGD(twin.parameters(), lr=0.1)
    data = [batch() for _ in range(3)]
    for one in data:
        train_step(twin, other, *one, clip=0.05)
    sampled.guard = Guard(raises=False)
    watch = sampled.watch(model, optimizer)

    def broken(*arguments: Any, **named: Any) -> Any:
        raise RuntimeError("planted")

    if place == "activations":
        monkeypatch.setattr(model_activations.Activations, "_take_units", broken)
    elif place == "survey":
        monkeypatch.setattr("otel_train.watch.model_watch.survey", broken)
    elif place == "update":
        monkeypatch.setattr(model_sampler.StepSampler, "read_updates", broken)
    elif place == "clipping":
        monkeypatch.setattr(model_sampler.StepSampler, "read_clipped", broken)
    elif place == "hand over":
        monkeypatch.setattr(model_sampler, "ModelReading", broken)
    else:
        monkeypatch.setattr(model_sampler, place, broken)
    for one in data:
        train_step(model, optimizer, *one, clip=0.05)
    watch.close()
    assert sampled.guard.faults >= 1
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert hooks_of(model, optimizer) == []


def test_an_optimizer_that_takes_no_hook_is_trained_with_as_ever(start: Callable[..., Any]) -> None:
    """Some that inherit from torch's never set it up: nothing is raised, nothing is half watched."""

    class Odd(torch.optim.SGD):  # type: ignore[misc]  # a class of torch, known when it runs
        def register_step_post_hook(self, hook: Any) -> Any:
            raise AttributeError("planted")

    before = torch_functions()
    model = network(8, 16, 4)
    optimizer = Odd(model.parameters(), lr=0.1)
    with start() as run:
        run.guard = Guard(raises=False)
        watch = run.watch(model, optimizer)
        assert (watch.closed, run.guard.faults) == (True, 1)
        train_step(model, optimizer, *batch())
        run.watch(model, None)
        train_step(model, optimizer, *batch())
        run.unwatch()
    assert torch_functions() == before
    assert hooks_of(model, optimizer) == []


def test_an_exception_of_the_users_own_passes_through_and_the_next_step_is_right(sampled: Sampled) -> None:
    """A closure that raises within a sampled step: the user sees his exception, and the next step is sampled anew."""
    model, optimizer = trained()
    watch = sampled.watch(model, optimizer)

    def failing() -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        optimizer.step(failing)
    total = train_step(model, optimizer, *batch(), clip=100.0)
    watch.close()
    assert sampled.values("dl.grad.norm") == [pytest.approx(total, rel=1e-6)]


def test_training_is_the_same_with_and_without_a_watch(sampled: Sampled) -> None:
    """Bit by bit, with dropout: no random number is drawn, no weight and no gradient is touched."""
    finals = []
    for watched in (False, True):
        torch.manual_seed(5)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(16, 4))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        watch = sampled.watch(model, optimizer, every=2) if watched else None
        for _ in range(7):
            train_step(model, optimizer, *batch(), clip=0.3)
        if watch is not None:
            watch.close()
        finals.append([*model.parameters(), *(one.grad for one in model.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*finals, strict=True))


# Copies and files of a watched model ---------------------------------------------------------------------------------


def test_a_watched_model_is_copied_and_saved_as_ever(sampled: Sampled, tmp_path: Path) -> None:
    """Copies, pickles and files of the whole model work, give the same outputs, and are watched by nobody."""
    model, optimizer = trained()
    watch = sampled.watch(model, optimizer)
    inputs = torch.randn(3, 8)
    expected = model(inputs).detach()
    copied = copy.deepcopy(model)
    pickled = pickle.loads(pickle.dumps(model))
    torch.save(model, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    copy.deepcopy(optimizer).step()
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
    buffer.seek(0)
    state = torch.load(buffer, weights_only=True)
    assert list(state["model"]) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    for other in (copied, pickled, loaded):
        assert torch.equal(other(inputs), expected)
        other(torch.randn(50, 8)).sum().backward()
    watch.activations.again()
    train_step(model, optimizer, inputs, torch.zeros(3, 4))
    watch.close()
    mean = float(torch.relu(copied[0](inputs)).detach().double().mean())
    assert sampled.values("dl.activation.mean", "1") == [pytest.approx(mean, rel=1e-6)]


@pytest.mark.slow
def test_a_saved_watched_model_loads_where_otel_train_is_not_installed(sampled: Sampled, tmp_path: Path) -> None:
    """The file names nothing of ours."""
    model, optimizer = trained()
    watch = sampled.watch(model, optimizer)
    path = tmp_path / "model.pt"
    torch.save(model, path)
    watch.close()
    text = (
        "import sys, torch\n"
        "sys.modules['otel_train'] = None\n"
        f"model = torch.load({str(path)!r}, weights_only=False)\n"
        "print(model(torch.ones(2, 8)).shape)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout.strip() == "torch.Size([2, 4])", done.stderr


# Arguments -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"model": "resnet"}, "model"),
        ({"every": 0}, "every"),
        ({"every": -3}, "every"),
        ({"every": 2.5}, "every"),
        ({"every": True}, "every"),
        ({"window": 0}, "window"),
        ({"window": 200}, "window"),
        ({"optimizer": "adam"}, "optimizer"),
        ({"optimizer": [None]}, "optimizer"),
        ({"optimizer": []}, "optimizer"),
        ({"optimizer": "other"}, "optimizer"),
        ({"scaler": 1.0}, "scaler"),
        ({"name": ""}, "name"),
        ({"name": 3}, "name"),
    ],
)
def test_a_wrong_argument_is_told_and_nothing_is_changed(
    start: Callable[..., Any], arguments: dict[str, Any], field: str
) -> None:
    """ConfigError names it; the model that is being watched goes on being watched."""
    model, optimizer = trained()
    if arguments.get("optimizer") == "other":
        arguments = {"optimizer": torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)}
    with start() as run:
        run.watch(model, optimizer)
        hooks = hooks_of(model, optimizer)
        with pytest.raises(ConfigError) as told:
            run.watch(**{"model": model, "optimizer": optimizer, **arguments})
        assert told.value.field == field
        assert hooks_of(model, optimizer) == hooks
        train_step(model, optimizer, *batch())
        assert len([one for one in recorded(run).named("dl.grad.norm") if not one.attributes]) == 1


def test_a_second_model_needs_a_name_while_the_first_lives(start: Callable[..., Any]) -> None:
    """Two models under one name would be one series; one that is gone makes room."""
    model, optimizer = trained()
    other, second = trained()
    with start() as run:
        run.watch(model, optimizer)
        with pytest.raises(ConfigError, match="name="):
            run.watch(other, second)
        run.watch(other, second, name="discriminator")
        for one, its in ((model, optimizer), (other, second)):
            train_step(one, its, *batch())
        record = recorded(run)
        expected = {
            None: norm([p.grad for p in model.parameters()]),
            "discriminator": norm([p.grad for p in other.parameters()]),
        }
        wholes = [point for point in record.named("dl.grad.norm") if "layer" not in point.attributes]
        assert {point.attributes.get("model"): point.value for point in wholes} == pytest.approx(expected, rel=1e-6)
        del model, optimizer, one, its
        gc.collect()
        run.watch(*trained())


def test_of_two_models_the_first_tells_of_the_optimizer_steps(start: Callable[..., Any]) -> None:
    """A discriminator makes three steps for each of the generator's: one series, which never goes back."""
    model, optimizer = trained()
    other, second = trained()
    with start() as run:
        run.watch(model, optimizer, every=1)
        run.watch(other, second, every=1, name="generator")
        for _ in range(2):
            for _ in range(3):
                train_step(model, optimizer, *batch())
            train_step(other, second, *batch())
        assert run.optimizer_steps.done == 6
        steps = [one.value for one in recorded(run).named("dl.optimizer.step") if one.step is not None]
        assert steps == [1, 2, 3, 4, 5, 6]
        run.unwatch(model)
        train_step(other, second, *batch())
        assert run.optimizer_steps.done == 3


def test_watching_again_replaces(start: Callable[..., Any]) -> None:
    """The same model with another cadence and name: one watch, not two."""
    model, optimizer = trained()
    with start() as run:
        first = run.watch(model, optimizer, every=1)
        second = run.watch(model, optimizer, every=3, name="net")
        assert (first.closed, second.closed) == (True, False)
        for _ in range(6):
            train_step(model, optimizer, *batch())
        wholes = [one for one in recorded(run).named("dl.grad.norm") if "layer" not in one.attributes]
        assert [one.attributes for one in wholes] == [{"model": "net"}] * 2


def test_points_stand_at_the_runs_step(start: Callable[..., Any]) -> None:
    """Within `run.steps`, with two micro-batches a step: at the micro-batch whose optimizer step it was."""
    model, optimizer = trained()
    with start() as run:
        run.watch(model, optimizer, every=2)
        for number, _ in enumerate(run.steps(range(10), accumulate=2)):
            torch.nn.functional.mse_loss(model(torch.randn(6, 8)), torch.randn(6, 4)).backward()
            if number % 2:
                optimizer.step()
                optimizer.zero_grad()
    record = recorded(run)
    wholes = [one for one in record.named("dl.grad.norm") if "layer" not in one.attributes]
    assert [one.step for one in wholes] == [1, 5, 9]
    counts = [one for one in record.points if one.name == "dl.grad.distribution"]
    assert {one.attributes["layer"] for one in counts} == {"0", "2"}


def test_wrappers_of_frameworks_around_an_optimizer_are_opened(start: Callable[..., Any]) -> None:
    """Accelerate's optimizer is none of torch's own hooks: the one within is watched."""
    accelerate = pytest.importorskip("accelerate")
    model, optimizer = trained()
    prepared_model, prepared = accelerate.Accelerator(cpu=True).prepare(model, optimizer)
    with start() as run:
        run.watch(prepared_model, prepared)
        prepared.zero_grad()
        prepared_model(torch.randn(6, 8)).square().mean().backward()
        prepared.step()
        assert len([one for one in recorded(run).named("dl.grad.norm") if not one.attributes]) == 1


def test_a_disabled_run_watches_nothing(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """With OTEL_SDK_DISABLED neither call does anything, and no hook is made."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    model, optimizer = trained()
    run = otel_train.init()
    watch = run.watch(model, optimizer, every=1)
    assert watch.closed
    watch.close()
    assert hooks_of(model, optimizer) == []
    run.unwatch(model)
    run.finish()
