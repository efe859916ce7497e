"""The run's configuration as its user sees it: a mapping that can grow, says when it changes, and prints no secrets."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from otel_train.lineage.config_diff import ConfigChange, diff
from otel_train.lineage.config_values import Json, as_mapping, to_plain
from otel_train.lineage.redact import Redactor

_logger = logging.getLogger("otel_train")

OnChange = Callable[[dict[str, Json], list[ConfigChange]], None]


class RunConfig(Mapping[str, Any]):
    """`run.config["lr"]`, `run.config.lr`, `run.config.update(lr=1e-4)`. Values come back as the user gave them.

    Any thread may read and update it. `on_change` is called after each update that changed something, with the whole
    redacted configuration and what differs, one update after the other.
    """

    def __init__(
        self, config: object = None, redactor: Redactor | None = None, on_change: OnChange | None = None
    ) -> None:
        """Raise ConfigError where `config` is nothing like a mapping."""
        self._redactor = redactor or Redactor()
        self._plain = to_plain(config, self._redactor)
        content = as_mapping(config) if config is not None else {}
        # Replaced as a whole, never changed in place, so that readers need no lock.
        self._values: dict[str, Any] = {str(key): value for key, value in (content or {}).items()}
        self._on_change = on_change
        self._lock = threading.RLock()

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def __getattr__(self, name: str) -> Any:
        # Without this, copying an object whose attributes are not there yet would never end.
        if name.startswith("_") or name not in self._values:
            raise AttributeError(f"the run's configuration has no {name!r}")
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"RunConfig({self._plain!r})"

    def __reduce__(self) -> tuple[type[RunConfig], tuple[dict[str, Any]]]:
        # A loader's worker gets the values; only the run's own process records changes.
        return RunConfig, (self._values,)

    def update(self, config: object = None, /, **values: Any) -> None:
        """Set keys; a nested mapping replaces the former one. What is no mapping is refused with a warning."""
        content = as_mapping(config) if config is not None else {}
        if content is None:
            _logger.warning("run.config.update() got a %s and left it out: use a mapping", type(config).__name__)
            return
        given = {str(key): value for key, value in content.items()} | values
        with self._lock:
            merged = self._values | given
            try:
                plain = to_plain(merged, self._redactor)
            except Exception:  # an update within training is telemetry: it must not stop it
                _logger.warning("run.config.update() could not be recorded", exc_info=True)
                self._values = merged
                return
            changes = diff(self._plain, plain)
            self._values, self._plain = merged, plain
            if changes and self._on_change is not None:
                try:
                    self._on_change(plain, changes)
                except Exception:  # as above
                    _logger.warning("a change of the configuration could not be recorded", exc_info=True)

    def plain(self) -> dict[str, Json]:
        """Return the whole configuration as JSON-able values, secrets redacted; not to be changed."""
        return self._plain
