"""The routes of the local page: three pages, their assets, and the data that they ask for."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from otel_train.clock import NS_PER_MS
from otel_train.errors import OtelTrainError
from otel_train.view.serving import list_routes, run_routes
from otel_train.view.serving.answers import Refusal, error_answer, wants_packing
from otel_train.view.serving.doors import Access, Door
from otel_train.view.serving.held_runs import RunGoneError
from otel_train.view.serving.shells import refusal_page, run_address, shell
from otel_train.view.serving.site import Site
from otel_train.view.serving.workers import Stopped

Endpoint = Callable[[Site, Request], Awaitable[Response]]
_FOR_EVER = "public, max-age=31536000, immutable"


async def _runs_page(site: Site, request: Request) -> Response:
    site.begin()
    return shell(site, "runs")


async def _run_page(site: Site, request: Request) -> Response:
    named = run_routes.run_id_of(request)
    # A run that is held may have been deleted, which its page tells.
    if site.runs.get(named) is None:
        found = await site.workers.run(site.newest if named == "latest" else functools.partial(site.meant, named))
        if found:
            query = f"?{request.url.query}" if request.url.query else ""
            return Response(status_code=307, headers={"location": run_address(found).removeprefix("run/") + query})
    held = await run_routes.held_run(site, named)
    # The page is going to ask for it in a moment.
    held.warm(opened=True)
    return shell(site, "run", base="../", run_id=held.run_id, title=f"{held.run_id} · otel-train")


async def _compare_page(site: Site, request: Request) -> Response:
    return shell(site, "compare")


async def _asset(site: Site, request: Request) -> Response:
    found = site.assets.get(request.path_params["name"])
    if found is None:
        raise Refusal(404, "there is no such file; reload the page")
    headers = {"cache-control": _FOR_EVER, "vary": "accept-encoding"}
    body = found.body
    if wants_packing(request):
        body, headers = await site.workers.run(found.packed), {**headers, "content-encoding": "gzip"}
    return Response(body, 200, headers, found.media_type)


async def _icon(site: Site, request: Request) -> Response:
    return Response(site.assets.icon.body, 200, {"cache-control": "max-age=86400"}, site.assets.icon.media_type)


ROUTES: tuple[tuple[str, Endpoint], ...] = (
    ("/", _runs_page),
    ("/run/{run_id}", _run_page),
    ("/compare", _compare_page),
    ("/assets/{name}", _asset),
    ("/favicon.ico", _icon),
    ("/api/runs", list_routes.runs),
    ("/api/runs/events", list_routes.events),
    ("/api/run/{run_id}", run_routes.parts),
    ("/api/run/{run_id}/events", run_routes.events),
    ("/api/run/{run_id}/line/{line_id}", run_routes.line),
    ("/api/run/{run_id}/points.csv", run_routes.points),
    ("/api/run/{run_id}/logs", run_routes.logs),
    ("/api/run/{run_id}/files", run_routes.files),
    ("/api/run/{run_id}/file", run_routes.file),
    ("/api/compare", list_routes.compare),
)


class Counted:
    """Counts who is there, so that a server may end by itself where nobody is."""

    def __init__(self, app: ASGIApp, site: Site, verbose: bool) -> None:
        self._app = app
        self._site = site
        self._verbose = verbose

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._site.presence.enter()
        began_ns = self._site.clock.mono_ns()
        status = 0

        async def seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, seen)
        finally:
            self._site.presence.leave()
            if self._verbose:
                taken_ms = (self._site.clock.mono_ns() - began_ns) / NS_PER_MS
                # Without the query, which may hold the token.
                path = scope["raw_path"].decode("ascii", "replace")
                self._site.faults.say(f"{scope['method']} {path} {status} {taken_ms:.0f} ms")


def application(
    site: Site, access: Access, *, attend: Callable[[], Coroutine[Any, Any, None]] | None = None, verbose: bool = False
) -> ASGIApp:
    """Return the application for a server.

    `attend` runs beside it; with `verbose` a line is written for each request.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        attending = asyncio.create_task(attend()) if attend is not None else None
        yield
        if attending is not None:
            attending.cancel()
        site.stop()

    async def refused(request: Request, fault: Exception) -> Response:
        status = fault.status_code if isinstance(fault, HTTPException) else 500
        return _told(site, request, Refusal(status, f"there is nothing at {request.url.path}"))

    routes = [Route(path, _guarded(site, endpoint), methods=["GET"]) for path, endpoint in ROUTES]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: refused})
    # A redirect to the address with or without a slash would name this server, and not the proxy before it.
    app.router.redirect_slashes = False
    return Counted(Door(app, access), site, verbose)


def _guarded(site: Site, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    """Turn what an endpoint raises into an answer; nobody gets to see a traceback."""

    async def answered(request: Request) -> Response:
        try:
            return await endpoint(site, request)
        except Refusal as refusal:
            return _told(site, request, refusal)
        except Stopped as ending:
            return _told(site, request, Refusal(503, str(ending)))
        except RunGoneError as fault:
            return _told(site, request, Refusal(410, str(fault), gone=True))
        except (OtelTrainError, OSError) as fault:
            # The run is there: what was not found is anything in it.
            return _told(site, request, Refusal(404, run_routes.problem_of(fault), unreadable=True))
        except Exception as fault:  # noqa: BLE001 - the server goes on
            number = site.faults.note(fault, request.url.path)
            message = f"something went wrong here (fault {number}); the server's own output says what"
            return _told(site, request, Refusal(500, message, fault=number))

    return answered


def _told(site: Site, request: Request, refusal: Refusal) -> Response:
    if request.url.path.startswith(("/api/", "/assets/")):
        return error_answer(refusal.status, refusal.message, **refusal.more)
    near: Any = refusal.more.get("near", ())
    up = "../" * (request.scope["path"].count("/") - 1)
    links = {**{run_id: f"{up}{run_address(run_id)}" for run_id in near}, "All runs": up or "./"}
    title = {404: "Not found", 410: "Gone"}.get(refusal.status, "This did not work")
    # The page has them as links.
    message = refusal.message.removesuffix(f"; near it: {', '.join(near)}")
    paragraphs = [message, "Near it:"] if message != refusal.message else [message]
    return refusal_page(site, refusal.status, title, paragraphs, links, base=up)
