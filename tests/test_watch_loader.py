"""Watched loaders in one process: their times, that nothing else differs, and which step each batch is placed at."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, DistributedSampler, Subset

from otel_train.record import steps
from otel_train.record.batches import BatchSource, described
from otel_train.record.digest import points_in
from otel_train.record.open_loop import OpenLoop
from otel_train.record.steps import StepLoop
from otel_train.watch.augmentation import TimedTransform, Transforms, augmentation, put_back, spent_here
from otel_train.watch.loader import LoaderWatch
from otel_train.watch.loader_worker import Carrier, TimedFetcher
from tests.loader_data import AtOnce, Fails, HandClock, Pair, Passes, Rows, Stream, Tuples, Watching, collate_pair
from tests.recording import columns_of

TRAIN = (("split", "train"),)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    made = HandClock()
    monkeypatch.setattr(steps, "mono_ns", made.mono_ns)
    return made


def timed(kind: type[Any], clock: HandClock, rows: int = 6, **options: Any) -> Any:
    """A loader of two rows a batch: 5 ms to fetch each, 25 to augment it, 5 to collate both."""
    data = kind(rows, clock, 5.0, Passes(clock, 25.0))
    return DataLoader(data, batch_size=2, collate_fn=Passes(clock, 5.0), **options)


# Times ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Rows, Stream, AtOnce])
def test_fetching_augmenting_and_collating_are_told_apart(kind: type[Any], clock: HandClock) -> None:
    """Two rows of 5 and 25 ms and 5 ms for both: 10, 50 and 5 of 65 ms, all of which training waits; no queue."""
    watching = Watching(clock)
    for _ in watching.steps(timed(kind, clock)):
        clock.pass_ms(100.0)
    assert watching.points("dl.data.fetch.time") == [(0, 0.01), (1, 0.01), (2, 0.01)]
    assert watching.points("dl.data.augment.time") == [(0, 0.05), (1, 0.05), (2, 0.05)]
    assert watching.points("dl.data.collate.time") == [(0, 0.005), (1, 0.005), (2, 0.005)]
    assert watching.points("dl.data.batch.time") == [(0, 0.065), (1, 0.065), (2, 0.065)]
    assert watching.points("dl.data.wait.time") == [(0, 0.065), (1, 0.065), (2, 0.065)]
    assert watching.points("dl.data.queue.time") == []


def test_points_of_a_batch_stand_at_the_end_of_its_step(clock: HandClock) -> None:
    """They have the times of `dl.step.time`, so that one sibling says the step of all."""
    watching = Watching(clock)
    for _ in watching.steps(timed(Rows, clock)):
        clock.pass_ms(100.0)
    columns = {column.name: column for column in columns_of(watching.recording.take(last=True))}
    assert columns["dl.data.fetch.time"].times_ns is columns["dl.step.time"].times_ns
    assert list(columns["dl.step"].times_ns) == [1_165_000_000, 1_330_000_000, 1_495_000_000]


def test_augmentation_that_cannot_be_told_apart_is_part_of_fetching(clock: HandClock) -> None:
    """Without a transform there is no time of one, not one of zero."""
    watching = Watching(clock)
    for _ in watching.steps(DataLoader(Rows(4, clock, 5.0), batch_size=2)):
        pass
    assert watching.seconds("dl.data.fetch.time") == [0.01, 0.01]
    assert watching.seconds("dl.data.augment.time") == []


class ByHand(Rows):
    """Augments in the midst of its own work, and says so."""

    def __getitem__(self, index: Any) -> Any:
        row = super().__getitem__(index)
        with augmentation():
            self.clock.pass_ms(7.0)
            with augmentation():
                self.clock.pass_ms(1.0)
        return self.crop(row)

    def crop(self, row: Any) -> Any:
        self.clock.pass_ms(2.0)
        return row


def test_augmentation_is_told_by_hand(clock: HandClock) -> None:
    """8 ms within the block, of which one in a block within it; 2 ms more in a function once that is wrapped."""
    data = ByHand(2, clock, 5.0)
    for expected in (0.016, 0.02):
        watching = Watching(clock)
        list(watching.steps(DataLoader(data, batch_size=2)))
        assert watching.seconds("dl.data.augment.time") == [expected]
        assert watching.seconds("dl.data.batch.time") == [0.03]
        data.crop = augmentation(data.crop)  # type: ignore[method-assign]  # as a user would
    with augmentation():
        pass
    assert spent_here().depth == 0


def test_transforms_of_data_sets_within_data_sets_are_found(clock: HandClock) -> None:
    """A subset of two joined data sets, one with a transform of 25 ms, one whose target takes 10."""
    one, other = Rows(4, clock, 5.0, Passes(clock, 25.0)), Rows(4, clock, 5.0)
    joined = Subset(ConcatDataset([one, other]), [0, 4, 1, 5])
    watching = Watching(clock)
    list(watching.steps(DataLoader(joined, batch_size=2)))
    assert watching.seconds("dl.data.augment.time") == [0.025, 0.025]
    assert watching.seconds("dl.data.fetch.time") == [0.01, 0.01]


class Looking(Rows):
    """Looks at its own transform while it works, and sets another one at row 2."""

    seen: tuple[Any, ...] = ()

    def __getitem__(self, index: Any) -> Any:
        self.seen += (isinstance(self.transform, Passes), self.transform.milliseconds)  # type: ignore[union-attr]
        if index == 2:
            self.transform = None
            row, self.transform = super().__getitem__(index), self.other
            return row
        return super().__getitem__(index)


def test_a_data_set_finds_its_own_transform(clock: HandClock) -> None:
    """Between batches it is the user's object; within, class and attributes are; what it sets itself stays."""
    mine, other = Passes(clock, 25.0), Passes(clock, 1.0)
    data: Any = Looking(4, clock, 5.0, mine)
    data.other = other
    watching = Watching(clock)
    found = []
    for _ in watching.steps(DataLoader(data, batch_size=1)):
        found.append(data.transform)
    assert found == [mine, mine, other, other]
    assert data.seen == (True, 25.0) * 3 + (True, 1.0)
    assert watching.seconds("dl.data.augment.time") == [0.025, 0.025, 0.0, 0.001]


