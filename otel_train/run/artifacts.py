"""Records data sets, stages and model files of a run: in run.json, as events, and as a context beside each model.

What describes them is imported where it is first used: many runs use little of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

from otel_train.clock import iso, wall_ns
from otel_train.errors import CheckpointError
from otel_train.record.entries import AttributeValue, Sample
from otel_train.run.comparing import compare_dataset
from otel_train.run.events import without_none
from otel_train.run.spans import active
from otel_train.run.stage import Stage
from otel_train.semconv import EPOCH, STAGE, STEP

if TYPE_CHECKING:
    from otel_train.run.run import Run

# How long a save waits for the environment, which is read in the background from the run's start.
ENVIRONMENT_WAIT_S = 5.0


class Artifacts:
    """What the run reads and makes."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._datasets: list[dict[str, Any]] = []
        self._stages: list[dict[str, Any]] = []
        self._parents: list[dict[str, Any]] = []

    def _place(self) -> dict[str, Any]:
        run = self._run
        place: dict[str, Any] = {"time": iso(wall_ns()), "attempt": run.attempt, "rank": run.rank}
        position = run.position()
        return place | {name: position[key] for name, key in (("step", STEP), ("epoch", EPOCH)) if key in position}

    # Data sets and stages ------------------------------------------------------------------------------------------

    def dataset(self, name: str, data: Any, **about: Any) -> None:
        """Describe a data set now; its files are hashed in the background."""
        from otel_train.lineage.datasets import describe_dataset
        from otel_train.lineage.files import add_checksums

        run = self._run
        record = describe_dataset(name, data, hash_now=False, **about)
        record |= self._place()
        if run.present_stage is not None:
            record["stage"] = run.present_stage
        for problem in record.get("problems", ()):
            run.warn(f"log_dataset {name!r}: {problem}")
        place = len(self._datasets)
        self._datasets.append(record)
        context = trace.get_current_span()

        def keep(whole: dict[str, Any]) -> None:
            self._datasets[place] = whole
            run.session.file.append("datasets", whole)
            compare_dataset(run, whole)
            run.events.emit("dataset.described", _dataset_line(whole), {**_flat(whole), **_at(whole)}, span=context)

        if record.get("pending"):
            run.session.pool.submit(add_checksums, record, then=lambda whole, fault: keep(whole or record))
        else:
            keep(record)

    def stage(self, stage: Stage, span: Any) -> None:
        """Record an ended stage; its files are hashed in the background."""
        run = self._run

        def keep(_: object = None, __: object = None) -> None:
            context = span.get_span_context()
            record = stage.record.to_dict() | {
                "attempt": run.attempt,
                "rank": run.rank,
                "trace_id": f"{context.trace_id:032x}",
                "span_id": f"{context.span_id:016x}",
            }
            if stage.parent is not None:
                record["parent"] = stage.parent
            self._stages.append(record)
            for problem in record.get("problems", ()):
                run.warn(f"stage {stage.name!r}: {problem}")
            run.session.file.append("stages", record)
            status = record.get("status", "ok")
            attributes: dict[str, AttributeValue] = {STAGE: stage.name, "dl.stage.status": status}
            if "duration_s" in record:
                attributes["duration_s"] = record["duration_s"]
            for kind in ("inputs", "outputs", "code"):
                if record.get(kind):
                    attributes[f"dl.stage.{kind}"] = [_file_text(entry) for entry in record[kind][:100]]
            severity = "INFO" if status == "ok" else "ERROR"
            run.events.emit(
                "stage.end", f"stage {stage.name} ended: {status}", attributes, span=span, severity=severity
            )

        if stage.record.pending:
            run.session.pool.submit(stage.record.complete, then=keep)
        else:
            keep()

    # Models --------------------------------------------------------------------------------------------------------

    def save(
        self,
        path: str | PathLike[str],
        obj: Any,
        *,
        best: bool,
        save: Callable[[Any, str], Any] | None,
        iterations: int | None,
        metrics: Mapping[str, Any] | None,
    ) -> Path:
        """Write a model and everything that is known of it; CheckpointError where the model could not be written."""
        from otel_train.lineage.checkpoints import save_checkpoint
        from otel_train.lineage.contexts import archive_context

        run = self._run
        if run.finished:
            return Path(save_checkpoint(path, obj, save=save)["path"])
        span = run.spans.start("checkpoint", {"path": str(path), "best": best, **run.position()})
        contexts: list[dict[str, Any]] = []

        def describe(facts: dict[str, Any]) -> None:
            context = self._context(facts, best=best, iterations=iterations, metrics=metrics)
            contexts.append(context)
            if run.path is not None:
                archive_context(run.path, context)

        try:
            with active(span):
                facts = save_checkpoint(path, obj, save=save, describe=describe)
        except CheckpointError as fault:
            with run.guard("save_checkpoint"):
                run.spans.end(span, fault)
                body = f"checkpoint not saved: {fault}"
                about = {**run.events.exception(fault), **run.position()}
                run.events.emit("checkpoint.saved", body, about, severity="ERROR", span=span)
            raise
        except BaseException as fault:
            run.spans.end(span, fault)
            raise
        with run.guard("save_checkpoint"):
            if contexts:
                self._write_beside(facts, contexts[0])
            place = self._place()
            record = {**facts, "role": "saved", **place, "best": best}
            if contexts and contexts[0]["metrics"]:
                record["metrics"] = contexts[0]["metrics"]
            if iterations is not None:
                record["iterations"] = iterations
            self._keep_model(record, place, span, "checkpoint.saved")
            samples = [
                Sample("dl.checkpoint.time", float(facts["duration_s"])),
                Sample("dl.checkpoint.size", int(facts["size"])),
            ]
            run.log_sink.emit_samples(wall_ns(), samples)
            span.set_attribute("sha256", str(facts["sha256"]))
            run.spans.end(span)
        return Path(facts["path"])

    def _write_beside(self, facts: dict[str, Any], context: dict[str, Any]) -> None:
        from otel_train.lineage.contexts import write_context

        try:
            facts["context"] = str(write_context(facts["path"], context))
        except OSError as fault:
            self._run.warn(f"the context of {facts['path']} could not be written beside it: {fault}")

    def written_elsewhere(self, path: str | PathLike[str], *, best: bool, iterations: int | None) -> None:
        """Record a checkpoint that another library wrote."""
        from otel_train.lineage.contexts import archive_context
        from otel_train.lineage.model_files import describe_checkpoint

        run = self._run
        place = self._place()
        span = trace.get_current_span()

        def keep(facts: dict[str, Any] | None, fault: BaseException | None) -> None:
            with run.guard("log_checkpoint"):
                if facts is None:
                    run.warn(f"log_checkpoint {str(path)!r}: {fault}")
                    return
                for problem in facts.get("problems", ()):
                    run.warn(f"log_checkpoint {str(path)!r}: {problem}")
                if facts.get("sha256"):
                    known = {**facts, "path": facts.get("absolute", facts["path"])}
                    context = self._context(known, best=best, iterations=iterations, metrics=None)
                    if run.path is not None:
                        archive_context(run.path, context)
                    self._write_beside(known, context)
                    facts = known
                record = {**facts, "role": "logged", **place, "best": best}
                if iterations is not None:
                    record["iterations"] = iterations
                self._keep_model(record, place, span, "checkpoint.saved")
                if isinstance(record.get("size"), int):
                    run.log_sink.emit_samples(wall_ns(), [Sample("dl.checkpoint.size", record["size"])])

        run.session.pool.submit(describe_checkpoint, _lasting(path), then=keep)

    def base_model(self, path_or_name: str | PathLike[str]) -> None:
        """Record what the run starts from."""
        from otel_train.lineage.model_files import parent_of

        run = self._run
        place = self._place()
        span = trace.get_current_span()
        roots = [] if run.session.root is None else [run.session.root]

        def keep(parent: dict[str, Any] | None, fault: BaseException | None) -> None:
            with run.guard("log_base_model"):
                if parent is None:
                    run.warn(f"log_base_model {str(path_or_name)!r}: {fault}")
                    return
                for problem in parent.get("problems", ()):
                    run.warn(f"log_base_model {str(path_or_name)!r}: {problem}")
                self._parents.append(parent)
                self._keep_model({**parent, "role": "loaded", **place}, place, span, "checkpoint.loaded")

        lasting = _lasting(path_or_name)
        run.session.pool.submit(lambda: parent_of(lasting, roots=roots), then=keep)

    def _keep_model(self, record: dict[str, Any], place: Mapping[str, Any], span: Any, event: str) -> None:
        run = self._run
        run.session.file.append("checkpoints", record)
        name = Path(str(record["path"])).name
        verb = {"saved": "saved", "logged": "recorded", "loaded": "starts from"}[record["role"]]
        size = f", {record['size']:,} bytes" if isinstance(record.get("size"), int) else ""
        best = ", the best so far" if record.get("best") else ""
        run.events.emit(event, f"checkpoint {verb}: {name}{size}{best}", {**_flat(record), **_at(place)}, span=span)

    def _context(
        self, facts: Mapping[str, Any], *, best: bool, iterations: int | None, metrics: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        from otel_train.lineage.contexts import make_context

        run = self._run
        session = run.session
        step: Any = run.position().get(STEP)
        environment = session.surroundings.environment(ENVIRONMENT_WAIT_S)
        code = environment.get("code") or {}
        kept = ("commit", "branch", "dirty", "remote", "patch_sha256")
        command = environment.get("command") or {}
        python = environment.get("python") or {}
        return make_context(
            facts,
            created_ns=wall_ns(),
            run=run.id,
            run_name=run.name,
            project=run.project,
            attempt=run.attempt,
            rank=run.rank,
            step=step,
            epoch=run.points.epoch,
            # Steps are counted from 0: after step 9 there were ten.
            iterations=iterations if iterations is not None or step is None else step + 1,
            metrics=metrics if metrics is not None else session.last_values(),
            best=best,
            parents=self._parents,
            data=self._datasets,
            stages=self._stages,
            code={key: code[key] for key in kept if key in code},
            dependencies=environment.get("packages"),
            image=(environment.get("container") or {}).get("image"),
            config=run.config.plain(),
            seed=(session.seed or {}).get("seed"),
            command=command.get("argv"),
            python=python.get("version"),
        )


def _lasting(path: str | PathLike[str]) -> str:
    """Return a path that still holds when the script has changed its folder; a name or URL as it is."""
    text = os.fspath(path)
    return os.path.abspath(text) if os.path.lexists(text) else text


def _dataset_line(record: Mapping[str, Any]) -> str:
    parts = [f"data set {record.get('name')}"]
    if "size" in record:
        parts.append(f"{record['size']:,} samples")
    if record.get("class_count"):
        parts.append(f"{record['class_count']} classes")
    if "dropped" in record:
        parts.append(f"{record['dropped']['total']:,} dropped")
    return ", ".join(parts)


def _file_text(entry: Mapping[str, Any]) -> str:
    checksum = entry.get("checksum") or {}
    value = checksum.get("value")
    return f"{entry.get('path')} sha256:{value}" if value else str(entry.get("path"))


def _at(place: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Return step and epoch of a record as all events have them, also where the record's own are of another run."""
    return {key: place[name] for name, key in (("step", STEP), ("epoch", EPOCH)) if place.get(name) is not None}


def _flat(record: Mapping[str, Any]) -> dict[str, AttributeValue]:
    flat = without_none(record)
    return flat if isinstance(flat, dict) else {}
