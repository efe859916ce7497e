"""Answers what a run's page asks for: its parts, events, finer lines, points and files."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Iterator
from typing import Any, BinaryIO
from urllib.parse import parse_qsl, quote, unquote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from otel_train.errors import OtelTrainError
from otel_train.view.page import json_bytes
from otel_train.view.parts import PARTS
from otel_train.view.serving import run_files, streams
from otel_train.view.serving.answers import Refusal, json_answer, packed, wants_packing
from otel_train.view.serving.held_runs import HeldRun
from otel_train.view.serving.site import Site
from otel_train.view.serving.workers import Workers

# So long the head waits for the points, which most runs have by then.
EARLY_AFTER_S = 0.15
# What is asked for in the place of a part: the first chart of a long run that is still being read.
FIRST = "first"
CHUNK_BYTES = 1 << 18
_ROWS_A_CHUNK = 2000


async def held_run(site: Site, run_id: str) -> HeldRun:
    """Return the run of an id; a refusal, with ids that are near, where the root holds none."""
    held = site.runs.get(run_id)
    if held is not None:
        return held
    path = await site.workers.run(site.find, run_id)
    if path is not None:
        return site.runs.hold(run_id, path)
    told, near = await site.workers.run(site.near, run_id)
    raise Refusal(404, f"there is no run {run_id!r} in {site.root}{told}", near=near)


def run_id_of(request: Request) -> str:
    """Return the id in an address; bytes of it that are no UTF-8 are those of the folder's name."""
    run_id: str = request.path_params["run_id"]
    if "\ufffd" in run_id:
        parts = request.scope["raw_path"].decode("ascii", "replace").split("/")
        place = 3 if request.url.path.startswith("/api/") else 2
        run_id = unquote(parts[place], errors="surrogateescape")
    return run_id


async def answer_json(site: Site, request: Request, body: bytes) -> Response:
    """Return JSON that is made already, compressed in a worker where it goes over a network."""
    headers = {"cache-control": "no-store"}
    if wants_packing(request):
        body, headers = await site.workers.run(packed, body, headers, True)
    return Response(body, 200, headers, "application/json")


async def parts(site: Site, request: Request) -> Response:
    """Some or all parts of a run's page."""
    held = await held_run(site, run_id_of(request))
    asked = request.query_params.get("parts", "")
    if asked == FIRST:
        return await answer_json(site, request, await held.first())
    names = list(dict.fromkeys(name for name in asked.split(",") if name)) or list(PARTS)
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise Refusal(400, f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    if names == ["head"] and not held.is_read and not await _read_soon(held):
        return await answer_json(site, request, await held.described())
    body = await held.parts(names)
    return await answer_json(site, request, body)


async def _read_soon(held: HeldRun) -> bool:
    """Return whether the run is read within the time that the head may take."""
    reading = asyncio.ensure_future(held.opened())
    done, _ = await asyncio.wait({reading}, timeout=EARLY_AFTER_S)
    if not done:
        reading.add_done_callback(lambda task: task.cancelled() or task.exception())
        return False
    reading.result()
    return True


async def events(site: Site, request: Request) -> Response:
    """The stream of what happens to a run from a revision on."""
    held = await held_run(site, run_id_of(request))
    since = _whole(request.headers.get("last-event-id") or request.query_params.get("revision") or "")
    if request.method == "HEAD":
        return streams.response(streams.nothing())
    return streams.response(_watched(site, held, since))


async def _watched(site: Site, held: HeldRun, since: int | None) -> AsyncGenerator[bytes, None]:
    async with site.listening(held, held.watch(since)) as stream, contextlib.aclosing(stream.chunks()) as chunks:
        async for chunk in chunks:
            yield chunk


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,18}", text) else None


