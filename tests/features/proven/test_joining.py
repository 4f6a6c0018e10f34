"""How newcomers come to their first pay in a job of `proven`: the queue, its floods and its deposits."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import inspect

from gradmarket.market.features.proven import seat_rules
from gradmarket.market.features.proven.seat_rules import Newcomer
from gradmarket.market.rules import newcomers as rule
from gradmarket.market.rules.assignment import Party
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, ReplicaState, Units
from gradmarket.market.wire.poll import FaultKind, LeaseReturn, StepFault
from requester.features import reputation as reputations
from requester.features.proven import seats
from requester.store import newcomers, workers
from requester.store.tables import Account, Job, Replica, Worker
from tests.databases import BOTH
from tests.features.proven.test_proven import open_job, prove
from tests.kit.behaviour import HONEST, NOISE, Behaviour
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_auditor import SimAuditor
from tests.requester.market_fixture import CLASS, DEADLINES, PRICE, MarketFixture
from tests.requester.market_workers import SimWorker, key_of

NewMarket = Callable[..., MarketFixture]
STAKES = {"validators": ["0x" + "11" * 20], "threshold": 1, "bond": str(PRICE)}


def open_proven(new_market: NewMarket, **spec: Any) -> tuple[MarketFixture, SimAuditor]:
    """Returns a market with two proven workers, which vote by two: newcomers get one of a round's two tasks."""
    votes = {"replicas": 2, "audit": 1e-9}
    market, auditor = open_job(new_market, tasks_per_round=2, replication=votes, **spec)
    both = [market.worker() for _ in range(2)]
    prove(market, *both)
    with market.context.begin() as work:
        for one in both:
            work.get_one(Worker, one.address).determinism_class = CLASS  # as its first poll sets it
    return market, auditor


def join(market: MarketFixture, network: str, behaviour: Behaviour = HONEST, reserved: int = 0) -> SimWorker:
    """A newcomer of a network for which `reserved` units are reserved."""
    market.clock.now += 0.1
    worker = market.worker(behaviour, reserved=reserved)
    with market.context.begin() as work:
        work.get_one(Worker, worker.address).network = network
    return worker


def reserve(market: MarketFixture) -> list[str]:
    """Reserves as the `settle` stage does, by the rule."""
    with market.context.begin() as work:
        due = newcomers.next_covered(work, work.get_one(Job, market.job), market.clock())
        for address in due:
            account = work.get_one(Account, (market.job, address))
            account.reserved, account.reserved_at = account.reserved + PRICE, market.clock()
    return list(due)


def join_at_once(market: MarketFixture, like: SimWorker, count: int) -> set[str]:
    """Further newcomers that ask as this one does, each of a payout address and a network of its own."""
    names = [address_of(key_of(f"flood {number}")) for number in range(count)]
    with market.context.begin() as work:
        row = work.get_one(Worker, like.address)
        kept = {column.key: getattr(row, column.key) for column in inspect(Worker).column_attrs}
        for name in names:
            work.add(Worker(**kept | {"address": name, "payout": name, "operator": name, "network": name}))
    return set(names)


def prove_operators(market: MarketFixture, *operators: Address) -> None:
    with market.context.begin() as work:
        cost = reputations.compute_cost(work.get_one(Job, market.job))
        for _ in range(16):
            passed = [(operator, CLASS, cost) for operator in operators]
            reputations.record_passed_audits(work, passed, market.clock())


def list_due(market: MarketFixture) -> list[str]:
    with market.reading() as reader:
        return list(newcomers.next_covered(reader, reader.get_one(Job, market.job), market.clock()))


def play(market: MarketFixture, auditor: SimAuditor, rounds: int, *, done: Callable[[], object] = bool) -> None:
    for _ in range(60 * rounds):
        if done() or len(market.rounds()) > rounds:
            return
        reserve(market)
        market.take_turns()
        market.lapse(1.0)
        auditor.work()
    raise AssertionError("the rounds never came")


@FULL
def test_a_newcomer_is_paid_within_ten_rounds_beside_a_flood_of_two_networks(new_market: NewMarket) -> None:
    """All of the flood were there before it, lie always and ask always: money and turns go over networks."""
    market, auditor = open_proven(new_market, rounds=12)
    flood = [join(market, f"network {number % 2}", NOISE) for number in range(5)]
    market.gather()
    honest = join(market, "its own")
    play(market, auditor, rounds=11, done=lambda: honest.address in market.earned())
    assert len(market.rounds()) <= 10
    assert not set(market.earned()) & {worker.address for worker in flood}
    check_books(market)


