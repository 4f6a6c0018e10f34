"""The JSON between the referee of a dispute and its sides; an answer's bytes go as they are, with signed headers."""

from typing import Final

from gradmarket.market.features.disputes.careful_side import PutQuestion
from gradmarket.market.features.disputes.questions import Question
from gradmarket.market.fields import AddressField, HashField, SignatureField
from gradmarket.market.wire.base import Wire
from gradmarket.market.wire.hearing_messages import Asked, Number, SignedRuling

PATH: Final = "/v1/dispute"
ANSWERS: Final = "/v1/dispute/answers"
WAIT_S: Final = 20.0
"""The longest that a side's request waits for the next question."""


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
