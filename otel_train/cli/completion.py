"""`otel-train completion`: what a shell needs to complete commands, options, files, and the runs there are."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_train.cli.arguments import OK, UNREADABLE, add_root, root_of
from otel_train.errors import OtelTrainError, installing

if TYPE_CHECKING:
    from otel_train.runlog.folder import RunFolder

SHELLS: Final = ("bash", "zsh", "fish", "tcsh")
# What a shell calls at each press of the key; `main` answers it without building the parser of all commands.
LIST_RUNS: Final = "_runs"
RUN_NAMES: Final = ("RUN", "RUN|FOLDER")
FOLDER_NAMES: Final = ("FOLDER",)
FILE_NAMES: Final = ("FILE", "MODEL")
# Names of older runs are rarely asked for, and each costs the reading of a file.
NAMED: Final = 200
# What a shell would read as something else than a letter of a word.
_ODD: Final = frozenset("'\"\\$`!()[]{}<>|&;*?~#\0")
# Where each shell looks by itself, but for tcsh and zsh, which have to be told.
PLACES: Final = {
    "bash": "~/.local/share/bash-completion/completions/otel-train",
    "zsh": "~/.zfunc/_otel-train",
    "fish": "~/.config/fish/completions/otel-train.fish",
    "tcsh": "~/.config/otel-train/completion.tcsh",
}
TOLD: Final = {
    "zsh": "and before compinit in ~/.zshrc: fpath+=~/.zfunc",
    "tcsh": "and in ~/.tcshrc: source ~/.config/otel-train/completion.tcsh",
}
_SETUP: Final = "\n".join(
    f"  {shell}:".ljust(9)
    + f"mkdir -p {os.path.dirname(place)}\n         otel-train completion {shell} > {place}"
    + (f"\n         {TOLD[shell]}" if shell in TOLD else "")
    for shell, place in PLACES.items()
)
EPILOG: Final = f"""\
for this bash alone:  source <(otel-train completion bash)
to have it always:
{_SETUP}

Ids and names of runs are looked for in $OTEL_TRAIN_DIR, else in ./runs, at the moment of completion.
"""
# The runs by what begins the word; folders as well, since a run may be named by its folder.
_BASH: Final = """
_otel_train_runs() {
  local -a root=()
  local i
  for ((i = 1; i < ${#COMP_WORDS[@]} - 1; i++)); do
    [[ "${COMP_WORDS[i]}" == "--dir" ]] && root=(--dir "${COMP_WORDS[i + 1]}")
  done
  local IFS=$'\\n'
  compgen -W "$(otel-train _runs ${root[@]+"${root[@]}"} 2>/dev/null)" -- "$1"
  compgen -d -- "$1"
}
"""
_ZSH: Final = """
_otel_train_runs() {
  local -a root
  local i
  for ((i = 2; i < $#words; i++)); do
    [[ "$words[i]" == "--dir" ]] && root=(--dir "$words[i+1]")
  done
  local -a found
  found=(${(f)"$(otel-train _runs $root 2>/dev/null)"})
  compadd -a found
  _files -/
}
"""


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "completion",
        help="print the completion for a shell",
        description="Print what a shell needs to complete commands, options and runs.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell that it is for")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    """Print it."""
    try:
        import shtab
    except ImportError:
        print(f"otel-train: completion needs shtab: {installing('view')}", file=sys.stderr)
        return UNREADABLE
    from otel_train.cli.main import build_parser

    if arguments.shell not in shtab.SUPPORTED_SHELLS:
        print(f"otel-train: this shtab knows no {arguments.shell}: pip install -U shtab", file=sys.stderr)
        return UNREADABLE
    parser = build_parser()
    _say_what_is_what(parser, shtab)
    preamble = {"bash": _BASH, "zsh": _ZSH}.get(arguments.shell, "")
    script = shtab.complete(parser, arguments.shell, root_prefix="otel_train", preamble=preamble)
    print(_with_our_place(script, arguments.shell))
    return OK


def _with_our_place(script: str, shell: str) -> str:
    """Return the script with our way to have it always at its head, where shtab names another one."""
    told = f"; {TOLD[shell]}" if shell in TOLD else ""
    usage = f"# Usage: otel-train completion {shell} > {PLACES[shell]}{told}\n"
    return re.sub(r"^# Usage:\n(?:#.*\n)*", lambda _: usage, script, count=1, flags=re.MULTILINE)


def _say_what_is_what(parser: argparse.ArgumentParser, shtab: Any) -> None:
    """Mark the arguments that name runs, folders and files, by what the help calls them."""
    runs = {"bash": "_otel_train_runs", "zsh": "_otel_train_runs", "tcsh": f"`otel-train {LIST_RUNS}`"}
    runs["fish"] = f"(otel-train {LIST_RUNS})"
    for action in _actions(parser):
        names = action.metavar if isinstance(action.metavar, str) else ""
        if names in RUN_NAMES:
            action.complete = runs  # type: ignore[attr-defined]
        elif names in FOLDER_NAMES:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif names in FILE_NAMES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for within in action.choices.values():
                yield from _actions(within)
        else:
            yield action


def list_runs(words: list[str]) -> int:
    """Print `latest`, the ids of the runs, newest first, and their names; nothing where that cannot be told quickly.

    Only the names of folders are read, and run.json of the newest runs.
    """
    parser = argparse.ArgumentParser(prog=f"otel-train {LIST_RUNS}", add_help=False, exit_on_error=False)
    add_root(parser)
    try:
        arguments, _ = parser.parse_known_args(words)
        root = root_of(arguments)
        entries = [entry.name for entry in os.scandir(root) if not entry.name.startswith(".") and entry.is_dir()]
    except (argparse.ArgumentError, OSError):
        return OK
    from otel_train.runlog.folder import RUN_FILE, RunFolder

    ids = [name for name in sorted(entries, reverse=True) if _is_run(root / name, RUN_FILE)]
    if ids:
        print("latest")
    for name in ids:
        print(name)
    seen = {"latest", *ids}
    for run_id in ids[:NAMED]:
        name = _name_of(RunFolder(root / run_id))
        # A shell takes a word apart at its spaces, and a line for each word is what it is given.
        if name and name not in seen and not any(letter.isspace() or letter in _ODD for letter in name):
            seen.add(name)
            print(name)
    return OK


def _is_run(path: Path, run_file: str) -> bool:
    try:
        return (path / run_file).is_file() or (path / "attempt-1").is_dir()
    except OSError:
        # Somebody else's.
        return False


def _name_of(folder: RunFolder) -> str:
    try:
        return str(folder.read().get("run_name") or "")
    except OtelTrainError:
        return ""
