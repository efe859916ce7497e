"""The standard variables of OTLP exporters mean what the specification says, and wrong ones are named."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from otlp_servers import Certificates

from otel_train.errors import ConfigError
from otel_train.export.destination import Destination, Destinations

BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"


def read(endpoint: str | None = None, **variables: str) -> Destinations:
    return Destinations.from_environ(
        {f"OTEL_EXPORTER_OTLP_{name}" if not name.startswith("OTEL_") else name: v for name, v in variables.items()},
        endpoint,
    )


def metrics(endpoint: str | None = "http://c:4318", **variables: str) -> Destination:
    found = read(endpoint, **variables).metrics
    assert found is not None
    return found


def test_without_an_endpoint_nothing_is_sent() -> None:
    """No variable, or an empty one, leaves every signal without a destination."""
    for found in (read(), read(ENDPOINT=" "), read("")):
        assert not found
        assert list(found) == []
        assert found["metrics"] is None


@pytest.mark.parametrize(
    ("base", "urls"),
    [
        ("http://c:4318", ["http://c:4318/v1/metrics", "http://c:4318/v1/logs", "http://c:4318/v1/traces"]),
        ("http://c:4318/", ["http://c:4318/v1/metrics", "http://c:4318/v1/logs", "http://c:4318/v1/traces"]),
        ("https://c/otlp/", ["https://c/otlp/v1/metrics", "https://c/otlp/v1/logs", "https://c/otlp/v1/traces"]),
        ("http://[::1]:4318?k=v", [f"http://[::1]:4318/v1/{signal}?k=v" for signal in ("metrics", "logs", "traces")]),
    ],
)
def test_the_base_endpoint_gets_the_signals_path(base: str, urls: list[str]) -> None:
    """`/v1/<signal>` is appended to the base URL, below a path that it has already."""
    assert [found.url for found in read(ENDPOINT=base)] == urls
    assert [found.url for found in read(base)] == urls


def test_an_endpoint_for_one_signal_is_used_as_it_is() -> None:
    """A signal's own endpoint gets no path appended, wins over the base, and stands alone without one."""
    found = read("http://base:4318", LOGS_ENDPOINT="http://loki:3100/otlp/v1/logs", TRACES_ENDPOINT="http://tempo:4318")
    assert found.metrics is not None
    assert found.logs is not None
    assert found.traces is not None
    assert found.metrics.url == "http://base:4318/v1/metrics"
    assert found.logs.url == "http://loki:3100/otlp/v1/logs"
    assert found.traces.url == "http://tempo:4318/"
    alone = read(LOGS_ENDPOINT="http://loki:3100/otlp/v1/logs")
    assert alone.metrics is None
    assert [found.signal for found in alone] == ["logs"]


def test_the_argument_stands_in_for_the_base_variable() -> None:
    """What the run was given as its endpoint wins over the variable of the same meaning."""
    assert metrics("http://argument:1", ENDPOINT="http://variable:2").url == "http://argument:1/v1/metrics"


def test_an_exporter_of_none_leaves_a_signal_out() -> None:
    """`none`, or a list without OTLP, leaves a signal out; `otlp` among others keeps it."""
    found = read(
        "http://c:4318",
        OTEL_TRACES_EXPORTER="none",
        OTEL_LOGS_EXPORTER="console,otlp",
        OTEL_METRICS_EXPORTER="prometheus",
    )
    assert [destination.signal for destination in found] == ["logs"]


def test_the_defaults_are_json_in_gzip_and_ten_seconds() -> None:
    """The run log's own form is sent; the specification lets an exporter choose its default protocol."""
    found = metrics()
    assert (found.protocol, found.compression, found.timeout_s) == ("http/json", "gzip", 10.0)
    assert (found.headers, found.certificate, found.max_request_bytes) == ({}, None, 4 << 20)
    for protocol in ("http/protobuf", "grpc"):
        assert metrics(PROTOCOL=protocol).compression == "none"


def test_a_variable_of_one_signal_replaces_the_general_one() -> None:
    """Headers, protocol, time and compression of a signal's own are not mixed with the general ones."""
    found = read(
        "http://c:4318",
        HEADERS="authorization=Bearer%20general,x-tenant=a",
        LOGS_HEADERS="x-tenant=b",
        PROTOCOL="http/protobuf",
        LOGS_PROTOCOL="http/json",
        TIMEOUT="2500",
        LOGS_TIMEOUT="1",
        COMPRESSION="none",
        LOGS_COMPRESSION="gzip",
    )
    assert found.metrics is not None
    assert found.logs is not None
    assert found.metrics.headers == {"authorization": "Bearer general", "x-tenant": "a"}
    assert found.logs.headers == {"x-tenant": "b"}
    assert (found.metrics.protocol, found.metrics.timeout_s, found.metrics.compression) == (
        "http/protobuf",
        2.5,
        "none",
    )
    assert (found.logs.protocol, found.logs.timeout_s, found.logs.compression) == ("http/json", 0.001, "gzip")


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("a=1,b=2", {"a": "1", "b": "2"}),
        (" A = 1 , b=2,", {"a": "1", "b": "2"}),
        ("authorization=Basic%20dXNlcjpwYXNz==", {"authorization": "Basic dXNlcjpwYXNz=="}),
        ("Authorization=Bearer plain", {"authorization": "Bearer plain"}),
        ("x=a%2Cb%3Dc%25", {"x": "a,b=c%"}),
        ("x=", {"x": ""}),
        ("x=1,x=2", {"x": "2"}),
    ],
)
def test_headers_are_read_as_baggage(text: str, headers: dict[str, str]) -> None:
    """Names in lower case, values percent-decoded, the first equals sign divides, the last of a name wins."""
    assert metrics(HEADERS=text).headers == headers


