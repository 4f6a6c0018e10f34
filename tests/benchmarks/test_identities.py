"""The simulation of free identities against formulas that it does not use, and against a second implementation's table.

That one is of the proposal that the rules come from (60 workers, 8 tasks, 200 rounds, 30 %, ten seeds).
"""

from dataclasses import replace
from statistics import mean
from typing import Any

import pytest

from gradmarket.market.features.proven import seat_rules
from gradmarket.market.rules.replication import proven
from gradmarket.trust.free_identities import (
    ADVERSARIES,
    Adversary,
    RingMarket,
    RingOutcome,
    Rules,
    count_rounds_until_paid,
    play,
    play_majority,
)
from tests.lanes import FULL, leave_to_full

MARKET = RingMarket(60, 8)
SEEDS = range(4)


def played(name: str, rules: Rules = Rules(), share: float = 0.3, market: RingMarket = MARKET) -> list[RingOutcome]:  # noqa: B008
    return [play(market, share, ADVERSARIES[name], rules, seed) for seed in SEEDS]


def wrong(outcomes: list[RingOutcome]) -> float:
    return 100 * mean(each.wrong_share for each in outcomes)


def test_a_plain_vote_is_wrong_as_often_as_a_ring_holds_two_of_three() -> None:
    """18 of 60: hypergeometric, (C(18,2) 42 + C(18,3)) / C(60,3) = 21.2 %."""
    outcomes = [play_majority(MARKET, 0.3, ADVERSARIES["quorum"], seed) for seed in SEEDS]
    assert wrong(outcomes) == pytest.approx(21.2, abs=1.5)
    assert mean(each.unpaid_share for each in outcomes) == pytest.approx(0.0877, abs=0.01)


def test_sharing_is_paid_by_the_formula() -> None:
    rare = Rules(rate=0.0, closing=0)
    pay = mean(each.pay for each in played("honest", rare, market=RingMarket(300, 100, 200)))
    assert pay == pytest.approx(3 * 0.3 / (1 - 0.7**3), rel=0.03)


def test_without_audits_a_ring_that_holds_all_three_is_always_believed() -> None:
    """f^3 of the voted tasks, seven of eight, of a crew that is drawn anew."""
    bare = Rules(rate=0.0, closing=0, newcomers=0.0)
    outcomes = played("unanimous", bare, market=RingMarket(60, 20, 100))
    assert wrong(outcomes) == pytest.approx(100 * 18 * 17 * 16 / (60 * 59 * 58), rel=0.25)


def test_each_lie_is_caught_with_the_rate_of_audits() -> None:
    """Of a ring that lies once and leaves, nothing but the draw finds a lie."""
    seldom, often = (wrong(played("once_and_leave", replace(Rules(), rate=rate, closing=0))) for rate in (0.0, 0.5))
    assert often < 0.75 * seldom


@pytest.mark.parametrize(
    ("name", "most", "computations"),
    leave_to_full(
        [
            ("unanimous", 1.3, 3.23),
            ("quorum", 0.02, 3.07),
            ("always", 0.03, 3.07),
            ("once_and_leave", 0.5, 3.11),
            ("flood", 1.2, 2.84),  # 3.16 before untried newcomers, whose tasks cost two, had places of their own
            ("late", 0.2, 3.23),
            ("dissent", 0.0, 3.07),
        ]
    ),
)
def test_the_table_of_the_proposal_is_found_again(name: str, most: float, computations: float) -> None:
    """There a conviction takes back two rounds, and votes go on."""
    outcomes = played(name, Rules(window=2, alert=0))
    assert wrong(outcomes) <= most
    assert mean(each.computations for each in outcomes) == pytest.approx(computations, abs=0.06)


@pytest.mark.parametrize(("tasks", "left"), [(8, 0.75), (40, 1.0)])
def test_audits_of_all_rounds_that_are_not_final_find_more_lies_of_a_ring(tasks: int, left: float) -> None:
    """20 rounds of 8 tasks, three of 40: both make the job compute at most 3.7 times for a right task."""
    few, many = (played("patient", Rules(window=window, alert=0), market=RingMarket(60, tasks)) for window in (2, None))
    assert wrong(many) < left * wrong(few)
    assert max(mean(each.computations for each in outcomes) for outcomes in (few, many)) <= 3.75


@pytest.mark.parametrize("tasks", [8, 40])
def test_answers_alone_after_an_accepted_lie_leave_fewer_lies_and_cost_less(tasks: int) -> None:
    votes, alone = (played("patient", Rules(alert=alert), market=RingMarket(60, tasks)) for alert in (0, proven.ALERT))
    assert wrong(alone) < wrong(votes)
    assert mean(each.computations for each in alone) < mean(each.computations for each in votes)