def test_a_timed_transform_is_the_transform_in_all_but_its_calls(clock: HandClock) -> None:
    """Attributes are read, set and deleted on it; it is pickled and copied with it; faults pass."""
    front = augmentation(Fails("raise", 1))
    assert type(front) is TimedTransform
    assert isinstance(front, Fails)
    front.at = 2
    assert front._otel_train_inner.at == 2
    again = pickle.loads(pickle.dumps(front))
    assert (type(again), again.how, again.at) == (TimedTransform, "raise", 2)
    assert copy.deepcopy(front).at == 2
    assert repr(front) == repr(front._otel_train_inner)
    spent_here().begin(clock.mono_ns)
    with pytest.raises(ValueError, match="row 2 is broken"):
        front(torch.tensor(2.0))
    assert spent_here().depth == 0
    spent_here().end()
    del front.how
    with pytest.raises(AttributeError):
        front.how  # noqa: B018 - that it is not there is the test


def test_data_sets_that_cannot_be_changed_are_left_alone() -> None:
    """Slots, properties, modules and data sets that hold themselves are passed over, and end."""

    class Slots:
        __slots__ = ("transform",)

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.transform = torch.nn.Identity()

    slots, module = Slots(), Module()
    slots.transform = len
    circle = Rows(1)
    circle.dataset = circle  # type: ignore[attr-defined]
    for data in (slots, module, circle, [1, 2], None):
        assert Transforms(data).put_in_front() == []
    assert type(module.transform) is torch.nn.Identity


# Nothing else differs ------------------------------------------------------------------------------------------------


