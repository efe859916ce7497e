"""Reads the text of a filter into a tree, and writes a tree as the text that reads into it again."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from otel_train.errors import OtelTrainError
from otel_train.view.text import plain

LONGEST_TEXT = 10_000
DEEPEST = 50
KEYWORDS = frozenset({"and", "or", "not", "in"})
# Longer ones first, so that `<=` is not read as `<`.
OPERATORS = ("==", "!=", "<=", ">=", "=", "<", ">", "~")
_SPECIAL = frozenset("()=<>!~,&|\"'`")
_OF_OTHERS = {"&&": "and", "&": "and", "||": "or", "|": "or", "!": "not", "=~": "~"}
_EXPECTED_OPERATOR = "expected =, !=, <, <=, >, >=, ~ or in"

Place: TypeAlias = tuple[int, int]


class FilterError(OtelTrainError, ValueError):
    """A filter, a search or a sorting order is wrong: `position` (from 0) and `length` in characters say where."""

    def __init__(self, message: str, position: int, length: int = 1, field: str = "where") -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.length = max(1, length)
        self.field = field

    def pointed(self, text: str) -> str:
        """Return two lines for a terminal: the text, and carets below what is wrong with it."""
        before, wrong = plain(text[: self.position]), plain(text[self.position : self.position + self.length])
        line = plain(text).replace("\n", " ").replace("\t", " ")
        return f"{line}\n{' ' * _width(before)}{'^' * max(1, _width(wrong))}"


@dataclass(frozen=True, slots=True)
class Literal:
    """A value as it was written; `quoted` is text whatever it looks like."""

    text: str
    quoted: bool = False
    place: Place = field(default=(0, 0), compare=False)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A name beside a value."""

    name: str
    operator: str  # = != < <= > >= ~
    value: Literal
    place: Place = field(default=(0, 0), compare=False)
    operator_place: Place = field(default=(0, 0), compare=False)