@FULL
@pytest.mark.parametrize("networks", [3, 8, 16])
def test_a_newcomer_is_paid_within_ten_rounds_beside_leavers_of_any_networks(
    new_market: NewMarket, networks: int
) -> None:
    """Fresh identities take places and answer nothing; each is replaced at once. It comes after they have begun."""
    market, auditor = open_proven(new_market, rounds=40)

    def join_absent(number: int) -> SimWorker:
        market.workers.remove(leaver := join(market, f"network {number}"))
        return leaver

    leavers, gone = [join_absent(number) for number in range(networks)], 0
    honest, since = None, 0
    for _ in range(600):
        if honest is None and gone == networks:
            honest, since = join(market, "its own"), len(market.rounds())
        if honest is not None and honest.address in market.earned():
            break
        reserve(market)
        for number, leaver in enumerate(leavers):
            leaver.request_work()
            if market.replicas(leaver):
                leavers[number], gone = join_absent(number), gone + 1
        market.take_turns()
        market.lapse(2.0)
        auditor.work()
    assert honest is not None
    assert honest.address in market.earned()
    assert len(market.rounds()) - since <= 10
    check_books(market)


@FULL
@pytest.mark.parametrize("networks", [4, 16])
def test_a_newcomer_is_paid_within_ten_rounds_behind_a_line_of_leavers(new_market: NewMarket, networks: int) -> None:
    """All of them asked before it, each from a network of its own: several are tried in a round."""
    market, auditor = open_job(new_market, tasks_per_round=8, rounds=40, replication={"replicas": 2, "audit": 1e-9})
    prove(market, *(market.worker() for _ in range(4)))
    line = [join(market, f"network {number}") for number in range(networks)]
    honest = join(market, "its own")
    for leaver in line:
        market.workers.remove(leaver)
    for _ in range(600):
        if honest.address in market.earned() or len(market.rounds()) > 10:
            break
        reserve(market)
        for leaver in line:
            if not market.replicas(leaver):
                leaver.request_work()
        market.take_turns()
        market.lapse(2.0)
        auditor.work()
    assert honest.address in market.earned()
    assert len(market.rounds()) <= 10
    assert all(market.replicas(leaver) for leaver in line), "nobody is passed over"
    check_books(market)


