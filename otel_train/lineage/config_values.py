"""Turns a user's configuration, whatever its type, into plain JSON-able values of bounded size, secrets redacted."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any, Final, TypeAlias, Union

from otel_train.errors import ConfigError
from otel_train.lineage.redact import Redactor

Json: TypeAlias = Union[str, int, float, bool, "list[Json]", "dict[str, Json]", None]

_INT64: Final = 1 << 63
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
_SMALL_ARRAY: Final = 64
# Methods by which configuration classes of libraries give themselves as a mapping: pydantic, ml_collections and
# transformers, absl's flags, named tuples.
_AS_MAPPING: Final = ("model_dump", "to_dict", "flag_values_dict", "_asdict")
_NAMESPACES: Final = ("Namespace", "SimpleNamespace")
_NO_MAPPING: Final = (str, bytes, bytearray, int, float, complex, list, tuple, set, frozenset, os.PathLike)
_NO_FIELD: Final = (property, classmethod, staticmethod, ModuleType, MemberDescriptorType, GetSetDescriptorType)
_FIX: Final = "use a mapping, argparse.Namespace, dataclass or OmegaConf"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of a configuration is kept; what is more is cut and says so."""

    value_bytes: int = 16 << 10
    total_bytes: int = 1 << 20
    depth: int = 32


def to_plain(config: object, redactor: Redactor | None = None, limits: Limits = Limits()) -> dict[str, Json]:
    """Return `config` as nested dicts and lists with text keys; `{}` for None.

    Takes mappings, argparse namespaces, dataclasses, OmegaConf, attrs and pydantic objects, and objects or classes with
    public attributes. Raises ConfigError for anything else. Values of other types become their bounded repr.
    """
    if config is None:
        return {}
    content = as_mapping(config)
    if content is None:
        raise ConfigError("config", _safe_repr(config)[:200], _FIX)
    redactor = redactor or Redactor()
    module = str(getattr(config, "__module__", "__main__"))
    plain = _Walk(redactor, limits, module).mapping(content, 0)
    # Once more over the plain values, for what only their containers tell: command lines, pairs of name and value.
    return redactor.mapping(plain)  # type: ignore[return-value]


def as_mapping(value: object) -> Mapping[Any, Any] | None:
    """Return a configuration as a mapping, one level deep; None where it is nothing like one."""
    return _content(value, lambda _: True)


def _content(value: object, may_look_into: Callable[[object], bool]) -> Mapping[Any, Any] | None:
    """Return what a value holds by name; attributes of an ordinary object only where `may_look_into` allows it."""
    omegaconf = _omegaconf_container(value)
    if isinstance(omegaconf, Mapping):
        return omegaconf
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _fields(value)
    if isinstance(value, _NO_MAPPING):
        return None
    content = _fields(value)
    if content is None and (type(value).__name__ in _NAMESPACES or may_look_into(value)):
        content = _attributes(value)
    return content


def _fields(value: object) -> Mapping[Any, Any] | None:
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    if isinstance(value, type):
        return None
    for name in _AS_MAPPING:
        method = getattr(value, name, None)
        if callable(method):
            try:
                result = method()
            except Exception:  # noqa: BLE001 - somebody else's class; its attributes are tried next
                continue
            if isinstance(result, Mapping):
                return result
    fields = getattr(type(value), "__attrs_attrs__", None)
    if fields is not None:
        return {field.name: getattr(value, field.name, None) for field in fields}
    return None


def _attributes(value: object) -> Mapping[Any, Any] | None:
    """Return the public attributes of a Namespace, of an object, or of a class or module used as one."""
    if callable(value) and not isinstance(value, type):
        return None
    kind = value if isinstance(value, type) else type(value)
    sources: list[Mapping[str, Any]] = [vars(base) for base in reversed(kind.__mro__) if base is not object]
    if not isinstance(value, type) and hasattr(value, "__dict__"):
        sources.append(vars(value))
    found = {
        name: item
        for source in sources
        for name, item in list(source.items())
        if not name.startswith("_") and not callable(item) and not isinstance(item, _NO_FIELD)
    }
    return found if found or kind.__name__ in _NAMESPACES else None


def _omegaconf_container(value: object) -> object:
    module = sys.modules.get("omegaconf")
    if module is None or not type(value).__module__.startswith("omegaconf"):
        return None
    for resolve in (True, False):
        try:
            return module.OmegaConf.to_container(value, resolve=resolve, throw_on_missing=False)
        except Exception:  # noqa: BLE001 - an interpolation that can't be resolved: it stays as it is written
            continue
    return None


