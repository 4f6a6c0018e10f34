"""The published evidence of a rejection: it proves a quorum for another answer, or it is found wanting, by name."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.features.verify import of_rejection
from gradmarket.market.job import JobSpec
from gradmarket.market.rules.proof import Fault
from gradmarket.market.signing import address_of, digest_struct
from gradmarket.market.terms import Digest, Hash, ReplicaState
from gradmarket.market.wire.evidence import PublishedBallot, PublishedEvidence, Thresholds
from tests import handmade_evidence as made
from tests.worker.fake_market import other

NOISE: Final = Digest("blake3:" + "55" * 32)
Change = Callable[[PublishedEvidence], PublishedEvidence]


def wanting(spec: JobSpec, honest: PublishedEvidence, shown: PublishedEvidence) -> set[Fault]:
    """Returns the faults of evidence shown to r-2, which keeps the honest evidence's verdict and commitment."""
    mine = honest.replicas[2]
    told, me = mine.verdict(honest.offer.price), address_of(made.key(3))
    offer = digest_struct(made.DOMAIN, made.offer_of(spec))
    return {
        finding.fault for finding in of_rejection(made.case(spec, shown), told, offer, me, Hash(mine.sealed or b""))
    }


def exact(roots: Sequence[Digest]) -> PublishedEvidence:
    """Evidence of one wave in which these are the answers, and the last one is rejected."""
    cast = [made.ballot(made.JOB, number, root) for number, root in enumerate(roots)]
    return made.evidence(made.JOB, cast, [True] * (len(roots) - 1) + [False])


def with_ballots(shown: PublishedEvidence, ballots: Sequence[PublishedBallot]) -> PublishedEvidence:
    """As if the wave had closed over these, with its own signature."""
    return other(shown, replicas=tuple(ballots), waves=(made.wave(made.JOB, 0, ballots),))


def on_first(shown: PublishedEvidence, **changes: object) -> PublishedEvidence:
    return other(shown, replicas=(other(shown.replicas[0], **changes), *shown.replicas[1:]))


def on_own(shown: PublishedEvidence, **changes: object) -> PublishedEvidence:
    *others, own = shown.replicas
    return other(shown, replicas=(*others, other(own, **changes)))


ANSWER: Final = ("salt", "root", "determinism_class", "sketch", "sketch_signature")
HIDDEN: Final[dict[str, object]] = {
    "state": ReplicaState.WITHHELD,
    **dict.fromkeys((*ANSWER, "outcome", "verdict_root", "verdict_signature")),
}
"""A ballot as if its worker had never revealed."""


def test_a_quorum_that_opens_what_it_committed_to_proves_it() -> None:
    honest = made.outvoted()
    assert wanting(made.JOB, honest, honest) == set()


EXACT: Final[list[tuple[Change, Fault]]] = [
    (lambda shown: other(shown, replicas=shown.replicas[1:]), Fault.OTHER_COMMITMENTS),
    (lambda shown: with_ballots(shown, shown.replicas[1:]), Fault.REJECTED_UNPROVEN),
    (lambda shown: with_ballots(shown, (shown.replicas[0], *shown.replicas)), Fault.TWO_BALLOTS),
    (lambda shown: with_ballots(shown, shown.replicas[:2]), Fault.LEFT_OUT),
    (lambda _: exact((made.TRUE, NOISE, made.FALSE)), Fault.REJECTED_UNPROVEN),
    (lambda _: exact((made.FALSE, made.FALSE, made.FALSE)), Fault.REJECTED_UNPROVEN),
    (lambda shown: on_first(shown, commitment_signature=None), Fault.UNSIGNED_COMMITMENT),
    (lambda shown: on_first(shown, salt=Hash(bytes(31) + b"1")), Fault.BROKEN_COMMITMENT),
    (lambda shown: on_first(shown, salt=None), Fault.BROKEN_COMMITMENT),
    (lambda shown: on_own(shown, **HIDDEN), Fault.BROKEN_COMMITMENT),
    (lambda _: on_own(exact((made.FALSE, made.FALSE, made.FALSE)), **HIDDEN), Fault.BROKEN_COMMITMENT),
    (lambda shown: other(shown, offer=other(shown.offer, attempt=1)), Fault.OTHER_OFFER),
    (lambda shown: other(shown, offer_digest=made.ZERO), Fault.OTHER_OFFER),
    (lambda shown: other(shown, offer_signature=bytes(65)), Fault.UNSIGNED_OFFER),
    (lambda shown: other(shown, waves=(other(shown.waves[0], signature=bytes(65)),)), Fault.UNSIGNED_WAVE),
    (lambda shown: other(shown, waves=()), Fault.OTHER_COMMITMENTS),
]


