"""Finds each setting in the order argument, environment, file, default, and checks it before a run starts."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_train.config.table import BY_NAME, SETTINGS
from otel_train.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked values, and for each where it was found: argument, environment, file or default."""

    values: Mapping[str, Any]
    origins: Mapping[str, str]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def read_file(folder: Path) -> tuple[dict[str, Any], str]:
    """Return the settings of `otel_train.toml`, else of `pyproject.toml`, in `folder`, and the file's name."""
    for name, table in (("otel_train.toml", ()), ("pyproject.toml", ("tool", "otel_train"))):
        path = folder / name
        if not path.is_file():
            continue
        try:
            content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, OSError, UnicodeDecodeError) as fault:
            if name == "pyproject.toml":  # somebody else's file: its faults are not ours to report
                continue
            raise ConfigError(name, str(path), f"mend the file: {fault}") from None
        for part in table:
            content = content.get(part, {})
        if content:
            return content, name
    return {}, ""


def resolve(arguments: Mapping[str, Any], environ: Mapping[str, str], folder: Path | None = None) -> Settings:
    """Return every setting, checked; an argument of None counts as not given. ConfigError names what is wrong."""
    from_file, file_name = read_file(folder or Path.cwd())
    for key in from_file:
        if key not in BY_NAME:
            raise ConfigError(f"{file_name}: {key}", from_file[key], f"no such setting; there are {', '.join(BY_NAME)}")
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for setting in SETTINGS:
        name = setting.name
        if arguments.get(name) is not None:
            value, origin, label = arguments[name], "argument", name
        elif environ.get(setting.variable, "") != "":
            value, origin, label = environ[setting.variable], "environment", setting.variable
        elif name in from_file:
            value, origin, label = from_file[name], "file", f"{file_name}: {name}"
        else:
            values[name], origins[name] = setting.default, "default"
            continue
        try:
            values[name] = setting.parse(value)
        except ValueError as fault:
            raise ConfigError(label, value, str(fault)) from None
        origins[name] = origin
    return Settings(values, origins)


def is_disabled(environ: Mapping[str, str]) -> bool:
    """Tell whether `OTEL_SDK_DISABLED` is true, in any case, as the specification has it."""
    return environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
