"""Joins the checks of samples to a run: where their files go, what hides secrets, and where their points stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_train.errors import ConfigError
from otel_train.runlog.sample_files import SampleFiles
from otel_train.watch.samples import Asked, SampleChecks
from otel_train.watch.samples_reading import Surroundings

if TYPE_CHECKING:
    from otel_train.run.looking import LookingInside


def new_checks(run: LookingInside) -> SampleChecks:
    """Return the checks of a run that has none yet."""
    session = run.session
    made: list[SampleFiles] = []

    def files() -> SampleFiles | None:
        opened = session.opened_now
        if opened is None or opened.place is None:
            run.warn("check_samples: a run without a folder keeps no samples; their values are recorded")
            return None
        # As with run.log: what rank 0 keeps stands for all.
        if not (session.ranks.is_main or opened.alone or session.settings["log_ranks"] == "all"):
            return None
        if not made:
            made.append(SampleFiles(opened.place.folder.path, rank=session.ranks.rank))
        return made[0]

    return SampleChecks(
        Surroundings(
            is_open=lambda: session.opened_now is not None,
            files=files,
            redact=session.redactor.text,
            redact_row=session.redactor.mapping,
            warn=run.warn,
        )
    )


def check_samples(run: LookingInside, checks: SampleChecks, batch: Any, labels: Any, split: Any, **asked: Any) -> None:
    """Make a check; ConfigError for wrong arguments, and nothing else."""
    arguments = Asked(split=split, **asked)
    if run.finished:
        return
    wrong: ConfigError | None = None
    with run.guard("check_samples"):
        if not checks.begin(split, arguments):
            return
        points = run.points
        place = {"step": points.at} | ({} if points.epoch is None else {"epoch": points.epoch})
        try:
            reading = checks.check(batch, labels, arguments, place)
        except ConfigError as fault:
            wrong, reading = fault, None
        if reading is not None:
            points.add_reading(reading, step=points.at)
    if wrong is not None:
        raise wrong
