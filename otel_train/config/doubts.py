"""Finds what is doubtful in the environment: names that nobody reads, values that are refused, and contradictions."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from otel_train.config.resolving import is_disabled, read_file
from otel_train.config.table import BY_NAME, SETTINGS
from otel_train.errors import ConfigError


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


OWN_PREFIX: Final = "OTEL_TRAIN_"
_OTLP: Final = "OTEL_EXPORTER_OTLP_"
_SIGNALS: Final = ("METRICS", "LOGS", "TRACES")
_OTLP_PARTS: Final = _words(
    "ENDPOINT HEADERS TIMEOUT COMPRESSION PROTOCOL CERTIFICATE CLIENT_KEY CLIENT_CERTIFICATE INSECURE"
)
# Ours that are no settings: of the launch, the command line, the image, and the stack with its tests.
OTHER_VARIABLES: Final = frozenset(
    OWN_PREFIX + name
    for name in _words(
        "LAUNCH_KEY RESUME_KEY CONTAINER_IMAGE GIT_COMMIT GIT_BRANCH PROMETHEUS_URL LOKI_URL TEMPO_URL "
        "ALERTMANAGER_URL API_TOKEN BACKENDS COLLECTOR_CONFIG DASHBOARDS GRAFANA_HOME TLS_CERT TLS_CLIENT_CA "
        "TLS_FOLDER TLS_KEY TOKEN"
    )
)
# The specification's, and those of the SDK and its instrumentations, which we leave to them.
_STANDARD: Final = re.compile(
    r"OTEL_(SDK_DISABLED|SERVICE_NAME|RESOURCE_ATTRIBUTES|LOG_LEVEL|PROPAGATORS|CONFIG_FILE|EXPERIMENTAL_\w+|"
    r"(TRACES|METRICS|LOGS)_(EXPORTER|SAMPLER|SAMPLER_ARG|EXEMPLAR_FILTER)|(BSP|BLRP|SPAN|LINK|EVENT|ATTRIBUTE|"
    r"LOGRECORD|METRIC_EXPORT|METRICS_EXEMPLAR|PYTHON|INSTRUMENTATION|SEMCONV|GO|JAVA|NODE|DOTNET)_\w+|"
    r"EXPORTER_(PROMETHEUS|ZIPKIN|JAEGER|CONSOLE)_\w+)"
)
_NEAR: Final = 0.8
_SHORTEST_TIMEOUT_MS: Final = 100.0
_GRPC_PORT, _HTTP_PORT = 4317, 4318
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Doubt:
    """One thing that is doubtful, or `wrong`: then a run would not start, or nothing would arrive."""

    variable: str
    text: str
    fix: str
    wrong: bool = False


def known_variables() -> frozenset[str]:
    """Return the variables that otel-train reads and whose names it knows."""
    otlp = {f"{_OTLP}{signal}{part}" for signal in ("", *(f"{name}_" for name in _SIGNALS)) for part in _OTLP_PARTS} | {
        f"{_OTLP}METRICS_TEMPORALITY_PREFERENCE",
        f"{_OTLP}METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
    }
    exporters = {f"OTEL_{signal}_EXPORTER" for signal in _SIGNALS}
    standard = {"OTEL_SDK_DISABLED", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME"}
    return frozenset({setting.variable for setting in SETTINGS} | OTHER_VARIABLES | otlp | exporters | standard)


def find_doubts(environ: Mapping[str, str], folder: Path | None = None) -> list[Doubt]:
    """Return what is doubtful in the variables, and in the settings' file of `folder` (the working folder)."""
    return [
        *_misspelt(environ),
        *_refused(environ),
        *_of_the_file(folder or Path.cwd()),
        *_of_the_endpoint(environ),
        *_contradictions(environ),
    ]


def _misspelt(environ: Mapping[str, str]) -> Iterator[Doubt]:
    known = known_variables()
    for name in sorted(environ):
        upper = name.upper()
        if not upper.startswith("OTEL_") or name in known or (name == upper and _STANDARD.fullmatch(name)):
            continue
        near = difflib.get_close_matches(upper, known, n=1, cutoff=_NEAR)
        if not near and not upper.startswith((OWN_PREFIX, _OTLP)):
            continue
        fix = f"did you mean {near[0]}?" if near else "see docs/settings.md for the variables there are"
        yield Doubt(name, "nobody reads a variable of this name", fix)


def _refused(environ: Mapping[str, str]) -> Iterator[Doubt]:
    for setting in SETTINGS:
        value = environ.get(setting.variable, "")
        if not value:
            continue
        try:
            setting.parse(value)
        except ValueError as fault:
            yield Doubt(setting.variable, f"{value!r} is refused at init()", str(fault), wrong=True)


def _of_the_file(folder: Path) -> Iterator[Doubt]:
    try:
        content, name = read_file(folder)
    except ConfigError as fault:
        yield Doubt(fault.field, f"{fault.value} cannot be read", fault.fix, wrong=True)
        return
    for key, value in content.items():
        label = f"{name}: {key}"
        if key not in BY_NAME:
            near = difflib.get_close_matches(key, BY_NAME, n=1, cutoff=0.6)
            fix = f"did you mean {near[0]}?" if near else "take it out; docs/settings.md lists the settings"
            yield Doubt(label, "there is no such setting, and init() refuses it", fix, wrong=True)
            continue
        try:
            BY_NAME[key].parse(value)
        except ValueError as fault:
            yield Doubt(label, f"{value!r} is refused at init()", str(fault), wrong=True)


