"""Makes the answers of the local page: JSON, pages and refusals, compressed where that saves time."""

from __future__ import annotations

import gzip
import html
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from otel_train.view.page import filled, json_bytes

# Below this a packet is a packet.
WORTH_PACKING_BYTES = 1400
_HERE = ("127.0.0.1", "::1")
_PLAIN_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">{{head}}<title>{{title}} · otel-train</title>
<style>body{font:15px/1.6 system-ui,sans-serif;max-width:44rem;margin:12vh auto;padding:0 1.5rem;overflow-wrap:anywhere}
h1{font-size:1.3rem}code{font-size:.95em}</style></head>
<body><h1>{{title}}</h1>{{body}}</body></html>
"""


class Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """What is asked for cannot be given; becomes an answer with this status and message."""

    def __init__(self, status: int, message: str, **more: Any) -> None:
        self.status = status
        self.message = message
        self.more = more
        super().__init__(message)


def wants_packing(request: Request) -> bool:
    """Return whether an answer goes over a network, to somebody who can unpack it; on this machine packing only costs.

    A proxy on this machine speaks for somebody elsewhere.
    """
    here = request.client is None or request.client.host in _HERE or request.client.host.startswith("127.")
    far = not here or "x-forwarded-for" in request.headers or "x-forwarded-host" in request.headers
    return far and "gzip" in request.headers.get("accept-encoding", "")


def packed(body: bytes, headers: Mapping[str, str], packing: bool) -> tuple[bytes, dict[str, str]]:
    """Return body and headers, compressed where that is wanted and worth it."""
    if not packing or len(body) < WORTH_PACKING_BYTES:
        return body, dict(headers)
    return gzip.compress(body, 3, mtime=0), {**headers, "content-encoding": "gzip", "vary": "accept-encoding"}


def json_answer(value: Any, status: int = 200) -> Response:
    """Return a value as JSON."""
    return Response(json_bytes(value), status, {"cache-control": "no-store"}, "application/json")


def error_answer(status: int, message: str, **more: Any) -> Response:
    """Return a refusal as JSON."""
    return json_answer({"error": {"message": message, **more}}, status)


def plain_page(
    status: int, title: str, paragraphs: list[str], links: Mapping[str, str] | None = None, head: str = ""
) -> Response:
    """Return a page without script. Paragraphs are texts, `links` are addresses by their texts, `head` is markup."""
    body = "".join(f"<p>{html.escape(text)}</p>" for text in paragraphs)
    items = "".join(
        f'<li><a href="{html.escape(address)}">{html.escape(text)}</a></li>' for text, address in (links or {}).items()
    )
    parts = {"title": html.escape(title), "body": body + (f"<ul>{items}</ul>" if items else ""), "head": head}
    content = filled(_PLAIN_PAGE, parts).encode("utf-8", "backslashreplace")
    return Response(content, status, {"cache-control": "no-store"}, "text/html; charset=utf-8")
