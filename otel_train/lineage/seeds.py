"""Sets and records the random states of Python, NumPy and torch, as far as they are loaded; it imports none of them."""

from __future__ import annotations

import hashlib
import operator
import os
import random
import sys
from typing import Any, Final

from otel_train.errors import ConfigError

# NumPy's old global state takes no larger one.
_LARGEST: Final = 2**32 - 1


def check_seed(seed: object) -> int:
    """Return the seed as an int; ConfigError where it is no whole number from 0 to 2**32 - 1."""
    try:
        value = operator.index(seed)  # type: ignore[arg-type]
    except TypeError:
        value = -1
    if isinstance(seed, bool) or not 0 <= value <= _LARGEST:
        raise ConfigError("seed", seed, f"use a whole number from 0 to {_LARGEST}")
    return value


def seed_everything(seed: object) -> dict[str, Any]:
    """Seed Python's `random`, NumPy's global state and torch on all devices, and return the record of it.

    What is imported later is not seeded: the record lists it under `not_loaded`. CUDA is not initialised by this;
    torch keeps the seed for the moment when it is. Raises ConfigError for a wrong seed.
    """
    value = check_seed(seed)
    done, problems = [], {}
    for name, seeder in (("python", _seed_python), ("numpy", _seed_numpy), ("torch", _seed_torch)):
        try:
            if seeder(value):
                done.append(name)
        except Exception as fault:  # noqa: BLE001 - a half-imported library is reported, not raised
            problems[name] = f"{type(fault).__name__}: {fault}"
    record: dict[str, Any] = {"seed": value, "set": done}
    not_loaded = [name for name in ("numpy", "torch") if name not in done and name not in problems]
    if not_loaded:
        record["not_loaded"] = not_loaded
    if problems:
        record["problems"] = problems
    return record | _states()


def describe_seeds() -> dict[str, Any]:
    """Return what can be read of the random states, with `seed` None: nobody set one through otel-train."""
    return {"seed": None, **_states()}


def _seed_python(seed: int) -> bool:
    random.seed(seed)
    return True


def _seed_numpy(seed: int) -> bool:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return False
    numpy.random.seed(seed)
    return True


def _seed_torch(seed: int) -> bool:
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    torch.manual_seed(seed)
    return True


def _states() -> dict[str, Any]:
    """Return digests of the states: equal ones draw the same numbers from here on."""
    states: dict[str, str] = {}
    found: dict[str, Any] = {"states": states, "python_hash_seed": os.environ.get("PYTHONHASHSEED", "random")}
    states["python"] = _digest(repr(random.getstate()).encode())
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    try:
        if numpy is not None:
            name, keys, *rest = numpy.random.get_state()
            states["numpy"] = _digest(repr((name, rest)).encode() + keys.tobytes())
    except Exception:  # noqa: BLE001 - half-imported or replaced by the user; the other states are read
        pass
    try:
        if torch is not None:
            states["torch"] = _digest(bytes(torch.get_rng_state().tolist()))
            found["torch_initial_seed"] = torch.initial_seed()
            # The seed is kept on the host: reading it waits for no device.
            if torch.cuda.is_initialized():
                found["torch_cuda_initial_seed"] = torch.cuda.initial_seed()
    except Exception:  # noqa: BLE001 - as above, and torch refuses during a graph capture
        pass
    return found


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
