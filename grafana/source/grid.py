"""Places panels in Grafana's grid of 24 columns, row after row, and numbers them."""

from __future__ import annotations

from typing import Any, Final

from grafana_foundation_sdk.models.dashboard import GridPos, Panel, RowPanel

from grafana.source.tiles import PLUGIN_VERSION, Tile

COLUMNS: Final = 24


class Grid:
    """Fills lines from left to right; a panel that does not fit begins the next one."""

    def __init__(self) -> None:
        self.panels: list[Panel | RowPanel] = []
        self._x = 0
        self._y = 0
        self._line_height = 0
        self._next = 1

    def row(self, title: str) -> None:
        """Begin a row with a title, which people can fold."""
        self._new_line()
        place = GridPos(h=1, w=COLUMNS, x=0, y=self._y)
        self.panels.append(RowPanel(title=title, collapsed=False, id_val=self._number(), grid_pos=place, panels=[]))
        self._y += 1

    def add(self, *tiles: Tile) -> None:
        """Place panels one after the other; one that is repeated has lines of its own."""
        for tile in tiles:
            if tile.repeat or self._x + tile.width > COLUMNS:
                self._new_line()
            panel: Any = tile.builder.build()
            panel.id_val = tile.number or self._number()
            panel.plugin_version = PLUGIN_VERSION
            if not tile.repeat:
                panel.repeat_direction = None
            panel.grid_pos = GridPos(h=tile.height, w=tile.width, x=self._x, y=self._y)
            self.panels.append(panel)
            self._x += tile.width
            self._line_height = max(self._line_height, tile.height)
            if tile.repeat:
                self._new_line()

    def _new_line(self) -> None:
        self._y += self._line_height
        self._x = self._line_height = 0

    def _number(self) -> int:
        number, self._next = self._next, self._next + 1
        return number