@pytest.mark.parametrize(("change", "fault"), EXACT)
def test_evidence_that_proves_nothing_is_found_out(change: Change, fault: Fault) -> None:
    honest = made.outvoted()
    assert fault in wanting(made.JOB, honest, change(honest))


# where sketches are compared


def near_them(_: PublishedEvidence) -> PublishedEvidence:
    """It answered as the others did, and the market states that it did not."""
    return made.by_sketches((*made.SKETCHES[:2], ("gpu", 1.00002)))


SKETCH_LIES: Final[list[tuple[Change, Fault]]] = [
    (near_them, Fault.REJECTED_UNPROVEN),
    (lambda shown: on_own(near_them(shown), **HIDDEN), Fault.BROKEN_COMMITMENT),
    (lambda shown: on_own(shown, **HIDDEN), Fault.BROKEN_COMMITMENT),
    (lambda shown: on_own(shown, sketch=None), Fault.UNSIGNED_SKETCH),
    (lambda shown: on_own(shown, sketch=made.numbers(2.0)), Fault.UNSIGNED_SKETCH),
    (lambda shown: on_own(shown, determinism_class="tpu"), Fault.UNSIGNED_SKETCH),
    (lambda shown: other(shown, allowed=()), Fault.REJECTED_UNPROVEN),
    (
        lambda shown: other(shown, allowed=(Thresholds(classes=("cpu", "gpu"), tau={"w": 0.5}),)),
        Fault.NO_CALIBRATION,
    ),
    (lambda shown: other(shown, waves=(other(shown.waves[0], seed=Hash(b"s" * 32)),)), Fault.OTHER_SEED),
    (lambda shown: other(shown, waves=(other(shown.waves[0], secret=Hash(b"s" * 32)),)), Fault.WRONG_SECRET),
]


def test_a_quorum_of_two_classes_proves_a_rejection() -> None:
    honest = made.by_sketches()
    assert wanting(made.TOLERANT, honest, honest) == set()


@pytest.mark.parametrize(("change", "fault"), SKETCH_LIES)
def test_evidence_of_sketches_that_proves_nothing_is_found_out(change: Change, fault: Fault) -> None:
    honest = made.by_sketches()
    assert fault in wanting(made.TOLERANT, honest, change(honest))


CASES: Final = [
    (made.JOB, made.outvoted(), ("salt", "root")),
    (made.TOLERANT, made.by_sketches(), ANSWER),
]


@given(st.sampled_from(CASES), st.data())
def test_evidence_without_a_part_of_this_worker_s_answer_proves_nothing(
    judged: tuple[JobSpec, PublishedEvidence, tuple[str, ...]], data: st.DataObject
) -> None:
    spec, honest, answer = judged
    hidden = data.draw(st.sets(st.sampled_from(answer), min_size=1)) | data.draw(st.sets(st.sampled_from([*HIDDEN])))
    assert wanting(spec, honest, on_own(honest, **{name: HIDDEN[name] for name in hidden}))


WRONGED: Final = [
    (made.JOB, exact((made.TRUE, made.TRUE, made.TRUE))),
    (made.TOLERANT, near_them(made.by_sketches())),
]


@given(st.sampled_from(WRONGED), st.sets(st.sampled_from([*HIDDEN, "sealed", "commitment_signature"])))
def test_no_wrong_rejection_is_proven_whatever_of_the_ballot_is_hidden(
    wronged: tuple[JobSpec, PublishedEvidence], hidden: AbstractSet[str]
) -> None:
    spec, shown = wronged
    assert wanting(spec, shown, on_own(shown, **{name: HIDDEN.get(name) for name in hidden}))