def _bound(text: str) -> float | None:
    """Return one end of a range; None where it is open or no number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value else None


async def line(site: Site, request: Request) -> Response:
    """One line of a chart, finer, between two places."""
    held = await held_run(site, run_id_of(request))
    await held.fresh()
    line_id: str = request.path_params["line_id"]
    asked = request.query_params
    low, high = _bound(asked.get("from", "")), _bound(asked.get("to", ""))
    axis = asked.get("axis", "step")
    if axis not in ("step", "time", "epoch"):
        raise Refusal(400, f"there is no axis {axis!r}: use step, time or epoch")
    found = await site.workers.run(held.live.finer, line_id, axis, low, high)
    if found is None:
        raise Refusal(404, f"run {held.run_id} has no line {line_id!r}")
    body = await site.workers.run(json_bytes, {**found, "revision": held.revision})
    return await answer_json(site, request, body)


async def points(site: Site, request: Request) -> Response:
    """Every point of some lines, or of all, as CSV."""
    held = await held_run(site, run_id_of(request))
    await held.fresh()
    asked = request.query_params.get("lines")
    ids = list(dict.fromkeys(line_id for line_id in asked.split(",") if line_id)) if asked is not None else None
    rows = await site.workers.run(held.csv_rows, ids)
    headers = {**_attached(f"{held.run_id}.csv"), "cache-control": "no-store"}
    return StreamingResponse(_row_chunks(rows, site.workers), headers=headers, media_type="text/csv; charset=utf-8")


async def _row_chunks(rows: Iterator[str], workers: Workers) -> AsyncGenerator[bytes, None]:
    def some() -> bytes:
        taken = []
        for row in rows:
            taken.append(row if row.endswith("\n") else row + "\n")
            if len(taken) >= _ROWS_A_CHUNK:
                break
        return "".join(taken).encode("utf-8", "replace")

    while chunk := await workers.run(some):
        yield chunk


async def logs(site: Site, request: Request) -> Response:
    """The log records."""
    held = await held_run(site, run_id_of(request))
    body = await held.parts(["logs"])
    return await answer_json(site, request, body)


async def files(site: Site, request: Request) -> Response:
    """The files of a run's folder."""
    held = await held_run(site, run_id_of(request))
    listing = await site.workers.run(run_files.list_files, held.path)
    answer = json_answer(listing.files)
    answer.headers["x-left-out"] = str(listing.left_out)
    return answer


async def file(site: Site, request: Request) -> Response:
    """One file of a run, only ever to be saved."""
    held = await held_run(site, run_id_of(request))
    query = dict(parse_qsl(request.scope["query_string"].decode("ascii", "replace"), errors="surrogateescape"))
    relative = query.get("path", "")
    opened = await site.workers.run(run_files.open_file, held.path, relative)
    if opened is None:
        raise Refusal(404, f"run {held.run_id} has no file {relative!r}")
    content, size = opened
    headers = {
        **_attached(relative.rpartition("/")[2]),
        "content-length": str(size),
        "content-security-policy": "sandbox; default-src 'none'",
        "cache-control": "no-store",
    }
    return StreamingResponse(
        _file_chunks(content, size, site.workers), headers=headers, media_type="application/octet-stream"
    )


async def _file_chunks(content: BinaryIO, size: int, workers: Workers) -> AsyncGenerator[bytes, None]:
    """Give as many bytes as were promised; a file that grows meanwhile is sent as it was."""
    left = size
    try:
        while left > 0 and (chunk := await workers.run(content.read, min(CHUNK_BYTES, left))):
            left -= len(chunk)
            yield chunk
    finally:
        content.close()


def _attached(name: str) -> dict[str, str]:
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    encoded = quote(name.encode("utf-8", "surrogateescape"), safe="")
    return {"content-disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}"}


def problem_of(fault: OtelTrainError | OSError) -> str:
    """Return what is said of a run that cannot be read."""
    if isinstance(fault, OSError) and not isinstance(fault, OtelTrainError):
        return f"{fault.filename or 'the run'}: {fault.strerror or fault}"
    return str(fault)


def query_texts(request: Request, *names: str) -> dict[str, Any]:
    """Return parameters of an address, "" where one is absent."""
    return {name: request.query_params.get(name, "") for name in names}
