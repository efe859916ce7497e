"""Hears of gradient clipping and of loss scalers' steps, in torch's own functions, while anybody listens.

`clip_grad_norm_` is often imported by name before anything is watched. So not itself is replaced, but what it calls in
its module. Everything is put back when the last listener leaves.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol


class Listener(Protocol):
    """Who wants to hear. Nothing that it raises may come through to training: it guards itself."""

    def before_clipping(self, parameters: Any) -> None:
        """Called before the gradients of these parameters (a tensor, a list or a generator's list) are clipped."""
        ...

    def scaler_steps(self, scaler: Any, optimizer: Any) -> Callable[[], None] | None:
        """Called before `scaler.step(optimizer)`; what it returns is called after it."""
        ...


_lock = threading.Lock()
_listeners: list[Listener] = []
# (owner, name, the original, ours), as they were put in place.
_replaced: list[tuple[Any, str, Any, Any]] = []
# Where clipping can be heard, by what is replaced: parameters are the first argument of each. The first of the two
# lists is what `clip_grad_norm_` calls since torch 2.6; the functions of the second are heard if called by attribute.
_INNER: Final = (("torch.nn.utils.clip_grad", "_clip_grads_with_norm_"), ("torch.nn.utils", "clip_grads_with_norm_"))
_OUTER: Final = (("torch.nn.utils.clip_grad", "clip_grad_value_"), ("torch.nn.utils", "clip_grad_value_"))
_OLD: Final = (("torch.nn.utils.clip_grad", "clip_grad_norm_"), ("torch.nn.utils", "clip_grad_norm_"))


def listen(listener: Listener) -> None:
    """Let somebody hear; the first one replaces the functions."""
    with _lock:
        if not _listeners:
            _replace_all()
        _listeners.append(listener)


def leave(listener: Listener) -> None:
    """Let somebody hear no more; after the last one the functions are torch's again."""
    with _lock:
        if listener in _listeners:
            _listeners.remove(listener)
        if not _listeners:
            _restore_all()


def _replace_all() -> None:
    for places in (_INNER if _has(_INNER[0]) else _OLD, _OUTER):
        for module_name, name in places:
            module = sys.modules.get(module_name)
            original = getattr(module, name, None)
            if original is not None:
                _replace(module, name, original, _heard_clipping(original))
    scaler = getattr(sys.modules.get("torch.amp.grad_scaler"), "GradScaler", None)
    if scaler is not None:
        _replace(scaler, "step", scaler.step, _heard_step(scaler.step))


def _has(place: tuple[str, str]) -> bool:
    return hasattr(sys.modules.get(place[0]), place[1])


def _replace(owner: Any, name: str, original: Any, ours: Any) -> None:
    setattr(owner, name, ours)
    _replaced.append((owner, name, original, ours))


def _restore_all() -> None:
    while _replaced:
        owner, name, original, ours = _replaced.pop()
        # Whoever replaced it after us has ours within his, where nobody listens any more.
        if owner.__dict__.get(name) is ours:
            setattr(owner, name, original)


def _heard_clipping(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def clip(parameters: Any, *arguments: Any, **named: Any) -> Any:
        if not _listeners or sys.modules["torch"].compiler.is_compiling():
            return original(parameters, *arguments, **named)
        if not hasattr(parameters, "grad"):
            parameters = list(parameters)
        for listener in tuple(_listeners):
            listener.before_clipping(parameters)
        return original(parameters, *arguments, **named)

    return clip


def _heard_step(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *arguments: Any, **named: Any) -> Any:
        afterwards = [listener.scaler_steps(self, optimizer) for listener in tuple(_listeners)]
        result = original(self, optimizer, *arguments, **named)
        for call in afterwards:
            if call is not None:
                call()
        return result

    return step
