"""Watches the steps of one optimizer: counts them all, and has some of them read."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from otel_train.errors import ConfigError
from otel_train.watch.model_hooks import Hook
from otel_train.watch.model_sampler import StepSampler

# Flags of a fused optimizer, one a step, are kept until the next sampling; of more than these the sum.
MOST_FLAGS: Final = 1_000


class OptimizerWatch:
    """One optimizer of a watched model. A step that is not sampled costs a count and a comparison."""

    def __init__(
        self,
        optimizer: Any,
        sampler: StepSampler,
        *,
        every: int,
        first: int,
        window: int,
        guard: Callable[[str], AbstractContextManager[None]],
        on_arm: Callable[[], None],
        on_sampled: Callable[[], None],
        on_step: Callable[[int], None],
        tells_step: Callable[[], bool],
        scaler: Any = None,
    ) -> None:
        # Weakly: the optimizer holds us by its hooks, and must be free to go with its model.
        self.optimizer = weakref.ref(optimizer)
        self.sampler = sampler
        self.begun = 0
        self.done = 0
        # Steps that a scaler left out before the optimizer heard of them.
        self.skipped = 0
        self.due = first
        self._every = every
        self._window = window
        self._arm_at = 0
        self._active = False
        self._guard = guard
        self._on_arm = on_arm
        self._on_sampled = on_sampled
        self._on_step = on_step
        self._tells_step = tells_step
        self._scaler = None if scaler is None else weakref.ref(scaler)
        self._found: list[Any] = []
        self._folded: list[Any] = []
        # A step that torch.compile traces leaves its graph for us, and comes back; else this costs 0.3 us.
        outside = sys.modules["torch"].compiler.disable
        self._handles = [optimizer.register_step_pre_hook(Hook(outside(self.before_step)))]
        try:
            self._handles.append(optimizer.register_step_post_hook(Hook(outside(self.after_step))))
        except Exception:
            self._handles.pop().remove()
            raise

    def close(self) -> None:
        """Take the hooks away. Flags that were not read yet become one last reading."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        self.sampler.drop()
        if self._found:
            self._put_flags()
            self._hand_over()
        self._active = False

    # A step --------------------------------------------------------------------------------------------------------

    def before_step(self, optimizer: Any, arguments: Any, named: Any) -> Any:
        """Pre-hook of each step."""
        number = self.begun
        self.begun = number + 1
        flag = optimizer.__dict__.get("found_inf")
        if flag is not None:
            self._found.append(flag)
            if len(self._found) >= MOST_FLAGS:
                with self._guard("watch"):
                    self._fold_flags()
        if number < self.due:
            return None
        with self._guard("watch"):
            return self._begin(optimizer, arguments, named)

    def after_step(self, optimizer: Any, arguments: Any, named: Any) -> None:
        """Post-hook of each step."""
        self.done += 1
        self._on_step(self.done)
        if self._active:
            with self._guard("watch"):
                self._end()
        if self.begun >= self._arm_at:
            self._arm_at = self.due + self._every
            self._on_arm()

    def _begin(self, optimizer: Any, arguments: Any, named: Any) -> Any:
        if _is_capturing():
            return None
        if self.sampler.is_stale:
            # Of a step that raised, or that the user left out after clipping.
            self.sampler.drop()
        self._active = True
        closure, place = _closure_of(arguments, named)
        if closure is None:
            self._read(optimizer)
            return None

        # The gradients are made within the step: they are read after the first time, when no weight has moved yet.
        unread = [True]

        def evaluated() -> Any:
            loss = closure()
            if unread:
                unread.clear()
                with self._guard("watch"):
                    self._read(optimizer)
            return loss

        if place is None:
            return arguments, {**named, "closure": evaluated}
        return (*arguments[:place], evaluated, *arguments[place + 1 :]), named

    def _read(self, optimizer: Any) -> None:
        if self.sampler.has_read:
            self.sampler.read_clipped()
        else:
            self.sampler.read(self._owned(optimizer), _unscaling(optimizer))

    def _end(self) -> None:
        self._active = False
        self.due = self.begun - 1 + self._every
        self._arm_at = self.due - self._window + 1
        self.sampler.read_updates()
        scale = self._present_scale()
        if scale is not None:
            self.sampler.put("scale", scale)
        self._put_flags()
        self._hand_over()
        self._on_sampled()

    def _hand_over(self) -> None:
        self.sampler.hand_over(
            done=self.done,
            tried=self.begun + self.skipped,
            skipped=self.skipped,
            tells_step=self.sampler.leads and self._tells_step(),
        )

    # Clipping ------------------------------------------------------------------------------------------------------

    def before_clipping(self, clipped: set[int]) -> None:
        """Read the gradients before the user's clipping changes them, where this step is sampled."""
        if not self.is_due or _is_capturing() or (self.sampler.has_read and not self.sampler.is_stale):
            return
        optimizer = self.optimizer()
        if optimizer is None:
            return
        owned = self._owned(optimizer)
        if any(id(parameter) in clipped for group in optimizer.param_groups for parameter in group["params"]):
            self.sampler.read(owned, self._unscaling_before_step(optimizer))

    @property
    def is_due(self) -> bool:
        """Whether the next step, or the present one, is sampled."""
        return self.begun >= self.due or self._active

    def _owned(self, optimizer: Any) -> Callable[[Any], bool]:
        """Return what tells the parameters of this optimizer; the only one has the frozen ones too."""
        ids = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        alone = self.sampler.alone
        return lambda parameter: id(parameter) in ids or (alone and not parameter.requires_grad)

    # Loss scale ----------------------------------------------------------------------------------------------------

    def scaler_steps(self, scaler: Any) -> Callable[[], None]:
        """Note that a scaler is about to make a step; return what to do after it."""
        if self._scaler is None or self._scaler() is not scaler:
            self._scaler = weakref.ref(scaler)
        before = self.begun

        def afterwards() -> None:
            if self.begun == before:
                with self._guard("watch"):
                    self._skipped(scaler)

        return afterwards

    def _skipped(self, scaler: Any) -> None:
        self.skipped += 1
        self.sampler.drop()
        if self.sampler.leads:
            self.sampler.again()
        scale = getattr(scaler, "_scale", None)
        if scale is not None:
            self.sampler.put("scale", scale.clone())
        self._hand_over()

    def _present_scale(self) -> Any:
        scaler = None if self._scaler is None else self._scaler()
        scale = getattr(scaler, "_scale", None)
        return None if scale is None else scale.clone()

    def _unscaling_before_step(self, optimizer: Any) -> Any:
        """Return by what to multiply gradients that a scaler, if there is one, has not unscaled yet."""
        scaler = None if self._scaler is None else self._scaler()
        scale = getattr(scaler, "_scale", None)
        states = getattr(scaler, "_per_optimizer_states", None)
        if scale is None or states is None or not getattr(scaler, "_enabled", False):
            return None
        state = states.get(id(optimizer))
        ready = state is None or getattr(state.get("stage"), "name", "READY") == "READY"
        return scale.double().reciprocal().float() if ready else None

    def _put_flags(self) -> None:
        flags, self._found = self._found, []
        folded, self._folded = self._folded, []
        if flags:
            torch = sys.modules["torch"]
            self.sampler.put("found", torch.stack([flag.reshape(()) for flag in flags]))
            if folded:
                self.sampler.put("folded", torch.stack(folded))

    def _fold_flags(self) -> None:
        torch = sys.modules["torch"]
        # The last one stays: it says what becomes of the present step.
        flags, self._found = self._found[:-1], self._found[-1:]
        # Of each step that was left out one: a flag may be greater than 1 where several devices found it.
        self._folded.append((torch.stack([flag.reshape(()) for flag in flags]) > 0).sum())


