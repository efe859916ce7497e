"""Watches a model that no optimizer of torch's moves: a step is what lies between two changes of its weights."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from otel_train.watch.model_hooks import Hook
from otel_train.watch.model_sampler import StepSampler


class BackwardWatch:
    """The steps of one model. A step begins with the first forward pass in training after the weights have changed.

    They have where the first trained parameter was written to, or has lost its gradient; else gradients accumulate.
    These are read at the end of each backward pass of a sampled step, the last time counts.
    """

    def __init__(
        self,
        model: Any,
        sampler: StepSampler,
        *,
        every: int,
        first: int,
        guard: Callable[[str], AbstractContextManager[None]],
        on_arm: Callable[[], None],
        on_sampled: Callable[[], None],
        scaler: Any = None,
    ) -> None:
        self.steps = 0
        self._sampler = sampler
        self._every = every
        self._due = first
        self._guard = guard
        self._on_arm = on_arm
        self._on_sampled = on_sampled
        self._scaler = scaler
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._probe = weakref.ref(trained[0]) if trained else lambda: None
        self._version = -1
        self._handle = model.register_forward_pre_hook(Hook(self._pass_begins))

    def close(self, *, hand_over: bool = True) -> None:
        """Take the hook away; what was read of the last pass is handed over, or forgotten."""
        self._handle.remove()
        if hand_over and self._sampler.has_read:
            self._finish()
        self._sampler.drop()

    def _pass_begins(self, module: Any, arguments: Any) -> None:
        """Pre-hook of each forward pass."""
        torch = sys.modules["torch"]
        if torch.compiler.is_compiling() or not module.training or not torch.is_grad_enabled():
            return
        probe = self._probe()
        version = 0 if probe is None else probe._version
        if version == self._version and probe is not None and probe.grad is not None:
            return
        self._version = version
        number = self.steps
        self.steps = number + 1
        if self._sampler.has_read:
            with self._guard("watch"):
                self._finish()
        if number >= self._due:
            self._on_arm()

    def gradient_comes(self) -> None:
        """Have the gradients read once this backward pass has ended."""
        if self.steps > self._due:
            engine = sys.modules["torch"].autograd.Variable._execution_engine
            engine.queue_callback(self._pass_ends)

    def _pass_ends(self) -> None:
        with self._guard("watch"):
            self._sampler.read(lambda parameter: True, self._unscaling())

    def _finish(self) -> None:
        self._due = self.steps - 1 + self._every - 1
        self._sampler.read_updates()
        self._sampler.hand_over(done=0, tried=0, skipped=0)
        self._on_sampled()

    def _unscaling(self) -> Any:
        scale = getattr(self._scaler, "_scale", None)
        return None if scale is None else scale.double().reciprocal().float()
