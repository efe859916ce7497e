"""Says what an HTTP answer of an OTLP server means."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from typing import Any

from otel_train.clock import NS_PER_S
from otel_train.export.destination import HTTP_JSON, HTTP_PROTOBUF
from otel_train.export.transport import Answer, Verdict, shortened

_REJECTED_KEYS = ("rejectedDataPoints", "rejectedLogRecords", "rejectedSpans")
_WEB_PAGE = re.compile(rb"\s*<(?:!doctype html|html)\b", re.IGNORECASE)
_MISDIRECTED_ADVICE = {
    401: "give a valid token in OTEL_EXPORTER_OTLP_HEADERS",
    403: "the token in OTEL_EXPORTER_OTLP_HEADERS may not write there: give one that may",
    407: "the proxy wants a user and a password in HTTPS_PROXY",
    415: f"the server does not take this form: set OTEL_EXPORTER_OTLP_PROTOCOL={HTTP_PROTOBUF}",
}


def read_answer(
    status: int, headers: Mapping[str, str], body: bytes, *, address: str, protocol: str, signal: str, now_ns: int
) -> Answer:
    """Read one answer; `now_ns` is the wall time, for a Retry-After that names a date."""
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if 200 <= status < 300:
        if content_type == "text/html" or _WEB_PAGE.match(body):
            # A log-in page or a captive portal answers anything with 200 and a page.
            text = f"{status} with a web page from {address}: no OTLP server answers there"
            return Answer(Verdict.MISDIRECTED, text)
        return _accepted(body, content_type, signal)
    said = _message(body, content_type)
    text = shortened(f"{status} {_phrase(status)}{': ' if said else ''}{said}")
    if status == 413 or (status == 400 and "body too large" in said.lower()):
        return Answer(Verdict.TOO_LARGE, text)
    if status in (400, 422):
        advice = _of_the_way(said, content_type)
        if advice:
            return Answer(Verdict.MISDIRECTED, f"{text} from {address} ({advice})")
        return Answer(Verdict.REFUSED, text)
    retry_after_s = read_retry_after(headers.get("retry-after", ""), now_ns)
    if status in (408, 425, 429) or status >= 500:
        return Answer(Verdict.RETRY, text, retry_after_s=retry_after_s)
    if 300 <= status < 400:
        # Not followed: the headers hold a token, which is meant for the host that was named.
        advice = f"it points to {_shown(headers.get('location', ''))}: set OTEL_EXPORTER_OTLP_ENDPOINT to that"
    else:
        advice = _MISDIRECTED_ADVICE.get(status, "see what the server says")
        if status in (404, 405):
            advice = f"nothing takes OTLP at this path: {_of_the_path(address, signal)}"
        if status == 415 and protocol == HTTP_PROTOBUF:
            advice = f"the server does not take this form: set OTEL_EXPORTER_OTLP_PROTOCOL={HTTP_JSON}"
    return Answer(Verdict.MISDIRECTED, f"{text} from {address} ({advice})", retry_after_s=retry_after_s)


def _of_the_path(address: str, signal: str) -> str:
    """Return how an endpoint is written, where the path of one is wrong."""
    if address.endswith(f"/v1/{signal}"):
        return "OTEL_EXPORTER_OTLP_ENDPOINT is the address without /v1/…"
    return f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT is used as it stands, so it ends with /v1/{signal}"


def _of_the_way(said: str, content_type: str) -> str:
    """Return what to do where a 400 is no judgement of the data; empty where it is one.

    Taken for one, it would cost everything that is sent until somebody looks.
    """
    if "HTTPS server" in said or "HTTPS port" in said:
        return "TLS is spoken there: begin OTEL_EXPORTER_OTLP_ENDPOINT with https://"
    if "\\x1f" in said or "\x1f" in said:
        return "the server does not unpack gzip: set OTEL_EXPORTER_OTLP_COMPRESSION=none"
    if content_type == "text/html" or said.strip().startswith("400 Bad Request"):
        return "not in the words of an OTLP server: something before it does not let the request pass"
    return ""


def read_retry_after(value: str, now_ns: int) -> float | None:
    """Return seconds of a Retry-After, which holds seconds or a date; None where it holds neither."""
    value = value.strip()
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now_ns / NS_PER_S
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if seconds == seconds else None


def _accepted(body: bytes, content_type: str, signal: str) -> Answer:
    """Read a success; what cannot be read of it changes nothing, since the status says that the data is there."""
    if content_type == "application/x-protobuf" and body and _reads_protobuf():
        from otel_train.export.protobuf import read_partial_success

        rejected, text = read_partial_success(signal, body)
        return Answer(Verdict.ACCEPTED, shortened(text), rejected)
    if content_type != "application/json" or not body:
        return Answer(Verdict.ACCEPTED)
    try:
        partial = json.loads(body).get("partialSuccess") or {}
        counts = [int(partial.get(key) or 0) for key in _REJECTED_KEYS]
        return Answer(Verdict.ACCEPTED, shortened(str(partial.get("errorMessage") or "")), max(counts))
    except (ValueError, AttributeError, TypeError):
        return Answer(Verdict.ACCEPTED)


def _message(body: bytes, content_type: str) -> str:
    """Return what the server says about a fault: the message of a google.rpc.Status in either form, else its text."""
    if not body:
        return ""
    if content_type == "text/html":
        title = re.search(rb"<title>(.*?)</title>", body, re.DOTALL | re.IGNORECASE)
        return title[1].decode("utf-8", "replace") if title else ""
    if content_type == "application/x-protobuf":
        if not _reads_protobuf():
            return ""
        from otel_train.export.protobuf import read_status_message

        return read_status_message(body)
    text = body.decode("utf-8", "replace")
    if content_type == "application/json":
        try:
            document: Any = json.loads(text)
        except ValueError:
            return text
        if isinstance(document, dict):
            return str(document.get("message") or document.get("error") or text)
    return text


def _reads_protobuf() -> bool:
    """Tell whether the extra is there: a server may answer in protobuf what was sent as JSON."""
    try:
        return find_spec("google.rpc") is not None and find_spec("opentelemetry.proto.collector") is not None
    except ModuleNotFoundError:  # the package around it
        return False


def _phrase(status: int) -> str:
    from http import HTTPStatus

    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "status"


def _shown(location: str) -> str:
    return location.partition("?")[0] or "nowhere"
