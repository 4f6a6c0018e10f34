"""What the requester and its auditors say to each other, as JSON; market.wire has what it and its workers do."""

from pydantic import Field

from gradmarket.market.fields import HashField
from gradmarket.market.job import DigestField
from gradmarket.market.terms import JobId, TaskId
from gradmarket.market.wire import NO_NUL, NumbersFields, OfferFields, Wire


class AuditAsked(Wire):
    """An auditor of this class asks for a task to run again; `auditor` is a name of its own choosing."""

    auditor: str = Field(min_length=1, max_length=100, pattern=NO_NUL)
    determinism_class: str = Field(max_length=200, pattern=NO_NUL)


class AuditWork(Wire):
    """An accepted task as its workers had it, but for what they answered; `run` is the number of the first run of it.

    For `seconds` nobody else is asked. With a `wave_seed` its replicas were compared by sketches under it, and the
    answer has one too. Where it `calibrates` it passed its audit, in another class: a `SketchAnswer` is asked for.
    """

    task: TaskId
    job: JobId
    offer: OfferFields
    run: int
    seconds: float
    wave_seed: HashField | None = None
    calibrates: bool = False


class AuditTold(Wire):
    work: AuditWork | None


class AuditAnswer(Wire):
    """What one run found; the numbers of an auditor's runs follow one another, and each counts once."""

    auditor: str = Field(min_length=1, max_length=100, pattern=NO_NUL)
    run: int = Field(ge=0, lt=2**31)
    root: DigestField
    seconds: float = Field(default=0.0, ge=0, le=1e6)
    sketch: NumbersFields | None = None


class SketchAnswer(Wire):
    """What one run of a task that passed its audit found in another class, and its sketch under the wave's seed."""

    auditor: str = Field(min_length=1, max_length=100, pattern=NO_NUL)
    determinism_class: str = Field(max_length=200, pattern=NO_NUL)
    run: int = Field(ge=0, lt=2**31)
    root: DigestField
    sketch: NumbersFields
    seconds: float = Field(default=0.0, ge=0, le=1e6)


class AuditAnswered(Wire):
    """`again`: only the same answer of two runs revokes a gradient, or has a pair of classes refused."""

    again: bool
