"""Watches data loaders: what becomes of each batch between its worker and training, without a change to the loader.

While a loader is watched an attribute of the object stands in front of its method `_get_iterator`, which torch's
`DataLoader.__iter__` calls for each new iterator; the iterators that it makes know the times of their batches (see
`loader_iterators`). So whoever iterates the loader, by whatever way, gets exactly what he would get, and the object
stays the user's own: its type, data set, sampler and workers. The attribute is taken away again by `unwatch`, at the
end of the run, and with `run.steps` as soon as the loop has its iterator.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from otel_train.clock import SYSTEM, Clock
from otel_train.record.batches import BatchSource
from otel_train.record.entries import AttributeValue
from otel_train.record.names import SPLIT_ALIASES, normalise_split
from otel_train.record.points import PointLog
from otel_train.watch.loader_faults import attributes_of, place_of, told_of
from otel_train.watch.loader_iterators import BatchAt, Death, Iterators, iterators
from otel_train.watch.loader_worker import NO_WORKER, UNKNOWN

T = TypeVar("T")
HOOK: Final = "_get_iterator"
# Accelerate's loaders hold the one that they read from under this name, and are called after its class.
INNER: Final = "base_dataloader"

Told = tuple[str, dict[str, AttributeValue]]


class LoaderWatch:
    """What one run knows of one loader: the listener of its iterators."""

    def __init__(self, loaders: Loaders, source: BatchSource) -> None:
        # None once the run has ended: an iterator of persistent workers, and so this, lives as long as the loader.
        self._loaders: Loaders | None = loaders
        self._source = source
        self.clock = loaders.clock

    def taken(self, times: tuple[int, ...], index: Any, asked_ns: int, taken_ns: int) -> None:
        """Take the times of a batch."""
        # Taken once: another thread may end the run meanwhile.
        loaders = self._loaders
        if loaders is not None:
            try:
                self._source.taken(times, index, asked_ns, taken_ns)
            except Exception as fault:  # noqa: BLE001 - a fault of telemetry must not cost a batch
                loaders.on_fault("watch_data", fault)

    def failed(self, fault: Exception, at: BatchAt) -> None:
        """Take what the loader raised."""
        loaders = self._loaders
        if loaders is not None:
            try:
                attributes = attributes_of(at, self._source.name)
                place = place_of(attributes)
                said = at.said.strip().splitlines()[0] if at.said.strip() else ""
                loaders.on_failed(fault, place, said, attributes)
            except Exception as own:  # noqa: BLE001 - the loader's exception is what the user must get
                loaders.on_fault("watch_data", own)

    def died(self, deaths: Sequence[Death]) -> None:
        """Take what became of workers."""
        loaders = self._loaders
        for death in deaths:
            if loaders is not None:
                loaders.on_died(*told_of(death, self._source.name))

    def end(self) -> None:
        """Tell nobody any more, and hold nothing of the run."""
        self._loaders = None


class IteratorHook:
    """Stands in front of one loader's `_get_iterator`."""

    def __init__(self, loader: Any, watch: LoaderWatch, kinds: Iterators, opened: Callable[[Any], None]) -> None:
        # Not the loader itself: with persistent workers its life is theirs, and must not wait for the collector.
        self._loader = weakref.ref(loader)
        self.watch = watch
        self.kinds = kinds
        self._opened = opened

    def __call__(self) -> Any:
        """Return a new iterator, as the method does."""
        loader = self._loader()
        assert loader is not None, "it is the loader that calls"
        if loader.num_workers == 0:
            return self.kinds.single(loader, self.watch)
        loader.check_worker_number_rationality()
        iterator = self.kinds.multi(loader, self.watch)
        self._opened(iterator)
        return iterator

    def remove(self) -> None:
        """Give way to the method, unless somebody else stands here by now."""
        loader = self._loader()
        if loader is not None and vars(loader).get(HOOK) is self:
            delattr(loader, HOOK)

    @property
    def loader(self) -> Any:
        """Whose method it is, None once that is no more."""
        return self._loader()

    def __reduce__(self) -> tuple[Any, ...]:
        # In a copy of the loader, and in another process, it is the method of its class.
        return getattr, (self._loader(), HOOK)


