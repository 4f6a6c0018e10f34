"""How far two classes may deviate, and the trusted runs behind it, as the API answers them."""

from pydantic import BaseModel

from gradmarket.market.terms import CalibrationState, Digest, TaskId


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
