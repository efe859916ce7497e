"""`otel-train push`: sends what is missing of runs to an OTLP endpoint, any number of times, and accounts for it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_train.cli.arguments import OK, PARTLY_READ, UsageError, add_root, print_json, progress
from otel_train.config import parse_duration, parse_size
from otel_train.view.text import Paint, plain, size, table

if TYPE_CHECKING:
    from otel_train.config import Settings
    from otel_train.export.destination import Destinations
    from otel_train.export.push import PushAccount

UNREACHED: Final = 4
PARTLY: Final = PARTLY_READ
# Where there is no terminal for a bar.
LINE_EVERY_S: Final = 5.0
MOST_FILES: Final = 65_536
STORES: Final = (
    ("prometheus", "OTEL_TRAIN_PROMETHEUS_URL", 9090),
    ("loki", "OTEL_TRAIN_LOKI_URL", 3100),
    ("tempo", "OTEL_TRAIN_TEMPO_URL", 3200),
)

EPILOG = """\
examples:
  otel-train push latest                                       send what is missing of the newest run
  otel-train push ./runs --endpoint http://localhost:4318      of every run in a folder
  otel-train push latest --verify                              and count in the stores
  otel-train push --follow ./runs                              send runs while they go on, and those that died

The endpoint is --endpoint, else $OTEL_EXPORTER_OTLP_ENDPOINT; the other OTLP variables (headers, certificates,
timeout, protocol) mean what the specification says. What a server has acknowledged is kept beside the run log.

exit codes:
  0  all there is has been acknowledged
  2  nothing could be read, or the command was not understood
  3  a part was refused, too old, unreadable or not sent
  4  no server was reached, or none let it in
