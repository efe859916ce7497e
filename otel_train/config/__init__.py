"""One table of settings, each found in the order argument, environment, file, default, and checked before a run starts.

The file is `otel_train.toml`, or the table `[tool.otel_train]` of `pyproject.toml`, in the working folder.
"""

from __future__ import annotations

from otel_train.config.resolving import Settings, is_disabled, read_file, resolve
from otel_train.config.table import BY_NAME, SETTINGS, Setting
from otel_train.config.values import parse_duration, parse_size

__all__ = [
    "BY_NAME",
    "SETTINGS",
    "Setting",
    "Settings",
    "is_disabled",
    "parse_duration",
    "parse_size",
    "read_file",
    "resolve",
]
