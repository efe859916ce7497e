"""Where each signal goes, read from the standard variables of OTLP exporters.

They mean what the specification says (https://opentelemetry.io/docs/specs/otel/protocol/exporter/): the base endpoint
gets ``/v1/<signal>`` appended for HTTP, an endpoint for one signal is used as it is, a variable for one signal
replaces the general one, times are milliseconds. Two defaults are ours, and the specification allows both: the
protocol is ``http/json``, since that is what the run log holds, and JSON is compressed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from otel_train.errors import ConfigError, installing
from otel_train.runlog.segments import SIGNALS

HTTP_JSON, HTTP_PROTOBUF, GRPC = PROTOCOLS = ("http/json", "http/protobuf", "grpc")
DEFAULT_TIMEOUT_S: Final = 10.0
# The limit of gRPC servers, a Collector's among them, unless it was raised.
DEFAULT_MAX_REQUEST_BYTES: Final = 4 << 20
MASK: Final = "***"
_GENERAL: Final = "OTEL_EXPORTER_OTLP_"
# RFC 9110's token.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BAD_IN_HEADER = re.compile(r"[^\t\x20-\x7e\x80-\xff]")


@dataclass(frozen=True, slots=True)
class Destination:
    """Where one signal goes, and how. What may be a secret is masked in `repr`."""

    signal: str
    # For gRPC `https://host:port` or `http://host:port`, or what else gRPC itself takes as a target.
    url: str
    protocol: str = HTTP_JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    certificate: str | None = None
    client_key: str | None = None
    client_certificate: str | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    compression: str = "gzip"
    insecure: bool = False
    # Uncompressed; what is larger is split.
    max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES

    @property
    def shown_url(self) -> str:
        """The address without what may be a secret in it: user, password and query."""
        parts = urlsplit(self.url)
        if not parts.netloc:
            return self.url
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    @property
    def place(self) -> str:
        """The server alone: the same for the three signals of one base endpoint."""
        parts = urlsplit(self.url)
        # In a target of gRPC's own the path is the server.
        return self.shown_url.removesuffix(parts.path) if parts.netloc else self.url

    @property
    def secure(self) -> bool:
        """Whether TLS is spoken: as the URL says; with a target of gRPC's own, unless `insecure` is set."""
        scheme = urlsplit(self.url).scheme
        return scheme == "https" if scheme in ("http", "https") else not self.insecure

    def __repr__(self) -> str:
        headers = dict.fromkeys(self.headers, MASK)
        return (
            f"Destination({self.signal!r}, {self.shown_url!r}, {self.protocol!r}, headers={headers!r}, "
            f"certificate={self.certificate!r}, client_key={MASK if self.client_key else None!r}, "
            f"client_certificate={self.client_certificate!r}, timeout_s={self.timeout_s!r}, "
            f"compression={self.compression!r}, insecure={self.insecure!r}, "
            f"max_request_bytes={self.max_request_bytes!r})"
        )


@dataclass(frozen=True, slots=True)
class Destinations:
    """The destination of each signal; None for a signal that goes nowhere."""

    metrics: Destination | None = None
    logs: Destination | None = None
    traces: Destination | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str], endpoint: str | None = None) -> Destinations:
        """Read the variables; `endpoint`, where given, stands in for OTEL_EXPORTER_OTLP_ENDPOINT.

        An endpoint for one signal wins over it. ConfigError names the variable, its value (masked where it is a
        secret) and the fix; so it does where a protocol needs a package that is not installed, or a file is not there.
        """
        return cls(**{signal: _destination(_Variables(environ, signal), endpoint) for signal in SIGNALS})

    def __getitem__(self, signal: str) -> Destination | None:
        if signal not in SIGNALS:
            raise KeyError(signal)
        found: Destination | None = getattr(self, signal)
        return found

    def __iter__(self) -> Iterator[Destination]:
        return (found for signal in SIGNALS if (found := self[signal]) is not None)

    def __bool__(self) -> bool:
        return any(True for _ in self)

    @property
    def addresses(self) -> dict[str, str]:
        """The address of each signal that goes anywhere, without what may be a secret in it."""
        return {found.signal: found.shown_url for found in self}


