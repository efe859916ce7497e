"""Describes what the run is, off the training thread: environment, code, machine, packages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from otel_train.lineage.redact import Redactor

if TYPE_CHECKING:
    from otel_train.sources.gpu import GpuSampler
    from otel_train.sources.host import HostSampler


def describe(
    redactor: Redactor, host: HostSampler, gpu: GpuSampler, environ: Mapping[str, str], *, code: bool
) -> dict[str, Any]:
    """Return the environment record; each part that fails says why in `reasons`. Takes some tenths of a second."""
    from otel_train.lineage.environment import describe_environment, script_path

    machine: dict[str, Any] = {}
    for name, identify in (("host", host.identify), ("gpu", gpu.identify)):
        try:
            machine[name] = identify()
        except Exception as fault:  # noqa: BLE001 - one part that cannot be read loses that part
            machine[name] = {"unavailable": f"{type(fault).__name__}: {fault}"}
    script = script_path()
    folder = None if script is None else os.path.dirname(script)
    return describe_environment(redactor, machine=machine, folder=folder, environ=environ, code=code)


def for_event(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record without the patch, which run.json holds: a log store limits the size of a record."""
    code = environment.get("code")
    if not isinstance(code, Mapping):
        return dict(environment)
    return {**environment, "code": {key: value for key, value in code.items() if key != "patch"}}