def unwrapped(optimizer: Any) -> Any:
    """Return the torch optimizer within those of Accelerate, Lightning and the like; ConfigError where none is."""
    torch = sys.modules["torch"]
    found = optimizer
    for _ in range(4):
        inner = next(
            (
                one
                for name in ("optimizer", "_optimizer")
                if isinstance(one := getattr(found, name, None), torch.optim.Optimizer)
            ),
            None,
        )
        if inner is None:
            break
        found = inner
    if not isinstance(found, torch.optim.Optimizer):
        raise ConfigError("optimizer", type(optimizer).__name__, "give a torch.optim.Optimizer, several, or None")
    return found


def _closure_of(arguments: Any, named: Any) -> tuple[Any, int | None]:
    """Return the closure of a step, and its place among the arguments, None where it has a name."""
    if callable(named.get("closure")):
        return named["closure"], None
    # The first argument is the optimizer.
    if len(arguments) > 1 and callable(arguments[1]):
        return arguments[1], 1
    return None, None


def _unscaling(optimizer: Any) -> Any:
    """Return by what to multiply the gradients that a fused optimizer unscales itself; None where they are."""
    scale = optimizer.__dict__.get("grad_scale")
    return None if scale is None else scale.double().reciprocal().float()


def _is_capturing() -> bool:
    cuda = sys.modules["torch"].cuda
    return bool(cuda.is_available() and cuda.is_initialized() and cuda.is_current_stream_capturing())
