"""Finds what PyTorch's flight recorder keeps of the last collectives, and where it writes that by itself."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

# Names of the same setting, the newer first. What torch takes where none is set differs from version to version.
_FILE: Final = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
MOST_BYTES: Final = 200_000


def torchs_own(environ: Mapping[str, str], rank: int) -> str:
    """Return the file that torch itself writes when a collective times out; "" where the user has named none."""
    prefix = next((environ[name] for name in _FILE if environ.get(name)), "")
    return f"{prefix}{rank}" if prefix else ""


def last_collectives() -> bytes:
    """Return the recorder's trace as JSON, at most `MOST_BYTES`; empty where it keeps none. Waits for no device."""
    module = sys.modules.get("torch._C._distributed_c10d")
    distributed = sys.modules.get("torch.distributed")
    if module is None or distributed is None or not _is_initialized(distributed):
        return b""
    backend = _backend(distributed)
    try:
        if "nccl" in backend:
            trace: Any = module._dump_nccl_trace_json(includeCollectives=True, onlyActive=False)
        else:
            trace = module._dump_fr_trace_json(includeCollectives=True, onlyActive=False, backend=backend)
    except Exception:  # noqa: BLE001 - not public; older versions have none, or none for this backend
        return b""
    return bytes(trace) if len(trace) <= MOST_BYTES else b""


def _is_initialized(distributed: Any) -> bool:
    return bool(distributed.is_available() and distributed.is_initialized())


def _backend(distributed: Any) -> str:
    try:
        return str(distributed.get_backend())
    except Exception:  # noqa: BLE001 - destroyed meanwhile
        return ""
