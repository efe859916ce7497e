"""Hides secrets in texts, configurations and command lines, by the words of keys and by the known shapes of tokens."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from typing import Final

from otel_train.errors import ConfigError
from otel_train.lineage.secret_keys import is_secret, words_of
from otel_train.lineage.secret_shapes import LONG_RUN, LONG_SHAPES, PRIVATE_KEY, REDACTED, SHORT_SHAPES

__all__ = ["REDACTED", "Redactor", "remote_without_credentials"]

# Nobody nests deeper on purpose, and a structure that contains itself ends here.
_MAX_DEPTH: Final = 64
_KEY_TEXT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")
_KEY_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "_.-")
_MAX_KEY_LENGTH: Final = 80

# Words of which a sensitive key contains one; the rest of the key is read from the text around them.
_STEMS: Final = ("secret", "pass", "pwd", "token", "key", "credential", "auth", "cookie", "_pat", "-pat", "_pw", "-pw")
# What may follow such a word: the rest of the key, a separator, and a quoted text or else everything up to the next
# separator. `Bearer x` is one value; a comma or semicolon belongs to the value where no `name=` follows it.
_ASSIGNMENT: Final = re.compile(
    r"[A-Za-z0-9_.-]{0,60}+"
    r"(?P<separator>\\?[\"']?[ \t]{0,3}(?:=>|[:=])[ \t]{0,3}|[ \t]{1,8})"
    r"(?P<value>\\\"(?:[^\"\\]|\\[^\"])*\\\"|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
    r"|(?i:(?:bearer|basic|digest|token|apikey)[ \t]+)?"
    r"(?:[^\s,;&)\]}\"']|[,;&)\]}](?=[^\s,;&=:\"']{1,64}(?:[\s,;&\"']|\Z)))+)",
    re.DOTALL,
)
_COOKIES: Final = re.compile(r"\b((?:set-)?cookie[ \t]*:[ \t]*)[^\s\"'][^\r\n\"']*", re.IGNORECASE)
_RUN_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "_-")
# These become `a`, so that a long run of them is one substring to look for.
_RUNS: Final = bytes(ord("a") if chr(code) in _RUN_CHARACTERS else 32 for code in range(256))
_LONG_RUN: Final = b"a" * LONG_RUN


class Redactor:
    """Replaces secrets by `[redacted]`. Has no state of its own after its making, so any thread may use it.

    `extra` adds key names (`"session_cookie"`, matched as whole words in any spelling) and regular expressions
    (anything else; every match within a text is hidden, and the whole value of a key in which it is found).
    """

    def __init__(self, extra: Sequence[str | re.Pattern[str]] = ()) -> None:
        self._key_words: list[tuple[str, ...]] = []
        self._patterns: list[re.Pattern[str]] = []
        for item in extra:
            if isinstance(item, re.Pattern):
                self._patterns.append(item)
            elif _KEY_TEXT.match(item):
                self._key_words.append(words_of(item))
            else:
                self._patterns.append(_compiled(item))
        self._extra_stems = tuple({max(words, key=len) for words in self._key_words if words})
        self._stems = _STEMS + self._extra_stems

    def text(self, text: str) -> str:
        """Return `text` without secrets; the same object where there are none."""
        if "-----" in text:
            text = PRIVATE_KEY.pattern.sub(REDACTED, text)
        if "=" in text or ":" in text or "--" in text:
            low = text.lower()
            # Written out: a loop over the stems takes twice as long.
            if (
                ("token" in low or "key" in low or "pass" in low or "secret" in low or "auth" in low)
                or ("credential" in low or "cookie" in low or "pw" in low or "pat" in low)
                or any(stem in low for stem in self._extra_stems)
            ):
                text = self._without_assignments(text)
        for shape in SHORT_SHAPES:
            if shape.hint in text:
                text = shape.pattern.sub(shape.replacement, text)
        if _LONG_RUN in text.encode("utf-8", "replace").translate(_RUNS):
            low = text.lower()
            for shape in LONG_SHAPES:
                if shape.hint in low:
                    text = shape.pattern.sub(shape.replacement, text)
        for pattern in self._patterns:
            text = pattern.sub(REDACTED, text)
        return text

    def hides(self, key: object, value: object) -> bool:
        """Tell whether the key alone makes `value` a secret."""
        name = key if isinstance(key, str) else str(key)
        if is_secret(name, value):
            return True
        if value is None or not (self._key_words or self._patterns):
            return False
        words = words_of(name)
        return any(_contains(words, wanted) for wanted in self._key_words if wanted) or any(
            pattern.search(name) for pattern in self._patterns
        )

    def value(self, key: object, value: object) -> object:
        """Return `value` without secrets, containers rebuilt, values of other types as they are."""
        return self._value(key, value, 0)

    def mapping(self, mapping: Mapping[str, object]) -> dict[str, object]:
        """Return the mapping without secrets, nested ones too."""
        return self._mapping(mapping, 0)

    def argv(self, items: Sequence[str]) -> list[str]:
        """Return a command line without secrets: `--api-key VALUE`, `--password=VALUE`, `db.password=VALUE`."""
        kept: list[str] = []
        hide_next, hide_more = "", False
        for item in items:
            is_option = item.startswith("-") and len(item) > 1 and not item[1].isdigit()
            if hide_next and not is_option:
                kept.append(REDACTED if self.hides(hide_next, item) else self.text(item))
                hide_next = hide_next if hide_more else ""
                continue
            hide_next = ""
            name, equals, value = item.partition("=")
            if equals and _KEY_TEXT.match(name.lstrip("-+~")) and self.hides(name.lstrip("-+~"), value):
                kept.append(f"{name}={REDACTED}")
                continue
            if is_option and not equals:
                hide_next = item.lstrip("-")
                hide_more = hide_next.endswith("s")
            kept.append(self.text(item))
        return kept

    def _value(self, key: object, value: object, depth: int) -> object:
        if self.hides(key, value):
            return REDACTED
        if isinstance(value, str):
            return self.text(value)
        if depth >= _MAX_DEPTH:
            return value if isinstance(value, int | float | None) else "[cut, nested too deeply]"
        if isinstance(value, Mapping):
            return self._mapping(value, depth + 1)
        if isinstance(value, list | tuple):
            if value and all(isinstance(item, str) for item in value):
                hidden: Sequence[object] = self.argv(value)
            else:
                hidden = [self._value(key, item, depth + 1) for item in value]
            return hidden if isinstance(value, list) else tuple(hidden)
        return value

    def _mapping(self, mapping: Mapping[str, object], depth: int) -> dict[str, object]:
        result = {key: self._value(key, value, depth) for key, value in mapping.items()}
        # {"name": "HF_TOKEN", "value": "…"}, as containers' environments are written.
        name = result.get("name", result.get("key"))
        if isinstance(name, str) and "value" in result and self.hides(name, result["value"]):
            result["value"] = REDACTED
        return result

    def _without_assignments(self, text: str) -> str:
        if "ookie" in text or "OOKIE" in text:
            text = _COOKIES.sub(rf"\1{REDACTED}", text)
        pieces: list[str] = []
        done = 0
        for place in self._stem_ends(text):
            if place < done or not (match := _ASSIGNMENT.match(text, place)):
                continue
            key_start = _key_start(text, place)
            key = text[key_start : match.start("separator")].strip("-.")
            separator, value = match["separator"], match["value"]
            bare = value.strip("\\\"'")
            if bare.startswith(REDACTED[:-1]) or not self.hides(key, bare):
                continue
            if separator.isspace() and (not text.startswith("--", key_start) or value.startswith("-")):
                continue
            quote = value[: len(value) - len(value.lstrip("\\\"'"))]
            pieces += [text[done : match.start("value")], quote, REDACTED, quote]
            done = match.end("value")
        return "".join([*pieces, text[done:]]) if pieces else text

    def _stem_ends(self, text: str) -> list[int]:
        low = text.lower()
        if len(low) != len(text):  # a few letters become two in lower case, and places would no longer agree
            low = "".join(character.lower() if character.isascii() else character for character in text)
        ends = set()
        for stem in self._stems:
            place = low.find(stem)
            while place >= 0:
                place += len(stem)
                ends.add(place)
                place = low.find(stem, place)
        return sorted(ends)


def remote_without_credentials(url: str) -> str:
    """Return a git remote without user, password and query; `git@host:path` and paths stay as they are."""
    scheme, found, rest = url.partition("://")
    if not found:
        return url
    authority, slash, path = rest.partition("/")
    if ":" in authority and "@" not in authority and "@" in path and not authority.rpartition(":")[2].isdigit():
        # An unescaped slash in the password.
        _, _, rest = rest.rpartition("@")
        authority, slash, path = rest.partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path.partition('?')[0]}"


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as fault:
        raise ConfigError("redact", pattern, f"use a key's name or a valid regular expression: {fault}") from None


def _key_start(text: str, place: int) -> int:
    stop = max(0, place - _MAX_KEY_LENGTH)
    while place > stop and text[place - 1] in _KEY_CHARACTERS:
        place -= 1
    return place


def _contains(words: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    size = len(wanted)
    return any(words[start : start + size] == wanted for start in range(len(words) - size + 1))
