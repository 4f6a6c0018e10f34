"""Hearings of a dispute whose referee is the market: the questions to a side, its answers, and the publication of both.

A side's answer goes as bytes in a body, signed before in the headers (SaidHeaders).
"""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from gradmarket.market.fields import AddressField, DeferredModel, DigestField, HashField, SignatureField
from gradmarket.market.messages import DisputeRuling
from gradmarket.market.terms import Address, Hash, JobId, TaskId, domain_hash
from gradmarket.market.wire import Wire
from gradmarket.market.wire.poll import OfferFields

Asked = Literal["root", "part", "children", "leaf", "entry", "values", "results"]
NO_LEAF: Final = 2**64 - 1
MOST_SAID: Final = 2**17
"""The longest answer that is published in full: a longer one, of a tensor, by its digest."""
SILENCE: Final = "it did not answer in time"
"""The reason of a hearing in which the losing side was silent."""
Number = Annotated[int, Field(ge=0, lt=2**63)]


class SignedRuling(Wire):
    """`wrong` are the sides that lose; `leaf` is the operation where they part, in words in `why`."""

    wrong: tuple[AddressField, ...] = Field(max_length=2)
    leaf: Number | None
    why: str = Field(max_length=2000)
    signature: SignatureField

    def struct(self, dispute: Hash, sides: tuple[Address, Address]) -> DisputeRuling:
        """Returns the struct that the referee signed."""
        return build_ruling(dispute, sides, frozenset(self.wrong), self.leaf, self.why)


def name_dispute(offer: Hash, sides: Sequence[Address], roots: Sequence[Hash]) -> Hash:
    """Returns the name of a dispute: of the answers of these roots by these sides to one offer."""
    parts = [bytes.fromhex(side[2:]) + root for side, root in zip(sides, roots, strict=True)]
    return domain_hash("gradmarket dispute", offer, *parts)


def build_ruling(
    dispute: Hash, sides: tuple[Address, Address], wrong: frozenset[Address], leaf: int | None, why: str
) -> DisputeRuling:
    """Returns a verdict as its referee signs it."""
    bits = sum(1 << place for place, side in enumerate(sides) if side in wrong)
    return DisputeRuling(dispute, bits, NO_LEAF if leaf is None else leaf, digest_why(why))


def digest_why(why: str) -> Hash:
    return domain_hash("gradmarket dispute ruling", why.encode())


class PutInHearing(Wire):
    """Question `number` of a hearing, signed by its referee, to be answered `until` that Unix time."""

    sides: tuple[AddressField, AddressField]
    roots: tuple[HashField, HashField]
    number: Number
    asked: Asked
    level: Number
    place: Number
    until: Number
    signature: SignatureField


class AuditorQuestion(PutInHearing):
    """The open question of a hearing to an auditor of a panel, about the answer it opened; `referee` asks it."""

    job: JobId
    task: TaskId
    offer: OfferFields
    referee: AddressField


class AuditorQuestions(Wire):
    """The referees' open questions to an auditor."""

    questions: tuple[AuditorQuestion, ...]


class SaidHeaders(Wire):
    """An answer beside its bytes: they are read once these are signed."""

    side: AddressField
    number: Number
    said: HashField
    signature: SignatureField


class AuditorStatement(SaidHeaders):
    """A panel auditor's statement of its answer to the task, beside the bytes."""

    task: TaskId = Field(max_length=64)


class HearingReceipt(Wire):
    """The referee took the answer to question `number` at that Unix time, in the hearing of this run of the task's
    audit, or of its workers: it signs a DisputeReceipt."""

    number: Number
    run: Number | None = None
    at: Number
    signature: SignatureField


class SaidInHearing(DeferredModel):
    """A side's signed answer, `size` bytes long, that came at that Unix time; `body` is none where it was longer than
    MOST_SAID or than what the referee holds."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    side: AddressField
    said: HashField
    signature: SignatureField
    size: Number
    at: Number
    body: str | None = Field(default=None, pattern=r"^0x([0-9a-f]{2})*$", max_length=2 + 2 * MOST_SAID)


class AskedInHearing(DeferredModel):
    """A question with its answers, in the order in which they came."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    asked: Asked
    level: Number
    place: Number
    until: Number
    signature: SignatureField
    answers: tuple[SaidInHearing, ...] = Field(default=(), max_length=2)


class PublishedHearing(DeferredModel):
    """A hearing from its first question to its ruling, replayable with the job's document."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    sides: tuple[AddressField, AddressField]
    roots: tuple[DigestField, DigestField]
    answer_s: Number
    """Seconds for each answer."""
    most_values: Number
    """Bytes of an operation's inputs that the referee holds at most."""
    across: bool
    """Whether rounding was judged, since the referee's machine or the sides' are of several classes."""
    run: Number | None = None
    """The run of the task's audit whose panel the sides are of; none where they are its workers."""
    questions: tuple[AskedInHearing, ...] = Field(max_length=1000)
    ruling: SignedRuling | None = None
