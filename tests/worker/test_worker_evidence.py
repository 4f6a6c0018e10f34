"""The published evidence of a rejection: it proves a quorum for another answer, or it is found wanting, by name."""

from collections.abc import Callable

import numpy as np
import pytest
from eth_keys.datatypes import PrivateKey

from gradmarket.market.job import JobSpec
from gradmarket.market.messages import Commitment, Offer
from gradmarket.market.rules import secrets
from gradmarket.market.rules.secrets import digest_of, seal
from gradmarket.market.signing import Domain, address_of, digest, sign
from gradmarket.market.terms import Address, Digest, Hash, JobId, ReplicaId, ReplicaState, TaskId, Units
from gradmarket.market.wire import Lease, OfferFields, SignedVerdict, SketchRequest, hash_of
from gradmarket.worker.protocol.in_flight import InFlight, prepare
from gradmarket.worker.protocol.published_evidence import (
    PublishedBallot,
    PublishedEvidence,
    PublishedWave,
    Thresholds,
    unproven,
)
from gradmarket.worker.protocol.records import ReplicaRecord
from tests.onchain import NewKey
from tests.worker.fake_market import other

DOMAIN = Domain(1, Address("0x000000000000000000000000000000000000dEaD"), Hash(bytes(32)))
TRUE = Digest("blake3:" + "22" * 32)
ZERO = Hash(bytes(32))
LINKS = secrets.of_task(ZERO, 3)
OFFER = Offer(1, ZERO, 0, 0, 0, ZERO, ZERO, Units(7), secrets.anchor_of_task(ZERO, 3), 60, 30, 30)
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


TOLERANT = JobSpec.model_validate(
    JOB.model_dump(mode="json")
    | {
        "verifier": {"name": "tolerance"},
        "audit": {"probability": 0.5},
        "replication": {"replicas": 3, "max_replicas": 3},
    }
)


def ballot(key: PrivateKey, root: Digest, number: int, salt: Hash = ZERO) -> PublishedBallot:
    who = address_of(key)
    sealed = seal(NAME, who, salt, hash_of(root))
    signature = sign(key, digest(DOMAIN, Commitment(NAME, who, sealed)))
    return PublishedBallot(
        id=ReplicaId(f"r-{number}"),
        worker=who,
        wave=0,
        sealed=sealed,
        commitment_signature=signature,
        salt=salt,
        root=root,
    )


def told(ballots: list[PublishedBallot]) -> PublishedEvidence:
    members = [(each.worker, Hash(each.sealed or b"")) for each in ballots]
    return PublishedEvidence(
        offer_digest=NAME, waves=(PublishedWave(number=0, commitments=digest_of(members)),), replicas=tuple(ballots)
    )


@pytest.fixture
def rejected(new_key: NewKey) -> ReplicaRecord:
    return rejection(new_key())


def rejection(key: PrivateKey) -> ReplicaRecord:
    """A worker's record of an answer that was rejected."""
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
    held = InFlight(lease=lease, instance=ZERO, taken_at=0.0)
    made = prepare(DOMAIN, held, b"mine", address_of(key), lambda message: sign(key, message), 0.1)
    verdict = SignedVerdict(
        replica=ReplicaId("r-0"),
        state=ReplicaState.REJECTED,
        outcome=2,
        root=TRUE,
        price=0,
        reason="",
        signature=bytes(65),
    )
    return ReplicaRecord(
        at=0,
        market="http://m",
        lease=lease,
        prepared=made.prepared,
        wave=None,
        promised=False,
        uploaded=False,
        verdict=verdict,
    )


def test_a_quorum_that_opens_what_it_committed_to_proves_it(rejected: ReplicaRecord, new_key: NewKey) -> None:
    loser = ballot(new_key(), Digest("blake3:" + "33" * 32), 2)
    evidence = told([ballot(new_key(), TRUE, 0), ballot(new_key(), TRUE, 1), loser])
    assert unproven(DOMAIN, rejected, evidence, JOB) == ""


def hidden(found: PublishedEvidence) -> PublishedEvidence:
    return other(found, replicas=found.replicas[:2])


def no_majority(found: PublishedEvidence) -> PublishedEvidence:
    return told([found.replicas[0], found.replicas[2]])


def twice_the_same(found: PublishedEvidence) -> PublishedEvidence:
    return told([found.replicas[0], found.replicas[0], found.replicas[2]])


def unsigned(found: PublishedEvidence) -> PublishedEvidence:
    return told([other(found.replicas[0], commitment_signature=None), *found.replicas[1:]])


def another_salt(found: PublishedEvidence) -> PublishedEvidence:
    return told([other(found.replicas[0], salt=Hash(bytes(31) + b"1")), *found.replicas[1:]])


