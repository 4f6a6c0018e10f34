"""Each guard of the policy: the honest offer passes, its cheating twin is refused for just that reason."""

from dataclasses import replace
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from contracts.calls import quorum_of
from gradmarket.compute.machine import Unfit, too_heavy
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.messages import Offer
from gradmarket.market.rules.secrets import task_seed
from gradmarket.market.signing import Domain, address_of, digest_struct, sign_digest
from gradmarket.market.stakes import Vesting
from gradmarket.market.terms import Address, Amount, Digest, Hash, JobId, Units
from gradmarket.market.wire.poll import hash_of
from worker.protocol.policy import (
    Guard,
    OnChain,
    Proposal,
    RequesterStanding,
    Vest,
    WorkLimits,
    judged_within,
    too_slow,
    unpaid_gradients,
    why_not,
)

KEY, THIEF = PrivateKey(b"\x01" * 32), PrivateKey(b"\x02" * 32)
DOMAIN = Domain(31337, Address("0x" + "11" * 20), Hash(b"\x03" * 32))
BLOB = Digest("blake3:" + "22" * 32)
SPEC = JobSpec.model_validate(
    {
        "name": "digits",
        "model": {"architecture": "mlp"},
        "data": {"ready": "digits"},
        "step": {"rows": 8},
        "optimizer": {"lr": 0.1},
        "rounds": 3,
        "replication": {"name": "fixed"},
        "tasks_per_round": 3,
        "price": "50",
        "seed": 9,
    }
)
PUBLISHED = Publication(
    job="0123456789abcdef", spec=SPEC, document=BLOB, evaluation=None, parameters=BLOB, manifest=BLOB
)
OFFER = Offer(
    job=4,
    spec=hash_of(PUBLISHED.digest),
    round=0,
    task=2,
    attempt=0,
    parameters=hash_of(BLOB),
    seed=task_seed(9, 0, 2),
    price=Units(5),
    anchor=Hash(bytes(32)),
    lease_seconds=100,
    wave_seconds=20,
    upload_seconds=30,
)
LIMITS = WorkLimits(frozenset(), Amount(1), leases=2, unpaid=1, margin_s=60.0, max_flops=1e9, max_memory=10**6)
CHAIN = OnChain(frozenset({address_of(KEY)}), OFFER.spec, Amount(10), Units(15), claim_until=10_000.0, now=1_000.0)
STANDING = RequesterStanding(in_flight=0, outstanding=Units(10), unpaid=0)


def proposed(offer: Offer = OFFER, key: PrivateKey = KEY, job: str = PUBLISHED.job) -> Proposal:
    return Proposal(DOMAIN, JobId(job), offer, sign_digest(key, digest_struct(DOMAIN, offer)), PUBLISHED)


def test_an_honest_offer_is_taken() -> None:
    assert why_not(proposed(), CHAIN, STANDING, LIMITS) is None


@pytest.mark.parametrize(
    ("offer", "reason"),
    [
        (replace(OFFER, spec=Hash(bytes(32))), Guard.OTHER_SPEC),
        (replace(OFFER, round=3), Guard.NO_SUCH_TASK),
        (replace(OFFER, task=3), Guard.NO_SUCH_TASK),
        (replace(OFFER, seed=task_seed(8, 0, 2)), Guard.OTHER_SEED),
        (replace(OFFER, seed=task_seed(9, 0, 1)), Guard.OTHER_SEED),
        (replace(OFFER, parameters=Hash(bytes(32))), Guard.OTHER_PARAMETERS),
        (replace(OFFER, price=Units(4)), Guard.UNDERPRICED),
        (replace(OFFER, price=Units(6)), Guard.NOT_RESERVED),
        (replace(OFFER, upload_seconds=2**40), Guard.CLAIMS_END),
    ],
)
def test_a_signed_offer_that_breaks_a_rule_is_declined(offer: Offer, reason: Guard) -> None:
    assert why_not(proposed(offer), CHAIN, STANDING, LIMITS) is reason


