"""A validator's decision on a case: the recomputed answer decides, and a machine that finds neither decides nothing."""

from collections.abc import Sequence
from dataclasses import asdict

import pytest

from gradmarket.market.errors import Refused
from gradmarket.market.job import Publication
from gradmarket.market.messages import Offer
from gradmarket.market.terms import Digest, Hash, ReplicaId, ReplicaState, TaskState
from gradmarket.market.wire.evidence import PublishedBallot, PublishedEvidence
from gradmarket.market.wire.poll import OfferFields
from tests.worker.fake_market import OTHER, FakeMarket
from worker.features.stakes.examine import ExaminedCase, compare_recomputed_roots

ANSWERED, FOUND, THIRD = (Digest("blake3:" + digit * 64) for digit in "123")


@pytest.fixture
def shown(fake_market: FakeMarket) -> ExaminedCase:
    offer, _ = fake_market.offer(0)
    evidence = PublishedEvidence(
        state=TaskState.REVOKED,
        offer=OfferFields(**asdict(offer)),
        offer_digest=Hash(bytes(32)),
        offer_signature=bytes(65),
        waves=(),
        replicas=(),
    )
    ballot = PublishedBallot(id=ReplicaId("one"), worker=OTHER, state=ReplicaState.PAYABLE, wave=0, root=ANSWERED)
    return ExaminedCase(fake_market.publication, evidence, ballot, "task", FOUND)


def comes_out(roots: Sequence[Digest]) -> tuple[list[Digest], object]:
    left = list(roots)

    def recompute(_publication: Publication, _offer: Offer) -> Digest:
        return left.pop(0)

    return left, recompute


@pytest.mark.parametrize(
    ("roots", "guilty"),
    [([ANSWERED], False), ([FOUND, FOUND], True), ([FOUND, ANSWERED], False)],
)
def test_only_the_same_wrong_root_twice_is_guilt(shown: ExaminedCase, roots: list[Digest], guilty: bool) -> None:
    left, recompute = comes_out(roots)
    assert compare_recomputed_roots(shown, recompute).guilty is guilty  # type: ignore[arg-type]
    assert left == []


@pytest.mark.parametrize("roots", [[THIRD], [FOUND, THIRD]])
def test_a_machine_that_finds_neither_rules_nothing(shown: ExaminedCase, roots: list[Digest]) -> None:
    with pytest.raises(Refused, match="cannot settle"):
        compare_recomputed_roots(shown, comes_out(roots)[1])  # type: ignore[arg-type]