class Custom:
    """A batch of a class of the user's own, which pins itself."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows
        self.pinned = False

    def pin_memory(self) -> Custom:
        self.pinned = True
        return self


LOADERS: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: DataLoader(Rows(7), batch_size=2, shuffle=True),
    "drop_last": lambda: DataLoader(Rows(7), batch_size=2, drop_last=True),
    "no batches": lambda: DataLoader(Rows(3), batch_size=None),
    "batch sampler": lambda: DataLoader(Rows(6), batch_sampler=Tuples()),  # type: ignore[arg-type]
    "getitems": lambda: DataLoader(AtOnce(6), batch_size=4),
    "named tuple": lambda: DataLoader(Rows(6), batch_size=4, collate_fn=collate_pair),
    "stream": lambda: DataLoader(Stream(7), batch_size=2),
    "stream without a part": lambda: DataLoader(Stream(7), batch_size=2, drop_last=True),
    "stream of single rows": lambda: DataLoader(Stream(3), batch_size=None),
    "subset": lambda: DataLoader(Subset(Rows(9), [8, 1, 5]), batch_size=2),
}


def plain(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return (type(batch), batch.tolist(), batch.dtype)
    return (type(batch), [plain(one) for one in batch]) if isinstance(batch, (tuple, list)) else batch


@pytest.mark.parametrize("name", LOADERS)
def test_batches_and_random_numbers_are_those_of_the_loader(name: str) -> None:
    """Types, values, their order, and the state of the generator afterwards, with and without watching."""

    def passed(watch: Callable[[Any], Any]) -> tuple[Any, Any]:
        torch.manual_seed(5)
        batches = [plain(batch) for batch in watch(LOADERS[name]())]
        return batches, torch.rand(3).tolist()

    watching = Watching()
    expected = passed(lambda loader: loader)
    assert passed(watching.steps) == expected
    assert passed(watching.loaders.watch) == expected
    assert len(watching.seconds("dl.data.batch.time")) == 2 * len(expected[0])


def test_a_batch_is_the_very_object_that_was_collated() -> None:
    """Its own class, and no copy; torch's pinning asks it, and not what carries it."""
    made: list[Custom] = []

    def collate(rows: list[Any]) -> Custom:
        made.append(Custom(rows))
        return made[-1]

    watching = Watching()
    batches = watching.steps(DataLoader(Rows(4), batch_size=2, collate_fn=collate))
    assert all(one is other for one, other in zip(batches, made, strict=True))
    assert len(made) == 2
    carried = Carrier(made[0], (1, 2, 3))
    pinned = torch.utils.data._utils.pin_memory.pin_memory(carried, "cuda")
    assert (type(pinned), pinned.times, pinned.batch, made[0].pinned) == (Carrier, (1, 2, 3), made[0], True)


def test_an_iterator_is_called_as_torchs_own() -> None:
    """A profiler's label, and whoever looks at the type's name, see what they see without us."""
    loader: Any = DataLoader(Rows(4))
    own = iter(loader)
    watched = Watching().loaders.open(loader, "train")
    assert isinstance(watched, type(own))
    assert type(watched).__name__ == type(own).__name__
    assert watched._profile_name == own._profile_name  # type: ignore[attr-defined]


def test_a_loader_is_unchanged_while_and_after_a_loop_goes_through_it() -> None:
    """No attribute of ours is left as soon as there is an iterator, nor after one that could not be made."""
    watching = Watching()
    loader: Any = DataLoader(Rows(4), batch_size=2)
    before = dict(vars(loader))
    for _ in watching.steps(loader):
        assert vars(loader) == before

    class Broken(Rows):
        def __len__(self) -> int:
            raise OSError("no index")

    broken: Any = DataLoader(Broken(4), batch_size=2)
    with pytest.raises(OSError, match="no index"):
        list(watching.steps(broken))
    assert "_get_iterator" not in vars(broken)


