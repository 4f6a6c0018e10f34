"""Views of how far two classes may deviate, and of the trusted runs behind it."""

from collections.abc import Iterable

from pydantic import BaseModel

from gradmarket.market.rules.calibration import RUNS
from gradmarket.market.terms import CalibrationState, Digest, TaskId
from gradmarket.requester.api.views.formats import time
from gradmarket.requester.store import calibrations
from gradmarket.requester.store.tables import Calibration


class TensorView(BaseModel):
    """`largest`: the deviation seen; `threshold`: ten times that, what ballots may deviate once it is calibrated."""

    name: str
    largest: float
    threshold: float


class ComparedView(BaseModel):
    """A task that passed its audit, and the payload roots that trusted machines of the two classes found."""

    task: TaskId
    roots: tuple[Digest, Digest]


class PairView(BaseModel):
    """`confidence`: that 95 % of honest runs lie below the largest deviation; `tasks`: the newest of the `runs`."""

    classes: tuple[str, str]
    state: CalibrationState
    reason: str
    runs: int
    runs_needed: int
    confidence: float
    tensors: list[TensorView]
    tasks: list[ComparedView]
    changed_at: str | None


class CalibrationView(BaseModel):
    """`family`: jobs of one document, data, step, precision and codec, which share their thresholds."""

    verifier: str
    family: str | None
    pairs: list[PairView]


def pair_view(row: Calibration, compared: Iterable[tuple[str, str, str]]) -> PairView:
    known = calibrations.evidence(row)
    tau = known.tau
    return PairView(
        classes=(row.one, row.other),
        state=CalibrationState(row.state),
        reason=known.excess,
        runs=known.runs,
        runs_needed=RUNS,
        confidence=known.confidence,
        tensors=[TensorView(name=name, largest=known.largest[name], threshold=tau[name]) for name in known.largest],
        tasks=[ComparedView(task=TaskId(task), roots=(Digest(one), Digest(other))) for task, one, other in compared],
        changed_at=time(row.changed_at),
    )
