"""The published evidence of a rejection: it proves a quorum for another answer, or it is found wanting, by name."""

from collections.abc import Callable

import pytest
from eth_keys.datatypes import PrivateKey
from onchain import NewKey
from stranger import other

from gradmarket.market.job import JobSpec
from gradmarket.market.messages import Commitment, Offer
from gradmarket.market.rules.secrets import digest_of, seal
from gradmarket.market.signing import Domain, address_of, digest, sign
from gradmarket.market.terms import Address, Digest, Hash, JobId, ReplicaId, ReplicaState, TaskId, Units
from gradmarket.market.wire import Lease, OfferFields, VerdictTold, hash_of
from gradmarket.worker.held import Held, prepare
from gradmarket.worker.published import Ballot, Evidence, Wave, unproven
from gradmarket.worker.records import Record

DOMAIN = Domain(1, Address("0x000000000000000000000000000000000000dEaD"), Hash(bytes(32)))
TRUE = Digest("blake3:" + "22" * 32)
ZERO = Hash(bytes(32))
OFFER = Offer(1, ZERO, 0, 0, 0, ZERO, ZERO, Units(7), ZERO, 60, 30, 30)
NAME = digest(DOMAIN, OFFER)
JOB = JobSpec.model_validate(
    {
        "name": "digits",
        "model": {"architecture": "mlp"},
        "data": {"ready": "digits"},
        "step": {"rows": 8},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "rounds": 1,
        "price": "7",
    }
)


def ballot(key: PrivateKey, root: Digest, number: int, salt: Hash = ZERO) -> Ballot:
    who = address_of(key)
    sealed = seal(NAME, who, salt, hash_of(root))
    signature = sign(key, digest(DOMAIN, Commitment(NAME, who, sealed)))
    return Ballot(
        id=ReplicaId(f"r-{number}"),
        worker=who,
        wave=0,
        sealed=sealed,
        commitment_signature=signature,
        salt=salt,
        root=root,
    )


def told(ballots: list[Ballot]) -> Evidence:
    members = [(each.worker, Hash(each.sealed or b"")) for each in ballots]
    return Evidence(offer_digest=NAME, waves=(Wave(number=0, commitments=digest_of(members)),), replicas=tuple(ballots))


@pytest.fixture
def rejected(new_key: NewKey) -> Record:
    """This worker's record of an answer that was rejected."""
    key = new_key()
    fields = OfferFields(**{name: getattr(OFFER, name) for name in OFFER.__slots__})
    lease = Lease(
        replica=ReplicaId("r-0"),
        task=TaskId("t"),
        job=JobId("j"),
        fence=1,
        seconds=1,
        offer=fields,
        signature=bytes(65),
    )
    held = Held(lease=lease, instance=ZERO, taken_at=0.0)
    made = prepare(DOMAIN, held, b"mine", address_of(key), lambda message: sign(key, message), 0.1)
    verdict = VerdictTold(
        replica=ReplicaId("r-0"),
        state=ReplicaState.REJECTED,
        outcome=2,
        root=TRUE,
        price=0,
        reason="",
        signature=bytes(65),
    )
    return Record(
        at=0,
        market="http://m",
        lease=lease,
        prepared=made.prepared,
        wave=None,
        promised=False,
        uploaded=False,
        verdict=verdict,
    )


def test_a_quorum_that_opens_what_it_committed_to_proves_it(rejected: Record, new_key: NewKey) -> None:
    loser = ballot(new_key(), Digest("blake3:" + "33" * 32), 2)
    evidence = told([ballot(new_key(), TRUE, 0), ballot(new_key(), TRUE, 1), loser])
    assert unproven(DOMAIN, rejected, evidence, JOB) == ""


def hidden(found: Evidence) -> Evidence:
    return other(found, replicas=found.replicas[:2])


def no_majority(found: Evidence) -> Evidence:
    return told([found.replicas[0], found.replicas[2]])


def twice_the_same(found: Evidence) -> Evidence:
    return told([found.replicas[0], found.replicas[0], found.replicas[2]])


def unsigned(found: Evidence) -> Evidence:
    return told([other(found.replicas[0], commitment_signature=None), *found.replicas[1:]])


def another_salt(found: Evidence) -> Evidence:
    return told([other(found.replicas[0], salt=Hash(bytes(31) + b"1")), *found.replicas[1:]])


def another_offer(found: Evidence) -> Evidence:
    return other(found, offer_digest=ZERO)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (hidden, "closed over other commitments"),
        (no_majority, "1 of 2 that committed agree"),
        (twice_the_same, "2 of 3 that committed agree"),
        (unsigned, "is not committed to by"),
        (another_salt, "do not lead to its commitment"),
        (another_offer, "another offer"),
    ],
)
def test_evidence_that_proves_nothing_is_found_out(
    rejected: Record, new_key: NewKey, change: Callable[[Evidence], Evidence], why: str
) -> None:
    loser = ballot(new_key(), Digest("blake3:" + "33" * 32), 2)
    evidence = told([ballot(new_key(), TRUE, 0), ballot(new_key(), TRUE, 1), loser])
    assert why in unproven(DOMAIN, rejected, change(evidence), JOB)