class _Walk:
    """One pass over a configuration, with what is left of the byte budget and the containers it is within."""

    def __init__(self, redactor: Redactor, limits: Limits, module: str) -> None:
        self._redactor = redactor
        # Objects of anybody else's classes are not looked into: a module or a loader leads to everything there is.
        self._modules = ("__main__", module)
        self._limits = limits
        self._left = limits.total_bytes
        self._within: set[int] = set()

    def mapping(self, content: Mapping[Any, Any], depth: int) -> dict[str, Json]:
        result: dict[str, Json] = {}
        items = list(content.items())
        for place, (key, value) in enumerate(items):
            if self._left <= 0:
                result["…"] = f"[cut, {len(items) - place} more keys]"
                break
            name = self._key(key, result)
            self._left -= len(name) + 4
            result[name] = "[redacted]" if self._redactor.hides(name, value) else self.value(value, depth + 1)
        return result

    def value(self, value: object, depth: int) -> Json:
        if isinstance(value, Enum):
            value = value.value if isinstance(value.value, str) else value.name
        if value is None or isinstance(value, bool):
            self._left -= 5
            return value
        if type(value) is int or type(value) is float:
            self._left -= 10
            return _number(value)
        if isinstance(value, str):
            return self._text(value)
        return self._other(value, depth)

    def _other(self, value: object, depth: int) -> Json:
        if id(value) in self._within:
            return self._text("[cut, contains itself]")
        if depth > self._limits.depth:
            return self._text(f"[cut, deeper than {self._limits.depth} levels]")
        array = _array_values(value)
        if array is not value:
            return self.value(array, depth)
        self._within.add(id(value))
        try:
            return self._container(value, depth)
        except Exception:  # noqa: BLE001 - a foreign object's own code failed; its repr is what there is
            return self._text(_safe_repr(value))
        finally:
            self._within.discard(id(value))

    def _container(self, value: object, depth: int) -> Json:
        if isinstance(value, set | frozenset):
            return self._list(sorted(value, key=repr), depth)
        if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview | range):
            content = _content(value, self._is_own)  # a named tuple
            return self.mapping(content, depth) if content is not None else self._list(value, depth)
        if (text := _text_of(value)) is not None:
            return self._text(text)
        content = _content(value, self._is_own)
        if content is not None:
            return self.mapping(content, depth)
        return self._text(_safe_repr(value))

    def _is_own(self, value: object) -> bool:
        module = type(value).__module__
        return module in self._modules and module != "builtins" and type(value).__bases__ == (object,)

    def _list(self, items: Iterable[object], depth: int) -> list[Json]:
        result: list[Json] = []
        everything = list(items)
        for place, item in enumerate(everything):
            if self._left <= 0:
                result.append(f"…[cut, {len(everything) - place} more items]")
                break
            result.append(self.value(item, depth + 1))
        return result

    def _text(self, text: str) -> str:
        limit = self._limits.value_bytes
        # Redacted before it is cut, since half a token has no known shape; a margin bounds the work on huge texts.
        kept = self._redactor.text(text[: 2 * limit])
        data = kept.encode("utf-8", "backslashreplace")
        if len(text) > 2 * limit or len(data) > limit:
            kept = data[:limit].decode("utf-8", "ignore") + f"…[cut, {len(text)} characters]"
        elif len(data) != len(kept):
            kept = data.decode("utf-8")
        self._left -= min(len(data), limit) + 2
        return kept

    def _key(self, key: object, taken: Mapping[str, object]) -> str:
        if isinstance(key, Enum):
            key = key.name
        name = str(key) if isinstance(key, str | int | float | None) else _safe_repr(key)
        name = self._redactor.text(name[:1024]).encode("utf-8", "backslashreplace").decode()
        if name in taken:  # 1 and "1"
            name = f"{name} ({type(key).__name__})"
        return name


def _number(value: int | float) -> Json:
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        return str(value) if value.bit_length() <= 1024 else f"[cut, an integer of {value.bit_length()} bits]"
    return value


def _array_values(value: object) -> object:
    """Return scalars and small arrays of NumPy as plain numbers, tensors and larger arrays as type, dtype and shape."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and hasattr(value, "columns"):
        return f"{type(value).__name__}(shape={shape})"
    if not isinstance(shape, tuple) or dtype is None or isinstance(value, type):
        return value
    item: Callable[[], object] | None = getattr(value, "tolist", None)
    device = getattr(value, "device", None)
    # Reading a tensor from a device would wait for the device.
    on_host = device is None or isinstance(device, str) or getattr(device, "type", "") == "cpu"
    if on_host and item is not None and math.prod(shape) <= _SMALL_ARRAY:
        try:
            if not shape and str(dtype) in ("float16", "float32"):
                return float(str(value))  # 0.1, where item() gives 0.10000000149011612
            return item()
        except Exception:  # noqa: BLE001 - tensors without storage, foreign arrays
            pass
    return f"{type(value).__name__}({dtype}, shape={tuple(shape)})"


def _text_of(value: object) -> str | None:
    """Return what stands for a path, class, function, date or other simple object; None for anything with content."""
    if isinstance(value, os.PathLike):
        return os.fsdecode(os.fspath(value))
    if isinstance(value, str | int | float | complex):  # subclasses
        return str(value)
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return f"{value.__module__}.{getattr(value, '__qualname__', '')}"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"[{len(value)} bytes]"
    if type(value).__module__.partition(".")[0] in ("datetime", "decimal", "uuid", "fractions", "torch", "re"):
        return str(value)
    return None


def _safe_repr(value: object) -> str:
    try:
        text = repr(value)
    except Exception as fault:  # noqa: BLE001 - a foreign __repr__
        return f"<{type(value).__qualname__} whose repr raises {type(fault).__name__}>"
    # An address differs from run to run and would read as a change.
    return _ADDRESS.sub("", text)
