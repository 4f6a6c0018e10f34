"""A holder's worker against a server that plays two attempts at once, or shows holders different models."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from eth_keys.datatypes import PrivateKey
from eth_utils.crypto import keccak

from contracts import events
from gradmarket.market.errors import Refused
from gradmarket.market.features.secure_sums import Aggregation
from gradmarket.market.features.secure_sums.job_sum import build_round_aggregation, build_sum_terms, start_of
from gradmarket.market.job import Publication
from gradmarket.market.signing import address_of, signer_of
from gradmarket.market.step import LocalStep
from gradmarket.market.terms import Digest, Hash, JobId, ReplicaId, TaskId
from gradmarket.market.wire.poll import Lease, OfferFields, hash_of
from tests.features.secure_sums.lying_sums import Attempt, Colluder, HonestSide, LyingServer, sum_of
from tests.onchain import OpenedJob
from tests.worker.conftest import SPEC, MakeContext, published_as
from tests.worker.fake_market import FakeMarket
from worker.features.secure_sums import SecureRound, compute_start_digest
from worker.features.secure_sums.secure_state import SecureFolder
from worker.markets.worker_context import WorkerContext
from worker.wallet import Wallet

COUNT, COLLUDE, DROP, SIZE = 8, 3, 2, 6
HONEST = COUNT - COLLUDE
EVERYBODY = frozenset(range(COUNT))
LEFT_OUT = frozenset({0, 1})
"""As many as may drop out; with the colluders they can take the masks off."""
REST = EVERYBODY - LEFT_OUT
KEYS = sorted((PrivateKey(keccak(text=f"holder {n}")) for n in range(COUNT)), key=lambda key: address_of(key).lower())
NUMBERS = {number: np.random.default_rng(number).integers(-999, 999, SIZE) for number in range(HONEST)}
INPUTS = {"x": {"dtype": "float32", "shape": [4]}, "y": {"dtype": "int64", "classes": 3}}


@pytest.fixture
def publication(blobs: dict[Digest, bytes]) -> Publication:
    names = [address_of(key) for key in KEYS]
    asked = {"may_collude": COLLUDE, "may_drop": DROP}
    data = {"inputs": INPUTS, "holders": names, "least_rows": 8, "secure_aggregation": asked}
    more = {"tasks_per_round": COUNT, "min_tasks": COUNT - DROP, "norm_bound": 1.0}
    more |= {"replication": {"replicas": 1, "max_replicas": 1}}
    return published_as(blobs, **SPEC | {"data": data} | more)


@pytest.fixture
def context(fake_market: FakeMarket, make_context: MakeContext) -> WorkerContext:
    """One worker's, with a real chain beneath; the block after the one that opened the job draws the graphs."""
    made = make_context(fake_market)
    made.signals.leave()  # so that a holder does not wait for a message that never comes
    return made


Play = Any


@pytest.fixture
def play(context: WorkerContext, fake_market: FakeMarket, chain_job: OpenedJob, tmp_path: Path) -> Play:
    """Gives a honest_side of honest holders, and the server that lies to them."""

    def members(attempt: int) -> Aggregation:
        drawn = events.beacon(chain_job.ledger, events.opened_job(chain_job.ledger, chain_job.id))
        assert drawn is not None
        published = fake_market.publication
        digest = hash_of(published.digest)
        start = hash_of(published.parameters)
        return build_round_aggregation(
            build_sum_terms(published.spec), digest, start, chain_job.id, 0, attempt, drawn, SIZE
        )

    def held(number: int, server: LyingServer, **offered: Any) -> SecureRound:
        offer = replace(fake_market.offer(number)[0], **offered)
        lease = Lease(
            replica=ReplicaId(str(number)), task=TaskId(f"task-{number}"), job=JobId(fake_market.publication.job),
            fence=1, seconds=60.0, offer=OfferFields(**asdict(offer)), signature=bytes(65),
        )  # fmt: skip
        place = tmp_path / f"holder-{number}"
        mine: Any = replace(context, wallet=Wallet(KEYS[number], place), market=server)
        folder, published = SecureFolder(place), fake_market.publication
        start = compute_start_digest(folder, published.spec, lease)
        return SecureRound(mine, folder, lease, published, start, SIZE, NUMBERS[number])

    def make(
        *attempts: frozenset[int], lies: dict[int, tuple[int, int]], offered: dict[int, Hash] | None = None
    ) -> tuple[LyingServer, HonestSide]:
        made = {n: Attempt(members(n), context.domain, who) for n, who in enumerate(attempts)}
        colluders = [Colluder(number, signer_of(KEYS[number])) for number in range(HONEST, COUNT)]
        server = LyingServer(made, colluders, lies)
        return server, HonestSide(
            {number: held(number, server, **_offered(offered, number)) for number in range(HONEST)}
        )

    return make


