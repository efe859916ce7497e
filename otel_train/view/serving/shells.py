"""Makes the three pages before their data: runs, one run, comparison; all of their addresses are relative."""

from __future__ import annotations

import html
from urllib.parse import quote

from starlette.responses import Response

from otel_train.view.page import asset, filled
from otel_train.view.serving.site import Site

_PAGES = {"runs": "Runs", "compare": "Compare"}


def shell(site: Site, page: str, *, base: str = "", run_id: str = "", title: str = "") -> Response:
    """Return the shell of a page. `base` leads from the page's address to the root of all addresses: "" or "../"."""
    assets = site.assets
    # Only the pages that draw load the large script.
    plotly = f'<script id="plotly" src="{base}assets/{assets.plotly.name}" defer></script>' if page != "runs" else ""
    home = base or "./"
    addresses = {"runs": home, "compare": f"{base}compare"}
    links = ""
    for name, text in _PAGES.items():
        here = ' aria-current="page"' if name == page else ""
        links += f'<a href="{addresses[name]}"{here}>{text}</a>'
    parts = {
        "title": html.escape(title or f"{_PAGES.get(page, page)} · otel-train"),
        "base": base,
        "home": home,
        "page": page,
        "run": html.escape(run_id),
        "root": html.escape(str(site.root)),
        "links": links,
        "plotly": plotly,
        "script": assets.script.name,
        "style": assets.style.name,
        "icon": assets.icon.name,
    }
    content = filled(asset("local.html"), parts).encode("utf-8", "backslashreplace")
    return Response(content, 200, {"cache-control": "no-cache"}, "text/html; charset=utf-8")


def run_address(run_id: str) -> str:
    """Return a run's page as an address relative to the root of all addresses."""
    return f"run/{quote(run_id, safe='')}"