def _of_the_endpoint(environ: Mapping[str, str]) -> Iterator[Doubt]:
    for prefix in (_OTLP, *(f"{_OTLP}{signal}_" for signal in _SIGNALS)):
        variable = f"{prefix}ENDPOINT"
        address = environ.get(variable, "").strip()
        try:
            parts = urlsplit(address)
            port = parts.port
        except ValueError:
            continue
        if not address or parts.scheme not in ("http", "https"):
            continue
        protocol = (environ.get(f"{prefix}PROTOCOL") or environ.get(f"{_OTLP}PROTOCOL") or "http/json").strip().lower()
        if protocol == "grpc" and port == _HTTP_PORT:
            yield Doubt(variable, "speaks gRPC to port 4318, which is that of HTTP", "use port 4317, or leave out grpc")
        if protocol != "grpc" and port == _GRPC_PORT:
            fix = f"use port 4318, or set {_OTLP}PROTOCOL=grpc"
            yield Doubt(variable, "speaks HTTP to port 4317, which is that of gRPC", fix)
        path = re.search(r"/v1/(metrics|logs|traces)/?$", parts.path)
        if prefix == _OTLP and protocol != "grpc" and path:
            text = f"ends with {path[0]}, and /v1/<signal> is put behind it once more"
            yield Doubt(variable, text, f"leave out {path[0]}", wrong=True)
        yield from _of_tls(environ, prefix, variable, parts.scheme, parts.hostname or "")


def _of_tls(environ: Mapping[str, str], prefix: str, variable: str, scheme: str, host: str) -> Iterator[Doubt]:
    def given(part: str) -> str:
        return next((name for name in (f"{prefix}{part}", f"{_OTLP}{part}") if environ.get(name, "").strip()), "")

    if scheme == "http":
        for part in ("CERTIFICATE", "CLIENT_CERTIFICATE"):
            if name := given(part):
                yield Doubt(name, f"is not used: {variable} begins with http://", "begin the endpoint with https://")
        headers = environ.get(given("HEADERS"), "").lower()
        if "authorization" in headers and host not in _LOCAL:
            text = f"sends a token unencrypted, since {variable} begins with http://"
            yield Doubt(given("HEADERS"), text, "begin the endpoint with https:// if the server speaks TLS")
    name = given("INSECURE")
    if scheme == "https" and name and environ[name].strip().lower() == "true":
        yield Doubt(name, f"changes nothing: {variable} begins with https://", "take it out")


def _contradictions(environ: Mapping[str, str]) -> Iterator[Doubt]:
    disabled = environ.get("OTEL_SDK_DISABLED", "").strip()
    if is_disabled(environ):
        yield Doubt("OTEL_SDK_DISABLED", "is true: nothing is recorded", "unset it where runs are to be recorded")
    elif disabled.lower() not in ("", "false"):
        yield Doubt("OTEL_SDK_DISABLED", f"{disabled!r} counts as false", "use true or false")
    endpoints = [name for name in environ if name.startswith(_OTLP) and name.endswith("ENDPOINT") and environ[name]]
    if endpoints and environ.get("OTEL_TRAIN_SENDER") == "none":
        text = f"is none: nothing is sent while a run goes on, though {endpoints[0]} is set"
        yield Doubt("OTEL_TRAIN_SENDER", text, "unset it, or send by otel-train push")
    if environ.get("OTEL_TRAIN_DIR", "").strip().lower() in ("none", "false") and not endpoints:
        text = "says that runs have no folder, and no endpoint is set: nothing would be kept"
        yield Doubt("OTEL_TRAIN_DIR", text, f"name a folder, or set {_OTLP}ENDPOINT", wrong=True)
    for signal in _SIGNALS:
        exporter = environ.get(f"OTEL_{signal}_EXPORTER", "").strip()
        if exporter and "otlp" not in exporter.lower() and environ.get(f"{_OTLP}{signal}_ENDPOINT"):
            text = f"is {exporter}, so {_OTLP}{signal}_ENDPOINT is not used"
            yield Doubt(f"OTEL_{signal}_EXPORTER", text, "unset one of the two")
    yield from _of_times(environ)
    named = environ.get("OTEL_SERVICE_NAME", "").strip()
    attribute = re.search(r"(?:^|,)\s*service\.name\s*=\s*([^,]*)", environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    if named and attribute and attribute[1].strip() != named:
        text = f"names the service {attribute[1].strip()!r}, OTEL_SERVICE_NAME {named!r}, which wins"
        yield Doubt("OTEL_RESOURCE_ATTRIBUTES", text, "take service.name out of it")


def _of_times(environ: Mapping[str, str]) -> Iterator[Doubt]:
    for name in (f"{_OTLP}TIMEOUT", *(f"{_OTLP}{signal}_TIMEOUT" for signal in _SIGNALS)):
        try:
            milliseconds = float(environ.get(name, ""))
        except ValueError:
            continue
        if 0 < milliseconds < _SHORTEST_TIMEOUT_MS:
            yield Doubt(name, f"{milliseconds:g} are milliseconds", "for ten seconds use 10000")