class Loaders:
    """The watched loaders of one run. Any thread may call; nothing is raised but what a loader itself raises.

    `on_failed` takes an exception of a loader with the place in words, the first line of what it said, and attributes;
    `on_died` body and attributes of the event of a worker; `on_fault` what went wrong here, by its place.
    """

    def __init__(
        self,
        log: PointLog,
        *,
        on_failed: Callable[[Exception, str, str, dict[str, AttributeValue]], None],
        on_died: Callable[[str, dict[str, AttributeValue]], None],
        on_fault: Callable[[str, Exception], None],
        notice: Callable[[str], None] = lambda text: None,
        clock: Clock = SYSTEM,
    ) -> None:
        self._log = log
        self.on_failed = on_failed
        self.on_died = on_died
        self.on_fault = on_fault
        self._notice = notice
        self.clock = clock
        self._lock = threading.Lock()
        # Those that are watched until they are let go; and iterators with workers, for `look`.
        self._hooked: dict[int, tuple[weakref.ref[Any], IteratorHook]] = {}
        self._opened: dict[int, weakref.ref[Any]] = {}
        self._watches: weakref.WeakSet[LoaderWatch] = weakref.WeakSet()
        self._ended = False

    def watch(self, loader: Iterable[T], name: str | None = None) -> Any:
        """Watch a loader until `unwatch` or the end of the run, and return it; for another iterable one like it."""
        inner, kinds = _watchable(loader)
        if self._ended:
            return loader
        if inner is None or kinds is None:
            source = self._source(name)
            if isinstance(loader, Iterator):
                return TimedIterator(loader, LoaderWatch(self, source))
            return TimedIterable(loader, self._listener(source))
        self._hook(inner, kinds, self._listener(self._source(name)))
        self._say_if_started(inner, kinds)
        return loader

    def open(self, loader: Iterable[T], split: str) -> Iterator[T]:
        """Return an iterator over a loader for one loop; one of torch's is watched for as long as this lasts."""
        hook = None
        try:
            hook = self._hook_of_loop(loader, split)
        except Exception as fault:  # noqa: BLE001 - a loader that cannot be watched is iterated all the same
            self.on_fault("watch_data", fault)
        if hook is None:
            return iter(loader)
        try:
            iterator = iter(loader)
        except BaseException:
            hook.remove()
            raise
        if isinstance(iterator, hook.kinds.base):
            hook.remove()
            self._join(iterator, hook)
            made: Iterator[T] = iterator
            return made
        # A loader around it, such as Accelerate's, asks for the iterator with its first batch.
        return _first_then_rest(iterator, hook.remove)

    def _hook_of_loop(self, loader: Iterable[Any], split: str) -> IteratorHook | None:
        inner, kinds = _watchable(loader)
        if inner is None or kinds is None or self._ended or _is_hooked(inner):
            return None
        hook = self._new_hook(inner, kinds, self._listener(BatchSource(self._log, "", split)))
        setattr(inner, HOOK, hook)
        return hook

    def unwatch(self, loader: Any = None) -> bool:
        """Let a loader go, or all; False where this one was not watched."""
        if loader is not None:
            inner, _ = _watchable(loader)
            place = self._hooked.pop(id(inner), None)
            places = [] if place is None else [place]
        else:
            places = list(self._hooked.values())
            self._hooked.clear()
        for _, hook in places:
            hook.watch.end()
            hook.remove()
        return bool(places)

    def look(self) -> None:
        """Look whether workers have died; for the writer's thread, and at the end."""
        for place, reference in list(self._opened.items()):
            iterator = reference()
            if iterator is None:
                self._opened.pop(place, None)
                continue
            deaths = iterator.deaths()
            if deaths:
                iterator._otel_train.died(deaths)

    def close(self) -> None:
        """Let everything go, with the run."""
        try:
            self.look()
        except Exception as fault:  # noqa: BLE001 - the end goes on
            self.on_fault("watch_data", fault)
        self._ended = True
        self.unwatch()
        for watch in list(self._watches):
            watch.end()
        self._opened.clear()

    def forget(self) -> None:
        """In a forked child: the loaders are the parent's. No lock."""
        self._ended = True
        for watch in list(self._watches):
            watch.end()
        self._opened = {}

    def _source(self, name: str | None) -> BatchSource:
        said = "" if name is None else str(name)
        split = normalise_split(said) if said.lower() in SPLIT_ALIASES else None
        return BatchSource(self._log, "" if split else said, split)

    def _listener(self, source: BatchSource) -> LoaderWatch:
        watch = LoaderWatch(self, source)
        self._watches.add(watch)
        return watch

    def _new_hook(self, inner: Any, kinds: Iterators, watch: LoaderWatch) -> IteratorHook:
        return IteratorHook(inner, watch, kinds, self._note)

    def _note(self, iterator: Any) -> None:
        self._opened[id(iterator)] = weakref.ref(iterator)

    def _hook(self, inner: Any, kinds: Iterators, watch: LoaderWatch) -> None:
        with self._lock:
            known = self._hooked.get(id(inner))
            if known is not None and known[0]() is inner:
                # Watched once more, perhaps by another name.
                known[1].watch.end()
            hook = self._new_hook(inner, kinds, watch)
            setattr(inner, HOOK, hook)
            place = id(inner)
            self._hooked[place] = weakref.ref(inner, lambda gone: self._forget(place, gone)), hook
        present = getattr(inner, "_iterator", None)
        if present is not None and hasattr(present, "_otel_train"):
            present._otel_train = watch
            self._note_workers(present)

    def _forget(self, place: int, gone: weakref.ref[Any]) -> None:
        """Drop what is known of a loader that is no more, unless another has its place by now."""
        known = self._hooked.get(place)
        if known is not None and known[0] is gone:
            del self._hooked[place]

    def _join(self, iterator: Any, hook: IteratorHook) -> None:
        """Listen to an iterator that lives on from an earlier loop, or run: that of persistent workers."""
        if hasattr(iterator, "_otel_train"):
            iterator._otel_train = hook.watch
            self._note_workers(iterator)
        else:
            self._say_started(hook.loader)

    def _note_workers(self, iterator: Any) -> None:
        if hasattr(iterator, "deaths"):
            self._note(iterator)

    def _say_if_started(self, inner: Any, kinds: Iterators) -> None:
        present = getattr(inner, "_iterator", None)
        if isinstance(present, kinds.base) and not hasattr(present, "_otel_train"):
            self._say_started(inner)

    def _say_started(self, inner: Any) -> None:
        self._notice(
            f"the {inner.num_workers} persistent workers of a data loader were started before it was watched: only the "
            "wait for its batches is measured; watch it, or iterate it with run.steps, before its first use"
        )


