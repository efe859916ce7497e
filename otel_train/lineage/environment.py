"""Describes what this run runs in: interpreter, platform, packages, torch, command line, container, code.

Each part fails alone, with its reason under `reasons`. Nothing here initialises CUDA, imports torch or asks a network.
Call it off the training thread: the packages and git take some 100 ms. User names stay out: the home folder is `~`.
"""

from __future__ import annotations

import os
import platform
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from otel_train.lineage.redact import Redactor

_MAX_ARGUMENT: Final = 4096


def describe_environment(
    redactor: Redactor,
    *,
    machine: Mapping[str, object] | None = None,
    folder: str | None = None,
    environ: Mapping[str, str] | None = None,
    argv: Sequence[str] | None = None,
    root: str = "/",
    code: bool = True,
) -> dict[str, Any]:
    """Return the whole record, JSON-able.

    `machine` is what the samplers know of hardware and driver, passed through. `folder` is where to look for a git
    work tree, by default the script's folder. `argv` is the command line without the interpreter.
    """
    # Imported here, on the thread that describes: a tenth of a second that `import otel_train` need not wait for.
    from otel_train.lineage.container import describe_container
    from otel_train.lineage.packages import installed_packages
    from otel_train.lineage.torch_facts import describe_torch
    from otel_train.lineage.variables import harmless_variables

    variables = os.environ if environ is None else environ
    script = script_path(argv)
    home = os.path.expanduser("~")
    start = folder or (os.path.dirname(script) if script else _working_folder())
    parts: dict[str, Callable[[], Any]] = {
        "python": lambda: _python(home),
        "platform": _platform,
        "host": socket.gethostname,
        "machine": lambda: dict(machine) if machine else None,
        "torch": describe_torch,
        "packages": installed_packages,
        "command": lambda: _command(redactor, script, argv, home),
        "variables": lambda: harmless_variables(variables, redactor, home),
        "container": lambda: describe_container(variables, root),
        "notebook": lambda: notebook_name(variables),
    }
    if code:
        parts["code"] = lambda: _code(start, redactor, variables, home)
    record: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for name, describe in parts.items():
        try:
            value = describe()
        except Exception as fault:  # noqa: BLE001 - one part less, and the reason said
            reasons[name] = redactor.text(f"{type(fault).__name__}: {fault}")
            continue
        if name == "packages":
            record["packages"], sources = value
            if sources:
                record["package_sources"] = {key: redactor.text(text) for key, text in sources.items()}
        elif value not in (None, {}, []):
            record[name] = value
    if reasons:
        record["reasons"] = reasons
    return record


def script_path(argv: Sequence[str] | None = None) -> str | None:
    """Return the absolute path of the running script; None in a notebook, an interactive session or `python -c`."""
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None) if argv is None else None
    if path is None:
        first = (sys.argv if argv is None else list(argv))[:1]
        path = first[0] if first and first[0] not in ("", "-c", "-m") and os.path.isfile(first[0]) else None
    if path is None or "ipykernel" in path:
        return None
    return os.path.abspath(path)


def notebook_name(environ: Mapping[str, str]) -> str | None:
    """Return the notebook's name or path where the front end tells it, "notebook" where one runs without a name."""
    main = sys.modules.get("__main__")
    for name in (
        environ.get("JPY_SESSION_NAME"),
        getattr(main, "__vsc_ipynb_file__", None),
        getattr(main, "__session__", None),
        environ.get("PAPERMILL_INPUT_PATH"),
        "Kaggle notebook" if environ.get("KAGGLE_KERNEL_RUN_TYPE") else None,
        "Colab notebook" if environ.get("COLAB_RELEASE_TAG") else None,
    ):
        if isinstance(name, str) and name:
            return os.path.basename(name)
    return "notebook" if "ipykernel" in sys.modules and not getattr(main, "__file__", None) else None


def without_home(path: str, home: str) -> str:
    """Return `path` with the home folder as `~`: it holds the user's name."""
    if len(home) > 1 and (path == home or path.startswith(home.rstrip("/\\") + os.sep)):
        return "~" + path[len(home.rstrip("/\\")) :]
    return path


def _python(home: str) -> dict[str, Any]:
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "build": " ".join(platform.python_build()),
        "compiler": platform.python_compiler(),
        "executable": without_home(sys.executable or "", home),
        "prefix": without_home(sys.prefix, home),
        "is_virtual_environment": sys.prefix != sys.base_prefix,
        "optimize": sys.flags.optimize,
    }


def _platform() -> dict[str, Any]:
    # platform.platform() and uname().processor would start a process.
    found = {
        "system": platform.system(),
        "release": platform.release(),
        "version": platform.version(),
        "architecture": platform.machine(),
        "libc": " ".join(platform.libc_ver()).strip(),
    }
    try:
        found["distribution"] = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except (OSError, AttributeError):
        pass
    return {key: value for key, value in found.items() if value}


def _command(redactor: Redactor, script: str | None, argv: Sequence[str] | None, home: str) -> dict[str, Any]:
    # The original command line also holds the interpreter's own options, such as -m and -O.
    items = list(sys.orig_argv) if argv is None else list(argv)
    command: dict[str, Any] = {
        "argv": [_bounded(without_home(item, home)) for item in redactor.argv(items)],
        "working_folder": without_home(_working_folder(), home),
    }
    if script is not None:
        command["script"] = without_home(script, home)
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if argv is None and getattr(spec, "name", None):
        command["module"] = spec.name.removesuffix(".__main__")  # type: ignore[union-attr]
    return command


def _bounded(item: str) -> str:
    """Return an argument cut where it is a whole program, as after `python -c`."""
    return item if len(item) <= _MAX_ARGUMENT else f"{item[:_MAX_ARGUMENT]}…[cut, {len(item)} characters]"


def _code(start: str, redactor: Redactor, environ: Mapping[str, str], home: str) -> dict[str, Any]:
    from otel_train.lineage.git import describe_code

    found = describe_code(start, redactor, environ=environ)
    if "root" in found:
        found["root"] = without_home(found["root"], home)
    return found


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""