def test_a_loop_keeps_nothing_alive() -> None:
    """Loader and batches go with their last reference: no cycle waits for the collector."""
    watching = Watching()
    loader: Any = DataLoader(Rows(4), batch_size=2, collate_fn=Custom)
    gone: list[Any] = []
    gc.disable()
    try:
        for batch in watching.steps(loader):
            gone.append(weakref.ref(batch))
        watching.loaders.watch(loader)
        gone.append(weakref.ref(loader))
        watching.recording.buffer.drain()
        del batch, loader
        assert [reference() for reference in gone] == [None] * 3
    finally:
        gc.enable()


# watch_data ----------------------------------------------------------------------------------------------------------


def test_a_watched_loader_is_the_loader_itself(clock: HandClock) -> None:
    """The same object; its sampler's epoch is set as ever; each of its iterators is timed, until it is let go."""
    watching = Watching(clock)
    data = Rows(4, clock, 5.0)
    sampler = DistributedSampler(data, num_replicas=2, rank=1, shuffle=True, seed=3)
    loader: Any = DataLoader(data, batch_size=1, sampler=sampler)
    assert watching.loaders.watch(loader) is loader
    loader.sampler.set_epoch(2)
    assert sampler.epoch == 2
    assert len(loader) == 2
    one, other = iter(loader), iter(loader)
    assert next(one) == next(other)
    assert watching.loaders.unwatch(loader)
    assert "_get_iterator" not in vars(loader)
    assert not watching.loaders.unwatch(loader)
    list(loader)
    list(one)
    assert watching.seconds("dl.data.fetch.time") == [0.005] * 2


def test_a_loop_by_hand_places_a_batch_where_its_numbers_go(clock: HandClock) -> None:
    """Batch by batch: its times and the wait for it stand at the step of the call of `log` that follows it."""
    watching = Watching(clock)
    log = watching.recording.log
    for _ in watching.loaders.watch(timed(Rows, clock)):
        log.log({"loss": 1.0})
    for _ in watching.loaders.watch(timed(Rows, clock, rows=2), name="valid"):
        pass
    log.log({"loss": 1.0}, split="val")
    assert watching.points("dl.data.batch.time") == [(0, 0.065), (1, 0.065), (2, 0.065)]
    assert watching.points("dl.data.wait.time") == [(0, 0.065), (1, 0.065), (2, 0.065)]
    assert watching.points("dl.data.batch.time", split="val") == [(2, 0.065)]


def test_loaders_are_told_apart_by_name(clock: HandClock) -> None:
    """Two loaders side by side in one loop: each has its series, at the same steps."""
    watching = Watching(clock)
    labelled = watching.loaders.watch(DataLoader(Rows(4, clock, 5.0), batch_size=2), name="labelled")
    unlabelled = watching.loaders.watch(DataLoader(Rows(4, clock, 1.0), batch_size=2), name="unlabelled")
    for _ in watching.steps(zip(labelled, unlabelled, strict=True)):
        clock.pass_ms(1.0)
    assert watching.points("dl.data.fetch.time", loader="labelled") == [(0, 0.01), (1, 0.01)]
    assert watching.points("dl.data.fetch.time", loader="unlabelled") == [(0, 0.002), (1, 0.002)]
    assert watching.points("dl.data.wait.time") == [(0, 0.012), (1, 0.012)]


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
def test_a_copy_of_a_watched_loader_is_a_loader(make: Callable[[Any], Any]) -> None:
    """Copied or sent to another process it gives its batches; of the copies only a shallow one can still be watched."""
    watching = Watching()
    loader: Any = watching.loaders.watch(DataLoader(Rows(4), batch_size=2))
    made = make(loader)
    assert [batch.tolist() for batch in made] == [[0.0, 1.0], [2.0, 3.0]]
    assert type(made) is DataLoader