def test_later_rounds_start_from_parameters_that_no_publication_knows() -> None:
    later = replace(OFFER, round=1, parameters=Hash(b"\x07" * 32), seed=task_seed(9, 1, 2))
    assert why_not(proposed(later), CHAIN, STANDING, LIMITS) is None


def test_with_an_overlap_the_second_round_starts_from_the_published_parameters_too() -> None:
    published = PUBLISHED.model_copy(update={"spec": SPEC.model_copy(update={"overlap": 1})})
    chain = replace(CHAIN, spec=hash_of(published.digest))
    honest = replace(OFFER, spec=chain.spec, round=1, seed=task_seed(9, 1, 2))
    third = replace(honest, round=2, parameters=Hash(b"\x07" * 32), seed=task_seed(9, 2, 2))
    own = replace(honest, parameters=Hash(b"\x07" * 32))
    for offer, reason in ((honest, None), (third, None), (own, Guard.OTHER_PARAMETERS)):
        assert why_not(replace(proposed(offer), publication=published), chain, STANDING, LIMITS) is reason


JUDGES = tuple(Address("0x" + digit * 40) for digit in "123")
VESTED = SPEC.model_copy(
    update={"vesting": Vesting(prices=4, window_s=600, validators=JUDGES, threshold=2, bond=Amount(9), decide_s=300)}
)
VEST = Vest(Units(20), 600, quorum_of(JUDGES, 2))


@pytest.mark.parametrize(
    ("on", "known", "vest_s", "reason"),
    [
        ({}, JUDGES[:2], 900, None),
        ({}, JUDGES[:1], 900, Guard.UNKNOWN_VALIDATORS),
        ({}, (), 900, Guard.UNKNOWN_VALIDATORS),
        ({}, JUDGES, 899, Guard.VESTS_LONG),
        ({"units": Units(21)}, JUDGES, 900, Guard.OTHER_VEST),
        ({"window_s": 601}, JUDGES, 9000, Guard.OTHER_VEST),
        ({"quorum": quorum_of(JUDGES, 1)}, JUDGES, 900, Guard.OTHER_VEST),
        ({"quorum": quorum_of(JUDGES[:2], 2)}, JUDGES, 900, Guard.OTHER_VEST),
    ],
)
def test_pay_vests_only_under_validators_and_for_a_time_that_the_worker_accepts(
    on: dict[str, Any], known: tuple[Address, ...], vest_s: float, reason: Guard | None
) -> None:
    published = PUBLISHED.model_copy(update={"spec": VESTED})
    chain = replace(CHAIN, spec=hash_of(published.digest), vest=replace(VEST, **on), decision_window=300)
    proposal = replace(proposed(replace(OFFER, spec=chain.spec)), publication=published)
    limits = replace(LIMITS, vest_s=vest_s, validators=frozenset(known))
    assert why_not(proposal, chain, STANDING, limits) is reason


def test_a_vest_that_is_published_nowhere_is_declined() -> None:
    limits = replace(LIMITS, vest_s=10**6, validators=frozenset(JUDGES))
    assert why_not(proposed(), replace(CHAIN, vest=VEST), STANDING, limits) is Guard.OTHER_VEST


def test_an_offer_in_anothers_name_is_declined() -> None:
    assert why_not(proposed(key=THIEF), CHAIN, STANDING, LIMITS) is Guard.FOREIGN_SIGNER


def test_an_offer_of_another_instance_is_declined() -> None:
    foreign = Domain(DOMAIN.chain_id, DOMAIN.contract, Hash(b"\x04" * 32))
    replayed = replace(proposed(), signature=sign_digest(KEY, digest_struct(foreign, OFFER)))
    assert why_not(replayed, CHAIN, STANDING, LIMITS) is Guard.FOREIGN_SIGNER


def test_a_signer_that_was_added_to_the_job_counts() -> None:
    both = replace(CHAIN, signers=frozenset({address_of(KEY), address_of(THIEF)}))
    assert why_not(proposed(key=THIEF), both, STANDING, LIMITS) is None


