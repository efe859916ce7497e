"""Takes points on the training thread: a type check, a copy, an append."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_train.clock import wall_ns
from otel_train.record.buffer import Buffer
from otel_train.record.deferred import DeferredValues, DeviceReader
from otel_train.record.names import NameTable
from otel_train.record.numbers import SAFE, freeze_all, freeze_tensors, is_device_tensor
from otel_train.record.thinning import Thinner
from otel_train.semconv import DEFAULT_AXIS

OVERFLOW: Final = "buffer full"
FORKED: Final = "in a forked child"
MOST_RECENT: Final = 32


class PointGroup:
    """What the points of one call have in common: split and axis as given, and whether all are 32-bit floats."""

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
        # Loops that own the present step.
        self.loops = 0
        # What stands at the present step, call by call: almost always one or two.
        self.recent: list[tuple[str | None, Mapping[str, Any]]] = []
        self._lock = threading.Lock()
        self._warn = warn
        self._thinner = thinner
        self._device = device
        self._groups: dict[Any, PointGroup] = {None: PointGroup(None, "", False)}

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
            and SAFE.issuperset(map(type, values.values()))
            and "step" not in values
            and "epoch" not in values
            and (group := self._groups.get(split)) is not None
        ):
            # A dict of numbers is not tracked by the garbage collector; a copy, since the caller may change his.
            kept = dict(values)
            if self.loops:
                if step is None or step == self.step:
                    if len(self.recent) < MOST_RECENT:
                        self.recent.append((split, kept))
                    step = self.step
            elif step is None:
                step = self._implicit_step(kept, split)
            elif step == self.step:
                self._remember(split, kept)
            self.at = step
            buffer.extend((group, now_ns, step, self.epoch, kept, None))
            return
        self._log_slowly(now_ns, values, step, split, epoch, axis)

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
        axis = "" if axis in (None, DEFAULT_AXIS) else str(axis)
        split = None if split is None else str(split)
        if epoch is None:
            epoch = self.epoch
        if step is None and axis:
            self._warn(
                f"axis={axis!r} needs a step of its own: log({{…}}, step=…, axis={axis!r}); the run's step is used"
            )
        if step is not None:
            place = step
        else:
            # Names alone are kept: a tensor here would stay alive until the next step.
            place = self.step if self.loops else self._implicit_step(dict.fromkeys(values, 0), split)
        if self._thinner is not None:
            kept = self._thinner.keep(values, split, axis, place, epoch)
            if len(kept) < len(values):
                self.buffer.drop("thinned by every=", len(values) - len(kept))
            values = kept
        if not values:
            return
        deferred: DeferredValues | None = None
        numbers: dict[str, Any] | None = None
        narrow = False
        if SAFE.issuperset(map(type, values.values())):
            numbers = dict(values)
        else:
            numbers = freeze_tensors(values)
            narrow = numbers is not None
        if numbers is None:
            numbers, refused = freeze_all(values)
            for key, reason in refused.items():
                self.buffer.drop("refused", 1)
                self._warn(f"log: {key!r} is not recorded: {reason}")
            numbers, deferred = self._defer(numbers)
        if not numbers and deferred is None:
            return
        if not axis:
            self.at = place
        if not axis and place == self.step:
            if self.loops:
                self._note(split, dict.fromkeys(values, 0))
            elif step is not None:
                self._remember(split, dict.fromkeys(values, 0))
        group = self._group(split, axis, narrow)
        self.buffer.extend((group, now_ns, place, epoch, numbers, deferred))

    def _remember(self, split: str | None, values: Mapping[str, Any]) -> None:
        """Note a point at the present step by an explicit one, which itself does not move it."""
        with self._lock:
            self._note(split, values)

    def _group(self, split: str | None, axis: str, narrow: bool) -> PointGroup:
        # The plain ones are found by their split alone: that is the hot path's single look-up.
        key = (split, axis, narrow) if axis or narrow else split
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = PointGroup(split, axis, narrow)
        return group

    def _defer(self, numbers: dict[str, Any]) -> tuple[dict[str, Any], DeferredValues | None]:
        on_device = {key: value for key, value in numbers.items() if is_device_tensor(value)}
        if not on_device:
            return numbers, None
        for key in on_device:
            del numbers[key]
        if self._device is None:
            self._device = DeviceReader()
        deferred, reason = self._device.read_later(on_device)
        if deferred is None:
            self.buffer.drop("device not readable", len(on_device))
            self._warn(f"log: values on a device are not recorded: {reason}")
        return numbers, deferred

    def _implicit_step(self, values: Mapping[str, Any], split: str | None) -> int:
        """Return the present step, after moving it on where one of the keys already has a point at it."""
        with self._lock:
            recent = self.recent
            for earlier_split, earlier in recent:
                if earlier_split == split and not earlier.keys().isdisjoint(values):
                    self.step += 1
                    recent.clear()
                    break
            self._note(split, values)
            return self.step

    def _note(self, split: str | None, values: Mapping[str, Any]) -> None:
        if len(self.recent) >= MOST_RECENT:
            # Many calls at one step: fold them, so that the search above stays short.
            folded: dict[str | None, dict[str, Any]] = {}
            for earlier_split, earlier in self.recent:
                folded.setdefault(earlier_split, {}).update(dict.fromkeys(earlier, 0))
            self.recent[:] = folded.items()
        self.recent.append((split, values))
        self.used = True

    def enter_loop(self, first: int | None) -> int:
        """Let a loop own the present step; return the number of its first step."""
        with self._lock:
            self.loops += 1
            if first is None:
                return self.step + 1 if self.used else self.step
            return first

    def next_step(self, step: int) -> None:
        """Make this the present step of the loop."""
        self.step = self.at = step
        self.used = True
        self.recent.clear()

    def leave_loop(self) -> None:
        """Give the present step back to plain `log`, which knows from `recent` what already stands at it."""
        with self._lock:
            self.loops -= 1

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
        self._warn(f"log: {field}={number!r} is not a whole number; the run's present {field} is used")
        return None