def test_any_other_iterable_is_timed_by_its_fetches(clock: HandClock) -> None:
    """A list's length and methods, a generator's single pass; 5 ms a fetch and nothing else is known."""

    class Slow(list[int]):
        def __iter__(self) -> Iterator[int]:
            for item in super().__iter__():
                clock.pass_ms(5.0)
                yield item

    watching = Watching(clock)
    watched = watching.loaders.watch(Slow([1, 2, 3]))
    assert len(watched) == 3
    assert watched.index(2) == 1
    assert list(watched) == list(watched) == [1, 2, 3]
    stream = watching.loaders.watch(iter(Slow([4, 5])), name="stream")
    assert next(stream) == 4
    assert list(stream) == [5]
    with pytest.raises(TypeError):
        len(stream)
    assert watching.seconds("dl.data.fetch.time") == [0.005] * 6
    assert watching.seconds("dl.data.fetch.time", loader="stream") == [0.005] * 2
    assert watching.seconds("dl.data.batch.time") == []


def test_what_another_iterable_raises_is_told_with_its_item() -> None:
    """Its second item failed; the very exception arrives."""
    fault = OSError("gone")

    def items() -> Iterator[int]:
        yield 1
        raise fault

    watching = Watching()
    with pytest.raises(OSError, match="gone") as caught:
        list(watching.loaders.watch(items()))
    assert caught.value is fault
    ((told, place, said, _),) = watching.failures
    assert (told, place, said) == (fault, "at its batch number 1, counted from 0", "gone")


def test_a_loader_made_in_a_way_of_its_own_is_left_alone() -> None:
    """A class with iterators of its own, or an object that somebody else has hooked, gives what it gives."""

    class Own(DataLoader[Any]):
        def _get_iterator(self) -> Any:
            return iter(["own"])

    hooked: Any = DataLoader(Rows(2))
    hooked._get_iterator = lambda: iter(["hooked"])
    watching = Watching()
    assert list(watching.steps(Own(Rows(2)))) == ["own"]
    assert list(watching.steps(hooked)) == ["hooked"]
    assert "_get_iterator" in vars(hooked)


class Ahead:
    """Reads one batch ahead, as Accelerate's loaders do, and asks for the iterator with its first batch."""

    def __init__(self, loader: Any) -> None:
        self.base_dataloader = loader

    def __len__(self) -> int:
        return len(self.base_dataloader)

    def __iter__(self) -> Iterator[Any]:
        batches = self.base_dataloader.__iter__()
        present = next(batches)
        for following in batches:
            yield present
            present = following
        yield present


def test_a_loader_that_reads_ahead_is_watched_within(clock: HandClock) -> None:
    """The first step fetches two batches, the last none: each batch is a point at the step that waited for it."""
    watching = Watching(clock)
    inner = timed(Rows, clock)
    ahead = Ahead(inner)
    loop = watching.steps(ahead)
    assert len(loop) == 3
    for _ in loop:
        clock.pass_ms(100.0)
        assert "_get_iterator" not in vars(inner)
    assert sorted(watching.points("dl.data.batch.time")) == [(0, 0.065), (0, 0.065), (1, 0.065)]
    assert watching.points("dl.data.wait.time") == [(0, 0.13), (1, 0.065), (2, 0.0)]


def test_after_the_end_nothing_is_watched_and_nothing_held() -> None:
    """A loader that was watched gives its batches; another run may watch it; hook and records are gone."""
    watching, later = Watching(), Watching()
    loader: Any = watching.loaders.watch(DataLoader(Rows(4), batch_size=2))
    began = iter(loader)
    next(began)
    watching.loaders.close()
    assert "_get_iterator" not in vars(loader)
    assert watching.loaders.watch(loader) is loader
    assert len(list(began)) == 1
    assert len(list(watching.steps(loader))) == 2
    assert len(list(later.steps(loader))) == 2
    assert len(watching.seconds("dl.data.batch.time")) == 1
    assert len(later.seconds("dl.data.batch.time")) == 2


# Faults --------------------------------------------------------------------------------------------------------------


