"""Asks real stores what the panels of a dashboard ask, with its variables filled in as Grafana does it.

Grafana itself is not needed: its own part, to draw what came, is not checked here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.stack.asking import get_json

FOLDER = Path(__file__).parents[2] / "grafana" / "dashboards"
NAMES = ("runs", "run", "compare", "ranks", "pipeline")
Value = str | list[str]
MOST_POINTS = 1000
SCRAPE_INTERVAL_S = 15.0
_PLACE = re.compile(r"\$\{(\w+)\}|\$(\w+)")
_DURATION_S = {"ms": 0.001, "s": 1.0, "m": 60.0}


@dataclass(frozen=True)
class Span:
    """A dashboard's range of time, in Unix milliseconds."""

    from_ms: int
    to_ms: int

    @property
    def range_s(self) -> int:
        """Its length as Grafana fills it in, in whole seconds."""
        return max(round((self.to_ms - self.from_ms) / 1000), 1)


@dataclass(frozen=True)
class Stores:
    """Addresses of the stores; None where one is not there."""

    prometheus: str
    loki: str | None = None
    tempo: str | None = None

    def address(self, kind: str) -> str | None:
        """Return the address of a kind of data source."""
        return {"prometheus": self.prometheus, "loki": self.loki, "tempo": self.tempo}[kind]


@dataclass
class Answer:
    """What came to one query of a panel. `items` counts series, log records or traces; `data` is the store's."""

    board: str
    panel: int
    title: str
    letter: str
    kind: str
    query: str
    items: int = 0
    data: list[Any] = field(default_factory=list)

    @property
    def place(self) -> str:
        """Where the query stands, for messages."""
        return f"{self.board}/{self.title}/{self.letter}"


def read(name: str) -> dict[str, Any]:
    """Return a committed dashboard."""
    board: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return board


def seconds(text: str) -> float:
    """Return an interval such as 100ms in seconds."""
    number, unit = re.fullmatch(r"(\d+)(ms|s|m)", text).groups()  # type: ignore[union-attr]
    return int(number) * _DURATION_S[unit]


def filled(text: str, values: Mapping[str, Value], span: Span, interval_s: float = 1.0) -> str:
    """Return a query with its variables filled in; of several values a pattern that fits each."""
    rate_s = max(interval_s + SCRAPE_INTERVAL_S, 4 * SCRAPE_INTERVAL_S)
    own = {"__range": f"{span.range_s}s", "__rate_interval": f"{round(rate_s * 1000)}ms"}

    def value(match: re.Match[str]) -> str:
        found: Value = {**own, **values}[match[1] or match[2]]
        return found if isinstance(found, str) else f"({'|'.join(re.escape(one) for one in found)})"

    # A hyphen needs no escape outside of brackets, and Prometheus' strings refuse one.
    return _PLACE.sub(value, text).replace("\\-", "-")