@pytest.mark.parametrize(
    ("endpoint", "insecure", "url"),
    [
        ("http://c:4317", "", "http://c:4317"),
        ("https://c:4317/ignored", "true", "https://c:4317"),
        ("c:4317", "", "https://c:4317"),
        ("c:4317", "true", "http://c:4317"),
        ("[::1]:4317", "TRUE", "http://[::1]:4317"),
        ("unix:/run/otel.sock", "true", "unix:/run/otel.sock"),
        ("dns:///c:4317", "", "dns:///c:4317"),
    ],
)
def test_a_grpc_endpoint_is_taken_as_it_is(endpoint: str, insecure: str, url: str) -> None:
    """The scheme decides on TLS; without one INSECURE does, and TLS is the default."""
    assert metrics(endpoint, PROTOCOL="grpc", INSECURE=insecure).url == url


@pytest.mark.parametrize(
    ("endpoint", "insecure", "secure"),
    [
        ("http://c:4317", "", False),
        ("https://c:4317", "true", True),
        ("c:4317", "", True),
        ("c:4317", "true", False),
        ("unix:/run/otel.sock", "true", False),
        ("dns:///c:4317", "", True),
        ("dns:///c:4317", "true", False),
    ],
)
def test_a_grpc_endpoint_tells_whether_tls_is_spoken(endpoint: str, insecure: str, secure: bool) -> None:
    """The scheme of a URL decides; a target of gRPC's own has TLS unless INSECURE is set."""
    assert metrics(endpoint, PROTOCOL="grpc", INSECURE=insecure).secure is secure


@pytest.mark.parametrize(
    ("protocol", "endpoint", "place"),
    [
        ("http/json", "https://me:x@c:4318/base?token=y", "https://c:4318"),
        ("grpc", "http://c:4317", "http://c:4317"),
        ("grpc", "dns:///c:4317", "dns:///c:4317"),
        ("grpc", "unix:/run/otel.sock", "unix:/run/otel.sock"),
    ],
)
def test_the_place_of_a_destination_is_its_server(protocol: str, endpoint: str, place: str) -> None:
    """Without path, query and secrets; a target of gRPC's own, which has no other name, as it stands."""
    assert metrics(endpoint, PROTOCOL=protocol).place == place


def test_a_user_in_the_url_becomes_a_header() -> None:
    """A user and a password are sent as Basic, stand in no URL, and give way to an explicit header."""
    found = metrics("http://me:p%40ss@c:4318")
    assert found.url == "http://c:4318/v1/metrics"
    assert found.headers == {"authorization": "Basic bWU6cEBzcw=="}
    assert metrics("http://me:x@c:4318", HEADERS="authorization=y").headers == {"authorization": "y"}


def test_secrets_are_not_in_the_repr() -> None:
    """Neither header values nor user, password and query of the URL, nor the key's path."""
    found = Destination(
        "metrics", "http://me:pass@c:4318/v1/metrics?token=tok", headers={"authorization": "sec"}, client_key="k.pem"
    )
    text = repr(found)
    for secret in ("pass", "tok", "sec'", "k.pem"):
        assert secret not in text
    assert "authorization" in text
    assert found.shown_url == "http://c:4318/v1/metrics"
    assert found.place == "http://c:4318"