def test_a_row_that_raises_without_workers_is_named() -> None:
    """The very exception arrives; batch and row are told, for a stream their ordinals."""
    expected: list[tuple[Any, str, dict[str, Any]]] = [
        (
            Rows(8, transform=Fails("raise", 5)),
            "at sample 5",
            {
                "dl.data.batch_ordinal": 1,
                "dl.data.samples": [3, 4, 5],
                "dl.data.sample_count": 3,
                "dl.data.sample": 5,
            },
        ),
        (
            Stream(8, transform=Fails("raise", 5)),
            "at its sample number 5, counted from 0",
            {"dl.data.batch_ordinal": 1, "dl.data.sample_ordinal": 5},
        ),
        (
            AtOnce(8, transform=Fails("raise", 5)),
            "at the batch of samples 3, 4, 5",
            {"dl.data.batch_ordinal": 1, "dl.data.samples": [3, 4, 5], "dl.data.sample_count": 3},
        ),
    ]
    for data, place, attributes in expected:
        watching = Watching()
        with pytest.raises(ValueError, match="row 5 is broken") as caught:
            list(watching.steps(DataLoader(data, batch_size=3)))
        assert watching.failures == [(caught.value, place, "row 5 is broken", attributes)]


def test_collating_that_raises_blames_the_whole_batch() -> None:
    """No single row is to blame."""

    def collate(rows: list[Any]) -> Any:
        raise RuntimeError("stack expects each tensor to be equal size")

    watching = Watching()
    with pytest.raises(RuntimeError, match="stack expects"):
        list(watching.steps(DataLoader(Rows(4), batch_size=2, collate_fn=collate)))
    ((_, place, _, attributes),) = watching.failures
    assert place == "at the batch of samples 0, 1"
    assert "dl.data.sample" not in attributes


def test_indices_are_told_as_numbers_and_texts_and_only_the_first() -> None:
    """A thousand are 32; tensors are their numbers, tuples texts; None is no index."""
    assert described(list(range(1_000))) == list(range(32))
    assert described(torch.tensor([3, 4])) == [3, 4]
    assert described([("a", 1), ("b", 2)]) == ["('a', 1)", "('b', 2)"]
    assert described([None, None]) == described(None) == []
    assert described("key") == ["key"]
    assert described(7) == [7]


def test_a_fault_of_ours_costs_no_batch() -> None:
    """What the record of a batch raises is handed over, and the batch is given."""
    watching = Watching()
    heard: list[str] = []
    watching.loaders.on_fault = lambda place, fault: heard.append(f"{place}: {fault}")

    class Broken(BatchSource):
        def taken(self, *_: Any) -> None:
            raise RuntimeError("telemetry")

    watch = LoaderWatch(watching.loaders, Broken(watching.recording.log))
    watch.taken((), None, 0, 0)
    watch.failed(OSError(), None)  # type: ignore[arg-type]
    assert heard[0] == "watch_data: telemetry"
    assert len(heard) == 2


# Places --------------------------------------------------------------------------------------------------------------


def test_a_validation_within_a_step_keeps_its_batches_apart(clock: HandClock) -> None:
    """By `run.steps` they have numbers of their own; by hand they stand at training's step; training keeps its one."""
    watching = Watching(clock)
    by_hand = watching.loaders.watch(timed(Rows, clock, rows=2), name="test")
    for _ in watching.steps(timed(Rows, clock, rows=4)):
        for _ in watching.steps(timed(Rows, clock, rows=4), split="val"):
            clock.pass_ms(1.0)
        for _ in by_hand:
            clock.pass_ms(1.0)
        clock.pass_ms(1.0)
    assert watching.points("dl.data.batch.time") == [(0, 0.065), (1, 0.065)]
    assert watching.points("dl.data.batch.time", split="val") == [(0, 0.065), (1, 0.065)] * 2
    assert watching.points("dl.data.batch.time", split="test") == [(0, 0.065), (1, 0.065)]
    assert watching.points("dl.data.wait.time", split="test") == [(0, 0.065), (1, 0.065)]


