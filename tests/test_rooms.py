"""The table of rooms, and what follows from it: who may import whom, and who may touch time, files, network and torch.

Names of modules here are paths below `otel_train/`. An exception to a rule stands beside its reason, or is none.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "otel_train"

# Lowest first; a room imports only rooms of lower lines, and itself. The package's own `__init__` belongs to `run`.
LINES: tuple[tuple[str, ...], ...] = (
    ("semconv", "errors", "clock"),
    ("config",),
    ("record",),
    ("otlp",),
    ("runlog",),
    ("export", "sources", "lineage", "watch"),
    ("run",),
    ("view",),
    ("testing",),
    ("integrations", "server"),
    ("cli",),
)
LINE_OF = {room: number for number, line in enumerate(LINES) for room in line}

LONGEST_MODULE_LINES = 400
LONG_MODULES: dict[str, str] = {}

# Modules that tell the time.
MAY_KNOW_TIME = {"clock.py"}
# Rooms that write files.
MAY_WRITE_FILES = {"runlog", "lineage", "view", "server"}
# What these modules import of torch they import within functions, and only where torch is loaded already.
MAY_IMPORT_TORCH = {"record/deferred.py", "lineage/ranks.py"}
MAY_IMPORT_TORCH_ROOMS = {"watch", "integrations"}
MAY_USE_NETWORK = {"export", "server"}
# Modules of other rooms that listen: the local page.
MAY_LISTEN = "view/serving/"

NETWORK = {"asyncio", "ftplib", "grpc", "http", "httpx", "requests", "smtplib", "socketserver", "ssl", "xmlrpc"}
# Names of the host, without a connection.
HARMLESS_OF_SOCKET = {"gethostname", "getfqdn"}
# Slow to import, or not installed everywhere: never at a module's top, in whatever room.
ONLY_WITHIN_FUNCTIONS = {"torch", "numpy", "pandas", "plotly", "tqdm", "loguru", "structlog", "omegaconf", "sklearn"}
ONLY_WITHIN_FUNCTIONS |= {"rich", "pyarrow", "shtab", "uvicorn", "IPython", "zlib_ng"}
POSIX_ONLY = {"fcntl", "grp", "pwd", "resource", "termios"}
WRITING_METHODS = {"mkdir", "rmdir", "symlink_to", "touch", "write_bytes", "write_text", "unlink"}
WRITING_FUNCTIONS = {
    *("os.fdopen", "os.ftruncate", "os.link", "os.makedirs", "os.mkdir", "os.remove", "os.removedirs", "os.rename"),
    *("os.replace", "os.rmdir", "os.symlink", "os.truncate", "os.unlink", "os.write"),
}
WRITING_MODULES = {"shutil", "tempfile"}
# Of these, what only looks.
HARMLESS_OF_SHUTIL = {"shutil.which", "shutil.get_terminal_size", "shutil.disk_usage"}


@dataclass(frozen=True)
class Module:
    """One source file: its path below the package, its text and its tree."""

    name: str
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        first = self.name.split("/")[0].removesuffix(".py")
        return "run" if first == "__init__" else first


def read_module(path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    return Module(path.relative_to(PACKAGE).as_posix(), text, ast.parse(text))


MODULES = [read_module(path) for path in sorted(PACKAGE.rglob("*.py"))]


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each imported module's dotted name, `from a import b` as `a.b`, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def imports_at_the_top(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield what is imported with the module itself, unguarded: outside of functions, `try` and TYPE_CHECKING."""
    for node in tree.body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.If, ast.With, ast.ClassDef)):
            yield from imports(node)


def imports_of(module: Module, packages: set[str]) -> list[str]:
    """Return what a module imports, anywhere, of these top-level packages."""
    return [f"line {line}: {name}" for name, line in imports(module.tree) if name.split(".")[0] in packages]


def calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """Yield each call with the text of what is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node, ast.unparse(node.func)


def is_a_mode_that_writes(node: ast.expr | None) -> bool:
    """Tell whether the mode of an `open` writes; one that is computed may."""
    if node is None:
        return False
    return not isinstance(node, ast.Constant) or any(letter in str(node.value) for letter in "wax+")


def writes(module: Module) -> list[str]:
    """Return what in a module writes, makes, renames or removes files, with its line."""
    found = []
    for call, what in calls(module.tree):
        last = what.rsplit(".", 1)[-1]
        arguments = " ".join(ast.unparse(argument) for argument in call.args)
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        if what == "os.open":
            does = "devnull" not in arguments and any(flag in arguments for flag in ("O_WRONLY", "O_RDWR", "O_CREAT"))
        elif what in ("open", "gzip.open", "io.open"):
            does = is_a_mode_that_writes(call.args[1] if len(call.args) > 1 else keywords.get("mode"))
        elif last == "open":
            # A path's; other objects open other things, and are not told a mode.
            mode = call.args[0] if call.args else keywords.get("mode")
            does = isinstance(mode, ast.Constant) and is_a_mode_that_writes(mode)
        else:
            does = what in WRITING_FUNCTIONS or ("." in what and last in WRITING_METHODS)
            does |= what.split(".")[0] in WRITING_MODULES and what not in HARMLESS_OF_SHUTIL
        if does:
            found.append(f"line {call.lineno}: {what}({arguments})")
    return found


NONE: Set[str] = frozenset()


def violations(
    rule: Callable[[Module], list[str]], *, rooms: Set[str] = NONE, modules: Set[str] = NONE
) -> dict[str, list[str]]:
    """Return by module what breaks a rule, except in the rooms and modules that may."""
    checked = [module for module in MODULES if module.room not in rooms and module.name not in modules]
    return {module.name: found for module in checked if (found := rule(module))}


def test_each_module_belongs_to_a_room() -> None:
    """A module outside of the table would be checked by nothing."""
    assert len(MODULES) > 50
    assert {module.room for module in MODULES} - set(LINE_OF) == set()


def upward(module: Module) -> list[str]:
    """Return what a module imports of rooms on its own line or above."""
    ours = [(name, line) for name, line in imports(module.tree) if name.startswith("otel_train.")]
    return [
        f"line {line}: {name}"
        for name, line in ours
        if name != "otel_train.__version__"
        and name.split(".")[1] != module.room
        and LINE_OF[name.split(".")[1]] >= LINE_OF[module.room]
    ]


def test_a_room_imports_only_rooms_below_it() -> None:
    """Imports for the type checker count too: a room does not know of what is above it."""
    assert violations(upward) == {}


def test_nobody_imports_the_integrations() -> None:
    """They use the public names, and are imported by their users alone."""

    def integrations(module: Module) -> list[str]:
        return [name for name, _ in imports(module.tree) if name.startswith("otel_train.integrations")]

    assert violations(integrations, rooms={"integrations"}) == {}


def test_only_the_clock_tells_the_time() -> None:
    """Everything else is given its times, so that tests need no waiting."""
    assert violations(lambda module: imports_of(module, {"time", "datetime"}), modules=MAY_KNOW_TIME) == {}


def test_torch_is_imported_in_few_places() -> None:
    """Recording works without torch, and does not load it for somebody who has not."""

    def loads_torch(module: Module) -> list[str]:
        by_name = [
            f"line {call.lineno}: {ast.unparse(call)}"
            for call, what in calls(module.tree)
            if what.endswith(("import_module", "__import__")) and ast.unparse(call.args[0]).startswith("'torch")
        ]
        return imports_of(module, {"torch"}) + by_name

    assert violations(loads_torch, rooms=MAY_IMPORT_TORCH_ROOMS, modules=MAY_IMPORT_TORCH) == {}


def test_heavy_and_optional_packages_are_imported_within_functions() -> None:
    """`import otel_train` is quick, and works where none of these is installed."""

    def at_the_top(module: Module) -> list[str]:
        return [name for name, _ in imports_at_the_top(module.tree) if name.split(".")[0] in ONLY_WITHIN_FUNCTIONS]

    assert violations(at_the_top) == {}


def test_nothing_that_only_posix_has_is_imported_unguarded() -> None:
    """A machine without fcntl, resource or pwd imports every module."""

    def at_the_top(module: Module) -> list[str]:
        return [name for name, _ in imports_at_the_top(module.tree) if name.split(".")[0] in POSIX_ONLY]

    assert violations(at_the_top) == {}


def test_only_some_rooms_use_the_network() -> None:
    """Nothing connects or listens that was not meant to; the host's own name needs no connection."""

    def network(module: Module) -> list[str]:
        found = imports_of(module, NETWORK)
        found += [f"line {line}: {name}" for name, line in imports(module.tree) if name.startswith("urllib.request")]
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "socket":
                found += [f"line {node.lineno}: socket.{name}" for name in {node.attr} - HARMLESS_OF_SOCKET]
            elif isinstance(node, ast.ImportFrom) and node.module == "socket":
                names = {alias.name for alias in node.names} - HARMLESS_OF_SOCKET
                found += [f"line {node.lineno}: socket.{name}" for name in names]
        return found

    listening = {module.name for module in MODULES if module.name.startswith(MAY_LISTEN)}
    assert violations(network, rooms=MAY_USE_NETWORK, modules=listening) == {}