@pytest.mark.parametrize("rounds", [10, 20, 30, 50])
def test_a_short_job_costs_no_more_than_a_long_one(rounds: int) -> None:
    """A vote and its audits, and in the last two rounds one answer and its audit."""
    rules = Rules(rate=proven.compute_audit_rate(3, rounds))
    market = RingMarket(60, 48, rounds)
    honest = mean(each.computations for each in played("honest", rules, market=market))
    assert honest == pytest.approx((3 + rules.rate) * (1 - 2 / rounds) + 2 * 2 / rounds, abs=0.02)
    assert honest <= 3.25
    for lie in ("unanimous", "patient", "late", "once_and_leave"):
        outcomes = played(lie, rules, market=market)
        assert wrong(outcomes) <= 1.0
        assert mean(each.computations for each in outcomes) <= 3.7


def test_honest_work_is_always_paid_and_what_is_not_lied_about_is_right() -> None:
    outcomes = [outcome for name in ADVERSARIES for outcome in played(name, market=RingMarket(12, 8, 40))[:1]]
    assert {each.honest_unpaid for each in outcomes} == {0}
    honest = played("honest", market=RingMarket(12, 8, 40))
    assert [(each.wrong, each.seat_pay, each.again) for each in honest] == [(0, 1.0, 0)] * len(honest)


def test_a_lone_wrong_answer_bars_nobody() -> None:
    """It costs the standing: its operator works alone again, and none of its pay is burnt."""
    erring = Adversary(lambda now: now.held == 1 and now.round == 5)
    outcome = play(MARKET, 1 / 60, erring, Rules(), 0)
    assert outcome.ring_paid in (outcome.ring_seats, outcome.ring_seats - 1)


def test_newcomers_are_paid_in_the_first_round_while_there_are_places() -> None:
    assert max(count_rounds_until_paid(RingMarket(60, 40), Rules(), 5, 0, 1, 0)) == 1
    assert max(count_rounds_until_paid(MARKET, Rules(), 5, 0, 1, 0)) == 1
    assert max(count_rounds_until_paid(MARKET, Rules(), 6, 0, 1, 0)) > 1


def count_mean_rounds(networks: int, tasks: int = 8, **how: Any) -> float:
    market = RingMarket(60, tasks)
    return mean(count_rounds_until_paid(market, Rules(), 1, 600, networks, seed, **how)[0] for seed in range(20))


@pytest.mark.parametrize(("networks", "tasks"), leave_to_full([(16, 8), (64, 8), (64, 40)]))
@pytest.mark.parametrize("habit", ["works", "leaves"])
def test_beside_a_flood_of_k_networks_an_untried_newcomer_waits_k_and_two_by_the_tasks(
    networks: int, tasks: int, habit: str
) -> None:
    """Half of a round's tasks are drawn among k + 1 networks: the mean of the draws is (k + 2) / 2."""
    expected = (networks + 2) / tasks
    assert 0.6 * expected <= count_mean_rounds(networks, tasks, habit=habit) <= expected + 1.5


@pytest.mark.parametrize(("deposit", "most"), [(False, 25.0), (True, 1.0)])
def test_a_flood_that_hoards_money_and_asks_no_more_delays_none_but_by_its_half(deposit: bool, most: float) -> None:
    """In a job of 40 rounds half of the money for newcomers is 120 prices, and three more are open each round.

    200 networks had the half before it came: it is one of 81 that are drawn for those three, 14 rounds on average.
    """
    market = RingMarket(60, 8, 40)
    paid = [count_rounds_until_paid(market, Rules(), 1, 200, 200, seed, deposit, "hoards")[0] for seed in range(12)]
    assert mean(paid) <= most
    assert deposit or mean(paid) >= 5.0


@FULL
def test_a_deposit_passes_a_flood_that_has_none() -> None:
    """Half of the seats that go to nobody in particular are those of deposits."""
    assert count_mean_rounds(64, deposit=True) <= 4.0 < count_mean_rounds(64)


@pytest.mark.parametrize("name", leave_to_full(["unanimous", "flood", "roaming"]))
def test_a_ring_that_comes_back_as_untried_gains_little(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An untried identity gets one answer of sixteen beyond the share."""
    untried = [play(MARKET, 0.3, ADVERSARIES[name], Rules(), seed) for seed in range(20)]
    monkeypatch.setattr(seat_rules, "count_untried_tasks", lambda *_: 0)
    without = [play(MARKET, 0.3, ADVERSARIES[name], Rules(), seed) for seed in range(20)]
    assert wrong(untried) <= min(1.0, 1.25 * wrong(without))
