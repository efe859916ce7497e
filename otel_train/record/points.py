"""Takes points on the training thread: a type check, a copy, an append."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from otel_train.clock import wall_ns
from otel_train.record.buffer import Buffer
from otel_train.record.deferred import DeferredValues, DeviceReader
from otel_train.record.names import OPTIMIZER_STEP_KEY, SPLIT_ALIASES, NameTable, normalise_split
from otel_train.record.numbers import SAFE, freeze_all, freeze_tensors, is_device_tensor
from otel_train.record.thinning import Thinner
from otel_train.semconv import DEFAULT_AXIS

if TYPE_CHECKING:
    from otel_train.record.readings import Reading

OVERFLOW: Final = "buffer full"
FORKED: Final = "in a forked child"
MOST_RECENT: Final = 32
MOST_WARNED: Final = 1000


class PointGroup:
    """What the points of one call have in common: split (None: said by the key), axis, whether all are 32-bit."""

    __slots__ = ("axis", "narrow", "split")

    def __init__(self, split: str | None, axis: str, narrow: bool) -> None:
        self.split = split
        self.axis = axis
        self.narrow = narrow


class PointLog:
    """The points of one run. `step` and `epoch` are the present ones, read by phases, loops and log records too."""

    def __init__(
        self,
        buffer: Buffer,
        names: NameTable,
        warn: Callable[[str], None],
        *,
        thinner: Thinner | None = None,
        device: DeviceReader | None = None,
        first_step: int = 0,
    ) -> None:
        self.buffer = buffer
        self.names = names
        self.step = first_step
        self.epoch: int | None = None
        self.overflow_cause = OVERFLOW
        # Where the last point on the default axis went: in a loop by hand with explicit steps the nearest thing known.
        self.at = first_step
        # Whether anything stands at the present step yet: a loop then begins with the next one.
        self.used = False
        # The open loops that own the present step, with their threads; and the step that each such thread is at.
        self.loops: dict[object, int] = {}
        self._thread_steps: dict[int, int] = {}
        # Called in the thread of a training loop when it begins.
        self.on_loop: Callable[[], None] | None = None
        # How many loops of any kind are open in a thread: its phases belong to their steps.
        self.looping: dict[int, int] = {}
        # What stands at the present step, call by call: almost always one or two.
        self.recent: list[tuple[str | None, Mapping[str, Any]]] = []
        # Told of each optimizer step that is said with the numbers.
        self.on_optimizer_step: Callable[[int], None] | None = None
        self._warn = warn
        self._warned: set[str] = set()
        self._thinner = thinner
        self._device = device
        # By split as it is given, the aliases too: the hot path's single look-up. And those of other axes.
        self._groups: dict[str | None, PointGroup] = {None: PointGroup(None, "", False)}
        self._narrow_groups: dict[str | None, PointGroup] = {None: PointGroup(None, "", True)}
        self._axis_groups: dict[tuple[str | None, str, bool], PointGroup] = {}

    def log(
        self,
        values: Mapping[str, Any],
        step: int | None = None,
        split: str | None = None,
        epoch: int | None = None,
        axis: str | None = None,
    ) -> None:
        """Append one entry; see `Run.log`. Raises what a wrong argument raises: the caller guards."""
        buffer = self.buffer
        if len(buffer.entries) >= buffer.capacity_slots:
            buffer.drop(self.overflow_cause, len(values))
            return
        now_ns = wall_ns()
        if (
            epoch is None
            and axis is None
            and (step is None or type(step) is int)
            and self._thinner is None
            and "step" not in values
            and "epoch" not in values
            and OPTIMIZER_STEP_KEY not in values
        ):
            kept: dict[str, Any] | None
            if SAFE.issuperset(map(type, values.values())):
                # A dict of numbers is not tracked by the garbage collector; a copy, since the caller may change his.
                kept, group = dict(values), self._groups.get(split)
            else:
                kept, group = freeze_tensors(values), self._narrow_groups.get(split)
            if kept is None or group is None:
                self._log_slowly(now_ns, values, step, split, epoch, axis)
                return
            if self.loops:
                present = self.step if len(self.loops) == 1 else self._present_step()
                if step is None or step == present:
                    if len(self.recent) < MOST_RECENT:
                        self.recent.append((group.split, kept))
                    else:
                        self._remember(group.split, kept)
                    step = present
            elif step is None:
                step = self._implicit_step(kept, group.split)
            elif step == self.step:
                self._remember(group.split, kept)
            self.at = step
            buffer.extend((group, now_ns, step, self.epoch, kept, None))
            return
        self._log_slowly(now_ns, values, step, split, epoch, axis)

    def add_reading(
        self, reading: Reading, step: int | None = None, epoch: int | None = None, time_ns: int | None = None
    ) -> None:
        """Append values of our own, which the writer's thread reads; at the run's present step, epoch and time."""
        buffer = self.buffer
        if len(buffer.entries) >= buffer.capacity_slots:
            buffer.drop(self.overflow_cause, 1)
            return
        if step is None:
            step = self._present_step() if self.loops else self.at
        time_ns = wall_ns() if time_ns is None else time_ns
        buffer.extend((reading, time_ns, step, self.epoch if epoch is None else epoch, None, None))

    def _log_slowly(
        self,
        now_ns: int,
        values: Mapping[str, Any],
        step: Any,
        split: str | None,
        epoch: Any,
        axis: str | None,
    ) -> None:
        if "step" in values or "epoch" in values:
            values = dict(values)
            in_values = values.pop("step", None), values.pop("epoch", None)
            step = in_values[0] if step is None else step
            epoch = in_values[1] if epoch is None else epoch
        step = self._whole(step, "step")
        epoch = self._whole(epoch, "epoch")
        epoch = self.epoch if epoch is None else epoch
        done = values.get(OPTIMIZER_STEP_KEY)
        if type(done) is int and self.on_optimizer_step is not None:
            self.on_optimizer_step(done)
        axis = "" if axis in (None, DEFAULT_AXIS) else str(axis)
        split = None if split is None else normalise_split(str(split))
        narrow = on_device = False
        if self._thinner is None:
            # First, since a refused value does not count as a point at its step.
            values, narrow, on_device = self._frozen(values)
            if not values:
                return
        place = self._place(step, axis, split, values)
        if self._thinner is not None:
            kept = self._thinner.keep(values, split, axis, place, epoch)
            if len(kept) < len(values):
                self.buffer.drop("thinned by every=", len(values) - len(kept))
            values, narrow, on_device = self._frozen(kept)
            if not values:
                return
        deferred: DeferredValues | None = None
        if on_device:
            values, deferred = self._deferred(values)
            if not values and deferred is None:
                return
        self.buffer.extend((self._group(split, axis, narrow), now_ns, place, epoch, values, deferred))

    def _place(self, step: int | None, axis: str, split: str | None, values: Mapping[str, Any]) -> int:
        """Return the step of a call's points, and note that they stand there."""
        if axis:
            if step is None:
                self._warn_once(
                    f"axis {axis}",
                    f"axis={axis!r} needs a step of its own: log({{…}}, step=…, axis={axis!r}); the run's step is used",
                )
                return self._present_step()
            return step
        # Names alone are noted: a tensor would stay alive until the next step.
        names = dict.fromkeys(values, 0)
        if step is None and not self.loops:
            place = self._implicit_step(names, split)
        else:
            present = self._present_step()
            place = present if step is None else step
            if place == present:
                self._remember(split, names)
        self.at = place
        return place

    def _frozen(self, values: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool, bool]:
        """Return numbers and device tensors, whether all are 32-bit floats, and whether there are tensors left."""
        if SAFE.issuperset(map(type, values.values())):
            return dict(values), False, False
        narrow = freeze_tensors(values)
        if narrow is not None:
            return narrow, True, False
        numbers, refused = freeze_all(values)
        for key, reason in refused.items():
            self._refuse(key, reason, "refused")
        return numbers, False, not SAFE.issuperset(map(type, numbers.values()))

    def _refuse(self, key: str, reason: str, cause: str) -> None:
        self.buffer.drop(cause, 1)
        self._warn_once(f"value {key}", f"log: {key!r} is not recorded: {reason}")

    def _warn_once(self, topic: str, text: str) -> None:
        """Say a text, unless something of this topic was said: texts that name a value would never end."""
        if topic not in self._warned and len(self._warned) < MOST_WARNED:
            self._warned.add(topic)
            self._warn(text)

    def _remember(self, split: str | None, values: Mapping[str, Any]) -> None:
        """Note a point at the present step by an explicit one, which itself does not move it."""
        with self.buffer.lock:
            self._note(split, values)

    def _group(self, split: str | None, axis: str, narrow: bool) -> PointGroup:
        if axis:
            return self._axis_groups.setdefault((split, axis, narrow), PointGroup(split, axis, narrow))
        groups = self._narrow_groups if narrow else self._groups
        if split not in groups:
            group = groups[split] = PointGroup(split, axis, narrow)
            groups.update((alias, group) for alias, known in SPLIT_ALIASES.items() if known == split)
        return groups[split]

    def _deferred(self, values: Mapping[str, Any]) -> tuple[Mapping[str, Any], DeferredValues | None]:
        on_device = {key: value for key, value in values.items() if is_device_tensor(value)}
        if self._device is None:
            self._device = DeviceReader()
        deferred, refused = self._device.read_later(on_device)
        for key, reason in refused.items():
            self._refuse(key, reason, "device not readable")
        return {key: value for key, value in values.items() if key not in on_device}, deferred

    def _present_step(self) -> int:
        """Return the step of this thread's own loop where several are open, else the run's."""
        return self._thread_steps.get(threading.get_ident(), self.step) if len(self.loops) > 1 else self.step

    def _implicit_step(self, values: Mapping[str, Any], split: str | None) -> int:
        """Return the present step, after moving it on where one of the keys already has a point at it."""
        with self.buffer.lock:
            recent = self.recent
            for earlier_split, earlier in recent:
                if not earlier.keys().isdisjoint(values) and (
                    earlier_split == split or self._meet(earlier_split, split, earlier.keys() & values.keys())
                ):
                    self.step += 1
                    recent.clear()
                    break
            self._note(split, values)
            return self.step

    def _meet(self, one: str | None, other: str | None, keys: set[str]) -> bool:
        """Tell whether a split that is given is the one that one of the keys has by itself."""
        if one is not None and other is not None:
            return False
        given = one if other is None else other
        return any(self.names.series(key, None) == self.names.series(key, given) for key in keys)

    def _note(self, split: str | None, values: Mapping[str, Any]) -> None:
        if len(self.recent) >= MOST_RECENT:
            # Many calls at one step: fold them, so that the search above stays short.
            folded: dict[str | None, dict[str, Any]] = {}
            for earlier_split, earlier in self.recent:
                folded.setdefault(earlier_split, {}).update(dict.fromkeys(earlier, 0))
            self.recent[:] = folded.items()
        self.recent.append((split, values))
        self.used = True

    def enter_loop(self, loop: object, *, owns_step: bool) -> int:
        """Note that a loop is open in this thread; return the thread."""
        thread = threading.get_ident()
        with self.buffer.lock:
            self.looping[thread] = self.looping.get(thread, 0) + 1
            if owns_step:
                for other in self.loops.values():
                    # It went without this while it was alone.
                    self._thread_steps.setdefault(other, self.step)
                self.loops[loop] = thread
        if owns_step and self.on_loop is not None:
            self.on_loop()
        return thread

    def next_step(self, thread: int, first: int | None) -> int:
        """Move the present step on for the loop of a thread, or to `first`, and return it."""
        if len(self.loops) > 1:
            with self.buffer.lock:
                step = self._thread_steps[thread] = self._advance(first)
                return step
        if first is not None or not self.used:
            return self._advance(first)
        # The same, by hand: this is once a step.
        self.step = self.at = step = self.step + 1
        self.recent.clear()
        return step

    def _advance(self, first: int | None) -> int:
        step = first if first is not None else self.step + 1 if self.used else self.step
        self.step = self.at = step
        self.used = True
        self.recent.clear()
        return step

    def present_size(self) -> tuple[int | None, int | None]:
        """Return samples and tokens of the batch that this thread's loop is at; None for what is not known."""
        thread = threading.get_ident()
        for loop, of in list(self.loops.items()):
            if of == thread:
                return getattr(loop, "size", (None, None))
        return None, None

    def leave_loop(self, loop: object, thread: int) -> None:
        """Give the present step back to plain `log`, which knows from `recent` what already stands at it."""
        with self.buffer.lock:
            self.loops.pop(loop, None)
            if thread not in self.loops.values():
                self._thread_steps.pop(thread, None)
            self.looping[thread] = self.looping.get(thread, 0) - 1
            if self.looping[thread] <= 0:
                del self.looping[thread]

    def _whole(self, number: Any, field: str) -> int | None:
        if number is None or type(number) is int:
            return number
        try:
            return operator.index(number)
        except TypeError:
            pass
        try:
            if float(number) == int(number):
                return int(number)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            pass
        self._warn_once(field, f"log: {field}={number!r} is not a whole number; the run's present {field} is used")
        return None