class _Variables:
    """The variables of one signal: its own one where it is set, else the general one; empty counts as unset."""

    def __init__(self, environ: Mapping[str, str], signal: str) -> None:
        self.signal = signal
        self._environ = environ

    def get(self, name: str) -> tuple[str, str]:
        """Return the variable's full name and its value, which is empty where neither is set."""
        for variable in (f"{_GENERAL}{self.signal.upper()}_{name}", f"{_GENERAL}{name}"):
            value = self._environ.get(variable, "").strip()
            if value:
                return variable, value
        return f"{_GENERAL}{name}", ""

    def own_endpoint(self) -> tuple[str, str]:
        variable = f"{_GENERAL}{self.signal.upper()}_ENDPOINT"
        return variable, self._environ.get(variable, "").strip()

    def is_exported(self) -> bool:
        """Tell whether OTLP is among the exporters of this signal; it is unless the variable says otherwise."""
        value = self._environ.get(f"OTEL_{self.signal.upper()}_EXPORTER", "").strip().lower()
        return not value or any(name.strip().startswith("otlp") for name in value.split(","))


def _destination(variables: _Variables, endpoint: str | None) -> Destination | None:
    if not variables.is_exported():
        return None
    base_variable, base = "endpoint", (endpoint or "").strip()
    if not base:
        base_variable = f"{_GENERAL}ENDPOINT"
        base = variables._environ.get(base_variable, "").strip()
    own_variable, own = variables.own_endpoint()
    if not own and not base:
        return None
    variable, address = (own_variable, own) if own else (base_variable, base)
    protocol = _protocol(variables)
    insecure = _insecure(variables)
    if protocol == GRPC:
        url, headers = _grpc_url(variable, address, insecure)
    else:
        url, headers = _http_url(variable, address, variables.signal, own=bool(own))
    made = Destination(
        signal=variables.signal,
        url=url,
        protocol=protocol,
        headers={**headers, **_headers(variables)},
        certificate=_file(variables, "CERTIFICATE"),
        client_key=_file(variables, "CLIENT_KEY"),
        client_certificate=_file(variables, "CLIENT_CERTIFICATE"),
        timeout_s=_timeout_s(variables),
        compression=_compression(variables, protocol),
        insecure=insecure,
    )
    return _checked(variables, made)


def _protocol(variables: _Variables) -> str:
    variable, value = variables.get("PROTOCOL")
    protocol = value.lower() or HTTP_JSON
    if protocol not in PROTOCOLS:
        raise ConfigError(variable, value, f"use one of {', '.join(PROTOCOLS)}")
    missing = protocol != HTTP_JSON and _is_missing("opentelemetry.proto.collector")
    if missing or (protocol == GRPC and _is_missing("grpc")):
        raise ConfigError(variable, value, f"{installing('otlp')}, or use {HTTP_JSON}, which needs nothing")
    return protocol


def _is_missing(package: str) -> bool:
    try:
        return find_spec(package) is None
    except ModuleNotFoundError:  # its parent
        return True


def _http_url(variable: str, address: str, signal: str, *, own: bool) -> tuple[str, dict[str, str]]:
    """Return the full URL, with the signal's path but for an endpoint of its own, and the header its user means."""
    parts = _split(variable, address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(variable, _masked(address), "use a URL with its scheme, such as http://localhost:4318")
    path = parts.path or "/"
    if own:
        for other in SIGNALS:
            if other != signal and path.rstrip("/").endswith(f"/v1/{other}"):
                # A Collector finds no span in what are metrics, and says 200: all would be lost without a word.
                raise ConfigError(variable, _masked(address), f"end it with /v1/{signal}: this path takes {other}")
    else:
        path = f"{parts.path.rstrip('/')}/v1/{signal}"
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit((parts.scheme, host, path, parts.query, "")), _basic(user) if at else {}


def _grpc_url(variable: str, address: str, insecure: bool) -> tuple[str, dict[str, str]]:
    if "://" not in address:
        if not re.fullmatch(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:/]+):\d+|(dns|unix|ipv4|ipv6|unix-abstract):\S+", address):
            raise ConfigError(variable, _masked(address), "use a URL or host:port, such as http://localhost:4317")
        if re.match(r"(dns|unix|ipv4|ipv6|unix-abstract):", address):
            return address, {}
        address = f"{'http' if insecure else 'https'}://{address}"
    parts = _split(variable, address)
    if parts.scheme not in ("http", "https"):
        if parts.scheme in ("dns", "unix", "ipv4", "ipv6"):
            return address, {}
        raise ConfigError(variable, _masked(address), "use http:// (plain) or https:// (TLS) and host:port")
    if not parts.hostname:
        raise ConfigError(variable, _masked(address), "name a host, such as http://localhost:4317")
    user, at, host = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{host}", _basic(user) if at else {}


