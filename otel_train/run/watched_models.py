"""Joins a run and the models that it looks into: which there are, whose values are recorded, what is said of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from otel_train.errors import ConfigError
from otel_train.watch.model_layers import MOST_LAYERS, Layers
from otel_train.watch.model_optimizer import unwrapped
from otel_train.watch.model_sampler import Choice
from otel_train.watch.model_tensors import has_shards
from otel_train.watch.model_watch import Surroundings, Watch, has_parameters_of

if TYPE_CHECKING:
    from otel_train.run.run import Run
    from otel_train.watch.model_activations import ActivationLabels

# Names of layers in run.json, and in a notice.
MOST_NAMED: Final = 20


class WatchedModels:
    """The watches of one run, by name."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._watches: dict[str | None, Watch] = {}
        self._records: dict[str, Any] = {}
        self._said: set[str] = set()
        # Of several models the first tells of the optimizer steps: `dl.optimizer.step` is one series.
        self._leader: str | None = None

    def watch(
        self,
        model: Any,
        optimizer: Any,
        *,
        name: str | None,
        every: Any,
        window: Any,
        scaler: Any,
        activations: bool,
        distributions: bool,
        updates: bool,
    ) -> Watch:
        """Begin to watch a model; see `Run.watch`."""
        check_model(model)
        check_whole("every", every, 1, None)
        check_whole("window", window, 1, every)
        check_scaler(scaler)
        if name is not None and (not isinstance(name, str) or not name.strip() or len(name) > 256):
            raise ConfigError("name", name, "use a text that is not empty, of at most 256 characters, or None")
        optimizers = named_optimizers(optimizer, model)
        known = self._watches.get(name)
        if known is not None and known.model not in (None, model) and not known.closed:
            fix = "another model is watched under this name: give each its name=, or call unwatch() first"
            raise ConfigError("name", name, fix)
        self._forget(lambda watch: watch.model in (None, model) or watch.name == name)
        self._leader = next(iter(self._watches), name)
        choice = Choice(
            every=every, window=window, activations=activations, distributions=distributions, updates=updates
        )
        run = self._run
        sharded = has_shards(list(model.parameters()))

        def made(*, active: bool) -> Watch:
            return Watch(
                model,
                optimizers,
                self._surroundings(name),
                choice=choice,
                name=name,
                scaler=scaler,
                sharded=sharded,
                active=active,
            )

        with run.guard("watch"):
            # What is the same on all ranks is told by the first; of shards each has its own.
            watch = self._watches[name] = made(active=not run.finished and (sharded or run.stores_common))
            return watch
        return made(active=False)

    def unwatch(self, model: Any = None) -> bool:
        """End one watch, or all of them; tell whether there was any."""
        return self._forget(lambda watch: model is None or watch.model is model or watch is model)

    def _forget(self, which: Any) -> bool:
        gone = [name for name, watch in self._watches.items() if which(watch)]
        for name in gone:
            with self._run.guard("unwatch"):
                self._watches.pop(name).close()
        self._leader = next(iter(self._watches), None)
        return bool(gone)

    def _surroundings(self, name: str | None) -> Surroundings:
        run = self._run

        def note(done: int) -> None:
            if self._leader == name:
                run.optimizer_steps.note("hooks", done)

        return Surroundings(
            guard=run.guard,
            emit=run.points.add_reading,
            say=self._say,
            on_layers=self._note,
            on_step=note,
            tells_step=lambda: self._leader == name and run.optimizer_steps.source in ("", "hooks"),
            rank=run.rank,
        )

    def _say(self, text: str) -> None:
        """Say what is not as one might think, once, to the user too."""
        if self._write(text, "WARN"):
            self._run.warn(text)

    def _write(self, text: str, severity: str = "INFO") -> bool:
        """Write a notice into the run log, unless it stands there already."""
        if text in self._said:
            return False
        self._said.add(text)
        self._run.events.notice(text, severity)
        return True

    def _note(self, watch: Watch, layers: Layers, activations: ActivationLabels) -> None:
        """Say what is watched under which labels, in run.json, and where it is not plain in the run log too."""
        label = watch.name or "model"
        record: dict[str, Any] = {"every": watch.choice.every, "layers": list(layers.labels)}
        record |= {key: value for key, value in (("groups", layers.groups), ("frozen", layers.frozen)) if value}
        if activations.labels:
            record["activations"] = list(activations.labels)
        if activations.groups:
            record["activation_groups"] = activations.groups
        self._records = {**self._records, label: record}
        self._run.session.file.set_attempt(watched=self._records)
        for what, groups in (("layers", layers.groups), ("activations", activations.groups)):
            if groups:
                number = sum(groups.values())
                self._write(
                    f"watch: {label} has {number} {what}, more than {MOST_LAYERS}: they are recorded as "
                    f"{len(groups)} groups, {listed(groups)}"
                )
        if layers.frozen:
            self._write(f"watch: frozen, and so without a gradient, in {label}: {listed(layers.frozen)}")


def listed(names: Iterable[str]) -> str:
    """Return names as one text, the first of many."""
    known = list(names)
    more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
    return ", ".join(known[:MOST_NAMED]) + more


# Arguments -----------------------------------------------------------------------------------------------------------


def check_model(model: Any) -> None:
    """ConfigError where this is no module of torch."""
    module = getattr(sys.modules.get("torch.nn"), "Module", None)
    if module is None or not isinstance(model, module):
        raise ConfigError("model", type(model).__name__, "give a torch.nn.Module")


def check_whole(field: str, value: Any, least: int, most: int | None) -> None:
    """ConfigError where this is no whole number in a range."""
    good = isinstance(value, int) and not isinstance(value, bool) and value >= least
    if not good or (most is not None and value > most):
        upper = "" if most is None else f" and at most {most}"
        raise ConfigError(field, value, f"use a whole number of steps, at least {least}{upper}")


def check_scaler(scaler: Any) -> None:
    """ConfigError where this is no GradScaler."""
    kind = getattr(sys.modules.get("torch.amp"), "GradScaler", None)
    if scaler is not None and (kind is None or not isinstance(scaler, kind)):
        raise ConfigError(
            "scaler", type(scaler).__name__, "give a torch.amp.GradScaler, or None: it is found by itself"
        )


def named_optimizers(optimizer: Any, model: Any) -> dict[str, Any] | None:
    """Return optimizers by name, those in a sequence by number; ConfigError for one that does not train this model."""
    if optimizer is None:
        return None
    if isinstance(optimizer, Mapping):
        named = {str(name): unwrapped(one) for name, one in optimizer.items()}
    elif isinstance(optimizer, list | tuple):
        named = {str(number): unwrapped(one) for number, one in enumerate(optimizer)}
    else:
        named = {"0": unwrapped(optimizer)}
    if not named:
        raise ConfigError("optimizer", optimizer, "give at least one optimizer, or None: they are found by themselves")
    parameters = list(model.parameters())
    for one in named.values():
        if not has_parameters_of(one, parameters):
            fix = "none of its parameters is one of this model's: give the optimizer that trains it"
            raise ConfigError("optimizer", type(one).__name__, fix)
    return named
