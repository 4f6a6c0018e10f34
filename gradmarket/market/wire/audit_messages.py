"""The JSON requests and responses of audits: the auditors', and an audit's requests to workers."""

from typing import Annotated, Final, Literal

from pydantic import Field

from gradmarket.market.fields import AddressField, AnnouncedClass, DigestField, HashField, SignatureField
from gradmarket.market.printable import Printable
from gradmarket.market.terms import JobId, TaskId
from gradmarket.market.wire import NumbersFields, Wire
from gradmarket.market.wire.poll import OfferFields

MOST_WINDOWS: Final = 256
"""Windows of a task: each adds 32 bytes to its answer."""
OTHER_DRAWS: Final = 3
"""Draws of other rows that a score is compared with."""
LARGEST_FALL: Final = 1e30
"""Replaces values that are not finite: JSON cannot carry those."""


class AuditRequest(Wire):
    """An auditor of this determinism class requests a task to run again; `auditor` is a name it chooses itself.

    With `holds`, a task that it computes just now, it requests none: it is there, and the task stays its own.
    """

    auditor: Printable = Field(min_length=1, max_length=100)
    determinism_class: AnnouncedClass = Field(max_length=200)
    holds: TaskId | None = Field(default=None, max_length=64)


class ScoreTask(Wire):
    """A request to score the accepted `payload`, and the auditor's own answer beside it.

    `seed` draws the other rows.
    """

    payload: DigestField
    seed: HashField


class WindowTask(Wire):
    """A request to repeat window `window` of a task and its last one (features.windows), in the first run alone.

    `leaves` are those of the accepted answer, but for the one at the drawn window's end, which the auditor is to find.
    """

    window: int = Field(ge=0, lt=MOST_WINDOWS)
    leaves: tuple[DigestField | None, ...] = Field(max_length=MOST_WINDOWS)


class AuditWork(Wire):
    """An accepted task as its workers got it, without their answers; `run` numbers the auditor's first run of it.

    No other auditor gets it for `seconds`. With a `wave_seed` its replicas were compared by sketches under that seed,
    and the answer needs a sketch too. Where it `calibrates`, the task passed its audit in another class, and the answer
    is a `SketchAnswer`. Nobody has answered a `planted` task yet. With a `score` the accepted payload is scored too,
    whatever root the auditor computes. Where it `brings`, an audit found none of the task's answers: the auditor brings
    its own payload, which is the gradient. Where a `panel` audits, the auditor is to seal its answer (PanelSeal), or
    to open its seal (PanelOpening).
    """

    task: TaskId
    job: JobId
    offer: OfferFields
    run: int
    seconds: float
    wave_seed: HashField | None = None
    calibrates: bool = False
    planted: bool = False
    brings: bool = False
    score: ScoreTask | None = None
    window: WindowTask | None = None
    panel: Literal["seal", "open"] | None = None


class AuditAssignment(Wire):
    work: AuditWork | None


Fall = Annotated[float, Field(ge=-LARGEST_FALL, le=LARGEST_FALL)]
"""The amount by which a loss fell."""
Falls = Annotated[tuple[Fall, ...], Field(min_length=OTHER_DRAWS, max_length=OTHER_DRAWS)]


class LossFall(Wire):
    """By how much a small step along a gradient lowers the loss on the task's own rows, and on other draws."""

    own: Fall
    others: Falls


class ScoreRequest(Wire):
    """The scores of the accepted gradient, and of the auditor's own: a trusted run.

    `usable`: whether the auditor's own answer is within the job's bounds; None from an auditor that does not look.
    """

    accepted: LossFall
    trusted: LossFall
    usable: bool | None = None


class AuditAnswer(Wire):
    """The result of one run. An auditor's runs are numbered consecutively, and each counts once.

    `score` is present exactly where the work asks for one.
    """

    auditor: Printable = Field(min_length=1, max_length=100)
    run: int = Field(ge=0, lt=2**31)
    root: DigestField
    seconds: float = Field(default=0.0, ge=0, le=1e6)
    sketch: NumbersFields | None = None
    score: ScoreRequest | None = None


class SketchAnswer(Wire):
    """The root and sketch of a task that passed its audit, computed in another class under the wave's seed."""

    auditor: Printable = Field(min_length=1, max_length=100)
    determinism_class: Printable = Field(max_length=200)
    run: int = Field(ge=0, lt=2**31)
    root: DigestField
    sketch: NumbersFields
    seconds: float = Field(default=0.0, ge=0, le=1e6)


class AuditReceipt(Wire):
    """`again`: the auditor has to run the task once more.

    Only the same answer of two runs revokes a gradient, or has a pair of classes refused.
    """

    again: bool


class PanelSeal(Wire):
    """An auditor's message before any answer is opened; `signature` is the signer's, of an AuditSeal."""

    auditor: Printable = Field(min_length=1, max_length=100)
    run: int = Field(ge=0, lt=2**31)
    signer: AddressField
    sealed: HashField
    signature: SignatureField


class KeptSeal(Wire):
    """An auditor's record of a seal that its service took, which the auditor alone signed."""

    job: int = Field(ge=0, lt=2**63)
    """The chain's number of the job."""
    task: TaskId = Field(max_length=64)
    offer: HashField
    run: int = Field(ge=0, lt=2**31)
    signer: AddressField
    sealed: HashField
    signature: SignatureField


class PanelOpening(Wire):
    """The opening of the seal, once all of the panel have sealed their answers."""

    auditor: Printable = Field(min_length=1, max_length=100)
    run: int = Field(ge=0, lt=2**31)
    root: DigestField
    salt: HashField
    seconds: float = Field(default=0.0, ge=0, le=1e6)
