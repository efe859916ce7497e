"""Builds Collector, Prometheus and Alertmanager from Go modules into the build cache: `make servers`.

Takes some minutes once and nothing afterwards. Two builds at a time do not meet: each works in a folder of its own, a
lock makes the second wait, and a program appears in the cache only when it is whole. What the tools say goes to
build.log beside the programs.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.stack.programs import COLLECTOR, SERVERS, cache_folder, find, why_missing

_FLAGS = ["-trimpath", "-ldflags", "-s -w"]


class Builder:
    """Runs Go in folders of its own, with all that is said in one log."""

    def __init__(self, work: Path, log: IO[bytes]) -> None:
        self.work = work
        self.programs = work / "bin"
        self.programs.mkdir()
        self.log = log

    def go(self, *arguments: str, folder: Path | None = None) -> None:
        """Run Go; CalledProcessError where it fails."""
        environment = {**os.environ, "GOBIN": str(self.programs), "GOFLAGS": "-buildvcs=false"}
        self.log.write(f"$ go {' '.join(arguments)}\n".encode())
        self.log.flush()
        command = ["go", *arguments]
        subprocess.run(command, cwd=folder or self.work, env=environment, stdout=self.log, stderr=self.log, check=True)

    def module_folder(self, module: str, version: str) -> Path:
        """Download a module and return its folder in Go's cache, which is read-only."""
        self.log.write(f"$ go mod download {module}@{version}\n".encode())
        self.log.flush()
        found = subprocess.run(
            ["go", "mod", "download", "-json", f"{module}@{version}"],
            cwd=self.work,
            stdout=subprocess.PIPE,
            stderr=self.log,
            check=True,
        )
        return Path(json.loads(found.stdout)["Dir"])


def build_collector(builder: Builder) -> None:
    """Build the Collector of collector/manifest.yaml; its modules are those of collector/build, without resolving."""
    server = SERVERS["collector"]
    builder.go("install", f"{server.module}@{server.module_version}")
    source = builder.work / "collector"
    source.mkdir()
    manifest = builder.work / "manifest.yaml"
    shutil.copyfile(COLLECTOR / "manifest.yaml", manifest)
    subprocess.run(
        [builder.programs / "builder", "--skip-get-modules", "--skip-compilation", f"--config={manifest}"],
        cwd=builder.work,
        stdout=builder.log,
        stderr=builder.log,
        check=True,
    )
    for name in ("go.mod", "go.sum"):
        shutil.copyfile(COLLECTOR / "build" / name, source / name)
    builder.go("build", "-mod=readonly", *_FLAGS, "-o", str(builder.programs / "otelcol"), ".", folder=source)
    (builder.programs / "builder").unlink()


def build_prometheus(builder: Builder) -> None:
    """Build Prometheus and promtool without service discovery for clouds, which would double the time."""
    server = SERVERS["prometheus"]
    packages = [f"{server.module}/cmd/{program}@{server.module_version}" for program in server.programs]
    builder.go("install", "-tags", "remove_all_sd", *_FLAGS, *packages)


def build_alertmanager(builder: Builder) -> None:
    """Build Alertmanager and amtool; the module lacks its web pages, so empty ones take their place."""
    server = SERVERS["alertmanager"]
    source = builder.work / "alertmanager"
    shutil.copytree(builder.module_folder(server.module, server.module_version), source)
    for path in (source, *source.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    for name in ("elm", "mantine"):
        page = source / "ui" / "app" / "dist" / name / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("built without web pages\n")
    packages = [f"./cmd/{program}" for program in server.programs]
    builder.go("build", *_FLAGS, "-o", str(builder.programs) + os.sep, *packages, folder=source)


RECIPES: dict[str, Callable[[Builder], None]] = {
    "prometheus": build_prometheus,
    "alertmanager": build_alertmanager,
    "collector": build_collector,
}


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a cache folder; the system gives it up when the process ends, however it does."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def build(names: list[str], cache: Path) -> None:
    """Build what the cache lacks; the folder holds whole programs only."""
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / ".lock"), (cache / "build.log").open("ab") as log:
        for name in names:
            programs = SERVERS[name].programs
            if all((cache / program).is_file() for program in programs):
                continue
            started = time.monotonic()
            print(
                f"building {', '.join(programs)} {SERVERS[name].version}: some minutes; log in {log.name}", flush=True
            )
            with tempfile.TemporaryDirectory(dir=cache, prefix=".build-") as work:
                builder = Builder(Path(work), log)
                RECIPES[name](builder)
                for program in programs:
                    (builder.programs / program).rename(cache / program)
            print(f"built {', '.join(programs)} in {time.monotonic() - started:.0f} s", flush=True)


def say_what_is_there() -> None:
    """Print what the tests of the stack will find, and what they will leave out."""
    missing = [program for server in SERVERS.values() for program in server.programs if find(program) is None]
    if not missing:
        print("tests of the stack: all programs are there")
        return
    print(f"tests of the stack that need {', '.join(missing)} are left out:")
    for program in missing:
        print(f"  {why_missing(program)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="*", metavar="SERVER", help=f"which of {', '.join(RECIPES)} (all)")
    parser.add_argument(
        "--for-tests", action="store_true", help="build only where CI is set and Go is there, and say what is left out"
    )
    options = parser.parse_args()
    unknown = set(options.servers) - set(RECIPES)
    if unknown:
        parser.error(f"no such server: {', '.join(unknown)}; there are {', '.join(RECIPES)}")
    has_go = shutil.which("go") is not None
    if options.for_tests and not (has_go and os.environ.get("CI")):
        say_what_is_there()
        return 0
    if not has_go:
        print("Go is not on PATH, and without it no server can be built", file=sys.stderr)
        return 1
    cache = cache_folder()
    try:
        build(options.servers or list(RECIPES), cache)
    except subprocess.CalledProcessError as fault:
        log = cache / "build.log"
        print(f"{fault}\nthe end of {log}:\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
        return 1
    if options.for_tests:
        say_what_is_there()
    else:
        print(f"servers are in {cache}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
