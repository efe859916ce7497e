"""Names the project and the run where the user names none, and reads `OTEL_RESOURCE_ATTRIBUTES`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from otel_train.errors import ConfigError

_FALLBACK: Final = "default"
_MAX_LENGTH: Final = 256


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_ADJECTIVES: Final = _words(
    "amber ashen azure bold brave brisk bright bronze calm candid clear clever coral cosmic crisp dapper deep eager "
    "early easy fair fancy fleet fresh gentle gilded glad golden grand green happy hardy hazel honest humble indigo "
    "ivory jade jolly keen kind lively lucid lunar mellow merry mild mint misty modest noble olive opal plain proud "
    "quick quiet rapid royal ruby rustic sandy serene sharp silent silver sleek smart snowy solar solid steady still "
    "stout sunny swift tidy true velvet vivid warm wide wise witty young"
)
_NOUNS: Final = _words(
    "acorn anchor arrow aspen badger basin beacon birch bison brook canyon cedar cliff cloud comet condor coral crane "
    "creek crow dawn delta dune eagle ember falcon fern field finch fjord forest fox garden glacier grove gull harbor "
    "hare hawk heron hill island ivy lagoon lake lark leaf lily lion lotus lynx maple marsh meadow mesa moon moss "
    "oak ocean orbit orchid otter owl panda pebble pine plain planet plum pond prairie quail rain raven reef ridge "
    "river robin sage seal sky sparrow spruce star stone stream summit swan thistle tiger trail valley wave willow wolf"
)


def project_name(argument: str | None, environ: Mapping[str, str], script: str | None, working_folder: str) -> str:
    """Return the project, the resource's `service.name`.

    In this order: the argument, `OTEL_SERVICE_NAME`, `service.name` of `OTEL_RESOURCE_ATTRIBUTES`, the script's
    folder, the working folder. Raises ConfigError for an argument that is no name.
    """
    if argument is not None:
        return _checked("project", argument)
    named = environ.get("OTEL_SERVICE_NAME", "").strip()
    if not named:
        attributes, _ = parse_resource_attributes(environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
        named = attributes.get("service.name", "").strip()
    if named:
        return _checked("OTEL_SERVICE_NAME", named)
    for folder in (os.path.dirname(os.path.abspath(script)) if script else "", os.path.abspath(working_folder)):
        name = "".join(character for character in os.path.basename(folder) if character.isprintable()).strip()
        if name:
            return name[:_MAX_LENGTH]
    return _FALLBACK


def _checked(field: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > _MAX_LENGTH or not value.isprintable():
        raise ConfigError(field, value, f"use a text of 1 to {_MAX_LENGTH} printable characters")
    return value.strip()


def default_run_name(run_id: str) -> str:
    """Return a readable name that follows from the id: `calm-otter-b4oe`, with the first of its random characters."""
    digest = hashlib.sha256(run_id.encode("utf-8", "replace")).digest()
    adjective = _ADJECTIVES[int.from_bytes(digest[:4], "big") % len(_ADJECTIVES)]
    noun = _NOUNS[int.from_bytes(digest[4:8], "big") % len(_NOUNS)]
    return f"{adjective}-{noun}-{run_id.rpartition('-')[2][:4]}"


def parse_resource_attributes(text: str) -> tuple[dict[str, str], str | None]:
    """Return the attributes of `key=value,key2=value2` (percent-encoded), and a notice where the text is damaged.

    As OpenTelemetry's specification has it, a text with any fault is left out as a whole.
    """
    attributes: dict[str, str] = {}
    if not text.strip():
        return attributes, None
    for pair in text.split(","):
        if not pair.strip():
            continue  # a comma at the end is common and harmless
        key, equals, value = pair.partition("=")
        try:
            key, value = unquote(key.strip(), errors="strict"), unquote(value.strip(), errors="strict")
        except UnicodeDecodeError:
            key = ""
        if not equals or not key:
            return {}, f"OTEL_RESOURCE_ATTRIBUTES is left out: {pair.strip()[:80]!r} is not of the form key=value"
        attributes[key] = value
    return attributes, None
