"""Tells whether a framework is still at work: one that an exception has left calls nobody at its end."""

from __future__ import annotations

import sys
import threading
from types import FrameType


class AtWork:
    """Knows the innermost call of a method of this name that is under way where it is made."""

    def __init__(self, owner: type, method: str) -> None:
        self._thread = threading.get_ident()
        self._call: FrameType | None = None
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and self._call is None:
            if frame.f_code.co_name == method and isinstance(frame.f_locals.get("self"), owner):
                self._call = frame
            frame = frame.f_back

    def is_over(self) -> bool:
        """Tell whether that call has been left; never where it is not known, or asked of from another thread.

        A backward pass that computes a part of the forward pass again does so in a thread of its own.
        """
        if self._call is None or threading.get_ident() != self._thread:
            return False
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame is self._call:
                return False
            frame = frame.f_back
        return True

    def forget(self) -> None:
        """Let go of the call, which holds what it worked with."""
        self._call = None
