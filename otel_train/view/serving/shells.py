"""Makes the three pages before their data: runs, one run, comparison; all of their addresses are relative."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from starlette.responses import Response

from otel_train.view.page import asset, filled
from otel_train.view.serving.site import Site

_PAGES = {"runs": "Runs", "compare": "Compare"}
# What is refused is told without a script: nothing of an address that was made up can run.
_REFUSAL = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{title}} · otel-train</title>
<link rel="icon" href="{{base}}assets/{{icon}}" type="image/svg+xml">
<link rel="stylesheet" href="{{base}}assets/{{style}}">
</head>
<body data-page="refusal">
<header class="bar">
  <a class="brand" href="{{home}}" aria-label="All runs" title="All runs"><span></span><span></span><span></span></a>
  <div class="pages" role="navigation" aria-label="Pages">{{links}}</div>
</header>
<main id="main">
  <div class="card"><h1>{{title}}</h1>{{body}}</div>
</main>
</body>
</html>
"""


def shell(site: Site, page: str, *, base: str = "", run_id: str = "", title: str = "") -> Response:
    """Return the shell of a page. `base` leads from the page's address to the root of all addresses: "" or "../"."""
    assets = site.assets
    # Only the pages that draw load the large script.
    plotly = f'<script id="plotly" src="{base}assets/{assets.plotly.name}" defer></script>' if page != "runs" else ""
    home = base or "./"
    parts = {
        "title": html.escape(title or f"{_PAGES.get(page, page)} · otel-train"),
        "base": base,
        "home": home,
        "page": page,
        "run": html.escape(run_id),
        "root": html.escape(str(site.root)),
        "links": _page_links(base, page, run_id),
        "plotly": plotly,
        "script": assets.script.name,
        "style": assets.style.name,
        "icon": assets.icon.name,
    }
    content = filled(asset("local.html"), parts).encode("utf-8", "backslashreplace")
    return Response(content, 200, {"cache-control": "no-cache"}, "text/html; charset=utf-8")


def refusal_page(
    site: Site, status: int, title: str, paragraphs: Sequence[str], links: Mapping[str, str], *, base: str = ""
) -> Response:
    """Return a page that says what cannot be given. Paragraphs are texts, `links` are addresses by their texts."""
    body = "".join(f"<p>{html.escape(text)}</p>" for text in paragraphs)
    items = "".join(f'<li><a href="{html.escape(to)}">{html.escape(text)}</a></li>' for text, to in links.items())
    parts = {
        "title": html.escape(title),
        "base": base,
        "home": base or "./",
        "links": _page_links(base),
        "body": f"{body}<ul>{items}</ul>" if items else body,
        "style": site.assets.style.name,
        "icon": site.assets.icon.name,
    }
    content = filled(_REFUSAL, parts).encode("utf-8", "backslashreplace")
    return Response(content, status, {"cache-control": "no-store"}, "text/html; charset=utf-8")


def _page_links(base: str, page: str = "", run_id: str = "") -> str:
    # From a run's page the comparison begins with that run.
    chosen = f"?runs={quote(os.fsencode(run_id), safe='')}" if run_id else ""
    addresses = {"runs": base or "./", "compare": f"{base}compare{chosen}"}
    links = ""
    for name, text in _PAGES.items():
        here = ' aria-current="page"' if name == page else ""
        links += f'<a href="{addresses[name]}"{here}>{text}</a>'
    return links


def run_address(run_id: str) -> str:
    """Return a run's page as an address relative to the root of all addresses."""
    # A folder's name need not be UTF-8.
    return f"run/{quote(os.fsencode(run_id), safe='')}"