@pytest.mark.parametrize(
    ("variables", "name", "fix"),
    [
        ({"ENDPOINT": "localhost:4318"}, BASE, "a URL with its scheme, such as http://localhost:4318"),
        ({"ENDPOINT": "ftp://c"}, BASE, "a URL with its scheme"),
        ({"ENDPOINT": "http://c d:1"}, BASE, "the space"),
        ({"ENDPOINT": "http://c:99999"}, BASE, "Port out of range"),
        ({"METRICS_ENDPOINT": "http://"}, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "a URL with its scheme"),
        ({"METRICS_ENDPOINT": "http://c/v1/traces"}, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "end it with /v1/metrics"),
        ({"LOGS_ENDPOINT": "http://c/v1/metrics/"}, "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "end it with /v1/logs"),
        ({"ENDPOINT": "c", "PROTOCOL": "grpc"}, BASE, "host:port"),
        ({"ENDPOINT": "ftp://c:1", "PROTOCOL": "grpc"}, BASE, "http:// (plain) or https:// (TLS)"),
        ({"PROTOCOL": "json"}, "OTEL_EXPORTER_OTLP_PROTOCOL", "http/json, http/protobuf, grpc"),
        ({"LOGS_PROTOCOL": "udp"}, "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "http/json, http/protobuf, grpc"),
        ({"TIMEOUT": "10s"}, "OTEL_EXPORTER_OTLP_TIMEOUT", "milliseconds"),
        ({"TIMEOUT": "0"}, "OTEL_EXPORTER_OTLP_TIMEOUT", "at least 1"),
        ({"TIMEOUT": "nan"}, "OTEL_EXPORTER_OTLP_TIMEOUT", "at least 1"),
        ({"COMPRESSION": "zstd"}, "OTEL_EXPORTER_OTLP_COMPRESSION", "gzip or none"),
        ({"INSECURE": "yes"}, "OTEL_EXPORTER_OTLP_INSECURE", "true or false"),
        ({"CERTIFICATE": "/not/there.pem"}, "OTEL_EXPORTER_OTLP_CERTIFICATE", "a PEM file that is there"),
        ({"HEADERS": "a=1,secret-only"}, "OTEL_EXPORTER_OTLP_HEADERS", "part 2"),
        ({"HEADERS": "a b=secret"}, "OTEL_EXPORTER_OTLP_HEADERS", "part 1"),
        ({"TRACES_HEADERS": "a=secret%0d%0aX: y"}, "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "line end"),
    ],
)
def test_a_wrong_value_is_named(variables: dict[str, str], name: str, fix: str) -> None:
    """The error names the variable and the fix, and never shows what may be a secret."""
    with pytest.raises(ConfigError) as fault:
        read(**{"ENDPOINT": "http://c:4318", **variables})
    assert fault.value.field == name
    assert fix in fault.value.fix
    assert "secret" not in str(fault.value)


def test_a_wrong_address_is_shown_without_its_secrets() -> None:
    """The user's password and the query are masked in the message about an address."""
    with pytest.raises(ConfigError) as fault:
        read("ftp://me:pass@c/x?token=tok")
    assert str(fault.value.value) == "ftp://***@c/x?***"


@pytest.mark.parametrize(("protocol", "package"), [("grpc", "grpc"), ("http/protobuf", "opentelemetry.proto")])
def test_a_missing_package_is_said_at_the_start(protocol: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A protocol whose package is not installed names the extra that brings it."""
    for name in [name for name in sys.modules if name == package or name.startswith(package + ".")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Hiding(package), *sys.meta_path])
    with pytest.raises(ConfigError, match="pip install 'otel-train\\[otlp\\]'"):
        metrics(PROTOCOL=protocol)
    assert metrics(PROTOCOL="http/json").protocol == "http/json"


class _Hiding:
    """Makes a package look as if it were not installed."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == self._package or name.startswith(self._package + "."):
            raise ModuleNotFoundError(name)


def test_certificates_are_read_at_the_start(certificates: Certificates, tmp_path: Path) -> None:
    """Right files are kept; a wrong one, and a key without its certificate, are named before anything is sent."""
    found = metrics(
        "https://c:4318",
        CERTIFICATE=certificates.ca_pem,
        CLIENT_KEY=certificates.client_key,
        CLIENT_CERTIFICATE=certificates.client_pem,
    )
    assert (found.certificate, found.client_certificate) == (certificates.ca_pem, certificates.client_pem)
    assert found.client_key == certificates.client_key
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    cases = [
        ({"CERTIFICATE": str(wrong)}, "OTEL_EXPORTER_OTLP_CERTIFICATE"),
        ({"CLIENT_CERTIFICATE": certificates.client_pem}, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"),
        ({"CLIENT_KEY": certificates.client_key}, "OTEL_EXPORTER_OTLP_CLIENT_KEY"),
        (
            {"CLIENT_CERTIFICATE": certificates.client_pem, "CLIENT_KEY": certificates.server_key},
            "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
        ),
    ]
    for variables, name in cases:
        with pytest.raises(ConfigError) as fault:
            metrics("https://c:4318", **variables)
        assert fault.value.field == name


def test_a_client_certificate_may_hold_its_key(certificates: Certificates, tmp_path: Path) -> None:
    """One PEM file with both parts is enough."""
    both = tmp_path / "both.pem"
    both.write_text(Path(certificates.client_pem).read_text() + Path(certificates.client_key).read_text())
    found = metrics("https://c:4318", CLIENT_CERTIFICATE=str(both))
    assert found.client_key == found.client_certificate == str(both)
