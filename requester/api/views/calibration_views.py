"""How far two classes may deviate, and the trusted runs that say so."""

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
    found = calibrations.evidence(row)
    tau = found.tau
    return PairView(
        classes=(row.one, row.other),
        state=CalibrationState(row.state),
        reason=found.excess,
        runs=found.runs,
        runs_needed=RUNS,
        confidence=found.confidence,
        tensors=[TensorView(name=name, largest=found.largest[name], threshold=tau[name]) for name in found.largest],
        tasks=[ComparedView(task=TaskId(task), roots=(Digest(one), Digest(other))) for task, one, other in compared],
        changed_at=time(row.changed_at),
    )
