"""What `run.steps` learns of the size of its batches, and what the buffer holds of it."""

from __future__ import annotations

from collections import UserDict, namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from otel_train.record.amounts import AmountLog, BatchSize
from otel_train.record.batch_sizes import size_of
from otel_train.record.buffer import SLOTS
from otel_train.record.digest import StepFacts
from otel_train.record.steps import StepLoop
from tests.recording import Recording


class Shaped:
    """A tensor that has a shape and may not be looked into: that could make the host wait for a device."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def _refuse(self, *arguments: Any) -> Any:
        raise AssertionError("a value was asked for")

    __bool__ = __float__ = __int__ = __len__ = __iter__ = __getitem__ = item = tolist = cpu = _refuse


Pair = namedtuple("Pair", "images labels")
Packed = namedtuple("Packed", "data batch_sizes")


class Encoding(UserDict[str, Any]):
    """As tokenizers give it: a mapping that is no dict."""


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (Shaped(32, 3, 8, 8), (32, None)),
        ((Shaped(16, 4), Shaped(16)), (16, None)),
        ([Shaped(16, 4), Shaped(16)], (16, None)),
        (Pair(Shaped(5, 2), Shaped(5)), (5, None)),
        ({"image": Shaped(7, 3), "label": Shaped(7)}, (7, None)),
        ({"name": "a", "x": Shaped(7, 3)}, (7, None)),
        ({"attention_mask": Shaped(4, 9), "input_ids": Shaped(4, 10)}, (4, 40)),
        (Encoding(input_ids=Shaped(4, 10)), (4, 40)),
        ({"input_ids": Shaped(2, 3, 10)}, (2, 60)),
        ({"input_ids": Shaped(4096)}, (None, 4096)),
        (({"input_ids": Shaped(4, 10)}, Shaped(4)), (4, 40)),
        ({"inputs": {"input_ids": Shaped(4, 10)}}, (4, 40)),
        # Texts beside labels; pictures of their own sizes beside their boxes; samples that nobody put together.
        ((["one", "two", "three"], Shaped(3)), (3, None)),
        (([Shaped(3, 8, 8), Shaped(3, 9, 9)], [{}, {}]), (2, None)),
        ([{"x": Shaped(1)}, {"x": Shaped(1)}, {"x": Shaped(1)}], (3, None)),
        ([(Shaped(3, 8), 1), (Shaped(3, 8), 0)], (2, None)),
        ([Shaped(3), Shaped(5), Shaped(4)], (3, None)),
        # What says nothing of samples.
        (3, (None, None)),
        ("text", (None, None)),
        (None, (None, None)),
        ([], (None, None)),
        ({}, (None, None)),
        (Shaped(), (None, None)),
        ((1, 2), (None, None)),
        (Packed(Shaped(100, 5), Shaped(20)), (None, None)),
    ],
)
def test_a_batch_says_its_size_by_its_shape(batch: Any, size: tuple[int | None, int | None]) -> None:
    """Samples and tokens, of shapes and lengths alone: no value is looked at."""
    assert size_of(batch) == size


def test_torch_and_numpy_are_understood() -> None:
    """The real things."""
    torch = pytest.importorskip("torch")
    numpy = pytest.importorskip("numpy")
    assert size_of([torch.zeros(12, 3), torch.zeros(12)]) == (12, None)
    assert size_of({"input_ids": torch.zeros(3, 5, dtype=torch.long)}) == (3, 15)
    assert size_of((numpy.zeros((6, 2)), numpy.zeros(6))) == (6, None)
    packed = torch.nn.utils.rnn.pack_sequence([torch.zeros(4), torch.zeros(2)])
    assert size_of(packed) == (None, None)


def _sizes(recording: Recording) -> list[tuple[bool, int, Any, Any]]:
    entries = recording.buffer.entries
    return [
        (entries[at].begins, *entries[at + 1 : at + 2], *entries[at + 3 : at + 5])
        for at in range(0, len(entries), SLOTS)
        if type(entries[at]) is BatchSize
    ]


def test_a_size_is_noted_at_the_first_batch_and_where_it_changes() -> None:
    """Three batches of 32 and a last one of 7, twice: two entries an epoch, not four."""
    recording = Recording()
    for _ in range(2):
        for _ in StepLoop([Shaped(32, 2)] * 3 + [Shaped(7, 2)], recording.log):
            pass
    assert _sizes(recording) == [(True, 0, 32, None), (False, 3, 7, None), (True, 4, 32, None), (False, 7, 7, None)]


def test_batches_of_another_kind_are_looked_at_anew() -> None:
    """A mapping follows a tensor, then something that says nothing, then a tensor again, which is not looked at."""
    recording = Recording()
    batches = [Shaped(4), {"input_ids": Shaped(2, 8)}, 5, Shaped(4)]
    for _ in StepLoop(batches, recording.log):
        pass
    assert _sizes(recording) == [(True, 0, 4, None), (False, 1, 2, 16), (False, 2, None, None)]
    assert [(facts.samples, facts.tokens) for facts in recording.take().steps] == [
        (4, None),
        (2, 16),
        (None, None),
        (None, None),
    ]


class Hostile:
    """A batch that raises whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"no {name} here")


def test_a_batch_that_raises_costs_training_nothing() -> None:
    """It reaches the loop's body all the same, and its step is timed."""
    recording = Recording()
    seen = [type(batch) for batch in StepLoop([Hostile(), Hostile()], recording.log)]
    assert seen == [Hostile, Hostile]
    assert len(recording.take().steps) == 2


