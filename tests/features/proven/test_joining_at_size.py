"""Joining beside a flood of 200 networks, with eight tasks a round, on the service's own stages."""

import math
from collections.abc import Callable, Sequence

from sqlalchemy import inspect, select

from gradmarket.market.signing import address_of
from gradmarket.market.terms import JobState
from requester.store import earned_rows, newcomers
from requester.store.tables import Account, Job, Replica, Worker
from tests.features.proven.test_joining import join
from tests.features.proven.test_proven import open_job, prove
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.market_workers import SimWorker, key_of

NewMarket = Callable[..., MarketFixture]
NETWORKS = 200
TASKS = 8
VOTES = 3
ROUNDS = 40
PASSES = 40
"""A round that takes more of them stands still: votes take three, a left place a lease of ten, and audits one."""
FOR_EVER = 4e9


def open_flooded(new_market: NewMarket, networks: int) -> tuple[MarketFixture, SimAuditor, list[str]]:
    """A job that takes stakes and pays for all votes, with six proven workers; the flood asks first, and for ever.

    A flood's identity takes each place that it gets, and never answers.
    """
    stake = {"validators": ["0x" + "11" * 20], "threshold": 1, "bond": str(PRICE)}
    votes = {"replicas": VOTES, "audit": 1e-9}
    market, auditor = open_job(new_market, tasks_per_round=TASKS, rounds=ROUNDS, stake=stake, replication=votes)
    prove(market, *(market.worker() for _ in range(2 * VOTES)))
    market.gather()
    names = [address_of(key_of(f"flood {number}")) for number in range(networks)]
    with market.context.begin() as work:
        work.get_one(Job, market.job).deposited = ROUNDS * TASKS * VOTES * PRICE
        for worker in market.workers:
            work.get_one(Worker, worker.address).accepted_at = market.clock()
        row = work.get_one(Worker, market.workers[0].address)
        kept = {column.key: getattr(row, column.key) for column in inspect(Worker).column_attrs}
        kept |= {"accepted_at": None, "asking_until": FOR_EVER, "seen_at": FOR_EVER, "capacity": 1, "fence": 0}
        for name in names:
            work.add(Worker(**kept | {"address": name, "payout": name, "operator": name, "network": name}))
    reserve(market)
    return market, auditor, names


def reserve(market: MarketFixture) -> None:
    """Reserves as the `settle` stage does, by the rule."""
    with market.context.begin() as work:
        for address in newcomers.next_covered(work, work.get_one(Job, market.job), market.clock()):
            earned_rows.load_or_create_account(work, market.job, address).reserved += PRICE


def join_deposit(market: MarketFixture) -> SimWorker:
    """A newcomer with sixteen prices at risk."""
    worker = join(market, "a deposit's")
    with market.context.begin() as work:
        work.get_one(Account, (market.job, worker.address)).at_risk = 16 * PRICE
    return worker


def play_until_paid(market: MarketFixture, auditor: SimAuditor, most: int, *workers: SimWorker) -> int:
    """Plays until the workers are paid; returns the rounds that this took, and raises where it takes over `most`."""
    since, passes = len(market.rounds()), 0
    while not {one.address for one in workers} <= set(market.earned()):
        number, passes = len(market.rounds()), passes + 1
        assert number - since < most, market.why_waiting()
        reserve(market)
        market.take_turns()
        market.lapse(2.0)
        auditor.work()
        assert market.state() == JobState.RUNNING
        passes = 0 if len(market.rounds()) > number else passes
        assert passes < PASSES, f"round {number - 1} stands still: {market.why_waiting()}"
    return len(market.rounds()) - since + 1


def sum_held(market: MarketFixture, flood: Sequence[str]) -> int:
    with market.reading() as reader:
        rows = reader.session.scalars(select(Account).where(Account.job_id == market.job)).all()
        return sum(row.reserved for row in rows if row.worker in set(flood)) // PRICE


def count_prices() -> int:
    """A quarter of the deposit is for newcomers."""
    return ROUNDS * TASKS * VOTES // 4


@FULL
def test_a_newcomer_with_a_deposit_is_paid_within_three_rounds_beside_a_flood_of_200_networks(
    new_market: NewMarket,
) -> None:
    """Newcomers have one seat by turn a round, and every second is a deposit's: each of three waits for two on average.

    The seats are drawn by the fixture's secret, the same in each run. No round stands still meanwhile: five networks
    are tried in each, so all 200 in forty. The flood holds a price for each place that it had, at most eight a round,
    and for 16 that were due while few proven ones had room: less than half of the money, whose other half is kept.
    """
    market, auditor, flood = open_flooded(new_market, NETWORKS)
    begun, took = len(market.rounds()), []
    for _ in range(3):
        took.append(play_until_paid(market, auditor, 6, join_deposit(market)))
    assert sum(took) / len(took) <= 3
    rounds = len(market.rounds()) - begun + 1
    tried = {row.worker for row in market.all(Replica)} & set(flood)
    assert len(tried) >= 5 * (rounds - 1)
    assert len(tried) <= sum_held(market, flood) <= min(count_prices() // 2, 2 * TASKS + TASKS * rounds)
    check_books(market)


@FULL
def test_a_newcomer_without_a_deposit_is_paid_beside_a_flood_once_each_network_was_tried(
    new_market: NewMarket,
) -> None:
    """Four of eight tasks try a network that was not tried yet, the next four are due: (k + 2) / 8 rounds on average.

    It is paid in the last of (k + 1) / 4 rounds at the latest.
    """
    networks = 48
    market, auditor, _ = open_flooded(new_market, networks)
    play_until_paid(market, auditor, math.ceil((networks + 1) / 4) + 1, join(market, "its own"))
    check_books(market)
