"""Answers what the pages of several runs ask for: the table, its changes, and the comparison."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator

from starlette.requests import Request
from starlette.responses import Response

from otel_train.errors import OtelTrainError, RunNotFoundError
from otel_train.view.comparison import MOST_CURVES, asked
from otel_train.view.index_row import cut
from otel_train.view.page import json_bytes
from otel_train.view.run_data import RunData
from otel_train.view.run_table import split_columns
from otel_train.view.serving import streams
from otel_train.view.serving.answers import Refusal
from otel_train.view.serving.held_runs import HeldRun
from otel_train.view.serving.run_routes import answer_json, held_run, query_texts
from otel_train.view.serving.site import Site

MOST_DIGITS = 18


async def runs(site: Site, request: Request) -> Response:
    """The table of runs."""
    asked = request.query_params
    limit = asked.get("limit", "")
    # More digits than any count has: Python itself refuses some thousands.
    if limit and not (limit.isdecimal() and len(limit) <= MOST_DIGITS):
        raise Refusal(400, f"limit={cut(limit, 40)!r}: use a whole number", field="limit")
    body = await site.list.table(
        **query_texts(request, "where", "search", "sort"),
        columns=split_columns(columns) if (columns := asked.get("columns")) is not None else None,
        limit=int(limit) if limit else None,
    )
    return await answer_json(site, request, body)


async def events(site: Site, request: Request) -> Response:
    """The stream of changes of the table."""
    since = request.headers.get("last-event-id") or request.query_params.get("revision") or ""
    if request.method == "HEAD":
        return streams.response(streams.nothing())
    return streams.response(_watched(site, since))


async def _watched(site: Site, since: str) -> AsyncGenerator[bytes, None]:
    async with (
        site.listening(site.list, site.list.watch(since)) as stream,
        contextlib.aclosing(stream.chunks()) as all_,
    ):
        async for chunk in all_:
            yield chunk


async def compare(site: Site, request: Request) -> Response:
    """Several runs beside each other."""
    ids = request.query_params.get("runs", "").split(",")
    base, revision = request.query_params.get("base", ""), request.query_params.get("revision", "")
    wanted = list(dict.fromkeys(name for name in map(str.strip, ids) if name))
    if not wanted:
        raise Refusal(400, "no run is named: use /api/compare?runs=ID,ID")
    held: dict[str, HeldRun] = {}
    faults: dict[str, Exception] = {}
    if len(wanted) > MOST_CURVES:
        await site.list.fresh()
    else:
        for name in wanted:
            try:
                found = await held_run(site, name)
                await found.fresh()
                held[name] = found
            except (Refusal, OtelTrainError, OSError) as fault:
                faults[name] = fault

    @contextlib.contextmanager
    def opened(name: str) -> Iterator[RunData]:
        if name in faults:
            fault = faults[name]
            raise RunNotFoundError(fault.message) if isinstance(fault, Refusal) else fault
        live = held[name].live
        with live.lock:
            yield live.data

    def compared() -> bytes:
        return json_bytes(asked(ids, opened, site.list.index.row, base=base, revision=revision))

    return await answer_json(site, request, await site.workers.run(compared))
