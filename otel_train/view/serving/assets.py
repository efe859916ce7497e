"""Holds what the pages load beside their data: script, style and plotly, under names that change with the content."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from otel_train.view.page import LOCAL_SCRIPTS, LOCAL_STYLES, asset, joined

# Nearly all of plotly runs while it is loaded. Where a browser knows this sign it compiles all of it in another thread
# while it comes in, where it would else read most of it twice in the thread that draws: half a second less.
COMPILED_WHOLE = b"//# allFunctionsCalledOnLoad\n"
# A small picture for the browser's tab: a falling curve.
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#0b57d0"/>'
    '<path d="M6 8c3 12 8 15 20 16" fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round"/></svg>'
)


@dataclass
class Asset:
    """One file, as it is and compressed once somebody wants it so."""

    name: str
    body: bytes
    media_type: str
    _packed: bytes = b""

    def packed(self) -> bytes:
        """Return the body compressed with gzip; the first time this takes a while."""
        if not self._packed:
            self._packed = gzip.compress(self.body, 6, mtime=0)
        return self._packed


class Assets:
    """All of them, read once."""

    def __init__(self, plotly: Path) -> None:
        self.script = _named("page", "js", joined(LOCAL_SCRIPTS).encode(), "text/javascript; charset=utf-8")
        style = "\n".join(asset(name) for name in LOCAL_STYLES)
        self.style = _named("page", "css", style.encode(), "text/css; charset=utf-8")
        self.plotly = _named("plotly", "js", COMPILED_WHOLE + plotly.read_bytes(), "text/javascript; charset=utf-8")
        self.icon = _named("icon", "svg", ICON.encode(), "image/svg+xml")
        self._by_name = {item.name: item for item in (self.script, self.style, self.plotly, self.icon)}

    def get(self, name: str) -> Asset | None:
        """Return the asset of this name, None where there is none."""
        return self._by_name.get(name)


def _named(stem: str, suffix: str, body: bytes, media_type: str) -> Asset:
    digest = hashlib.blake2s(body, digest_size=8).hexdigest()
    return Asset(f"{stem}.{digest}.{suffix}", body, media_type)
