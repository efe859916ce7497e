"""Gives Lightning's base classes from the package that is in use: `lightning`, or the older `pytorch_lightning`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightning.pytorch import Callback
    from lightning.pytorch.loggers.logger import Logger
elif "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback
    from pytorch_lightning.loggers.logger import Logger
else:
    try:
        from lightning.pytorch import Callback
        from lightning.pytorch.loggers.logger import Logger
    except ImportError:
        from pytorch_lightning import Callback
        from pytorch_lightning.loggers.logger import Logger

__all__ = ["Callback", "Logger"]
