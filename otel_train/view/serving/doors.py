"""Lets in who may see the runs, and puts on every answer the headers that keep a page from doing anything else."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from otel_train.view.serving.answers import error_answer, plain_page

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_PORT = re.compile(r":\d*$")
_BRACKETED = re.compile(r"\[([^\[\]]*)\](?::\d*)?")

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    # No page of another origin may load anything from here, as a picture or a script either.
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    if host in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who may see the runs."""

    # The names by which the server may be called; None for any, which is safe only with a token.
    hosts: frozenset[str] | None = field(default=LOOPBACK_NAMES)
    # What a visitor must know; "" for nothing.
    token: str = ""
    # Cookies of one host are shared by its ports.
    cookie: str = "otel_train_ui"

    @property
    def cookie_value(self) -> str:
        """What a browser keeps instead of the token, which may hold letters that no cookie can."""
        return hashlib.blake2b(self.token.encode("utf-8", "replace"), digest_size=32).hexdigest()

    def __post_init__(self) -> None:
        if self.hosts is None and not self.token:
            raise ValueError("a server that may be called by any name needs a token")


def named_host(header: str) -> str:
    """Return the name in a Host header, in small letters, without port and brackets."""
    name = header.strip().lower()
    bracketed = _BRACKETED.fullmatch(name)
    if bracketed:
        return bracketed[1]
    return _PORT.sub("", name).rstrip(".")


class Door:
    """Stands before the application."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        refusal = self._refused_as(request) or self._stranger(request)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if self._gives_cookie(request):
                    cookie = f"{self._access.cookie}={self._access.cookie_value}; Path=/; HttpOnly; SameSite=Strict"
                    headers.append("set-cookie", cookie)
            await send(message)

        await (refusal or self._app)(scope, receive, with_headers)

    def _refused_as(self, request: Request) -> Response | None:
        """Return the refusal of a request that nobody means to make who looks at this page."""
        if request.method not in ("GET", "HEAD"):
            answer = _refusal(request, 405, "Nothing can be changed here", ["This page only reads: use GET or HEAD."])
            answer.headers["allow"] = "GET, HEAD"
            return answer
        strange = request.headers.get("sec-fetch-site") == "cross-site"
        if strange and request.headers.get("sec-fetch-mode") != "navigate":
            # It could not read the answer, but make this machine work for it.
            return _refusal(request, 403, "Not for other pages", ["A page of another address has asked for this."])
        hosts = self._access.hosts
        name = named_host(request.headers.get("host", ""))
        if hosts is None or name in hosts:
            return None
        # A name of somebody else that leads here is how a foreign page would read the runs (DNS rebinding).
        known = ", ".join([*sorted(hosts - LOOPBACK_NAMES), "localhost", "127.0.0.1"])
        why = f"This server is called {known}, not {name or 'nothing'}."
        how = f"If it is meant to be reached by that name, start it with: otel-train ui --allow-host {name or 'NAME'}"
        return _refusal(request, 421, "Wrong name for this server", [why, how])

    def _stranger(self, request: Request) -> Response | None:
        """Return what somebody is told who does not show the token, and the way in for who brings it in the address."""
        token = self._access.token
        if not token:
            return None
        if self._gives_cookie(request):
            return self._tidied(request)
        cookie = request.cookies.get(self._access.cookie, "")
        if _same(_bearer(request), token) or _same(cookie, self._access.cookie_value):
            return None
        wrong = "token" in request.query_params
        title = "This token does not fit" if wrong else "A token is needed"
        told = [
            "The runs here are shown to who has the address that `otel-train ui` printed when it was started: "
            "it ends in ?token=…; open that address once, then this browser is known.",
            "A token is made anew with each start. Who started the server finds the address in its terminal.",
        ]
        return _refusal(request, 403 if wrong else 401, title, told)

    def _tidied(self, request: Request) -> Response | None:
        """Lead a page that was opened with the token in its address to the address without it.

        It is led there by the page itself: after a redirect the browser would still count as coming from wherever the
        address was clicked, and keep the strict cookie back.
        """
        if request.url.path.startswith("/api/"):
            return None
        rest = [(key, value) for key, value in parse_qsl(request.url.query, keep_blank_values=True) if key != "token"]
        last = quote(request.scope["path"].rpartition("/")[2], safe="")
        target = f"./{last}" + (f"?{urlencode(rest)}" if rest else "")
        # Percent-encoded, so that nothing in it ends the attribute.
        head = f'<meta http-equiv="refresh" content="0;url={target.replace("&", "&amp;")}">'
        return plain_page(200, "One moment", [], {"Go on": target}, head)

    def _gives_cookie(self, request: Request) -> bool:
        return bool(self._access.token) and _same(request.query_params.get("token", ""), self._access.token)


def _same(shown: str, meant: str) -> bool:
    """Compare in a time that tells nothing of how much was right."""
    return hmac.compare_digest(shown.encode("utf-8", "replace"), meant.encode("utf-8", "replace"))


def _bearer(request: Request) -> str:
    scheme, _, shown = request.headers.get("authorization", "").partition(" ")
    return shown.strip() if scheme.lower() == "bearer" else ""


def _refusal(request: Request, status: int, title: str, told: list[str]) -> Response:
    if request.scope["path"].startswith("/api/"):
        return error_answer(status, f"{title}. {' '.join(told)}")
    return plain_page(status, title, told)


def host_names(host: str, extra: Iterable[str], own_names: Iterable[str]) -> frozenset[str] | None:
    """Return the names by which a server on this address may be called; None, any, where it listens everywhere."""
    names = LOOPBACK_NAMES | {named_host(name) for name in extra}
    if is_loopback(host):
        return names | {host.lower()}
    try:
        if ipaddress.ip_address(host).is_unspecified:
            return None
    except ValueError:
        pass
    return names | {host.lower()} | {name.lower() for name in own_names}