def _offered(offered: dict[int, Hash] | None, number: int) -> dict[str, Hash]:
    return {"parameters": offered[number]} if offered and number in offered else {}


def learned(server: LyingServer) -> dict[int, list[int]]:
    """The sums that the server has, by attempt."""
    found = {}
    for number, attempt in server.attempts.items():
        try:
            found[number] = attempt.unmasked().tolist()
        except Refused:
            continue
    return found


def test_honest_holders_give_an_honest_server_one_sum(play: Play) -> None:
    server, honest_side = play(EVERYBODY, lies={})
    honest_side.play()
    assert learned(server) == {0: sum_of(NUMBERS, range(HONEST)).tolist()}
    assert not honest_side.refused


def test_two_attempts_at_a_round_never_give_two_sums(play: Play) -> None:
    """All sign attempt 0, which some holders unmask with the colluders; the others get a new attempt.

    The difference of both sums would be of two holders, where no sum is of fewer than three honest ones.
    """
    server, honest_side = play(EVERYBODY, REST, lies=dict.fromkeys(REST, (1, 4)))
    honest_side.play()
    assert learned(server) == {0: sum_of(NUMBERS, range(HONEST)).tolist()}
    assert honest_side.refused.keys() == REST - set(range(HONEST, COUNT))
    assert all("signed" in why for why in honest_side.refused.values())


def test_a_holder_that_only_masked_in_an_attempt_may_join_the_next(play: Play) -> None:
    """Too few have signed the first then, so the second's is the only sum."""
    server, honest_side = play(EVERYBODY, REST, lies=dict.fromkeys(REST, (1, 3)))
    honest_side.play()
    assert learned(server) == {1: sum_of(NUMBERS, range(2, HONEST)).tolist()}
    assert not honest_side.refused


def test_a_holder_that_lost_its_messages_still_refuses_to_sign_again(play: Play) -> None:
    server, honest_side = play(EVERYBODY, REST, lies=dict.fromkeys(REST, (1, 4)))
    honest_side.play(turns=4)
    one = honest_side.holders[2]
    assert one.folder.signed(one.lease.job) == 0
    one.folder.forget(one.lease.job, 0)
    with pytest.raises(Refused, match="signed survivors of round 0"):
        one.run()
    assert 1 not in learned(server)


def test_holders_of_other_parameters_are_in_no_sum_together(play: Play) -> None:
    """Else all could be given a model without gradients but one, whose vector is then the sum.

    Nobody goes on with a key that is signed for other parameters, so the round ends before anything is masked.
    """
    server, honest_side = play(EVERYBODY, lies={}, offered={0: Hash(b"2" * 32)})
    honest_side.play()
    assert learned(server) == {}
    assert honest_side.refused.keys() == set(range(HONEST))
    assert not server.attempts[0].vectors.keys() & set(range(HONEST))


def test_a_round_that_was_begun_goes_on_from_no_other_parameters(play: Play) -> None:
    """Nor in another lease of it, after a restart."""
    _, honest_side = play(EVERYBODY, lies={})
    honest_side.play(turns=1)
    one = honest_side.holders[0]
    other = one.lease.offer.model_copy(update={"parameters": Hash(b"2" * 32)})
    with pytest.raises(Refused, match="begun from other parameters"):
        compute_start_digest(one.folder, one.publication.spec, one.lease.model_copy(update={"offer": other}))


def test_with_control_variates_a_vector_follows_from_all_rounds_before(play: Play) -> None:
    """They are made of the rounds' changes: other parameters of an earlier round are another model in this one."""
    _, honest_side = play(EVERYBODY, lies={})
    honest_side.play(turns=1)
    one = honest_side.holders[0]
    local = {"kind": "local", "rows": 8, "steps": 2, "optimizer": {"name": "sgd", "lr": 0.1}, "control_variates": True}
    spec = one.publication.spec.model_copy(update={"step": LocalStep.model_validate(local)})
    lease = one.lease.model_copy(update={"offer": one.lease.offer.model_copy(update={"round": 1})})
    parameters, before = lease.offer.parameters, one.start
    assert (
        compute_start_digest(one.folder, spec, lease)
        == start_of(build_sum_terms(spec), parameters, before)
        != parameters
    )
    assert start_of(build_sum_terms(spec), parameters, Hash(b"2" * 32)) != start_of(
        build_sum_terms(spec), parameters, before
    )
    assert start_of(build_sum_terms(one.publication.spec), parameters, before) == parameters
    one.folder.forget(lease.job, 0)
    with pytest.raises(Refused, match="computed round 0 from is not here"):
        compute_start_digest(one.folder, spec, lease)
