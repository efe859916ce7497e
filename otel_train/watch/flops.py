"""Knows how many FLOPs a training does, given or counted, and what share of the card's peak that is.

Model FLOP utilisation as PaLM's paper (Chowdhery et al., 2022, appendix B) has it: the FLOPs that forward and backward
pass of the model need, by time, by the peak of the hardware. What is counted includes recomputation (activation
checkpointing); what is given should not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from otel_train.errors import ConfigError
from otel_train.watch.device_peaks import FORMATS, peak_flops, present_device_name
from otel_train.watch.throughput import Window

DEFAULT_FORMAT: Final = "bf16"


@dataclass(frozen=True, slots=True)
class FlopCount:
    """FLOPs of one of these: a sample, a token, or a micro-batch (`step`)."""

    per: str
    flops: float

    def of(self, window: Window) -> float | None:
        """Return the FLOPs of a window; None where what they are counted by is not known."""
        amounts = {"sample": window.samples, "token": window.tokens, "step": window.micro_batches}
        amount = amounts[self.per]
        return None if amount is None else self.flops * amount


class Flops:
    """What the user has said of one run's FLOPs. Set on the training thread, asked on the writer's."""

    def __init__(self, device_name: Callable[[], str | None] = present_device_name) -> None:
        self._device_name = device_name
        self._count: FlopCount | None = None
        self._peak: float | None = None
        self._format = DEFAULT_FORMAT

    def give(self, *, per_sample: Any, per_token: Any, per_step: Any, peak: Any) -> None:
        """Take the FLOPs and the peak; see `Run.flops`. ConfigError where one is no number above 0."""
        given = {
            per: value
            for per, value in (("sample", per_sample), ("token", per_token), ("step", per_step))
            if value is not None
        }
        if len(given) != 1:
            said = ", ".join(f"per_{per}" for per in given) or "none"
            raise ConfigError("flops", said, "give exactly one of per_sample, per_token and per_step")
        ((per, value),) = given.items()
        count = FlopCount(per, _positive(f"per_{per}", value))
        self._take_peak(peak)
        self._count = count

    def _take_peak(self, peak: Any) -> None:
        if peak is None:
            number, number_format = None, DEFAULT_FORMAT
        elif isinstance(peak, str):
            if peak not in FORMATS:
                raise ConfigError("peak", peak, f"use FLOP/s, or the number format of its peak: {', '.join(FORMATS)}")
            number, number_format = None, peak
        else:
            number, number_format = _positive("peak", peak), DEFAULT_FORMAT
        self._peak, self._format = number, number_format
        if number is None:
            # Here, on the thread that trains: another one's device would be the first.
            self._look_up()

    def _look_up(self) -> None:
        name = self._device_name()
        if name is not None:
            self._peak = peak_flops(name, self._format)

    def utilisation(self, window: Window) -> float | None:
        """Return the share of the peak over a window, 0 to 1; None where FLOPs or peak are not known."""
        if self._count is None:
            return None
        if self._peak is None:
            self._look_up()
        flops = self._count.of(window)
        if flops is None or self._peak is None or not window.training_s:
            return None
        return flops / window.training_s / self._peak

    def counting(
        self,
        *,
        samples: Any,
        tokens: Any,
        peak: Any,
        size: Callable[[], tuple[int | None, int | None]],
        warn: Callable[[str], None],
    ) -> AbstractContextManager[None]:
        """Return what counts the FLOPs that torch computes within; see `Run.count_flops`.

        `size` gives samples and tokens of the present batch, where nothing else is said.
        """
        amounts = (("samples", samples), ("tokens", tokens))
        given = {name: _positive(name, value) for name, value in amounts if value is not None}
        self._take_peak(peak)
        return self._counting(given, size, warn)

    @contextmanager
    def _counting(
        self,
        given: dict[str, float],
        size: Callable[[], tuple[int | None, int | None]],
        warn: Callable[[str], None],
    ) -> Iterator[None]:
        mode = _torch_counter()
        if mode is None:
            warn("count_flops: this torch has no counter of FLOPs; give them: run.flops(per_token=…)")
            yield
            return
        with mode:
            yield
        total = float(mode.get_total_flops())
        if total <= 0:
            warn(
                "count_flops: torch saw no operation whose FLOPs it knows; run the model itself within the block, "
                "not a compiled one, or give them: run.flops(per_token=…)"
            )
            return
        learned_samples, learned_tokens = (None, None) if given else size()
        for per, amount in (
            ("token", given.get("tokens", learned_tokens)),
            ("sample", given.get("samples", learned_samples)),
        ):
            if amount:
                self._count = FlopCount(per, total / amount)
                return
        self._count = FlopCount("step", total)


def _torch_counter() -> Any:
    if "torch" not in sys.modules:
        return None
    try:
        from torch.utils.flop_counter import FlopCounterMode
    except ImportError:
        return None
    return FlopCounterMode(display=False)


def _positive(field: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not number > 0 or not isfinite(number) or isinstance(value, bool):
        raise ConfigError(field, value, "use a number above 0")
    return number