def test_a_publication_of_another_job_is_declined() -> None:
    assert why_not(proposed(job="ffffffffffffffff"), CHAIN, STANDING, LIMITS) is Guard.OTHER_SPEC


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        (replace(CHAIN, spec=Hash(bytes(32))), Guard.OTHER_SPEC_ON_CHAIN),
        (replace(CHAIN, reserved=Units(14)), Guard.NOT_RESERVED),
        (replace(CHAIN, now=10_000.0 - judged_within(proposed()) - 59.0), Guard.CLAIMS_END),
        (replace(CHAIN, unit=Amount(9)), Guard.UNDERPRICED),
    ],
)
def test_a_chain_that_does_not_bear_the_offer_out_declines_it(chain: OnChain, reason: Guard) -> None:
    assert why_not(proposed(), chain, STANDING, LIMITS) is reason


@pytest.mark.parametrize(
    ("standing", "reason"),
    [
        (replace(STANDING, unpaid=1), Guard.UNPAID),
        (replace(STANDING, in_flight=2), Guard.SEVERAL_CLAIMS),
        (replace(STANDING, outstanding=Units(11)), Guard.NOT_RESERVED),
    ],
)
def test_unpaid_and_leased_work_bounds_further_leases(standing: RequesterStanding, reason: Guard) -> None:
    assert why_not(proposed(), CHAIN, standing, LIMITS) is reason


def test_a_worker_s_owner_chooses_jobs_and_prices() -> None:
    chosen = replace(LIMITS, jobs=frozenset({JobId(PUBLISHED.job)}), min_price=Amount(50))
    assert why_not(proposed(), CHAIN, STANDING, chosen) is None
    assert why_not(proposed(), CHAIN, STANDING, replace(chosen, jobs=frozenset({JobId("no")}))) is Guard.NOT_CHOSEN
    assert why_not(proposed(), CHAIN, STANDING, replace(chosen, min_price=Amount(51))) is Guard.CHEAP


def test_every_wave_that_the_job_allows_fits_before_the_claims_end() -> None:
    waves = SPEC.replication.max_replicas - SPEC.replication.replicas + 1
    assert judged_within(proposed()) == waves * 150


def test_a_step_is_bounded_by_what_the_owner_allows() -> None:
    assert too_heavy(1e9, 10**6, LIMITS) is None
    assert too_heavy(1.1e9, 10**6, LIMITS) is Unfit.TOO_MANY_FLOPS
    assert too_heavy(1e9, 10**6 + 1, LIMITS) is Unfit.TOO_MUCH_MEMORY
    assert too_slow(3.0, 3.0) is None
    assert too_slow(3.1, 3.0) is Guard.TOO_SLOW


@given(st.lists(st.integers(1, 100), max_size=30), st.integers(0, 4000), st.integers(1, 100))
def test_no_gradient_is_unpaid_exactly_when_vouchers_cover_all(prices: list[int], vouchered: int, price: int) -> None:
    earned = Units(sum(prices))
    count = unpaid_gradients(earned, Units(vouchered), Units(price))
    assert (count == 0) == (vouchered >= earned)
    assert count * price >= earned - vouchered


@given(
    st.integers(0, 2**40), st.integers(0, 2**40), st.integers(5, 2**40), st.integers(0, 10**6), st.integers(0, 10**6)
)
def test_nothing_is_taken_that_is_not_covered_and_claimable(
    reserved: int, outstanding: int, price: int, now: int, claim_until: int
) -> None:
    offer = replace(OFFER, price=Units(price))
    chain = replace(CHAIN, reserved=Units(reserved), now=float(now), claim_until=float(claim_until))
    taken = why_not(proposed(offer), chain, replace(STANDING, outstanding=Units(outstanding)), LIMITS) is None
    covered = reserved >= outstanding + price
    assert taken == (covered and claim_until - now >= judged_within(proposed(offer)) + LIMITS.margin_s)
