"""The JSON between the referee of a dispute and its sides; an answer's bytes go as they are, with signed headers."""

from typing import Annotated, Final

from pydantic import Field

from gradmarket.market.digests import domain_hash
from gradmarket.market.features.disputes.careful_side import PutQuestion
from gradmarket.market.features.disputes.questions import Asked, Question
from gradmarket.market.fields import AddressField, HashField, SignatureField
from gradmarket.market.messages import DisputeRuling
from gradmarket.market.terms import Address, Hash
from gradmarket.market.wire.base import Wire

PATH: Final = "/v1/dispute"
ANSWERS: Final = "/v1/dispute/answers"
WAIT_S: Final = 20.0
"""The longest that a side's request waits for the next question."""
NO_LEAF: Final = 2**64 - 1
Number = Annotated[int, Field(ge=0, lt=2**63)]


class SignedRuling(Wire):
    """`wrong` are the sides that lose; `leaf` is the operation where they part, in words in `why`."""

    wrong: tuple[AddressField, ...] = Field(max_length=2)
    leaf: Number | None
    why: str = Field(max_length=2000)
    signature: SignatureField

    def struct(self, dispute: Hash, sides: tuple[Address, Address]) -> DisputeRuling:
        """Returns what the referee signed."""
        return build_ruling(dispute, sides, frozenset(self.wrong), self.leaf, self.why)


class HeardDispute(Wire):
    """What a referee tells: who disputes what, and the open question or the ruling."""

    referee: AddressField
    offer: HashField
    sides: tuple[AddressField, AddressField]
    roots: tuple[HashField, HashField]
    number: Number
    asked: Asked
    level: Number
    place: Number
    until: Number
    signature: SignatureField
    ruling: SignedRuling | None = None

    def question(self) -> PutQuestion:
        asked = Question(self.asked, self.level, self.place)
        return PutQuestion(self.sides, self.roots, self.number, asked, self.until, self.signature)


class SaidHeaders(Wire):
    """An answer beside its bytes: they are read once these are signed."""

    side: AddressField
    number: Number
    said: HashField
    signature: SignatureField


class AnswerReceipt(Wire):
    number: Number


def build_ruling(
    dispute: Hash, sides: tuple[Address, Address], wrong: frozenset[Address], leaf: int | None, why: str
) -> DisputeRuling:
    """Returns a verdict as its referee signs it."""
    bits = sum(1 << place for place, side in enumerate(sides) if side in wrong)
    return DisputeRuling(dispute, bits, NO_LEAF if leaf is None else leaf, digest_why(why))


def digest_why(why: str) -> Hash:
    return domain_hash("gradmarket dispute ruling", why.encode())
