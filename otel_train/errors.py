"""Every exception that otel-train raises on purpose, and the fix that many of them name.

OtelTrainError
├── ConfigError        a setting or argument is wrong; names the field, the value and the fix   (also ValueError)
├── RunIdInUseError    a new run asked for the id of an existing one
├── RunNotFoundError   no run by that id, name or path                                          (also LookupError)
├── RunFolderError     a folder is not a run, or nothing in it can be read
└── CheckpointError    a checkpoint could not be written, or is not what was written
"""

from __future__ import annotations


def installing(extra: str) -> str:
    """Return how the packages of an extra are installed, where otel-train came as a package and where from a clone."""
    return f"pip install 'otel-train[{extra}]' (from a clone: pip install '.[{extra}]')"


class OtelTrainError(Exception):
    """Base of all."""


class ConfigError(OtelTrainError, ValueError):
    """A setting or argument is wrong."""

    def __init__(self, field: str, value: object, fix: str) -> None:
        self.field = field
        self.value = value
        self.fix = fix
        super().__init__(f"{field}={value!r}: {fix}")


class RunIdInUseError(OtelTrainError):
    """A new run asked for the id of an existing one."""


class RunNotFoundError(OtelTrainError, LookupError):
    """No run by that id, name or path."""


class RunFolderError(OtelTrainError):
    """A folder is not a run, or nothing in it can be read."""


class CheckpointError(OtelTrainError):
    """A checkpoint could not be written, or is not what was written."""
