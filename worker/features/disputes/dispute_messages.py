"""The JSON between the referee of a dispute and its sides; an answer's bytes go as they are, with signed headers."""

from typing import Final

from gradmarket.market.fields import AddressField, HashField
from gradmarket.market.wire.hearing_messages import PutInHearing, SignedRuling

PATH: Final = "/v1/dispute"
ANSWERS: Final = "/v1/dispute/answers"
WAIT_S: Final = 20.0
"""The longest that a side's request waits for the next question."""


class HeardDispute(PutInHearing):
    """What a referee tells: who disputes what, and the open question or the ruling."""

    referee: AddressField
    offer: HashField
    ruling: SignedRuling | None = None