"""


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "push",
        help="send what is missing of a run to a Collector",
        description="Send what no server has acknowledged yet of runs: all attempts, ranks and signals. Repeat it "
        "freely: what was acknowledged is not sent again. A run that sends itself at this moment is left to itself.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "runs", metavar="RUN|FOLDER", nargs="+", help="id, the start of one, name, folder of a run or of runs, 'latest'"
    )
    add_root(parser)
    parser.add_argument("--endpoint", metavar="URL", help="OTLP endpoint, such as http://localhost:4318")
    parser.add_argument(
        "--max-log-age", metavar="TIME", help="leave out and count log records older than this: 7d; Loki refuses them"
    )
    parser.add_argument(
        "--patience",
        metavar="TIME",
        default="10s",
        help="how long to try a server that does not answer, and how long --verify waits for what is on its way (10s)",
    )
    parser.add_argument(
        "--batch-size", metavar="SIZE", default="1MiB", help="about how much run log to send at a time (1MiB)"
    )
    parser.add_argument(
        "--again", action="store_true", help="send everything once more, though acknowledged: the stores lost it"
    )
    parser.add_argument("--follow", action="store_true", help="go on: send runs while they are written; end by SIGTERM")
    parser.add_argument("--verify", action="store_true", help="count in Prometheus, Loki and Tempo afterwards")
    for store, variable, port in STORES:
        parser.add_argument(
            f"--{store}",
            metavar="URL",
            default=os.environ.get(variable) or f"http://127.0.0.1:{port}",
            help=f"where --verify finds it (default: ${variable}, else port {port} of this host)",
        )
    parser.add_argument("--quiet", "-q", action="store_true", help="print nothing but faults")
    parser.add_argument("--json", action="store_true", help="print JSON")
    # How a run with sender="process" starts its own.
    parser.add_argument("--attempt", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--log", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    """Send, say what became of it, and verify where asked."""
    from otel_train.clock import wall_ns
    from otel_train.export.push import push_run

    settings = _settings(arguments)
    destinations = _destinations(settings)
    _allow_many_files()
    if arguments.follow:
        from otel_train.cli.push_follow import follow

        return follow(arguments, settings, destinations)
    patience_s = _parsed(arguments, "patience", parse_duration)
    batch_bytes = int(_parsed(arguments, "batch-size", parse_size))
    accounts: list[PushAccount] = []
    code = OK
    paths = _paths(arguments)
    for number, path in enumerate(paths):
        with _Progress(arguments, path.name, f"{number + 1}/{len(paths)}") as step:
            account = push_run(
                path,
                destinations,
                now_ns=wall_ns(),
                max_log_age_s=settings["max_log_age"],
                # A server that has not answered for one run is not waited for with each of the others.
                patience_s=min(1.0, patience_s) if accounts and accounts[-1].unreached else patience_s,
                batch_bytes=batch_bytes,
                again=arguments.again,
                progress=step,
            )
        accounts.append(account)
        if not arguments.quiet and not arguments.json:
            _print(account, destinations)
        if account.interrupted:
            break
    if any(account.partly for account in accounts):
        code = PARTLY
    if accounts and all(account.unreached for account in accounts):
        code = UNREACHED
    _tell_faults(accounts)
    interrupted = accounts[-1].interrupted if accounts else False
    verdicts: list[dict[str, Any]] = []
    if arguments.verify and not interrupted:
        from otel_train.cli.push_verify import verify

        verdicts, agrees = verify(arguments, paths, patience_s)
        code = code if agrees else max(code, PARTLY)
    if arguments.json:
        print_json({"runs": [account.to_dict() for account in accounts], "verified": verdicts})
    return 130 if interrupted else code


# What was asked for --------------------------------------------------------------------------------------------------


def _settings(arguments: argparse.Namespace) -> Settings:
    from otel_train.config import resolve

    return resolve({"endpoint": arguments.endpoint, "max_log_age": arguments.max_log_age}, os.environ)


def _destinations(settings: Settings) -> Destinations:
    from otel_train.export.destination import Destinations
    from otel_train.run.sending import endpoint_of

    destinations = Destinations.from_environ(os.environ, endpoint_of(settings))
    if not destinations:
        raise UsageError("where to? Give --endpoint http://localhost:4318, or set OTEL_EXPORTER_OTLP_ENDPOINT")
    return destinations


def _allow_many_files() -> None:
    """Lift this process's limit of open files: each rank's folder is locked by one, and a run may have thousands."""
    try:
        import resource
    except ImportError:  # not on Windows, which has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _parsed(arguments: argparse.Namespace, name: str, parse: Callable[[str], float]) -> float:
    text = getattr(arguments, name.replace("-", "_"))
    try:
        return parse(text)
    except ValueError as fault:
        raise UsageError(f"--{name} {text!r}: {fault}") from None


def _paths(arguments: argparse.Namespace) -> list[Path]:
    """Return the run folders that are meant, each once: a folder of runs means all of them."""
    from otel_train.cli.arguments import run_path
    from otel_train.runlog.catalogue import is_run, run_paths

    paths: dict[Path, None] = {}
    for reference in arguments.runs:
        folder = Path(reference)
        if folder.is_dir() and not is_run(folder) and (found := run_paths(folder)):
            paths.update(dict.fromkeys(found))
            continue
        paths[run_path(argparse.Namespace(dir=arguments.dir, run=reference))] = None
    return list(paths)


# What is said --------------------------------------------------------------------------------------------------------


class _Progress:
    """Shows bytes done: a bar on a terminal, else a line every few seconds, else nothing."""

    def __init__(self, arguments: argparse.Namespace, run_id: str, place: str) -> None:
        self._quiet = arguments.quiet
        self._bar = progress(f"sending {run_id} ({place})")
        self._run_id = run_id
        self._step: Callable[[str, int], None] | None = None
        self._next_s = 0.0

    def __enter__(self) -> Callable[[int, int], bool]:
        from otel_train.clock import NS_PER_S, mono_ns

        self._step = None if self._quiet else self._bar.__enter__()
        self._next_s = mono_ns() / NS_PER_S + LINE_EVERY_S
        return self.show

    def show(self, done: int, total: int) -> bool:
        from otel_train.clock import NS_PER_S, mono_ns

        if self._step is not None:
            self._step("B", done)
        elif not self._quiet and mono_ns() / NS_PER_S >= self._next_s:
            self._next_s += LINE_EVERY_S
            print(f"{self._run_id}: {size(done)} of {size(total)} sent", file=sys.stderr)
        return True

    def __exit__(self, *what: Any) -> None:
        if not self._quiet:
            self._bar.__exit__(*what)


def _print(account: PushAccount, destinations: Destinations) -> None:
    paint = Paint(sys.stdout)
    where = next(iter(destinations)).place
    print(f"{account.run_id}: {paint.state(account.state)}, {_summary(account)}, to {plain(where)}")
    head = ("", "sent", "already there", "merged", "refused", "too old", "unreadable", "held back")
    rows = [
        [signal, *(f"{count:,}" for count in _row(entry))]
        for signal, entry in account.signals.items()
        if any(_row(entry))
    ]
    if rows:
        print(table(head, rows, paint, right=range(1, len(head))))
    earlier = [
        f"{count:,} {signal} {'too old' if name == 'aged' else name}"
        for signal, entry in account.signals.items()
        for name, count in entry.before.items()
        if count
    ]
    if earlier:
        print(f"earlier: {', '.join(earlier)}")


def _row(entry: Any) -> list[int]:
    # End marks are told in the summary: here is what the run log holds.
    counts = (entry.sent - entry.added, entry.already, entry.merged, entry.refused, entry.aged, entry.unreadable)
    return [*counts, entry.held]


def _summary(account: PushAccount) -> str:
    parts = [f"{account.total('sent') - account.total('added'):,} new items sent"]
    if account.total("added"):
        parts.append(f"{account.total('added'):,} end marks")
    if account.total("left_bytes"):
        parts.append(f"{size(account.total('left_bytes'))} of run log left")
    return ", ".join(parts)


def _tell_faults(accounts: list[PushAccount]) -> None:
    paint = Paint(sys.stderr)
    for account in accounts:
        if account.busy:
            folders = ", ".join(f"{path.parent.name}/{path.name}" for path in account.busy)
            print(
                paint("left alone:", "yellow"),
                f"{account.run_id}: {folders} is being sent by another process at this moment",
                file=sys.stderr,
            )
        for signal, entry in account.signals.items():
            if entry.fault:
                print(paint("not sent:", "red"), plain(f"{account.run_id} {signal}: {entry.fault}"), file=sys.stderr)
            for reason, count in entry.reasons.items():
                text = f"{account.run_id} {signal}: {count:,} items: {reason}"
                print(paint("refused:", "red"), plain(text), file=sys.stderr)
        if account.interrupted:
            print(
                paint("interrupted:", "yellow"),
                f"{account.run_id}: what was acknowledged stays so; otel-train push {account.run_id} sends the rest",
                file=sys.stderr,
            )
