"""Names what a run says that it does where that is no training step, apart from the names of phases and stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Within a stage without training.
IN_A_STAGE: Final = "stage"
# Without an open loop over steps.
OUTSIDE: Final = "outside of the loop"

# What an aside may be, as the states of `dl.time`; "" for a stage of another kind.
EVALUATION: Final = "evaluation"
CHECKPOINT: Final = "checkpoint"
OTHER: Final = ""


@dataclass(slots=True)
class Aside:
    """A span of monotonic time in which a run does something else than train; its end is None while it lasts."""

    start_ns: int
    state: str
    end_ns: int | None = None
