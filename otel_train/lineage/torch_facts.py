"""Reads torch's versions and the settings on which repeatable results depend, only where torch is loaded already."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def describe_torch(torch: Any = None) -> dict[str, Any]:
    """Return versions and flags; `{}` where torch is not loaded. Reads no device and initialises none."""
    torch = torch if torch is not None else sys.modules.get("torch")
    if torch is None or not hasattr(torch, "__version__"):
        return {}
    readings: dict[str, Callable[[], Any]] = {
        "version": lambda: str(torch.__version__),
        "git_version": lambda: torch.version.git_version,
        "cuda": lambda: torch.version.cuda,
        "hip": lambda: torch.version.hip,
        "cudnn": torch_cudnn_version(torch),
        "is_cuda_built": lambda: torch.backends.cuda.is_built(),
        "is_cuda_initialized": lambda: torch.cuda.is_initialized(),
        "deterministic_algorithms": lambda: torch.are_deterministic_algorithms_enabled(),
        "deterministic_warn_only": lambda: torch.is_deterministic_algorithms_warn_only_enabled(),
        "cudnn_deterministic": lambda: torch.backends.cudnn.deterministic,
        "cudnn_benchmark": lambda: torch.backends.cudnn.benchmark,
        "cudnn_enabled": lambda: torch.backends.cudnn.enabled,
        "matmul_allow_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
        "cudnn_allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
        "float32_matmul_precision": lambda: torch.get_float32_matmul_precision(),
        "default_dtype": lambda: str(torch.get_default_dtype()),
        "threads": lambda: torch.get_num_threads(),
        "interop_threads": lambda: torch.get_num_interop_threads(),
    }
    found: dict[str, Any] = {}
    for name, read in readings.items():
        try:
            value = read()
        except Exception:  # noqa: BLE001 - older, newer or half-imported: what it does not have is left out
            continue
        if value is not None:
            found[name] = value
    return found


def torch_cudnn_version(torch: Any) -> Callable[[], Any]:
    """Return the reader of cuDNN's version: it loads the library, but makes no context on a device."""

    def read() -> Any:
        return torch.backends.cudnn.version() if torch.version.cuda and torch.backends.cudnn.is_available() else None

    return read