@pytest.mark.parametrize("late", [False, True])
def test_untried_networks_have_half_of_a_round_while_audits_are_in_time(
    new_market: NewMarket, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve networks of two wallets each asked before it and work: it waits (12 + 2) / 8 rounds on average."""
    market, auditor = open_job(new_market, tasks_per_round=8, rounds=40, replication={"replicas": 2, "audit": 1e-9})
    prove(market, *(market.worker() for _ in range(4)))
    monkeypatch.setattr(seat_rules, "is_auditor_outgrown", lambda *_: late)
    flood = [join(market, f"network {number % 12}", reserved=PRICE) for number in range(24)]
    honest = join(market, "its own")

    def has_seats() -> bool:
        return bool(market.replicas(honest)) if not late else len(market.rounds()) > 2

    play(market, auditor, rounds=6, done=has_seats)
    first = [worker for worker in flood if any(row.task_id.split("-")[1] == "0" for row in market.replicas(worker))]
    assert (len(first) > 1) is not late
    networks = {row.network for one in first for row in market.all(Worker, Worker.address == one.address)}
    assert len(networks) == len(first)
    check_books(market)


def test_a_leaver_that_names_the_payout_address_of_another_pauses_nobody_of_it(new_market: NewMarket) -> None:
    market, _ = open_proven(new_market, rounds=40)
    honest, leaver = join(market, "its own"), market.worker(payout=address_of(key_of("payout")))
    with market.context.begin() as work:
        work.get_one(Worker, honest.address).payout = address_of(key_of("payout"))
        work.get_one(Worker, leaver.address).network = "elsewhere"
    proven = market.workers[:2]
    for _ in range(60):
        leaver.request_work()
        if market.replicas(leaver):
            break
        market.take_turns(*proven)
        market.lapse(2.0)
    market.lapse(DEADLINES["lease_s"] + 1.0)
    with market.reading() as reader:
        left = seats.list_left_places(reader, reader.get_one(Job, market.job), 0.0)
        mine, its = (workers.build_party(reader.get_one(Worker, one.address)) for one in (honest, leaver))
    assert mine.payout == its.payout
    assert seat_rules.find_pausing_place(mine, left) is None
    assert seat_rules.find_pausing_place(its, left) == left[0]


def test_no_more_money_is_reserved_than_newcomers_have_turns(new_market: NewMarket) -> None:
    market, _ = open_proven(new_market)
    for number in range(6):
        join(market, f"network {number}", NOISE)
    market.gather()
    assert len(reserve(market)) == 2
    market.gather()
    assert len(reserve(market)) <= 1, "who has a seat has left the queue"


@pytest.mark.parametrize("at_risk", [0, 16 * PRICE])
def test_liars_of_one_network_leave_half_of_the_money_to_other_networks(new_market: NewMarket, at_risk: int) -> None:
    """Each lied once and holds its reservation until the job's claims end: four of them would stop all who join."""
    market, _ = open_proven(new_market)
    for _ in range(2):
        join(market, "one network", NOISE, reserved=PRICE)
    near, far = join(market, "one network"), join(market, "another network")
    allow_newcomers(market, 8)
    with market.context.begin() as work:
        work.get_one(Account, (market.job, near.address)).at_risk = at_risk
    market.gather(near, far)
    due = set(list_due(market)) & {near.address, far.address}
    assert due == ({near.address, far.address} if at_risk else {far.address})
    words = (
        "newcomers of its network hold 2 reservations, and no more are left for others: it gets one as these are paid"
    )
    assert (words in near.waiting) is (at_risk == 0)
    assert words not in far.waiting


def allow_newcomers(market: MarketFixture, prices: int) -> None:
    """Deposits as much as lets newcomers hold this many prices; the proven two have delivered elsewhere."""
    with market.context.begin() as work:
        work.get_one(Job, market.job).deposited = rule.SHARE * prices * PRICE
        for worker in market.workers[:2]:
            work.get_one(Worker, worker.address).accepted_at = market.clock()


@BOTH
def test_newcomers_of_a_dear_job_are_funded(new_market: NewMarket) -> None:
    """A token an answer: a deposit of 16 prices is over 2^31 units."""
    market, _ = open_proven(new_market, rounds=40)
    newcomer = join(market, "its own")
    market.gather(newcomer)
    with market.context.begin() as work:
        job = work.get_one(Job, market.job)
        job.price, job.deposited = Units(10**9), Units(10**12)
    assert newcomer.address in list_due(market)


def test_half_of_the_money_is_kept_no_longer_where_no_deposit_can_have_it_and_rounds_stand_still(
    new_market: NewMarket,
) -> None:
    """Newcomers of a first round that were funded are gone, as after an outage; no proven one goes on without them."""
    market, _ = start_behind_leavers(new_market)
    team = [join(market, f"its own {number}") for number in range(2)]
    market.gather(*team)
    assert not list_due(market)
    market.lapse(rule.compute_watched_s(DEADLINES["lease_s"]))
    market.gather(*team)
    assert set(list_due(market)) == {one.address for one in team}


def start_behind_leavers(new_market: NewMarket, **spec: Any) -> tuple[MarketFixture, SimAuditor]:
    """A job without proven workers: four that are gone hold half of its eight prices for newcomers."""
    votes = {"replicas": 2, "audit": 1e-9}
    market, auditor = open_job(new_market, tasks_per_round=2, rounds=40, replication=votes, **spec)
    with market.context.begin() as work:
        work.get_one(Job, market.job).deposited = rule.SHARE * 8 * PRICE
    for number in range(4):
        join(market, f"network {number}", reserved=PRICE)
    return market, auditor


def test_a_job_with_stakes_goes_on_behind_leavers_by_one_newcomer_each_twenty_leases(new_market: NewMarket) -> None:
    """Four free wallets would stop it for good; what deposits find kept shrinks by one price each time."""
    market, auditor = start_behind_leavers(new_market, stake=STAKES)
    team = [join(market, f"its own {number}") for number in range(3)]
    watched_s = rule.compute_watched_s(DEADLINES["lease_s"])
    for number in range(3):
        market.gather(*team)
        assert list_due(market) == []
        if not number:
            words = "newcomers without a deposit hold 4 of 8 reservations for newcomers: another one gets its own in "
            command = f", one with a stake at once (gradmarket wallet stake {market.job} {16 * PRICE})"
            assert words in market.why_waiting()
            assert market.why_waiting().endswith(command)
        market.lapse(watched_s)
        auditor.work()
        market.gather(*team)
        assert len(reserve(market)) == 1


def test_a_stake_that_is_withdrawn_lengthens_the_wait_that_the_job_names(new_market: NewMarket) -> None:
    """Its price stays reserved, so that those without one hold six of eight: three times twenty leases open one."""
    market, auditor = start_behind_leavers(new_market, stake=STAKES)
    for number in range(2):
        join(market, f"withdrawn {number}", reserved=PRICE)
    newcomer = join(market, "its own")
    market.lapse(workers.LIVE_S + 1.0)
    market.gather(newcomer)
    left_s = market.rounds()[0].opened_at + 3 * rule.compute_watched_s(DEADLINES["lease_s"]) - market.clock()
    assert f"another one gets its own in {left_s / 60:.0f} min, one with a stake at once" in market.why_waiting()
    assert f"rounds pass, or in {left_s / 60:.0f} min" in newcomer.waiting
    market.lapse(left_s - 2.0)
    auditor.work()
    market.gather(newcomer)
    assert list_due(market) == []
    market.lapse(3.0)
    market.gather(newcomer)
    assert list_due(market) == [newcomer.address]


@pytest.mark.parametrize(("staked", "at_risk"), [(False, 0), (True, 0), (True, 16 * PRICE)])
def test_where_newcomers_hold_all_of_their_money_the_job_names_the_least_funds(
    new_market: NewMarket, staked: bool, at_risk: int
) -> None:
    """No stake gives a further one its own sooner than the time after which a job that stands reserves for one more."""
    market, auditor = start_behind_leavers(new_market, **({"stake": STAKES} if staked else {}))
    for number in range(4):
        join(market, f"network {4 + number}", reserved=PRICE)
    newcomer = join(market, "its own")
    with market.context.begin() as work:
        work.get_one(Account, (market.job, newcomer.address)).at_risk = at_risk
    market.lapse(10.0)
    auditor.work()
    market.gather(newcomer)
    assert list_due(market) == []
    watched_s = rule.compute_watched_s(DEADLINES["lease_s"])
    until = [market.rounds()[0].opened_at + times * watched_s - market.clock() for times in (4 if staked else 1, 1)]
    words, (job_s, own_s) = "newcomers hold all 8 reservations for newcomers", until
    rest = f"{(own_s if at_risk else job_s) / 60:.0f} min"
    assert newcomer.waiting.endswith(
        f"{words}: it gets one as others are paid or the job is funded, or in {rest}, "
        "and it is at place 1 of 1 newcomers"
    )
    assert f"{words}: another one gets its own in {job_s / 60:.0f} min, one at once after" in market.why_waiting()
    missing = 4 * 9 * PRICE  # to 17 prices, of which 8 are kept from those without a deposit
    assert market.why_waiting().endswith(f"gradmarket job fund {market.job} {missing}")
    funds = 4 * PRICE if at_risk else missing
    for added, due in ((funds - 1, []), (1, [newcomer.address])):
        with market.context.begin() as work:
            work.get_one(Job, market.job).deposited += added
        assert list_due(market) == due


@pytest.mark.parametrize("staked", [False, True])
def test_leavers_that_take_each_price_stop_no_job_for_good(new_market: NewMarket, staked: bool) -> None:
    """Eight that are gone hold all: each twenty leases one more is reserved, in turn, whoever comes later."""
    market, auditor = start_behind_leavers(new_market, **({"stake": STAKES} if staked else {}))
    for number in range(4):
        join(market, f"network {4 + number}", reserved=PRICE)
    leaver, newcomer = join(market, "leaver"), join(market, "its own")
    funded = list[str]()
    for number in range(12):
        late = join(market, f"late {number}")
        market.lapse(rule.compute_watched_s(DEADLINES["lease_s"]))
        auditor.work()
        market.gather(leaver, newcomer, late)
        due = reserve(market)
        assert len(due) <= 1
        funded += due
        market.gather(leaver, newcomer, late)
        assert reserve(market) == [], "one each twenty leases"
        if newcomer.address in funded:
            break
    assert funded == [leaver.address, newcomer.address]


@pytest.mark.parametrize("asking", [False, True])
@pytest.mark.parametrize(("at_risk", "holding", "funded"), [(0, 4, False), (0, 3, True), (16 * PRICE, 4, True)])
def test_newcomers_without_a_deposit_leave_half_of_the_money_to_deposits(
    new_market: NewMarket, at_risk: int, holding: int, funded: bool, asking: bool
) -> None:
    """Four of eight prices: each is of a network of its own, never delivered, and is gone or asks and works."""
    market, _ = open_proven(new_market, rounds=40)
    allow_newcomers(market, 8)
    others = [join(market, f"network {number}", reserved=PRICE) for number in range(holding)]
    newcomer = join(market, "its own")
    with market.context.begin() as work:
        work.get_one(Account, (market.job, newcomer.address)).at_risk = at_risk
    market.gather(*(others if asking else ()), newcomer)
    assert (newcomer.address in list_due(market)) is funded
    words = "newcomers without a deposit hold 4 of 8 reservations for newcomers: it gets one of those left"
    assert asking or (words in newcomer.waiting) is not funded


def test_six_that_come_first_hold_no_more_than_half_of_the_money(new_market: NewMarket) -> None:
    """Fresh wallets of different networks, which wait or take a place, and a seventh that has a deposit."""
    market, _ = open_proven(new_market, rounds=40)
    allow_newcomers(market, 8)
    flood = [join(market, f"network {number}") for number in range(6)]
    for _ in range(6):
        market.gather(*flood)
        reserve(market)
    assert sum(market.account(one).reserved for one in flood) == 4 * PRICE
    backed = join(market, "its own")
    with market.context.begin() as work:
        work.get_one(Account, (market.job, backed.address)).at_risk = 16 * PRICE
    market.gather(*flood, backed)
    assert list_due(market) == [backed.address]


@pytest.mark.parametrize("delivered_elsewhere", [False, True])
def test_fourteen_that_ask_and_vanish_hold_half_of_the_money(new_market: NewMarket, delivered_elsewhere: bool) -> None:
    """An answer in another job makes no newcomer of this one known: fourteen such held fourteen of its eight prices."""
    market, _ = open_proven(new_market, rounds=40)
    allow_newcomers(market, 8)
    ring = [join(market, f"network {number}") for number in range(14)]
    with market.context.begin() as work:
        for one in market.workers[:2]:
            work.get_one(Account, (market.job, one.address)).reserved = 2 * PRICE
        for one in ring:
            work.get_one(Worker, one.address).accepted_at = market.clock() if delivered_elsewhere else None
    market.gather(*ring)
    for _ in ring:
        due = reserve(market)
        with market.context.begin() as work:
            for address in due:
                work.get_one(Worker, address).asking_until = 0.0
    assert sum(market.account(one).reserved for one in ring) == 4 * PRICE


def test_newcomers_that_delivered_elsewhere_hold_no_money_of_proven_workers(new_market: NewMarket) -> None:
    market, _ = open_proven(new_market, rounds=40)
    allow_newcomers(market, 8)
    ring = [join(market, f"network {number}", reserved=PRICE) for number in range(8)]
    proven = market.workers[:2]
    with market.context.begin() as work:
        for one in proven:
            work.get_one(Account, (market.job, one.address)).reserved = 0
        for one in ring:
            work.get_one(Worker, one.address).accepted_at = market.clock()
    market.gather(*proven)
    assert set(list_due(market)) == {one.address for one in proven}


def test_no_money_is_reserved_for_a_newcomer_that_gets_no_seat_as_its_network_left_one(new_market: NewMarket) -> None:
    market, _ = open_proven(new_market, rounds=40)
    allow_newcomers(market, 8)
    leaver = join(market, "one network", reserved=PRICE)
    for _ in range(60):
        leaver.request_work()
        if market.replicas(leaver):
            break
        market.take_turns(*market.workers[:2])
        market.lapse(2.0)
    market.lapse(DEADLINES["lease_s"] + 1.0)
    near, far = join(market, "one network"), join(market, "another network")
    market.gather(*market.workers[:2], near, far)
    assert set(list_due(market)) & {near.address, far.address} == {far.address}
    market.lapse(rule.compute_watched_s(DEADLINES["lease_s"]))
    market.gather(*market.workers[:2], near, far)
    assert set(list_due(market)) & {near.address, far.address} == {near.address, far.address}


@pytest.mark.parametrize("staked", [False, True])
def test_a_newcomer_without_money_gets_the_command_of_a_deposit_where_the_job_takes_one(
    new_market: NewMarket, staked: bool
) -> None:
    market, _ = open_proven(new_market, rounds=40, **({"stake": STAKES} if staked else {}))
    allow_newcomers(market, 8)
    for number in range(4):
        join(market, f"network {number}", reserved=PRICE)
    newcomer = join(market, "its own")
    market.gather(newcomer)
    command = f"a deposit, which comes back, has its own: gradmarket wallet stake {market.job} {16 * PRICE}"
    assert (command in newcomer.waiting) is staked


@pytest.mark.parametrize(("number", "without"), [(0, 0), (10, 1), (20, 2), (40, 4), (41, 4)])
def test_what_is_kept_from_newcomers_without_a_deposit_is_theirs_as_rounds_pass(number: int, without: int) -> None:
    assert seat_rules.count_open_prices(8, 4, number, 40) == without
    assert seat_rules.count_open_prices(8, 9, number, 40) == 0


@pytest.mark.parametrize("votes", [2, 3])
def test_newcomers_of_a_job_s_start_have_money_for_each_of_a_round_s_tasks_at_once(votes: int) -> None:
    """Each of eight tasks begins with one of them, and the money for newcomers pays for a round's votes at least."""
    queue = [
        Newcomer(Party(Address(f"0x{number:040x}"), "", "", f"network {number}"), 0.0, 0.0, 0.0, False, False)
        for number in range(8)
    ]
    without = seat_rules.count_open_prices(8 * votes, 0, 0, 40)
    assert seat_rules.choose_funded(queue, {}, 8 * votes, without) == queue


def test_honest_newcomers_without_deposits_fill_the_rounds_of_a_job_s_start(new_market: NewMarket) -> None:
    """Six of them, four tasks of two votes: half of a round's money is four prices, and who is paid leaves its own.

    The first round's tasks are all taken at once, and the last two are paid in the second.
    """
    market, auditor = open_job(new_market, tasks_per_round=4, rounds=3, replication={"replicas": 2, "audit": 1e-9})
    with market.context.begin() as work:
        work.get_one(Job, market.job).deposited = 3 * 4 * 2 * PRICE
    fresh = [join(market, f"network {number}") for number in range(6)]
    market.gather()
    play(market, auditor, rounds=1)
    taken = [row for row in market.replicas() if row.task_id.split("-")[1] == "0"]
    assert len({row.worker for row in taken}) == len(taken) == 4
    first = market.rounds()[0].opened_at
    assert all(row.leased_at - first <= 4.0 for row in taken)
    everybody = {one.address for one in fresh}
    play(market, auditor, rounds=2, done=lambda: set(market.earned()) == everybody)
    check_books(market)


@pytest.mark.parametrize(
    ("held", "left", "funded"), [({}, 4, "aabc"), ({"a": 2}, 2, "bc"), ({"a": 3, "b": 1}, 1, "c"), ({"a": 9}, 0, "")]
)
def test_each_network_leaves_as_much_as_it_holds(held: dict[str, int], left: int, funded: str) -> None:
    queue = [
        Newcomer(Party(Address(f"0x{number:040x}"), "", "", network), 0.0, 0.0, 0.0, False, False)
        for number, network in enumerate("aaabc")
    ]
    assert "".join(one.party.network or "" for one in seat_rules.choose_funded(queue, held, left, left)) == funded


def test_a_flood_of_more_than_a_sample_waits_in_the_queue(new_market: NewMarket) -> None:
    """Two samples of it differ: a worker in one of them alone is a newcomer as well, and a proven one is found."""
    market, _ = open_proven(new_market)
    first, proven = join(market, "a network"), join(market, "another")
    prove(market, proven)
    market.gather()
    flood = join_at_once(market, first, 3 * newcomers.SAMPLE)
    due = list_due(market)
    assert proven.address in due
    assert len(set(due) & (flood | {first.address})) <= 2


def test_a_proven_operator_has_money_for_one_wallet_that_earned_nothing(new_market: NewMarket) -> None:
    market, _ = open_proven(new_market)
    key = Address("0x" + "11" * 20)
    wallets = [market.worker(reserved=0, payout=key, consent=number) for number in range(1, 6)]
    single, newcomer = join(market, "its own"), join(market, "a third")
    prove_operators(market, key, single.address)
    market.gather(*wallets, single, newcomer)
    due = reserve(market)
    assert len(set(due) & {one.address for one in wallets}) == 1
    assert {single.address, newcomer.address} <= set(due)
    assert list_due(market) == []


def test_a_proven_operator_holds_one_seat_whatever_its_wallets_ask(new_market: NewMarket) -> None:
    """The wallet that has the seat wants more than the job pays from then on: it is there no more, and holds it."""
    market, _ = open_job(new_market, rounds=3, tasks_per_round=8)
    key = Address("0x" + "11" * 20)
    first, second = [market.worker(payout=key, consent=number) for number in (1, 2)]
    singles = [market.worker() for _ in range(5)]
    prove_operators(market, key, *(one.address for one in singles))
    market.gather(first, *singles[:2])
    assert [len(one.held) for one in (first, *singles[:2])] == [1, 1, 1]
    first.send_poll(min_price=2 * PRICE)
    market.gather(second, *singles[2:4])
    assert [len(one.held) for one in (second, *singles[2:4])] == [0, 0, 0]
    market.gather(*singles[2:])
    assert [len(one.held) for one in singles] == [1] * 5


def test_a_waiting_newcomer_gets_its_place_and_the_time_until_its_pay(new_market: NewMarket) -> None:
    market, auditor = open_proven(new_market, rounds=4)
    play(market, auditor, rounds=1)
    waiting = [join(market, f"network {number}") for number in range(3)]
    market.gather(*waiting)
    told = [worker.waiting for worker in waiting]
    for place, words in enumerate(told, 1):
        said = f"place {place} of 3, and its pay may be expected within {place} round{'s' * (place > 1)}, "
        assert said in words
        assert " s as rounds go" in words


@pytest.mark.parametrize(("network", "whose"), [("another", "it left"), ("its own", "a newcomer of its network left")])
def test_a_waiting_newcomer_gets_the_operator_of_the_left_place_and_its_wait(
    new_market: NewMarket, network: str, whose: str
) -> None:
    """The place lapsed, or was given back as failed."""
    market, _ = open_proven(new_market, rounds=40)
    proven, leaver = list(market.workers), join(market, "its own")
    for _ in range(60):
        leaver.request_work()
        reserve(market)
        if market.replicas(leaver):
            break
        market.take_turns(*proven)
        market.lapse(2.0)
    (place,) = market.replicas(leaver)
    if whose != "it left":
        lease = next(iter(leaver.held.values())).lease
        fault = StepFault(kind=FaultKind.LINK_FAILED, partition="train-0")
        returned = LeaseReturn(replica=lease.replica, fence=lease.fence, failed=True, reason="", fault=fault)
        leaver.send_poll(given_up=[returned])
        assert market.replica(leaver).state == ReplicaState.ERROR
    market.lapse(DEADLINES["lease_s"] + 1.0)
    market.lapse(rule.FIRST_REST_S + 1.0)
    waiting = leaver if whose == "it left" else join(market, network)
    market.gather(*proven, waiting)
    left_s = place.leased_at + rule.compute_watched_s(DEADLINES["lease_s"]) - market.clock()
    words = f"without a deposit it gets the next one in {left_s / 60:.0f} min, and it is at place 1 of 1 newcomers"
    assert f"{whose} a place of this job: {words}" in waiting.waiting
    assert len(market.replicas(waiting)) == (waiting is leaver)


@pytest.mark.parametrize(("at_risk", "first"), [(16 * PRICE, True), (15 * PRICE, False)])
def test_a_deposit_has_its_money_and_its_turn_before_a_flood(new_market: NewMarket, at_risk: int, first: bool) -> None:
    market, _ = open_proven(new_market, rounds=3)
    for number in range(6):
        join(market, f"network {number}", NOISE)
    backed = join(market, "network 0")
    with market.context.begin() as work:
        work.get_one(Account, (market.job, backed.address)).at_risk = at_risk
    market.gather()
    assert (backed.address in reserve(market)) is first
    words = "within 2 rounds" if first else "within 7 rounds"
    assert words in backed.waiting
    assert market.all(Replica, Replica.worker == backed.address) == []