def _steps(recording: Recording) -> list[tuple[int, int | None, int | None, bool]]:
    return [(facts.step, facts.samples, facts.tokens, facts.ends_update) for facts in recording.take().steps]


def test_counts_belong_to_the_step_in_which_they_were_made() -> None:
    """Tokens are counted in steps 1 and 2, twice in the latter; the next step has what its shape says again."""
    recording = Recording()
    amounts = AmountLog(recording.log)
    for step, _ in enumerate(StepLoop([{"input_ids": Shaped(2, 10)}] * 4, recording.log, accumulate=2)):
        if step == 1:
            amounts.count(None, 13)
        if step == 2:
            amounts.count(None, 5)
            amounts.count(1, 6)
    assert _steps(recording) == [(0, 2, 20, False), (1, 2, 13, True), (2, 1, 11, False), (3, 2, 20, True)]


def test_an_evaluation_within_a_step_takes_nothing_of_its_count() -> None:
    """A loop over validation stands between the count and the step's end."""
    recording = Recording()
    amounts = AmountLog(recording.log)
    for _ in StepLoop([0, 0], recording.log):
        amounts.count(9, None)
        for _ in StepLoop([Shaped(100)], recording.log, split="val", owns_step=False):
            pass
    facts: list[StepFacts] = recording.take().steps
    assert [(one.split, one.samples) for one in facts] == [("val", None), ("train", 9), ("val", None), ("train", 9)]


def test_nothing_is_counted_while_training_rests() -> None:
    """The run evaluates: what is counted then is not training's."""
    recording = Recording()
    rests = [True]
    amounts = AmountLog(recording.log, aside=lambda: rests[0])
    for _ in StepLoop([0, 0], recording.log):
        amounts.count(9, None)
        rests[0] = not rests[0]
    assert [samples for _, samples, _, _ in _steps(recording)] == [None, 9]


class OnDevice:
    """What a copy from a device gives, once it has arrived."""

    def __init__(self, numbers: list[float]) -> None:
        self.arrived = False
        self._numbers = numbers

    def ready(self) -> bool:
        return self.arrived

    def numbers(self) -> list[float]:
        assert self.arrived
        return self._numbers


class DeviceTensor(Shaped):
    """A number that is still on a device."""

    is_cpu = False
    dtype = "torch.int64"

    def __init__(self) -> None:
        super().__init__()
        self.device = type("Device", (), {"type": "cuda", "__str__": lambda self: "cuda:0"})()

    def numel(self) -> int:
        return 1


def test_a_count_on_a_device_is_read_when_it_has_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens are summed on the device: the step waits for them in the writer, and training for nothing."""
    from otel_train.record import amounts as module
    from otel_train.record.deferred import DeviceReader

    copied = OnDevice([128.0])

    class Backend:
        def copy(self, tensors: Any) -> OnDevice:
            return copied

    # What torch makes of it is no matter here.
    monkeypatch.setattr(module, "is_device_tensor", lambda value: isinstance(value, DeviceTensor))
    recording = Recording()
    amounts = AmountLog(recording.log, device=DeviceReader(Backend()))
    for _ in StepLoop([Shaped(4)], recording.log):
        amounts.count(None, DeviceTensor())
    assert recording.take().steps == []
    assert recording.digest.waiting == 2
    copied.arrived = True
    assert _steps(recording) == [(0, 4, 128, True)]


def test_the_size_of_the_present_batch_is_known_to_its_own_thread() -> None:
    """As the counting of FLOPs asks for it; outside of a loop it is not known."""
    recording = Recording()
    seen = [recording.log.present_size() for _ in StepLoop([Shaped(3), Shaped(4)], recording.log)]
    assert seen == [(3, None), (4, None)]
    assert recording.log.present_size() == (None, None)


def test_a_full_buffer_counts_what_it_drops() -> None:
    """No room: the count is dropped and said so; the loop goes on."""
    recording = Recording(capacity=1)
    recording.log.log({"loss": 1.0})
    AmountLog(recording.log).count(5, None)
    assert recording.buffer.dropped == {"buffer full": 1}


def test_a_loader_of_torch_with_workers_is_counted(start: Callable[..., Any]) -> None:
    """A real DataLoader: 50 rows in batches of 16, the last one 2; and what the run writes of them."""
    torch = pytest.importorskip("torch")
    from otel_train.testing import recorded

    torch.set_num_threads(1)
    data = torch.utils.data.TensorDataset(torch.zeros(50, 4), torch.zeros(50))
    run = start()
    for _ in range(2):
        for _ in run.steps(torch.utils.data.DataLoader(data, batch_size=16), accumulate=2):
            pass
        with run.stage("evaluate"):
            for _ in run.steps(torch.utils.data.DataLoader(data, batch_size=16), split="val"):
                run.count(samples=1000)
    run.finish()
    last = {point.name: point.value for point in recorded(run).points if not point.attributes}
    assert last["dl.rank.samples"] == 100
    assert last["dl.micro_step"] == 8
    assert last["dl.optimizer.step"] == 4


def _endless() -> Iterator[int]:
    while True:
        yield 0


@pytest.mark.parametrize("wrong", [0, -4, 2.5, "4", True])
def test_a_wrong_number_of_micro_batches_is_said_at_the_call(start: Callable[..., Any], wrong: Any) -> None:
    """ConfigError names the argument, its value and what to use."""
    from otel_train.errors import ConfigError

    run = start()
    with pytest.raises(ConfigError, match="accumulate=") as raised:
        run.steps(_endless(), accumulate=wrong)
    assert raised.value.value is wrong or raised.value.value == wrong