def test_only_some_rooms_write_files() -> None:
    """What may fail on a full disk is in few places, each of which knows what to do then."""
    assert violations(writes, rooms=MAY_WRITE_FILES) == {}


def test_a_module_is_short_or_has_its_reason() -> None:
    """A module that passes the limit is split, or has its reason in `LONG_MODULES`."""
    lengths = {module.name: module.text.count("\n") for module in MODULES}
    long = {name: length for name, length in lengths.items() if length > LONGEST_MODULE_LINES}
    assert {name: length for name, length in long.items() if not LONG_MODULES.get(name)} == {}
    assert set(LONG_MODULES) - set(long) == set(), "this exception is not needed any more"


def test_a_module_begins_with_its_duty() -> None:
    """The first line is one sentence that says what the module is for."""

    def duty(module: Module) -> list[str]:
        if module.name.endswith("__init__.py") and not module.text:
            return []
        line = (ast.get_docstring(module.tree) or "").split("\n")[0]
        begins_well = line[:1].isupper() or line.startswith(("otel-train ", "`otel-train "))
        good = module.text.startswith('"""') and begins_well and line.endswith(".") and len(line.split()) >= 4
        return [] if good else [line]

    assert violations(duty) == {}


def test_exceptions_name_modules_that_are_there() -> None:
    """An exception for a module that was renamed or removed is taken out of the table."""
    assert (MAY_KNOW_TIME | MAY_IMPORT_TORCH) - {module.name for module in MODULES} == set()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("open(path, 'a')", 1),
        ("open(path)", 0),
        ("open(path, 'rb')", 0),
        ("open(path, mode=mode)", 1),
        ("path.open('w')", 1),
        ("path.open()", 0),
        ("os.open(path, os.O_WRONLY | os.O_APPEND)", 1),
        ("os.open(os.devnull, os.O_WRONLY)", 0),
        ("os.replace(one, other)", 1),
        ("path.write_text('x')", 1),
        ("stream.write('x')", 0),
        ("shutil.rmtree(path)", 1),
        ("shutil.which('git')", 0),
    ],
)
def test_what_counts_as_writing(source: str, found: int) -> None:
    """The check itself sees the ways in which Python writes files."""
    assert len(writes(Module("x.py", source, ast.parse(source)))) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import torch", ["torch"]),
        ("from torch import nn", ["torch.nn"]),
        ("try:\n    import fcntl\nexcept ImportError:\n    fcntl = None", []),
        ("def f():\n    import torch", []),
        ("if TYPE_CHECKING:\n    import torch", []),
        ("class A:\n    import torch", ["torch"]),
    ],
)
def test_what_counts_as_the_top(source: str, found: list[str]) -> None:
    """The check itself tells what is imported with a module from what is imported later, or by the type checker."""
    assert [name for name, _ in imports_at_the_top(ast.parse(source))] == found


@pytest.mark.parametrize(
    ("name", "source", "found"),
    [
        ("record/x.py", "from otel_train.run.run import Run", ["line 1: otel_train.run.run.Run"]),
        ("lineage/x.py", "def f():\n    import otel_train.sources.gpu", ["line 2: otel_train.sources.gpu"]),
        ("config.py", "from otel_train.errors import ConfigError", []),
        ("record/x.py", "from otel_train.record.names import Series", []),
        ("lineage/x.py", "from otel_train import clock", []),
        ("runlog/x.py", "from otel_train import cli", ["line 1: otel_train.cli"]),
    ],
)
def test_what_counts_as_upward(name: str, source: str, found: list[str]) -> None:
    """The check itself sees imports of rooms above or beside, in whatever form and place."""
    assert upward(Module(name, source, ast.parse(source))) == found
