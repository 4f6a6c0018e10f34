"""The claim of a round counts where the market shows it, and is missed where it does not."""

from types import SimpleNamespace
from typing import cast

import pytest
from eth_keys.datatypes import PrivateKey

from gradmarket.market.features.claims import ClaimAnswer, PublishedClaim, RoundClaims, build_claim, digest_answers
from gradmarket.market.signing import Domain, address_of, digest_struct, sign_digest
from gradmarket.market.terms import Address, Hash, JobId
from gradmarket.public_audit.recomputation import Recomputation
from gradmarket.public_audit.round_claiming import TAKEN, UNSHOWN, RoundClaimClient, claim_round

DOMAIN = Domain(31337, Address("0x" + "11" * 20), Hash(bytes(32)))
KEY, MINE, OTHERS = Hash(b"\x01" * 32), PrivateKey(b"\x07" * 32), PrivateKey(b"\x08" * 32)
PAYLOADS = [b"an answer", b"another"]


def sign_claim(key: PrivateKey, number: int) -> PublishedClaim:
    digest = digest_answers(KEY, PAYLOADS)
    signature = sign_digest(key, digest_struct(DOMAIN, build_claim(1, 0, number, digest)))
    return PublishedClaim(number=number, key=KEY, auditor=address_of(key), digest=digest, signature=signature)


class SwallowingMarket:
    """Takes each claim, and answers with the same claims whatever is sent."""

    def __init__(self, shown: tuple[PublishedClaim, ...], answered: tuple[PublishedClaim, ...], is_open: bool) -> None:
        number = len(shown) if is_open else None
        self.before = RoundClaims(items=shown, open=number, key=KEY if is_open else None)
        self.after = RoundClaims(items=answered, open=None, key=None)

    def claims(self, _job: JobId, _number: int) -> RoundClaims:
        return self.before

    def claim_round(self, _job: JobId, _number: int, _answer: ClaimAnswer) -> RoundClaims:
        return self.after


@pytest.mark.parametrize(
    ("shown", "answered", "is_open", "unseen"),
    [
        ((), (sign_claim(MINE, 0),), True, ()),
        ((), (), True, (UNSHOWN,)),
        ((), (sign_claim(OTHERS, 0),), True, (UNSHOWN,)),
        ((sign_claim(OTHERS, 0),), (), False, (TAKEN,)),
        ((sign_claim(MINE, 0),), (), False, ()),
    ],
    ids=["shown", "nothing shown", "another's shown", "all are taken", "claimed before"],
)
def test_a_claim_that_the_market_takes_and_does_not_show_is_missed(
    shown: tuple[PublishedClaim, ...], answered: tuple[PublishedClaim, ...], is_open: bool, unseen: tuple[str, ...]
) -> None:
    desk = cast(RoundClaimClient, SwallowingMarket(shown, answered, is_open))
    record = SimpleNamespace(domain=DOMAIN, opened=SimpleNamespace(job=1))
    again = cast(Recomputation, SimpleNamespace(record=record, compute_round=lambda _number: PAYLOADS))
    result = claim_round(desk, JobId("j"), again, 0, MINE)
    assert (result.faults, result.unseen) == ((), unseen)
