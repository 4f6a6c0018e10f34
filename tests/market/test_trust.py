"""Reputation, exposure, audits and the policies above them: no attack gains by them."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.trust_cost import compute_escaping_share, compute_work_per_gradient
from gradmarket.market.errors import IllegalTransition, Refused
from gradmarket.market.features import reputation
from gradmarket.market.features.audits import auditing
from gradmarket.market.features.reputation import NEWCOMER, TrustRecord, compute_record_standing
from gradmarket.market.rules import replication
from gradmarket.market.rules.replication import STRANGER, Lead, adaptive, audited, fixed
from gradmarket.market.rules.secrets import compute_anchor, derive_links, leads_to
from gradmarket.market.terms import Hash, Plan, domain_hash
from gradmarket.trust.forecast import compute_exposure, expected_before_caught, tasks_before_caught

EVIDENCE = st.floats(0, 1e5)
TIMES = st.floats(0, 1e9)
SHARES = st.floats(0, 1)
RATES = st.floats(1e-4, 0.999)
HISTORY = st.lists(st.tuples(st.sampled_from(["passed", "outvoted", "failed"]), st.floats(0, 1e7)), max_size=30)


def lived(history: list[tuple[str, float]]) -> tuple[TrustRecord, int, float]:
    """(record, audits passed since the last failure, now) after these events, each some seconds after the other."""
    record, audits, now = NEWCOMER, 0, 0.0
    for event, pause in history:
        now += pause
        if event == "passed":
            record, audits = reputation.apply_passed_audit(record, now), audits + 1
        elif event == "outvoted":
            record = reputation.apply_outvoted_ballot(record, now)
        else:
            (record,), audits = reputation.apply_failed_audit([record], now), 0
    return record, audits, now


@given(HISTORY)
def test_a_standing_is_never_above_what_audited_work_supports(history: list[tuple[str, float]]) -> None:
    record, audits, now = lived(history)
    assert 0.0 <= compute_record_standing(record, now) <= replication.compute_supported_standing(audits) < 1.0


@given(HISTORY, st.floats(0, 1e7))
def test_an_audit_passed_never_harms_and_a_lost_vote_or_idleness_never_helps(
    history: list[tuple[str, float]], pause: float
) -> None:
    record, _, now = lived(history)
    before = compute_record_standing(record, now)
    assert compute_record_standing(reputation.apply_passed_audit(record, now), now) >= before
    assert compute_record_standing(reputation.apply_outvoted_ballot(record, now), now) <= before
    assert compute_record_standing(record, now + pause) <= before


@given(HISTORY)
def test_after_a_failed_audit_nothing_is_left_in_any_class(history: list[tuple[str, float]]) -> None:
    record, _, now = lived(history)
    other = reputation.apply_passed_audit(NEWCOMER, now)
    assert [compute_record_standing(each, now) for each in reputation.apply_failed_audit([record, other], now)] == [
        0.0,
        0.0,
    ]


@given(HISTORY)
def test_to_register_again_gains_nothing(history: list[tuple[str, float]]) -> None:
    record, _, now = lived(history)
    assert compute_record_standing(NEWCOMER, now) == 0.0 <= compute_record_standing(record, now)


def test_half_of_the_evidence_is_left_after_a_half_life() -> None:
    record = TrustRecord(100.0, 0.0)
    later = reputation.decay_record(record, reputation.HALF_LIFE_S)
    assert later.evidence == pytest.approx(50.0)
    with pytest.raises(IllegalTransition):
        reputation.decay_record(record, -1.0)


def test_slow_to_gain_and_quick_to_lose() -> None:
    assert replication.compute_supported_standing(1) == pytest.approx(0.05)
    assert replication.compute_supported_standing(58) < 0.95 < replication.compute_supported_standing(59)
    assert replication.compute_supported_standing(0) == 0.0


def unchecked(tasks: int) -> float:
    """Returns the mean number of unaudited ones among a newcomer's first `tasks` accepted tasks, with ample stake."""
    record, total = 0.0, 0.0
    for _ in range(tasks):
        rate = adaptive.compute_worker_audit_rate(
            replication.compute_supported_standing(record), math.inf, 0.05, 0.02, 1.0
        )
        record, total = record + rate, total + 1.0 - rate
    return total