def test_loops_of_a_framework_have_the_batches_of_their_loaders(clock: HandClock) -> None:
    """Told by calls, with an evaluation in the midst: unnamed loaders' batches go to the loop that fetches them."""
    watching = Watching(clock)
    log = watching.recording.log
    training = iter(watching.loaders.watch(timed(Rows, clock, rows=4)))
    evaluated = watching.loaders.watch(timed(Rows, clock, rows=2))

    def one_step(loop: OpenLoop, batches: Iterator[Any]) -> None:
        loop.fetch()
        next(batches)
        loop.fetched()
        loop.begin()
        clock.pass_ms(100.0)
        loop.end()

    with OpenLoop(log, now_ns=clock.mono_ns) as train:
        for _ in range(2):
            one_step(train, training)
            train.pause()
            with OpenLoop(log, split="val", owns_step=False, now_ns=clock.mono_ns) as evaluation:
                one_step(evaluation, iter(evaluated))
    assert watching.points("dl.data.batch.time") == [(0, 0.065), (1, 0.065)]
    assert watching.points("dl.data.batch.time", split="val") == [(0, 0.065), (0, 0.065)]
    assert watching.points("dl.data.wait.time") == [(0, 0.065), (1, 0.065)]


def test_batches_without_a_step_are_written_at_the_end() -> None:
    """A pass over the loader before training, and one that nothing is logged after, are at the step of their time."""
    watching = Watching()
    loader: Any = watching.loaders.watch(DataLoader(Rows(4), batch_size=2))
    list(loader)
    assert watching.recording.take().blocks == []
    assert [step for step, _ in watching.points("dl.data.batch.time")] == [0, 0]


def test_a_full_buffer_and_the_undigested_count_a_batchs_points() -> None:
    """What nobody wrote is counted: four points of a batch, two of a step."""
    watching = Watching(capacity=3)
    list(watching.steps(DataLoader(Rows(6), batch_size=2)))
    assert points_in(watching.recording.buffer.drain()) + sum(watching.recording.buffer.dropped.values()) == 3 * (4 + 2)


def test_the_mean_time_of_a_batch_is_told_by_worker() -> None:
    """Batches of 10 and 30 ms by worker 0, one of 50 by worker 1, since the last time; none afterwards."""
    watching = Watching()
    source = BatchSource(watching.recording.log, "rows")
    for worker, took_ms in ((0, 10), (0, 30), (1, 50)):
        end_ns = took_ms * 1_000_000
        source.taken((worker, 0, end_ns, end_ns, -1, 0, 0, 2), None, end_ns, end_ns)
    watching.recording.take()
    samples = watching.recording.digest.batches.workers()
    assert [(sample.value, sample.attributes) for sample in samples] == [
        (0.02, (("loader", "rows"), ("worker", 0))),
        (0.05, (("loader", "rows"), ("worker", 1))),
    ]
    assert watching.recording.digest.batches.workers() == []


def test_fetchers_without_our_collate_function_are_torchs(clock: HandClock) -> None:
    """A loader within a data set of a worker gets plain batches: only the worker's own fetcher is timed."""
    import torch.utils.data.dataloader as module

    from otel_train.watch import loader_worker

    kinds = module._DatasetKind
    create = kinds.create_fetcher
    try:
        loader_worker.time_fetchers(clock, 0, None)
        assert list(DataLoader(Rows(2))) == [torch.tensor([0.0]), torch.tensor([1.0])]
        made: Any = kinds.create_fetcher(0, Rows(2), True, loader_worker.TimedCollate(list), False)
        assert type(made) is TimedFetcher
        assert type(made.fetch([0])) is Carrier
    finally:
        kinds.create_fetcher = create


def test_put_back_leaves_what_was_set_meanwhile() -> None:
    """Only what stands in front is taken away."""
    data = Rows(1, transform=Fails("raise", 0))
    other = Fails("raise", 1)
    placed = Transforms(data).put_in_front()
    data.transform = other
    put_back(placed)
    assert data.transform is other


def test_a_loop_over_no_loader_is_a_plain_loop() -> None:
    """Lists and generators go through `open` as they are."""
    watching = Watching()
    given = [1, 2]
    assert list(watching.loaders.open(given, "train")) == given
    loop: StepLoop[int] = watching.steps(given)
    assert list(loop) == given
    assert Pair(1, []).rows == 1
