"""What the requester and its auditors say to each other, as JSON; market.wire has what it and its workers do."""

from typing import Annotated

from pydantic import Field

from gradmarket.market.fields import HashField
from gradmarket.market.job import DigestField
from gradmarket.market.rules import loss_change_test
from gradmarket.market.terms import JobId, TaskId
from gradmarket.market.wire import NO_NUL, NumbersFields, OfferFields, Wire


class AuditRequest(Wire):
    """An auditor of this class asks for a task to run again; `auditor` is a name of its own choosing."""

    auditor: str = Field(min_length=1, max_length=100, pattern=NO_NUL)
    determinism_class: str = Field(max_length=200, pattern=NO_NUL)


class ScoreTask(Wire):
    """The accepted `payload` is to be scored, and the auditor's own beside it; `seed` draws the other rows."""

    payload: DigestField
    seed: HashField


class AuditWork(Wire):
    """An accepted task as its workers had it, but for what they answered; `run` is the number of the first run of it.

    For `seconds` nobody else is asked. With a `wave_seed` its replicas were compared by sketches under it, and the
    answer has one too. Where it `calibrates` it passed its audit, in another class: a `SketchAnswer` is asked for.
    With a `score` the accepted payload is scored too, whatever the root that is found.
    """

    task: TaskId
    job: JobId
    offer: OfferFields
    run: int
    seconds: float
    wave_seed: HashField | None = None
    calibrates: bool = False
    score: ScoreTask | None = None


class AuditAssignment(Wire):
    work: AuditWork | None


Fall = Annotated[float, Field(ge=-loss_change_test.LARGEST, le=loss_change_test.LARGEST)]
"""Of a loss."""
Falls = Annotated[tuple[Fall, ...], Field(min_length=loss_change_test.OTHERS, max_length=loss_change_test.OTHERS)]


class LossFall(Wire):
    """By how much a small step along a gradient lowers the loss on the task's own rows, and on other draws."""

    own: Fall
    others: Falls

    @classmethod
    def of(cls, change: loss_change_test.Change) -> "LossFall":
        return cls(own=change.own, others=change.others)


class ScoreRequest(Wire):
    """Of the accepted gradient, and of the auditor's own: a trusted run."""

    accepted: LossFall
    trusted: LossFall


class AuditAnswer(Wire):
    """What one run found; the numbers of an auditor's runs follow one another, and each counts once.

    `score` where the work asked for one, and only there.
    """

    auditor: str = Field(min_length=1, max_length=100, pattern=NO_NUL)
    run: int = Field(ge=0, lt=2**31)
    root: DigestField
    seconds: float = Field(default=0.0, ge=0, le=1e6)
    sketch: NumbersFields | None = None
    score: ScoreRequest | None = None


class SketchAnswer(Wire):
    """What one run of a task that passed its audit found in another class, and its sketch under the wave's seed."""

    auditor: str = Field(min_length=1, max_length=100, pattern=NO_NUL)
    determinism_class: str = Field(max_length=200, pattern=NO_NUL)
    run: int = Field(ge=0, lt=2**31)
    root: DigestField
    sketch: NumbersFields
    seconds: float = Field(default=0.0, ge=0, le=1e6)


class AuditReceipt(Wire):
    """`again`: only the same answer of two runs revokes a gradient, or has a pair of classes refused."""

    again: bool
