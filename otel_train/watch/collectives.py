"""Measures how long this rank waits for the others within torch.distributed, and takes itself away again.

Three places see it, each a function that torch itself calls by name, so that they can be wrapped while a run is open:

- `Work.wait`: all collectives and point-to-point calls of Python that are waited for, synchronous ones too;
- `torch.autograd.backward`: DDP's reducer and FSDP wait at the end of the backward pass, in callbacks of the autograd
  engine. A hook on the loss queues one callback before theirs, and that one a second, which so comes after theirs;
- `_broadcast_coalesced`: DDP sends buffers (of batch norm) from rank 0 before each forward pass.

With gloo the host itself waits. With NCCL it goes on and the device waits, so two CUDA events take the time there.
Not seen: collectives within compiled graphs, and libraries that bring their own (Horovod, DeepSpeed's C++ parts).
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from otel_train.clock import mono_ns
from otel_train.record.deferred import cuda_timer
from otel_train.record.rank_waits import DeviceWait, RankWaits

_log = logging.getLogger("otel_train")


class Collectives:
    """The wrapped functions are the process's, so there is one of these, and the run that came last has it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits: RankWaits | None = None
        # The thread of the loop: what another one waits for, such as one that saves, holds up no step.
        self._thread = 0
        self._in_backward = False
        self._timer: Any = None
        self._mark: Any = None
        # (holder, name, the original, what stands there now)
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    # Life ------------------------------------------------------------------------------------------------------------

    def attach(self, waits: RankWaits) -> bool:
        """Measure for `waits`, in the calling thread's loop; False where torch.distributed is not in use (yet)."""
        torch = sys.modules.get("torch")
        distributed = sys.modules.get("torch.distributed")
        if torch is None or distributed is None:
            return False
        if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() < 2:
            return False
        with self._lock:
            self._waits = waits
            self._thread = threading.get_ident()
            self._timer = cuda_timer() if "nccl" in str(distributed.get_backend()) else None
            if not self._replaced:
                self._replace(torch._C._distributed_c10d.Work, "wait", self._around)
                self._replace(distributed, "_broadcast_coalesced", self._around)
                self._replace(torch.autograd, "backward", self._around_backward)
        return True

    def detach(self, waits: RankWaits) -> None:
        """Put the originals back, if `waits` has them; what somebody wrapped again meanwhile only passes through."""
        with self._lock:
            if self._waits is not waits:
                return
            self._waits = None
            for holder, name, original, present in self._replaced:
                if getattr(holder, name, None) is present:
                    setattr(holder, name, original)
            self._replaced = []

    def forget(self) -> None:
        """In a forked child: measure nothing. The lock may have been held by another thread."""
        self._lock = threading.Lock()
        self._waits = None

    def _replace(self, holder: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        original = getattr(holder, name, None)
        if original is None:
            # Not public, and perhaps gone with another version: then that wait is not seen.
            return
        wrapped = wrap(original)
        try:
            setattr(holder, name, wrapped)
        except (AttributeError, TypeError) as fault:
            _log.debug("waits in %s are not measured: %s", name, fault)
            return
        self._replaced.append((holder, name, original, wrapped))

    # Measuring -------------------------------------------------------------------------------------------------------

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        is_compiling = sys.modules["torch"].compiler.is_compiling

        @functools.wraps(original)
        def measured(*arguments: Any, **keywords: Any) -> Any:
            # First, so that the compiler, which follows the calls of a forward pass, finds nothing here.
            if is_compiling() or not self._begin():
                return original(*arguments, **keywords)
            try:
                return original(*arguments, **keywords)
            finally:
                self._end()

        return measured

    def _around_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        is_compiling = sys.modules["torch"].compiler.is_compiling

        @functools.wraps(original)
        def backward(*arguments: Any, **keywords: Any) -> Any:
            if is_compiling():
                return original(*arguments, **keywords)
            hook = self._hook_on(arguments[0] if arguments else keywords.get("tensors"))
            if hook is None:
                return original(*arguments, **keywords)
            self._in_backward = True
            try:
                return original(*arguments, **keywords)
            finally:
                self._in_backward = False
                hook.remove()
                # Where the wait itself raised, since a rank is gone, nothing else has ended it.
                self._end()

        return backward

    def _hook_on(self, tensors: Any) -> Any:
        """Have the wait at the end of a backward pass measured; None where it is not to be."""
        if self._waits is None or self._in_backward or threading.get_ident() != self._thread:
            # A backward pass within another recomputes activations: it is own work.
            return None
        try:
            torch = sys.modules["torch"]
            loss = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors))
            if _is_compiled_autograd() or loss.grad_fn is None:
                return None
            queue = torch.autograd.Variable._execution_engine.queue_callback

            def own_part_ends() -> None:
                if self._begin():
                    queue(self._end)

            # On the node, which costs a third of a hook on the tensor.
            return loss.grad_fn.register_prehook(lambda _: queue(own_part_ends))
        except Exception as fault:  # noqa: BLE001 - foreign tensors; training goes on unmeasured
            _log.debug("a backward pass is not measured: %s", fault)
            return None

    def _begin(self) -> bool:
        """Note that a wait begins; False within another, or where nobody asks."""
        waits = self._waits
        if waits is None or waits.since_ns or not (self._in_backward or threading.get_ident() == self._thread):
            return False
        self._mark = self._marked()
        waits.since_ns = mono_ns()
        return True

    def _end(self) -> None:
        waits = self._waits
        if waits is None or not waits.since_ns:
            return
        start_ns, waits.since_ns = waits.since_ns, 0
        before, self._mark = self._mark, None
        after = None if before is None else self._marked()
        device = None if before is None or after is None else DeviceWait(self._timer, before, after)
        waits.add(start_ns, mono_ns(), device)

    def _marked(self) -> Any:
        try:
            return None if self._timer is None else self._timer.mark()
        except Exception as fault:  # noqa: BLE001 - a device may raise anything
            _log.debug("a wait is not measured on the device: %s", fault)
            return None


def _is_compiled_autograd() -> bool:
    module = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(getattr(module, "compiled_autograd_enabled", False))


COLLECTIVES: Final = Collectives()