class Board:
    """One dashboard over real stores, with the values of its variables."""

    def __init__(self, name: str, stores: Stores, span: Span, chosen: Mapping[str, Value] | None = None) -> None:
        self.name = name
        self.model = read(name)
        self._stores = stores
        self._span = span
        self.values: dict[str, Value] = {}
        for variable in self.model["templating"]["list"]:
            self.values[variable["name"]] = self._value(variable, (chosen or {}).get(variable["name"]))

    def _value(self, variable: Mapping[str, Any], chosen: Value | None) -> Value:
        """Return what a variable has: the choice where it is there, its default where that is, else the first."""
        if variable["type"] == "datasource":
            return str(variable["query"])
        if variable["type"] == "custom":
            return chosen or str(variable["current"]["value"])
        options = self._options(variable)
        default = variable.get("current", {}).get("value")
        if chosen is None and default == ["$__all"]:
            return variable.get("allValue") or options
        if chosen is not None:
            missing = {chosen} - set(options) if isinstance(chosen, str) else set(chosen) - set(options)
            assert not missing, f"{variable['name']} has no value {missing}, only {options}"
            return chosen
        return default if default in options else (options or [""])[0]

    def _options(self, variable: Mapping[str, Any]) -> list[str]:
        selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"]).groups()  # type: ignore[union-attr]
        parameters = {
            "match[]": filled(selector, self.values, self._span),
            "start": self._span.from_ms / 1000,
            "end": self._span.to_ms / 1000,
        }
        found = get_json(f"{self._stores.prometheus}/api/v1/label/{label}/values", parameters)["data"]
        pattern = variable.get("regex")
        if pattern:
            matches = [re.fullmatch(pattern.strip("/").replace("\\/", "/"), value) for value in found]
            found = [match[1] for match in matches if match]
        return sorted(found, reverse=variable.get("sort") == 2)

    def panels(self) -> Iterator[tuple[dict[str, Any], dict[str, Value]]]:
        """Yield each panel with its values; one that is repeated once for each value."""
        for panel in self.model["panels"]:
            if panel["type"] == "row":
                continue
            over = panel.get("repeat")
            choices = self.values[over] if over else [""]
            for choice in choices if isinstance(choices, list) else [choices]:
                yield panel, {**self.values, **({over: choice} if over else {})}

    def ask(self, kinds: Sequence[str] = ("prometheus", "loki", "tempo")) -> Iterator[Answer]:
        """Yield the answers to the queries of all panels that go to a store which is there."""
        for panel, values in self.panels():
            least_s = seconds(panel.get("interval", "1s"))
            most = panel.get("maxDataPoints", MOST_POINTS)
            interval_s = max(least_s, self._span.range_s / most)
            for target in panel["targets"]:
                kind = target["datasource"]["type"]
                if kind in kinds and self._stores.address(kind) is not None:
                    title = filled(panel["title"], values, self._span)
                    yield self._ask(panel["id"], title, kind, target, values, interval_s)

    def marks(self) -> Iterator[Answer]:
        """Yield the answers to the queries of the annotations."""
        for mark in self.model["annotations"]["list"]:
            kind = mark["datasource"]["type"]
            if self._stores.address(kind) is not None:
                yield self._ask(0, mark["name"], kind, mark["target"], self.values, 1.0)

    def _ask(
        self,
        panel: int,
        title: str,
        kind: str,
        target: Mapping[str, Any],
        values: Mapping[str, Value],
        interval_s: float,
    ) -> Answer:
        text = filled(target["query" if kind == "tempo" else "expr"], values, self._span, interval_s)
        answer = Answer(self.name, panel, title, target["refId"], kind, text)
        address, span = self._stores.address(kind), self._span
        start_s, end_s = span.from_ms / 1000, span.to_ms / 1000
        if kind == "tempo":
            parameters = {"q": text, "start": int(start_s), "end": int(end_s) + 1}
            parameters |= {name: target[name] for name in ("limit", "spss")}
            answer.data = get_json(f"{address}/api/search", parameters).get("traces") or []
            answer.items = len(answer.data)
            return answer
        if kind == "loki":
            parameters = {
                "query": text,
                "start": span.from_ms * 1_000_000,
                "end": span.to_ms * 1_000_000,
                "limit": target["maxLines"],
            }
            answer.data = get_json(f"{address}/loki/api/v1/query_range", parameters)["data"]["result"]
            answer.items = sum(len(stream["values"]) for stream in answer.data)
            return answer
        if target["instant"]:
            found = get_json(f"{address}/api/v1/query", {"query": text, "time": end_s})
        else:
            parameters = {"query": text, "start": start_s, "end": end_s, "step": interval_s}
            found = get_json(f"{address}/api/v1/query_range", parameters)
        answer.data = found["data"]["result"]
        answer.items = len(answer.data)
        return answer


def rows(answers: Sequence[Answer], key: str) -> dict[str, dict[str, str]]:
    """Return a table's rows by one of their labels: labels as they are, values by the letter of their query."""
    table: dict[str, dict[str, str]] = {}
    for answer in answers:
        for series in answer.data:
            row = table.setdefault(series["metric"][key], {})
            row.update(series["metric"])
            row[answer.letter] = series["value"][1]
    return table
