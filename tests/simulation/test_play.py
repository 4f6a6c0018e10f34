"""Attacks in a market in miniature: under these rules they gain nothing, under BOINC's a sleeper gains half."""

import random
from collections import deque
from fractions import Fraction
from functools import cache

import pytest
from pydantic import ValidationError

from gradmarket.market.terms import Plan
from gradmarket.simulation.checks import Boinc, Checks, build_checks
from gradmarket.simulation.play import Play
from gradmarket.simulation.play_outcome import PlayOutcome
from gradmarket.simulation.scenario import Scenario
from gradmarket.simulation.simulated_market import SimulatedOperator
from gradmarket.trust.collusion import ColludingPool, compute_odds
from tests.lanes import FULL

PROVEN = 200.0


@cache
def played(kind: str, share: float, tasks: int, **more: float | str) -> PlayOutcome:
    scenario = Scenario.model_validate({"workers": 60, "tasks": tasks, "mix": {kind: share}, "seed": 4, **more})
    return Play(scenario).run()


def test_a_play_is_repeated_to_the_last_decision() -> None:
    scenario = Scenario(workers=40, tasks=400, mix={"lone": 0.2, "colluder": 0.1, "staller": 0.1}, stay_s=900.0)
    assert Play(scenario).run().as_json() == Play(scenario).run().as_json()
    assert Play(scenario.model_copy(update={"seed": 1})).run().as_json() != Play(scenario).run().as_json()


@FULL
def test_a_sleeper_gains_nothing_here_and_a_third_and_more_under_boinc_s_rule() -> None:
    """The same seeded play under both rules. Sleepers are drawn as others' seconds too, which checks them more."""
    theirs = played("sleeper", 0.1, 6000, policy="boinc").kinds["sleeper"]
    ours = played("sleeper", 0.1, 6000, policy="adaptive", history=PROVEN)
    assert theirs.lies_accepted / theirs.paid > 0.3
    assert theirs.gain > 0
    assert ours.never_caught == 0 < ours.kinds["sleeper"].lies_accepted
    assert ours.kinds["sleeper"].gain < 0


def one_sleeper(rule: Checks, stake: float) -> tuple[int, int, float]:
    """(accepted, wrong of them, gain) of a host that lies once it is trusted and is checked by honest ones alone."""
    chance, sleeper = random.Random(8), SimulatedOperator(stake, deque())
    accepted = wrong = 0
    for second in range(20_000):
        hoped = rule.plan(sleeper, float(second), 1.0)
        lies = hoped.first_wave == 1 and hoped.audit <= rule.floor
        plan = rule.plan(sleeper, float(second), chance.random())
        if plan.first_wave > 1:
            rule.voted(sleeper, not lies, plan.first_wave, float(second))
            accepted += not lies
            continue
        accepted, wrong = accepted + 1, wrong + lies
        if chance.random() < plan.audit:
            rule.audited([sleeper], not lies, float(second))
            if lies:
                return accepted, wrong, wrong - sleeper.stake
    return accepted, wrong, float(wrong)


def test_alone_it_has_47_percent_wrong_under_boinc_s_rule_for_ever_and_here_it_loses_its_stake() -> None:
    accepted, wrong, gain = one_sleeper(Boinc(), 0.0)
    assert wrong / accepted == pytest.approx(9 / 19, abs=0.02)
    assert gain == wrong > 8000
    accepted, wrong, gain = one_sleeper(build_checks("adaptive", {}), 65.0)
    assert accepted > 141, "it was honest, and audited, as long as that"
    assert wrong < 59
    assert gain < 0


def test_rational_workers_stay_honest_and_checking_costs_a_twentieth() -> None:
    outcome = played("rational", 0.2, 4000, history=PROVEN)
    assert outcome.lies == 0
    assert outcome.cost == pytest.approx(1.05, abs=0.012)


def test_rational_workers_lie_where_nothing_is_at_risk() -> None:
    settings = {"workers": 60, "tasks": 1000, "mix": {"rational": 0.2}, "policy": "audited", "stake": 0.0}
    outcome = Play(Scenario.model_validate(settings | {"settings": {"audit": 0.05}})).run()
    assert outcome.lies > 0
    assert outcome.kinds["rational"].gain > 0


def test_a_burst_of_lies_is_covered_by_the_stake() -> None:
    """Liars that answer at once, to have many accepted before one is audited: each loses more than it gains."""
    burst = played("burster", 0.2, 3000, history=PROVEN).kinds["burster"]
    assert burst.lies_accepted > 0
    assert burst.gain < 0


def test_newcomers_that_lie_are_caught_at_once_and_pay_a_stake_each_time() -> None:
    sybil = played("sybil", 0.1, 2000).kinds["sybil"]
    assert sybil.workers > 12
    assert sybil.lies_caught >= 0.98 * sybil.lies_accepted
    assert sybil.gain < -10 * sybil.lies_accepted


VOTES: dict[str, float | str] = {"stake": 0.0, "open_tasks": 10}


def predicted() -> float:
    """Six of sixty that act as one, two places of three."""
    return float(compute_odds(Plan(3, 2, 5), ColludingPool(Fraction(1, 10), 60)).wrong)


@FULL
def test_polling_ten_times_as_often_holds_no_more_quorums_than_a_tenth_of_the_market_does() -> None:
    outcome = played("poller", 0.1, 2500, **VOTES)
    assert outcome.seats["poller"] / sum(outcome.seats.values()) == pytest.approx(0.1, abs=0.012)
    expected = predicted() * outcome.votes
    assert abs(outcome.kinds["poller"].quorums_held - expected) < 4 * expected**0.5


@FULL
def test_declining_until_friends_meet_gains_nothing() -> None:
    decliners = played("decliner", 0.1, 1500, **VOTES)
    pollers = played("poller", 0.1, 2500, **VOTES)
    assert decliners.kinds["decliner"].quorums_held <= pollers.kinds["poller"].quorums_held
    found = decliners.kinds["decliner"]
    assert found.replicas <= 6 * 5 + found.lies, "five strikes each"


@FULL
def test_stalling_siblings_wins_nothing_and_ends_with_a_suspension() -> None:
    outcome = played("staller", 0.1, 1500, **VOTES)
    assert outcome.kinds["staller"].paid == 0
    assert outcome.kinds["staller"].replicas == 6 * 5
    assert outcome.kinds["honest"].paid == 3 * outcome.tasks


@FULL
def test_a_silent_quorum_is_seen_by_audits_alone() -> None:
    unseen = played("colluder", 0.3, 800, policy="fixed", **VOTES)
    seen = played("colluder", 0.3, 800, **VOTES)
    assert unseen.never_caught == unseen.kinds["colluder"].lies_accepted > 200
    assert seen.never_caught < 0.2 * unseen.never_caught


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"mix": {"nobody": 0.1}}, "no strategy nobody"),
        ({"mix": {"lone": 0.7, "sybil": 0.7}}, "together at most 1"),
        ({"mix": {"lone": -0.1}}, "not negative"),
        ({"workers": 1}, "greater than or equal to 2"),
        ({"speed": 3}, "Extra inputs"),
    ],
)
def test_a_scenario_that_makes_no_sense_is_refused(wrong: dict[str, object], match: str) -> None:
    with pytest.raises(ValidationError, match=match):
        Scenario.model_validate(wrong)
