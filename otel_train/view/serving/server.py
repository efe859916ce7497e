"""Runs the local page's server: prints nothing by itself, ends at once when told to, and where nobody looks."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.types import ASGIApp

from otel_train.clock import SYSTEM, Clock
from otel_train.view.plotly_script import plotly_path
from otel_train.view.serving.application import application
from otel_train.view.serving.assets import Assets
from otel_train.view.serving.doors import Access, host_names, is_loopback
from otel_train.view.serving.faults import Faults
from otel_train.view.serving.ports import Listener, ListenError, take_port
from otel_train.view.serving.shells import run_address
from otel_train.view.serving.site import Site

if TYPE_CHECKING:
    import uvicorn

SHORTEST_TOKEN = 8
# For what is still being sent when the server is told to end: long enough for a page, not for a large file.
GRACE_S = 1
# Each look wakes the server up; whoever ends it waits as long for the streams to end.
LOOK_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Options:
    """How the page is served."""

    host: str = "127.0.0.1"
    # None: the default port or the next free one; 0: any.
    port: int | None = None
    # None: a random one, but none where only this machine reaches the server; "": a random one in any case.
    token: str | None = None
    # Names besides its own by which the server may be called, as by a proxy.
    allowed_hosts: tuple[str, ...] = ()
    # Ends so long after the last page has gone; None: never.
    until_idle_s: float | None = None
    # Writes a line for each request.
    verbose: bool = False
    # The run whose page is going to be opened; "" for the table of runs.
    run_id: str = ""


class LocalServer:
    """The local page over a root, at an address of its own. Made, it listens; `serve` answers until it is ended."""

    def __init__(self, root: Path, options: Options | None = None, *, clock: Clock = SYSTEM) -> None:
        self.options = options or Options()
        if self.options.token and len(self.options.token) < SHORTEST_TOKEN:
            raise ListenError(f"--token: use at least {SHORTEST_TOKEN} characters, or no value for a random one")
        assets = Assets(plotly_path())
        self.listener: Listener = take_port(self.options.host, self.options.port)
        self.token = self._token()
        self.site = Site(root, assets, clock=clock, faults=Faults())
        own_names = (socket.gethostname(), socket.getfqdn()) if not is_loopback(self.options.host) else ()
        access = Access(
            hosts=host_names(self.options.host, self.options.allowed_hosts, own_names),
            token=self.token,
            cookie=f"otel_train_ui_{self.listener.port}",
        )
        self._server = _server(application(self.site, access, attend=self._attend, verbose=self.options.verbose))

    async def _attend(self) -> None:
        """End the server where nobody looks; and once it is to end, the streams, for which it would wait."""
        limit_s = self.options.until_idle_s
        # For whoever is about to open the address, most of the work is done when the browser has come up.
        self.site.begin(self.options.run_id)
        while not self._server.should_exit:
            if limit_s is not None and self.site.presence.idle_s >= limit_s:
                self._server.should_exit = True
            await asyncio.sleep(LOOK_S)
        self.site.stop()

    def _token(self) -> str:
        if self.options.token:
            return self.options.token
        needed = self.options.token == "" or not is_loopback(self.options.host)
        return secrets.token_urlsafe(24) if needed else ""

    def address(self, *, here: bool = False) -> str:
        """Return the address of the page that is opened first, with the token that it may need.

        With `here` it is one that a browser on this machine reaches.
        """
        run_id = self.options.run_id
        host = self.options.host
        if host in ("0.0.0.0", "::"):
            host = ("127.0.0.1" if host == "0.0.0.0" else "::1") if here else socket.gethostname()
        shown = f"[{host}]" if ":" in host else host
        query = f"?token={quote(self.token)}" if self.token else ""
        return f"http://{shown}:{self.listener.port}/{run_address(run_id) if run_id else ''}{query}"

    @property
    def started(self) -> bool:
        """Whether it answers by now."""
        return self._server.started

    def serve(self, started: Callable[[], None] = lambda: None) -> None:
        """Answer until Ctrl-C, SIGTERM, `stop`, or until nobody looks any more; `started` is called in a thread."""
        threading.Thread(target=started, name="page-started", daemon=True).start()
        with _signals_that_only_end():
            self._server.run(sockets=[self.listener.socket])
        # What the index knows is worth a moment; a look around that is not over yet is not waited for.
        keeping = threading.Thread(target=self.site.list.index.close, name="page-index", daemon=True)
        keeping.start()
        keeping.join(GRACE_S / 2)

    def stop(self) -> None:
        """End it, from any thread."""
        self._server.should_exit = True


def _server(app: ASGIApp) -> uvicorn.Server:
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="on",
            loop="asyncio",
            http="h11",
            ws="none",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
        )
    )


@contextlib.contextmanager
def _signals_that_only_end() -> Iterator[None]:
    """Keep the signal that has ended the server, and which it raises again, from ending the program as well."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _heard(number: int, frame: FrameType | None) -> None:
    pass
