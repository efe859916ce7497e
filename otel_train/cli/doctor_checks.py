"""The checks of `otel-train doctor`: each looks at one thing and says what it found, and the fix for what is wrong."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_train import __version__
from otel_train.clock import SYSTEM, Clock
from otel_train.errors import installing
from otel_train.view.text import duration, size

if TYPE_CHECKING:
    from otel_train.config import Settings
    from otel_train.export.probe import Probed

OK, WARN, FAIL = "ok", "warn", "fail"
OLDEST_PYTHON: Final = (3, 11)
# Below this a run of some hours with images or many ranks may not fit.
LITTLE_BYTES: Final = 2 << 30
NOTHING_BYTES: Final = 64 << 20
FEW_FILES: Final = 10_000
SKEW_WARN_S: Final = 5.0
# What Prometheus refuses as of the future begins here.
SKEW_FAIL_S: Final = 600.0
NAMED_RUNS: Final = 3
OPTIONAL: Final = (
    (
        "view",
        "the page, the report and otel-train follow",
        ("plotly", "rich", "shtab", "starlette", "tqdm", "uvicorn", "zlib-ng"),
    ),
    ("otlp", "protobuf and gRPC", ("opentelemetry-exporter-otlp",)),
    ("prometheus", "a page for a Prometheus that scrapes", ("prometheus-client",)),
    ("parquet", "otel-train export --format parquet", ("pyarrow",)),
)
NEEDED: Final = ("opentelemetry-api", "opentelemetry-sdk", "nvidia-ml-py", "psutil", "urllib3")


@dataclass(frozen=True, slots=True)
class Check:
    """One line: `state` is ok, warn or fail; `fix` says what to do about a warning or a fault."""

    name: str
    state: str
    text: str
    fix: str = ""


def versions() -> Iterator[Check]:
    """Python, otel-train, and whether what is installed fits together."""
    from otel_train.lineage.fitting import misfits
    from otel_train.lineage.packages import installed_packages

    found, _ = installed_packages()
    good = sys.version_info[:2] >= OLDEST_PYTHON
    oldest = ".".join(map(str, OLDEST_PYTHON))
    text = f"{platform.python_version()} ({sys.executable})"
    yield Check("python", OK if good else FAIL, text, "" if good else f"otel-train needs Python {oldest} or newer")
    telemetry = [name for name in found if name.startswith("opentelemetry-")]
    bad = misfits(["otel-train", *telemetry])
    core = ", ".join(f"{name.removeprefix('opentelemetry-')} {found[name]}" for name in telemetry if name in NEEDED)
    exporters = sorted({found[name] for name in telemetry if name.startswith("opentelemetry-exporter-otlp-proto")})
    core += f", exporters {', '.join(exporters)}" if exporters else ""
    missing = [name for name in NEEDED if name not in found]
    yield Check("otel-train", OK, f"{__version__} ({Path(__file__).parents[1]})")
    if not bad and not missing:
        yield Check("opentelemetry", OK, f"{core}; they fit together")
    for misfit in bad:
        there = f"{misfit.package} {misfit.version}" if misfit.version else f"{misfit.package} is not installed"
        text = f"{there}, but {misfit.wanted_by} needs {misfit.package} {misfit.wanted}".rstrip()
        yield Check("opentelemetry", FAIL, text, f"pip install '{misfit.package}{misfit.wanted}'")
    yield Check("torch", OK, found.get("torch", "not installed; recording does not need it"))
    for extra, use, packages in OPTIONAL:
        lacking = [name for name in packages if name not in found]
        if lacking:
            yield Check(extra, OK, f"not installed: {', '.join(lacking)}; for {use}: {installing(extra)}")
        else:
            yield Check(extra, OK, ", ".join(f"{name} {found[name]}" for name in packages))


def gpu(environ: Mapping[str, str]) -> Iterator[Check]:
    """NVML, driver and cards; a machine without one is no fault unless a card is meant to be there."""
    from otel_train.sources.gpu import GpuSampler

    sampler = GpuSampler(environ=environ)
    try:
        found = sampler.identify()
    finally:
        sampler.close()
    if "unavailable" in found:
        meant = os.path.exists("/proc/driver/nvidia") or environ.get("NVIDIA_VISIBLE_DEVICES", "void") not in (
            "",
            "void",
            "none",
        )
        text = f"no GPU is sampled: {found['unavailable']}"
        fix = "let the container see libnvidia-ml.so.1 (docker run --gpus all), or mend the driver: try nvidia-smi"
        yield Check("gpu", WARN if meant else OK, text, fix if meant else "")
        return
    driver = f"driver {found.get('driver_version', '?')}, CUDA {found.get('cuda_driver_version', '?')}"
    cards = found.get("gpus") or []
    hidden = environ.get("CUDA_VISIBLE_DEVICES")
    if not cards:
        text = f"{driver}; no card is visible" + (
            f" with CUDA_VISIBLE_DEVICES={hidden!r}" if hidden is not None else ""
        )
        yield Check("gpu", WARN, text, "unset CUDA_VISIBLE_DEVICES, or name a card that nvidia-smi -L lists")
    else:
        names: dict[str, int] = {}
        for card in cards:
            label = f"{card.get('name', '?')} {size(card.get('memory_total_bytes'))}".strip()
            names[label] = names.get(label, 0) + 1
        listed = ", ".join(f"{count} x {label}" if count > 1 else label for label, count in names.items())
        yield Check("gpu", OK, f"{driver}; {listed}")
    for number, reason in (found.get("unreachable") or {}).items():
        yield Check("gpu", FAIL, f"GPU {number} does not answer: {reason}", "see dmesg for an Xid; reset it or restart")
    if "index_note" in found:
        yield Check("gpu", WARN, str(found["index_note"]), "set CUDA_DEVICE_ORDER=PCI_BUS_ID")


def root_folder(root: Path, named: bool = False) -> Iterator[Check]:
    """The folder of the runs: rights, room, locks. One that is `named` by hand should be there."""
    from otel_train.runlog.root_probe import probe_root

    found = probe_root(root)
    where = f"{root}" if found.exists else f"{root} (not there yet; the first run makes it in {found.tried})"
    if found.fault:
        fix = "give this user rights on it, or name another folder by --dir or OTEL_TRAIN_DIR"
        yield Check("folder", FAIL, f"{found.tried} {found.fault}", fix)
        return
    if named and not found.exists:
        yield Check("folder", WARN, where, "see that --dir is written as meant; a new folder is fine")
    else:
        yield Check("folder", OK, f"{where} can be written")
    if found.free_bytes is not None:
        little = found.free_bytes < LITTLE_BYTES
        state = FAIL if found.free_bytes < NOTHING_BYTES else WARN if little else OK
        fix = "otel-train prune removes old runs; or name another folder by OTEL_TRAIN_DIR" if little else ""
        yield Check("room", state, f"{size(found.free_bytes)} are free", fix)
    if found.free_files is not None and found.free_files < FEW_FILES:
        text = f"only {found.free_files:,} more files can be made on this file system"
        yield Check("room", WARN, text, "remove files that nobody needs, or name another folder by OTEL_TRAIN_DIR")
    if found.locks == "work":
        yield Check("locks", OK, "a lock is seen by another process, and gone when it is given back")
        return
    fix = "set OTEL_TRAIN_DIR to a local folder; on this one a run that goes on may be taken for lost"
    yield Check("locks", WARN, found.lock_fault or "could not be tried", fix)


def runs(root: Path, now_ns: int) -> Iterator[Check]:
    """How many runs there are, and which are lost or damaged."""
    from otel_train.runlog.catalogue import list_runs

    found = list_runs(root, now_ns)
    if not found:
        yield Check("runs", OK, "there are none yet")
        return
    counts: dict[str, int] = {}
    for run in found:
        counts[run.status.state] = counts.get(run.status.state, 0) + 1
    states = ", ".join(f"{count:,} {state}" for state, count in sorted(counts.items(), key=lambda pair: -pair[1]))
    yield Check("runs", OK, f"{len(found):,} ({states})")
    lost = [run.run_id for run in found if run.status.state == "lost"]
    if lost:
        fix = f"see why by otel-train show {lost[0]}; otel-train push marks them as lost in the stores"
        yield Check("runs", WARN, f"{len(lost):,} lost, that is ended without a word: {_named(lost)}", fix)
    damaged = [run for run in found if run.problem]
    if damaged:
        fix = f"otel-train show {damaged[0].run_id} says what can be read; the points are not in that file"
        text = f"{len(damaged):,} without a readable run.json: {_named([run.run_id for run in damaged])}"
        yield Check("runs", WARN, text, fix)
    late = [run.run_id for run in found if run.created_ns > now_ns + 60_000_000_000]
    if late:
        text = f"{len(late):,} began in the future, by this clock: {_named(late)}"
        yield Check("clock", WARN, text, "set the clock of this machine, or of the one that wrote them")


def _named(ids: list[str]) -> str:
    more = len(ids) - NAMED_RUNS
    return ", ".join(ids[:NAMED_RUNS]) + (f" and {more:,} more" if more > 0 else "")


def variables(environ: Mapping[str, str], folder: Path) -> Iterator[Check]:
    """Names that nobody reads, values that are refused, contradictions."""
    from otel_train.config.doubts import find_doubts
    from otel_train.lineage.project import parse_resource_attributes

    doubts = find_doubts(environ, folder)
    for doubt in doubts:
        yield Check("variable", FAIL if doubt.wrong else WARN, f"{doubt.variable} {doubt.text}", doubt.fix)
    _, unreadable = parse_resource_attributes(environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    if unreadable:
        yield Check("variable", WARN, unreadable, "write name=value,name=value with values percent-encoded")
    if not doubts and not unreadable:
        given = sum(name.startswith("OTEL_") for name in environ)
        yield Check("variable", OK, f"{given} that begin with OTEL_; none is misspelt or contradicts another")


def endpoint(
    settings: Settings | None, environ: Mapping[str, str], timeout_s: float, clock: Clock = SYSTEM
) -> Iterator[Check]:
    """Where data goes, and what answers there; nothing is sent where no endpoint is set."""
    from otel_train.errors import ConfigError
    from otel_train.export.destination import Destinations
    from otel_train.export.probe import probe
    from otel_train.run.sending import endpoint_of

    try:
        destinations = Destinations.from_environ(environ, endpoint_of(settings) if settings else None)
    except ConfigError as fault:
        yield Check("endpoint", FAIL, f"{fault.field} is {fault.value!r}", fault.fix)
        yield from _skew([])
        return
    if not destinations:
        yield Check("endpoint", OK, "none is set: runs stay in their folder, and nothing was sent")
        yield Check("clock", OK, "not compared: no endpoint is set whose answer would say the time")
        return
    probed = probe(destinations, timeout_s, clock)
    for found in probed:
        yield _answered(found, _origin(found.destination.signal, settings, environ))
    yield from _skew([found for found in probed if found.ahead_s is not None])


def _origin(signal: str, settings: Settings | None, environ: Mapping[str, str]) -> str:
    own = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"
    if environ.get(own, "").strip():
        return own
    origin = settings.origins["endpoint"] if settings else "environment"
    return {"argument": "--endpoint", "file": "the settings' file"}.get(origin, "OTEL_EXPORTER_OTLP_ENDPOINT")


def _answered(found: Probed, origin: str) -> Check:
    where = found.destination
    name = f"endpoint {where.signal}"
    text = found.answer.text
    if found.reached and not found.answer.rejected:
        what = {"metrics": "a test metric", "logs": "a test record"}.get(where.signal, "an empty request")
        told = f"; it remarks: {text}" if text else ""
        way = f"{where.protocol}, {'TLS, ' if where.secure else ''}{where.compression}"
        return Check(
            name, OK, f"{where.shown_url} took {what} in {duration(found.took_s)} ({way}; from {origin}){told}"
        )
    if found.reached:
        return Check(name, WARN, f"{where.shown_url} left the test out: {text}", "see the server's own log")
    # The transports put their advice in brackets at the end.
    advice = re.fullmatch(r"(.*?) \((.*)\)", text, re.DOTALL)
    said, fix = (advice[1], advice[2]) if advice else (text, "")
    if re.match(r"(429|503)\b", said):
        return Check(
            name, WARN, f"{where.shown_url} is busy: {said}", "senders try again by themselves; nothing is lost"
        )
    if re.search(r"/v1/(metrics|logs|traces)/+v1/", where.url):
        fix = f"leave /v1/… out of {origin}: it is put behind the address by itself"
    elif not fix and "refused" in said.lower():
        fix = f"start the server that {origin} names, or mend the address"
    elif not fix and "no answer" in said:
        fix = f"see that {origin} names the right host and port, and that no firewall is in between"
    elif not fix and "no address is known" in said:
        fix = f"mend the host's name in {origin}"
    shown = said if where.place in said else f"{said}, from {where.shown_url}"
    return Check(name, FAIL, f"{shown} (set by {origin})", fix or "see what the server says in its own log")


def _skew(probed: list[Probed]) -> Iterator[Check]:
    if not probed:
        yield Check("clock", OK, "not compared: no endpoint gave an answer that says the time")
        return
    best = min(probed, key=lambda found: found.ahead_error_s)
    ahead_s = best.ahead_s or 0.0
    beyond_s = abs(ahead_s) - best.ahead_error_s
    side = "ahead of" if ahead_s > 0 else "behind"
    if beyond_s <= SKEW_WARN_S:
        text = f"agrees with the server's to {duration(max(abs(ahead_s), best.ahead_error_s))}"
        yield Check("clock", OK, text)
        return
    text = f"is {duration(abs(ahead_s))} {side} that of {best.destination.place}"
    yield Check("clock", FAIL if beyond_s > SKEW_FAIL_S else WARN, text, "set both by NTP: timedatectl set-ntp true")