@pytest.mark.parametrize("identities", [2, 5, 20])
@pytest.mark.parametrize("tasks", [100, 1000, 3000])
def test_sybils_get_less_unchecked_work_than_one_identity(identities: int, tasks: int) -> None:
    assert identities * unchecked(tasks // identities) <= unchecked(tasks) + 1e-9


@given(st.floats(0, 50), st.floats(0, 50), RATES)
def test_an_exposure_is_covered_by_the_rate_it_asks_for(cover: float, benefit: float, floor: float) -> None:
    gain = 1.0 + benefit
    rate = max(floor, adaptive.least_rate(cover, gain))
    if rate < 1.0:
        assert compute_exposure(rate, gain) <= max(cover, compute_exposure(floor, gain)) * (1 + 1e-9)
        # a liar's mean gain before it is caught is less than its loss
        assert expected_before_caught(rate) * gain < cover


@given(RATES)
def test_within_the_exposure_a_liar_is_caught_with_95_percent(rate: float) -> None:
    tasks = tasks_before_caught(rate)
    assert (1 - rate) ** tasks <= 0.05 + 1e-9
    assert (1 - rate) ** (tasks - 1) > 0.05 - 1e-9


def test_an_exposure_without_audits_has_no_end() -> None:
    assert tasks_before_caught(0.0) == math.inf
    assert expected_before_caught(0.05, 0.0) == math.inf
    assert tasks_before_caught(0.05) == 59
    assert adaptive.compute_unused_stake(65.0, 6, 1.0) == 59.0
    assert adaptive.compute_unused_stake(65.0, 600, 1.0) == 0.0


@given(SHARES, st.floats(0, 1e6), RATES, RATES, st.floats(0.1, 100))
def test_no_reputation_and_no_stake_lower_the_floor(
    stands: float, cover: float, floor: float, tolerated: float, gain: float
) -> None:
    rate = adaptive.compute_worker_audit_rate(stands, cover, floor, tolerated, gain)
    assert floor <= rate <= 1.0
    assert (1 - rate) * (1 - stands) <= tolerated + 1e-9


@given(SHARES, SHARES, st.floats(0, 1e4), st.floats(0, 1e4))
def test_a_better_record_or_more_stake_is_never_checked_more(a: float, b: float, c: float, d: float) -> None:
    worse, better = sorted((a, b))
    less, more = sorted((c, d))
    assert adaptive.compute_worker_audit_rate(better, more, 0.05, 0.02, 1.0) <= adaptive.compute_worker_audit_rate(
        worse, less, 0.05, 0.02, 1.0
    )


def test_deterrence_is_what_a_lie_gains_over_what_it_loses() -> None:
    assert auditing.compute_deterring_rate(1.0, 3.0, 80.0) == 0.05
    assert auditing.compute_deterring_rate(1.0, 0.0, 0.0) == math.inf


@given(st.floats(0.05, 1.0), st.floats(0, 1e3), st.floats(0, 1e5))
def test_every_reduced_audit_rate_still_deters(floor: float, benefit: float, cover: float) -> None:
    """The stake that a rate asks for makes lying a loss at that rate: p > (c + B) / S."""
    settings = adaptive.Settings(floor=floor, benefit=benefit)
    plan = adaptive.plan(settings, Lead(0.9999, cover))
    if plan.first_wave == 1 and plan.audit < 1.0:
        assert plan.audit > auditing.compute_deterring_rate(1.0, benefit, cover)


LINK = Hash(b"l" * 32)


def test_audits_are_drawn_at_about_their_rate_and_by_the_link() -> None:
    offers = [domain_hash("offer", n.to_bytes(4, "big")) for n in range(4000)]
    picked = [auditing.is_audit_drawn(LINK, offer, Hash(bytes(32)), 0.1) for offer in offers]
    assert 320 < sum(picked) < 480  # 400 expected, four standard deviations
    assert picked != [auditing.is_audit_drawn(Hash(b"m" * 32), offer, Hash(bytes(32)), 0.1) for offer in offers]
    assert not any(auditing.is_audit_drawn(LINK, offer, Hash(bytes(32)), 0.0) for offer in offers)
    assert all(auditing.is_audit_drawn(LINK, offer, Hash(bytes(32)), 1.0) for offer in offers)


@given(st.binary(min_size=32, max_size=32).map(Hash), RATES, RATES)
def test_a_higher_rate_audits_all_that_a_lower_one_does(offer: Hash, a: float, b: float) -> None:
    low, high = sorted((a, b))
    root = Hash(bytes(32))
    assert auditing.is_audit_drawn(LINK, offer, root, high) or not auditing.is_audit_drawn(LINK, offer, root, low)


def test_the_requester_can_open_only_the_link_that_it_committed_to() -> None:
    """It cannot choose, after it has seen the answers, a secret that spares a friend."""
    secret = Hash(b"s" * 32)
    first, second = derive_links(secret, 2)
    assert leads_to(first, 0, compute_anchor(secret, 2))
    assert leads_to(second, 1, compute_anchor(secret, 2))
    assert not leads_to(domain_hash("link", Hash(b"t" * 32)), 1, compute_anchor(secret, 2))


def test_the_lies_that_escape_are_those_of_a_binomial_number_of_lies_of_which_no_audit_is_drawn() -> None:
    rate, window, share = 0.2, 16, 0.4
    escaped = sum(
        math.comb(window, lies) * share**lies * (1 - share) ** (window - lies) * (1 - rate) ** lies
        for lies in range(window + 1)
    )
    assert compute_escaping_share(rate, window, share) == pytest.approx(escaped)


def test_most_lies_of_a_liar_are_found_before_they_are_final_and_the_cost_is_under_a_tenth() -> None:
    assert compute_escaping_share(0.05, 100) < 0.01
    assert compute_escaping_share(0.05, 100, share=0.1) > 0.5, (
        "a rare liar's lies become final more often: docs/checking.md"
    )
    assert compute_work_per_gradient(0.05, 0.2, 100, 1000) == pytest.approx(1.074)
    assert compute_work_per_gradient(0.05, 0.0, 100, 1000) == pytest.approx(1.05)


def test_the_policies_are_found_by_name_and_plan_for_a_stranger() -> None:
    asked = {"fixed": {}, "audited": {"audit": 0.1}, "adaptive": {}}
    plans = {
        name: replication.load_policy(name).plan(replication.load_policy(name).Settings(**asked[name]))
        for name in asked
    }
    assert plans == {"fixed": Plan(3, 2, 5), "audited": Plan(1, 1, 1, 0.1), "adaptive": Plan(3, 2, 5, 0.05)}
    with pytest.raises(Refused, match="adaptive, audited, fixed"):
        replication.load_policy("boinc")


def test_fixed_and_audited_look_at_nobody() -> None:
    proven = Lead(0.999, 1e6)
    assert fixed.plan(fixed.Settings(), proven) == fixed.plan(fixed.Settings(), STRANGER)
    assert audited.plan(audited.Settings(audit=0.2), proven).audit == 0.2


def test_a_proven_worker_with_stake_is_checked_less_and_without_stake_it_is_voted_on() -> None:
    settings = adaptive.Settings()
    newcomer, proven = Lead(0.0, 65.0), Lead(replication.compute_supported_standing(141), 65.0)
    assert adaptive.plan(settings, newcomer) == Plan(1, 1, 1, 0.98)
    assert adaptive.plan(settings, proven) == Plan(1, 1, 1, 0.05)
    assert adaptive.plan(settings, replace(proven, cover=0.5)) == Plan(3, 2, 5, 0.05)
    rates = [adaptive.plan(settings, replace(proven, cover=float(cover))).audit for cover in range(1, 70)]
    assert rates[0] == 1.0, "a stake of one lie covers one lie"
    assert all(before >= after for before, after in pairwise(rates))


@pytest.mark.parametrize("wrong", [{"replicas": 4, "max_replicas": 3}, {"floor": 0.0}, {"floor": 1.1}, {"never": 1}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="1 validation error"):
        adaptive.Settings(**wrong)  # type: ignore[arg-type]