def another_offer(found: PublishedEvidence) -> PublishedEvidence:
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
    rejected: ReplicaRecord, new_key: NewKey, change: Callable[[PublishedEvidence], PublishedEvidence], why: str
) -> None:
    loser = ballot(new_key(), Digest("blake3:" + "33" * 32), 2)
    evidence = told([ballot(new_key(), TRUE, 0), ballot(new_key(), TRUE, 1), loser])
    assert why in unproven(DOMAIN, rejected, change(evidence), JOB)


# where sketches are compared

ALLOWED = (Thresholds(classes=("cpu", "gpu"), tau={"w": 1e-4}),)


def numbers(factor: float) -> dict[str, bytes]:
    return {"w": (np.arange(1, 65, dtype=np.float32) * np.float32(factor)).tobytes()}


@pytest.fixture
def vote(new_key: NewKey) -> tuple[ReplicaRecord, PublishedEvidence, dict[Address, PrivateKey]]:
    """A worker's record of a rejection, what the market publishes of it, and everybody's keys."""
    keys = {address_of(key): key for key in (new_key(), new_key(), new_key())}
    own_key, *others = keys.values()
    record = rejection(own_key)
    assert record.prepared is not None
    mine = ballot(own_key, record.prepared.root, 0, Hash(record.prepared.salt))
    evidence = told([mine, ballot(others[0], TRUE, 1), ballot(others[1], Digest("blake3:" + "33" * 32), 2)])
    seed = secrets.wave_seed(LINKS[0], Hash(evidence.waves[0].commitments))
    cast = zip(evidence.replicas, (("cpu", 1.01), ("cpu", 1.0), ("gpu", 1.00001)), strict=True)
    shown = tuple(drawn(keys[each.worker], each, seed, name, factor) for each, (name, factor) in cast)
    waves = (evidence.waves[0].model_copy(update={"secret": LINKS[0], "seed": seed}),)
    return record, other(evidence, replicas=shown, waves=waves, allowed=ALLOWED), keys


def drawn(key: PrivateKey, of: PublishedBallot, seed: Hash, determinism_class: str, factor: float) -> PublishedBallot:
    """The ballot with a sketch that its worker signed."""
    made = SketchRequest(numbers=numbers(factor), determinism_class=determinism_class, signature=bytes(65))
    signature = sign(key, digest(DOMAIN, made.struct(NAME, of.worker, seed)))
    return other(of, sketch=made.numbers, determinism_class=determinism_class, sketch_signature=signature)


Vote = tuple[ReplicaRecord, PublishedEvidence, dict[Address, PrivateKey]]


def with_own(found: PublishedEvidence, **changes: object) -> PublishedEvidence:
    own, *others = found.replicas
    return other(found, replicas=(other(own, **changes), *others))


def near_them(found: PublishedEvidence, keys: dict[Address, PrivateKey]) -> PublishedEvidence:
    """It answered as the others did, and the market says that it did not."""
    own, *others = found.replicas
    seed = found.waves[0].seed
    return other(found, replicas=(drawn(keys[own.worker], own, Hash(seed or b""), "gpu", 1.00002), *others))


SKETCH_LIES: list[tuple[Callable[[PublishedEvidence, dict[Address, PrivateKey]], PublishedEvidence], str]] = [
    (near_them, "the winners answered as this worker did"),
    (lambda found, _: with_own(found, sketch=None), "own sketch is not shown"),
    (lambda found, _: with_own(found, sketch=numbers(2.0)), "r-0: its sketch is not signed"),
    (lambda found, _: with_own(found, determinism_class="tpu"), "r-0: its sketch is not signed"),
    (lambda found, _: other(found, allowed=()), "1 of 3 that committed agree"),
    (
        lambda found, _: other(found, allowed=(Thresholds(classes=("cpu", "gpu"), tau={"w": 0.5}),)),
        "no calibration gives the thresholds",
    ),
    (
        lambda found, _: other(found, waves=(other(found.waves[0], seed=Hash(b"s" * 32)),)),
        "the seed of its sketches is another",
    ),
    (
        lambda found, _: other(found, waves=(other(found.waves[0], secret=Hash(b"s" * 32)),)),
        "the seed of its sketches is another",
    ),
]


def test_a_quorum_of_two_classes_proves_a_rejection(vote: Vote) -> None:
    record, evidence, _ = vote
    assert unproven(DOMAIN, record, evidence, TOLERANT) == ""


@pytest.mark.parametrize(("change", "why"), SKETCH_LIES)
def test_evidence_of_sketches_that_proves_nothing_is_found_out(
    vote: Vote, change: Callable[[PublishedEvidence, dict[Address, PrivateKey]], PublishedEvidence], why: str
) -> None:
    record, evidence, keys = vote
    assert why in unproven(DOMAIN, record, change(evidence, keys), TOLERANT)
