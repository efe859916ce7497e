"""Opens a run: checks every argument first, then starts to record, and returns within some tenths of a second."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from otel_train.config import Settings, is_disabled, resolve
from otel_train.errors import ConfigError
from otel_train.lineage.environment import script_path
from otel_train.lineage.launch import group_hint, next_sequence
from otel_train.lineage.process_identity import read_identity
from otel_train.lineage.project import project_name
from otel_train.lineage.ranks import Ranks, detect_ranks, loaded_distributed
from otel_train.lineage.redact import Redactor
from otel_train.lineage.run_config import RunConfig
from otel_train.lineage.seeds import describe_seeds, seed_everything
from otel_train.record.entries import AttributeValue
from otel_train.run import current
from otel_train.run.disabled import DisabledRun
from otel_train.run.ending import PROCESS_END, at_end_of_worker
from otel_train.run.opening import Opening
from otel_train.run.run import Run
from otel_train.run.session import Session
from otel_train.run.trace_environ import TRACE_ENVIRONMENT, traceparent
from otel_train.runlog.folder import check_run_id

_log = logging.getLogger("otel_train")


def start(
    arguments: Mapping[str, Any], *, config: object, seed: int | None, run_id: str | None, resume: str | None
) -> Run:
    """Open a run; see `otel_train.init`, whose settings are `arguments`."""
    environ = os.environ
    checked = _checked(arguments, environ)
    _check_identity(run_id, resume)
    redactor = Redactor(checked["redact"])
    made: list[Run] = []
    run_config = RunConfig(
        config, redactor, lambda plain, changed: _config_changed(made[0], plain, changed) if made else None
    )
    seeds = seed_everything(seed) if seed is not None else describe_seeds()
    if is_disabled(environ):
        return DisabledRun(checked, run_config)
    if checked["dir"] is False:
        from otel_train.run.direct import check_direct

        check_direct(checked, environ, resume)
    former = current.made_here()
    if former is not None:
        _log.warning("init() ends run %s, which was open in this thread", former.session.label)
        with former.guard("init"):
            former.events.notice("another init() in the same thread ends this run")
        former.finish()
    ranks = detect_ranks(environ, loaded_distributed(), read_identity())
    project_text = project_name(checked["project"], environ, script_path(), os.getcwd())
    sequence = next_sequence() if ranks.shared else 0
    if checked["dir"] is False:
        from otel_train.run.direct import DirectOpening

        opening: Opening = DirectOpening(ranks, run_id=run_id, sequence=sequence)
    else:
        root = Path(checked["dir"]).absolute()
        opening = Opening(root, ranks, run_id=run_id, resume=resume, project=project_text, sequence=sequence)
    session = Session(
        checked,
        project=project_text,
        ranks=ranks,
        redactor=redactor,
        environ=TRACE_ENVIRONMENT.inherited(environ),
        seed=seeds,
    )
    opening.traceparent = traceparent(session.spans.own)
    run = _open(checked, session, run_config, opening)
    current.register(run)
    PROCESS_END.install()
    at_end_of_worker()
    session.surroundings.start(run)
    _announce(run, ranks)
    made.append(run)
    return run


def _checked(arguments: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    from otel_train.config import BY_NAME

    for key, value in arguments.items():
        if key not in BY_NAME:
            raise ConfigError(key, value, f"init() has no such argument; settings are {', '.join(sorted(BY_NAME))}")
    settings = resolve(arguments, environ)
    if settings["alerts"]:
        from otel_train.run.watching import thresholds_of

        thresholds_of(settings)
    return settings


def _check_identity(run_id: str | None, resume: str | None) -> None:
    for field, value in (("run_id", run_id), ("resume", resume)):
        if value is not None and not isinstance(value, str):
            raise ConfigError(field, value, "use a run's id, a text")
    if run_id is not None:
        check_run_id(run_id)
        if resume is not None:
            raise ConfigError("run_id", run_id, "leave it out with resume=, which names the run already")
    if resume is not None and resume != "auto":
        check_run_id(resume)


def _open(settings: Settings, session: Session, config: RunConfig, opening: Opening) -> Run:
    if opening.must_wait:
        run = Run(settings, session, config)
        session.give_up_waiting = opening.given_up.set

        def wait() -> None:
            try:
                opened = opening.wait(session.document)
                if opened is not None:
                    session.open(run, opened, opening)
            except Exception:  # noqa: BLE001 - on this thread nobody could catch it; training goes on unrecorded
                _log.exception("rank %d is not recorded: the run could not be opened", session.ranks.rank)
                session.give_up()

        threading.Thread(target=wait, name="otel-train-open", daemon=True).start()
        return run
    opened = opening.open_main(session.document)
    run = Run(settings, session, config, first_step=_first_step(opened.former))
    session.open(run, opened, opening)
    return run


def _first_step(former: Mapping[str, Any] | None) -> int:
    """Return the step after the newest checkpoint: that is where a resumed training goes on; 0 where there is none."""
    steps = [
        entry["step"]
        for entry in (former or {}).get("checkpoints", [])
        if isinstance(entry, Mapping) and entry.get("role") != "loaded" and isinstance(entry.get("step"), int)
    ]
    return steps[-1] + 1 if steps else 0


def _announce(run: Run, ranks: Ranks) -> None:
    with run.guard("init"):
        started = f"run started in {run.session.root}" if run.session.root else "run started without a folder"
        about: dict[str, AttributeValue] = {"dl.launcher": ranks.launcher}
        if run.session.root is None and ranks.is_main:
            from otel_train.run.direct import facts_without_run_json

            about |= facts_without_run_json(run)
        run.events.emit("run.start", started, about)
        if len(run.config) and ranks.is_main:
            run.events.emit("run.config", _flat(run.config.plain()))
        for notice in ranks.notices:
            _log.warning("%s", notice)
            run.events.notice(notice, "WARN")
        hint = group_hint(ranks, read_identity()) if ranks.world_size > 1 and not ranks.shared else None
        if hint and not run.settings["group"]:
            run.session.file.set(group=hint)


def _config_changed(run: Run, plain: dict[str, Any], changed: Sequence[Mapping[str, Any]]) -> None:
    with run.guard("config.update"):
        run.session.file.set_attempt(config=plain)
        if run.session.ranks.is_main:
            keys = [str(entry["key"]) for entry in changed]
            run.events.emit("run.config", _flat(plain), {"changed": keys})


def _flat(plain: Mapping[str, Any]) -> Any:
    from otel_train.run.events import without_none

    return without_none(plain)