class TimedIterable:
    """An iterable that is no loader of torch: how long each item took to fetch; in all else it is the iterable."""

    def __init__(self, iterable: Iterable[Any], watch: LoaderWatch) -> None:
        self._otel_train_iterable = iterable
        self._otel_train_watch = watch

    def __iter__(self) -> Iterator[Any]:
        watch = self._otel_train_watch
        mono_ns = watch.clock.mono_ns
        iterator = iter(self._otel_train_iterable)
        number = 0
        while True:
            asked_ns = mono_ns()
            try:
                item = next(iterator)
            except StopIteration:
                return
            except Exception as fault:
                watch.failed(fault, BatchAt(batch=number, samples=UNKNOWN, said=str(fault)))
                raise
            taken_ns = mono_ns()
            watch.taken((NO_WORKER, asked_ns, 0, taken_ns, UNKNOWN, number, 0, UNKNOWN), None, asked_ns, taken_ns)
            number += 1
            yield item

    def __len__(self) -> int:
        return len(self._otel_train_iterable)  # type: ignore[arg-type]  # what has none raises, as it would itself

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_otel_train"):
            raise AttributeError(name)
        return getattr(self._otel_train_iterable, name)


class TimedIterator(TimedIterable):
    """The same for what is its own iterator, which gives each item once."""

    def __init__(self, iterator: Iterator[Any], watch: LoaderWatch) -> None:
        super().__init__(iterator, watch)
        self._otel_train_items = super().__iter__()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._otel_train_items)


def _watchable(loader: Any) -> tuple[Any, Iterators | None]:
    """Return torch's own loader within this object, or itself, and the classes of its iterators; None where it is none.

    A class that makes its iterators in a way of its own is left alone.
    """
    module = sys.modules.get("torch.utils.data")
    if module is None:
        return None, None
    stock = getattr(module, "DataLoader", None)
    if stock is None:
        return None, None
    inner = getattr(loader, "__dict__", {}).get(INNER)
    inner = loader if inner is None else inner
    kind = type(inner)
    if not issubclass(kind, stock) or getattr(kind, HOOK, None) is not getattr(stock, HOOK, None):
        return None, None
    if not hasattr(inner, "num_workers") or not (_is_hooked(inner) or HOOK not in vars(inner)):
        return None, None
    kinds = iterators()
    return (None, None) if kinds is None else (inner, kinds)


def _is_hooked(inner: Any) -> bool:
    return type(vars(inner).get(HOOK)) is IteratorHook


def _first_then_rest(iterator: Iterator[T], after_first: Callable[[], None]) -> Iterator[T]:
    try:
        batch = next(iterator)
    except StopIteration:
        return
    finally:
        after_first()
    yield batch
    yield from iterator