@dataclass(frozen=True, slots=True)
class Choice:
    """A name that is one of several values."""

    name: str
    values: tuple[Literal, ...]
    place: Place = field(default=(0, 0), compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    item: Tree


@dataclass(frozen=True, slots=True)
class Every:
    """True where all of two or more items are."""

    items: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """True where one of two or more items is."""

    items: tuple[Tree, ...]


Tree: TypeAlias = Comparison | Choice | Not | Every | Either


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # word, string, name, operator, "(", ")", ",", end
    text: str
    position: int
    length: int

    @property
    def place(self) -> Place:
        return self.position, self.length

    @property
    def keyword(self) -> str:
        word = self.text.lower()
        return word if self.kind == "word" and word in KEYWORDS else ""

    def __str__(self) -> str:
        if self.kind == "end":
            return "the end"
        return repr(self.text if len(self.text) <= 40 else self.text[:39] + "…")

    def wrong(self, message: str) -> FilterError:
        return FilterError(message, self.position, self.length)


def parse(text: str) -> Tree | None:
    """Return the tree of a filter, None for one without a condition; FilterError where it cannot be understood."""
    if len(text) > LONGEST_TEXT:
        raise FilterError(f"longer than {LONGEST_TEXT:,} characters", LONGEST_TEXT, len(text) - LONGEST_TEXT)
    parser = _Parser(list(_tokens(text)))
    if parser.next.kind == "end":
        return None
    tree = parser.alternatives(0)
    parser.end()
    return tree


def write(tree: Tree | None) -> str:
    """Return the text of a tree: the shortest one that parses into it again."""
    if tree is None:
        return ""
    if isinstance(tree, Comparison):
        return f"{write_name(tree.name)} {tree.operator} {_write_literal(tree.value)}"
    if isinstance(tree, Choice):
        return f"{write_name(tree.name)} in ({', '.join(map(_write_literal, tree.values))})"
    if isinstance(tree, Not):
        return f"not {_bracketed(tree.item, (Every, Either))}"
    if isinstance(tree, Every):
        return " and ".join(_bracketed(item, (Every, Either)) for item in tree.items)
    return " or ".join(_bracketed(item, (Either,)) for item in tree.items)


def write_name(name: str) -> str:
    """Return a name as it is written in a filter: in backquotes where it would not be read as one word."""
    if name and name.lower() not in KEYWORDS and not any(one in _SPECIAL or one.isspace() for one in name):
        return name
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _write_literal(value: Literal) -> str:
    if not value.quoted:
        return value.text
    return '"' + value.text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _bracketed(tree: Tree, within: tuple[type, ...]) -> str:
    return f"({write(tree)})" if isinstance(tree, within) else write(tree)


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        first = text[position]
        if first.isspace():
            position += 1
            continue
        token = _token(text, position, first)
        yield token
        position += token.length
    yield _Token("end", "", len(text), 1)


def _token(text: str, position: int, first: str) -> _Token:
    if first in "(),":
        return _Token(first, first, position, 1)
    if first in "\"'`":
        return _quoted(text, position, first)
    for foreign in ("&&", "||", "=~"):
        if text.startswith(foreign, position):
            raise FilterError(f"write '{_OF_OTHERS[foreign]}' instead of '{foreign}'", position, 2)
    for operator in OPERATORS:
        if text.startswith(operator, position):
            return _Token("operator", "=" if operator == "==" else operator, position, len(operator))
    if first in _SPECIAL:
        raise FilterError(f"write '{_OF_OTHERS[first]}' instead of '{first}'", position)
    end = position + 1
    while end < len(text) and text[end] not in _SPECIAL and not text[end].isspace():
        end += 1
    return _Token("word", text[position:end], position, end - position)


def _quoted(text: str, start: int, quote: str) -> _Token:
    found: list[str] = []
    position = start + 1
    while position < len(text):
        here = text[position]
        if here == quote:
            kind = "name" if quote == "`" else "string"
            return _Token(kind, "".join(found), start, position + 1 - start)
        if here == "\\" and position + 1 < len(text) and text[position + 1] in (quote, "\\"):
            position += 1
            here = text[position]
        found.append(here)
        position += 1
    raise FilterError(f"this {quote} is not closed", start, len(text) - start)


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def next(self) -> _Token:
        return self._tokens[self._at]

    def take(self) -> _Token:
        token = self.next
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def end(self) -> None:
        token = self.next
        if token.kind == "end":
            return
        if token.kind == ")":
            raise token.wrong("this ')' closes nothing")
        hint = "; a value of several words stands in quotes" if token.kind == "word" else ""
        raise token.wrong(f"expected 'and' or 'or' before {token}{hint}")

    def alternatives(self, depth: int) -> Tree:
        items = [self.conditions(depth)]
        while self.next.keyword == "or":
            self.take()
            items.append(self.conditions(depth))
        return items[0] if len(items) == 1 else Either(tuple(items))

    def conditions(self, depth: int) -> Tree:
        items = [self.condition(depth)]
        while self.next.keyword == "and":
            self.take()
            items.append(self.condition(depth))
        return items[0] if len(items) == 1 else Every(tuple(items))

    def condition(self, depth: int) -> Tree:
        token = self.next
        if depth > DEEPEST:
            raise token.wrong(f"nested more than {DEEPEST} deep")
        if token.keyword == "not":
            self.take()
            return Not(self.condition(depth + 1))
        if token.kind == "(":
            self.take()
            tree = self.alternatives(depth + 1)
            if self.next.kind != ")":
                if self.next.kind == "end":
                    raise token.wrong("this '(' is not closed")
                raise self.next.wrong(f"expected 'and', 'or' or ')' before {self.next}")
            self.take()
            return tree
        return self.comparison()

    def comparison(self) -> Tree:
        name = self.take()
        if name.kind == "string":
            raise name.wrong("expected a name; a name with spaces stands in backquotes: `my loss`")
        if name.kind not in ("word", "name") or name.keyword:
            raise name.wrong(f"expected a name such as loss, state or config.lr, found {name}")
        if not name.text:
            raise name.wrong("an empty name")
        token = self.take()
        if token.keyword == "not" and self.next.keyword == "in":
            self.take()
            return Not(Choice(name.text, self.values(), name.place))
        if token.keyword == "in":
            return Choice(name.text, self.values(), name.place)
        if token.kind != "operator":
            raise token.wrong(f"{_EXPECTED_OPERATOR} after {name}")
        return Comparison(name.text, token.text, self.value(f"after '{token.text}'"), name.place, token.place)

    def values(self) -> tuple[Literal, ...]:
        opening = self.take()
        if opening.kind != "(":
            raise opening.wrong("expected '(' after 'in', as in: state in (failed, killed)")
        found = [self.value("after '('")]
        while True:
            token = self.take()
            if token.kind == ")":
                return tuple(found)
            if token.kind == "end":
                raise opening.wrong("this '(' is not closed")
            if token.kind != ",":
                raise token.wrong(f"expected ',' or ')' before {token}")
            found.append(self.value("after ','"))

    def value(self, where: str) -> Literal:
        token = self.take()
        if token.kind == "string":
            return Literal(token.text, True, token.place)
        if token.kind != "word" or token.keyword:
            hint = "; in quotes it is a text" if token.keyword else ""
            raise token.wrong(f"expected a value {where}, found {token}{hint}")
        return Literal(token.text, False, token.place)


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text
    )
