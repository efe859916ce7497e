"""Names what a run says that it does where that is no training step, apart from the names of phases and stages."""

from __future__ import annotations

from typing import Final

# Within a stage without training.
IN_A_STAGE: Final = "stage"
# Without an open loop over steps.
OUTSIDE: Final = "outside of the loop"
