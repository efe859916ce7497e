"""Says what can be asked of a run: which one it is, where it is kept, and where its training stands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from otel_train.record.entries import AttributeValue
from otel_train.semconv import EPOCH, STEP

if TYPE_CHECKING:
    from otel_train.record.points import PointLog
    from otel_train.run.session import Session


class RunFacts:
    """The part of `Run` that reads only."""

    session: Session
    points: PointLog
    finished: bool

    @property
    def id(self) -> str:
        """The run's id. On a rank other than 0 this waits for the id that rank 0 draws."""
        return self.session.opened().run_id

    @property
    def path(self) -> Path | None:
        """The run's folder; None without one (`dir=False`)."""
        place = self.session.opened().place
        return None if place is None else place.folder.path

    @property
    def attempt(self) -> int:
        """1 for a new run, one more each time that it is resumed."""
        return self.session.opened().attempt

    @property
    def name(self) -> str:
        """The readable name."""
        self.session.opened()
        return self.session.name

    @property
    def project(self) -> str:
        """The project, which is the resource's service.name."""
        return self.session.project

    @property
    def rank(self) -> int:
        """The process's rank in the job, 0 where there is only one."""
        return self.session.ranks.rank

    @property
    def step(self) -> int:
        """The present step."""
        return self.points.at

    @property
    def epoch(self) -> int | None:
        """The present epoch, None outside of any."""
        return self.points.epoch

    def position(self) -> dict[str, AttributeValue]:
        """Return step and epoch as far as they are known."""
        points = self.points
        # An explicit step does not move the present one, nor mark it as used, unless it is the same.
        position: dict[str, AttributeValue] = {STEP: points.at} if points.used or points.at != points.step else {}
        if points.epoch is not None:
            position[EPOCH] = points.epoch
        return position

    @property
    def place(self) -> object:
        """Where training is: it differs once training has gone on."""
        return self.points.at, self.points.step

    def __repr__(self) -> str:
        return f"<Run {self.session.label}{' (ended)' if self.finished else ''}>"