def _split(variable: str, address: str) -> SplitResult:
    if re.search(r"\s", address):
        raise ConfigError(variable, _masked(address), "take the space out of the URL")
    try:
        parts = urlsplit(address)
        parts.port  # noqa: B018 - raises where it is no port
    except ValueError as fault:
        raise ConfigError(variable, _masked(address), f"use a URL such as http://localhost:4318 ({fault})") from None
    return parts


def _basic(user: str) -> dict[str, str]:
    from base64 import b64encode

    return {"authorization": f"Basic {b64encode(unquote(user).encode()).decode()}"}


def _masked(address: str) -> str:
    """Return an address for a message, without user, password and query."""
    return re.sub(r"\?.*", f"?{MASK}", re.sub(r"(?<=//)[^/]*@", f"{MASK}@", address))


def _headers(variables: _Variables) -> dict[str, str]:
    """Read ``name=value,name=value``; names in lower case, values percent-decoded.

    As other implementations do, a space within a value is taken too, since people write ``Authorization=Bearer …``.
    """
    variable, text = variables.get("HEADERS")
    headers: dict[str, str] = {}
    for number, pair in enumerate(filter(None, map(str.strip, text.split(","))), start=1):
        name, equals, value = pair.partition("=")
        name, value = unquote(name.strip()).lower(), unquote(value.strip())
        if not equals or not _HEADER_NAME.fullmatch(name):
            fix = f"write name=value,name=value with values percent-encoded; part {number} is not so"
            raise ConfigError(variable, MASK, fix)
        if _BAD_IN_HEADER.search(value):
            raise ConfigError(variable, f"{name}={MASK}", "take out the line end or other character that no header has")
        headers[name] = value
    return headers


def _file(variables: _Variables, name: str) -> str | None:
    variable, path = variables.get(name)
    if not path:
        return None
    path = os.path.expanduser(path)
    if not os.path.isfile(path) or not os.access(path, os.R_OK):
        raise ConfigError(variable, path, "name a PEM file that is there and can be read")
    return path


def _timeout_s(variables: _Variables) -> float:
    variable, text = variables.get("TIMEOUT")
    if not text:
        return DEFAULT_TIMEOUT_S
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = 0.0
    if not 1 <= milliseconds < 1e9:
        raise ConfigError(variable, text, "use a number of milliseconds of at least 1, such as 10000")
    return milliseconds / 1000


def _compression(variables: _Variables, protocol: str) -> str:
    variable, value = variables.get("COMPRESSION")
    if not value:
        return "gzip" if protocol == HTTP_JSON else "none"
    if value.lower() not in ("gzip", "none"):
        raise ConfigError(variable, value, "use gzip or none")
    return value.lower()


def _insecure(variables: _Variables) -> bool:
    variable, value = variables.get("INSECURE")
    if value.lower() not in ("", "true", "false"):
        raise ConfigError(variable, value, "use true or false")
    return value.lower() == "true"


def _checked(variables: _Variables, made: Destination) -> Destination:
    """Read the certificates once, so that a wrong file is found now and not by the first request."""
    key_variable = variables.get("CLIENT_KEY")[0]
    if made.client_key and not made.client_certificate:
        fix = f"set {key_variable.removesuffix('KEY')}CERTIFICATE too: a key proves nothing without its certificate"
        raise ConfigError(key_variable, made.client_key, fix)
    if not (made.certificate or made.client_certificate):
        return made
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if made.certificate:
        try:
            context.load_verify_locations(made.certificate)
        except (ssl.SSLError, OSError) as fault:
            variable = variables.get("CERTIFICATE")[0]
            raise ConfigError(variable, made.certificate, f"use a PEM file of certificates ({fault})") from None
    if made.client_certificate:
        try:
            # With a password no prompt may come: a training job has nobody to ask.
            context.load_cert_chain(made.client_certificate, made.client_key, password="")
        except (ssl.SSLError, OSError, ValueError) as fault:
            variable = variables.get("CLIENT_CERTIFICATE")[0]
            fix = f"use a PEM file, with its key (without a password) there or in {key_variable} ({fault})"
            raise ConfigError(variable, made.client_certificate, fix) from None
        if not made.client_key:
            return replace(made, client_key=made.client_certificate)
    return made
