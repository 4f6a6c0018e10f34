"""The amounts reserved for each worker: the rule, and the rule on a real contract."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select
from web3 import Web3

from contracts import claims
from contracts.local import fund_gas
from contracts.transactions import require_receipt
from gradmarket.market.rules import newcomers
from gradmarket.market.rules.payment import AccountStanding
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, AuditState, JobState, ReplicaState, RoundState, Units
from requester.chain import reservations
from requester.chain.reservations import Need, compute_headroom, plan_reservations
from requester.store import jobs
from requester.store.tables import Account, Job, JobEvent, Round, Transaction, Worker
from tests.chain.chain_fixture import CLASS, PRICE, ChainFixture
from tests.lanes import FULL
from tests.onchain import NewKey

AHEAD = 20


def need(number: int, reserved: int = 0, earned: int = 0, in_flight: int = 0) -> Need:
    standing = AccountStanding(Units(reserved), Units(earned), Units(in_flight))
    return Need(Address(f"0x{number:040x}"), standing)


@st.composite
def needs(draw: st.DrawFn) -> list[Need]:
    found = []
    for number in range(draw(st.integers(0, 12))):
        earned = draw(st.integers(0, 30)) * PRICE
        in_flight = draw(st.integers(0, 3)) * PRICE
        found.append(need(number + 1, earned + in_flight + draw(st.integers(0, 25)) * PRICE, earned, in_flight))
    return found


@given(needs(), st.integers(0, 5_000))
def test_never_more_than_is_free_and_nobody_twice(cases: list[Need], free: int) -> None:
    rows = plan_reservations(cases, Units(free), Units(PRICE), AHEAD)
    assert sum(units for _, units in rows) <= free
    assert len({worker for worker, _ in rows}) == len(rows)
    assert all(units > 0 for _, units in rows)
    assert {worker for worker, _ in rows} <= {case.worker for case in cases}


@given(needs(), st.integers(0, 5_000))
def test_workers_without_cover_for_a_task_are_reserved_for_first(cases: list[Need], free: int) -> None:
    given_to = {worker for worker, _ in plan_reservations(cases, Units(free), Units(PRICE), AHEAD)}
    stuck = {case.worker for case in cases if case.standing.uncommitted < PRICE}
    assert stuck <= given_to or free // PRICE <= len(given_to & stuck) or free < PRICE * len(stuck)


@given(needs())
def test_enough_money_covers_a_gradient_for_each(cases: list[Need]) -> None:
    rows = dict(plan_reservations(cases, Units(10**9), Units(PRICE), AHEAD))
    for case in cases:
        assert case.standing.uncommitted + rows.get(case.worker, 0) >= PRICE


@given(needs(), st.integers(0, 5_000))
def test_the_order_of_the_workers_does_not_matter(cases: list[Need], free: int) -> None:
    one = plan_reservations(cases, Units(free), Units(PRICE), AHEAD)
    other = plan_reservations(cases[::-1], Units(free), Units(PRICE), AHEAD)
    assert sorted(one) == sorted(other)


def test_an_idle_identity_locks_one_gradient_and_an_earner_as_many_as_it_earned() -> None:
    needs = [need(1), need(2, 10, 10), need(3, 30, 30), need(4, 90, 90)]
    rows = dict(plan_reservations(needs, Units(10**6), Units(PRICE), AHEAD))
    assert [rows[each.worker] // PRICE for each in needs] == [1, 1, 3, 9]


def test_a_reservation_half_unused_is_not_topped_up() -> None:
    assert plan_reservations([need(1, 150, 100)], Units(10**6), Units(PRICE), AHEAD) == []
    assert plan_reservations([need(1, 149, 100)], Units(10**6), Units(PRICE), AHEAD) != []


def test_workers_that_are_soon_due_share_the_transaction_of_one_that_is() -> None:
    soon, later = need(1, 160, 100), need(2, 170, 100)
    assert plan_reservations([soon, later], Units(10**6), Units(PRICE), AHEAD) == []
    due = need(3, 100, 100)
    rows = dict(plan_reservations([soon, later, due], Units(10**6), Units(PRICE), AHEAD))
    assert rows == {due.worker: 100, soon.worker: 40}


def test_less_lies_ahead_as_the_escrow_runs_out() -> None:
    assert compute_headroom(Units(10**6), Units(PRICE), 5, AHEAD) == AHEAD
    assert compute_headroom(Units(1_000), Units(PRICE), 5, AHEAD) == 5
    assert compute_headroom(Units(0), Units(PRICE), 5, AHEAD) == 1
    assert compute_headroom(Units(10), Units(PRICE), 0, AHEAD) == 1


def test_a_shortage_is_shared_gradient_by_gradient() -> None:
    rows = dict(plan_reservations([need(1), need(2), need(3)], Units(29), Units(PRICE), AHEAD))
    assert rows == {need(1).worker: PRICE, need(2).worker: PRICE}


def test_the_last_money_goes_to_the_open_task_s_worker_and_covers_only_remaining_work() -> None:
    done, wanted = need(1, 80, 80), replace(need(2, 70, 70), waited_for=True, most=1)
    assert plan_reservations([done, wanted], Units(PRICE), Units(PRICE), AHEAD) == [(wanted.worker, PRICE)]
    over = replace(done, most=0)
    assert dict(plan_reservations([over, wanted], Units(10**6), Units(PRICE), AHEAD)) == {wanted.worker: PRICE}


def test_pay_awarded_by_an_audit_is_covered_though_no_work_is_left() -> None:
    vindicated = replace(need(1, 20, 50), most=0)
    rows = dict(plan_reservations([vindicated], Units(10**6), Units(PRICE), AHEAD))
    assert rows == {vindicated.worker: 30}


@given(st.integers(0, 1000), st.integers(0, 10**6), st.integers(1, 100))
def test_newcomers_hold_at_most_a_round_s_cost_or_a_quarter_of_the_deposit(cost: int, deposit: int, price: int) -> None:
    most = newcomers.compute_allowance(Units(deposit), Units(cost * price))
    assert most <= deposit
    assert most <= max(cost * price, deposit // 4)


# --- on the chain ----------------------------------------------------------------------------------------------------


def test_a_worker_that_asks_gets_cover_and_an_earner_more(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id = chain_fixture.running_job()
    worker = chain_fixture.joins(job_id, new_key())
    chain_fixture.settle_down()
    assert chain_fixture.account(job_id, worker).reserved == PRICE
    chain_fixture.earns(job_id, worker)
    chain_fixture.settle_down()
    chain = chain_fixture.ledger.account(chain_fixture.job(job_id).chain_job or 0, worker)
    assert chain_fixture.account(job_id, worker).reserved == chain.reserved == 2 * PRICE


@FULL
@pytest.mark.parametrize("rounds", [1, 2])
def test_a_worker_with_its_part_done_takes_no_money_from_the_last_task_s_worker(
    chain_fixture: ChainFixture, new_key: NewKey, rounds: int
) -> None:
    """The deposit equals the job's cost, to a gradient: it would stop for good. In a further round both have a part."""
    job_id = chain_fixture.new_job(budget=3 * PRICE, rounds=rounds)
    chain_fixture.settle_down()
    done, last = sorted((chain_fixture.joins(job_id, new_key()) for _ in range(2)), key=str)
    chain_fixture.settle_down()
    with chain_fixture.chain.begin() as work:
        work.add(Round(job_id=job_id, number=0, state=RoundState.OPEN, parameters="", optimizer_state="",
                       price=PRICE, opened_at=chain_fixture.clock()))  # fmt: skip
    for worker in (done, last):
        chain_fixture.earns(job_id, worker)
    chain_fixture.open_task(job_id, done, ReplicaState.AGREE, chain_fixture.clock() + 60)
    chain_fixture.settle_down()
    assert chain_fixture.account(job_id, last).reserved == 2 * PRICE
    assert chain_fixture.account(job_id, done).reserved == PRICE


@FULL
def test_a_thousand_that_ask_get_what_a_round_needs_and_no_account_beyond(
    chain_fixture: ChainFixture, new_key: NewKey
) -> None:
    """Nor a transaction: one reservation is made for all three of them."""
    job_id = chain_fixture.running_job()
    with chain_fixture.chain.begin() as work:
        work.get_one(Job, job_id).determinism_class = CLASS
        now = chain_fixture.clock()
        for number in range(1000):
            name = Web3.to_checksum_address(f"0x{number + 1:040x}")
            asks = {"asking_until": now + 45, "capacity": 1, "determinism_class": CLASS}
            work.add(Worker(address=name, payout=name, operator=name, seen_at=now, joined_at=now, **asks))
    chain_fixture.settle_down()
    accounts = chain_fixture.all_accounts(job_id)
    assert [account.reserved for account in accounts] == [PRICE] * 3
    assert len(chain_fixture.all(Transaction, Transaction.kind == "reserve")) == 1
    chain_fixture.settle_down()
    assert len(chain_fixture.all_accounts(job_id)) == 3, "they hold a place each, and nobody else is needed"


@FULL
def test_stalling_newcomers_hold_at_most_a_quarter_of_the_deposit(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id = chain_fixture.running_job(budget=40 * PRICE)
    for _ in range(30):
        chain_fixture.joins(job_id, new_key())
    for _ in range(20):
        chain_fixture.settle_down()
        with chain_fixture.chain.begin() as work:
            for account in work.session.scalars(select(Account).where(Account.reserved > 0)):
                account.rests_until = chain_fixture.clock() + 10**6
    chain = chain_fixture.ledger.job(chain_fixture.job(job_id).chain_job or 0)
    assert chain.reserved == 10 * PRICE
    known = chain_fixture.joins(job_id, new_key())
    with chain_fixture.chain.begin() as work:
        work.get_one(Worker, known).accepted_at = chain_fixture.clock()
    chain_fixture.settle_down()
    assert chain_fixture.account(job_id, known).reserved == PRICE, "who delivered before has money of its own"
    with chain_fixture.chain.begin() as work:
        lease_s = jobs.load_spec(work.get_one(Job, job_id)).deadlines.lease_s
        work.add(Round(job_id=job_id, number=0, state=RoundState.OPEN, parameters="", optimizer_state="",
                       price=PRICE, opened_at=chain_fixture.clock()))  # fmt: skip
    late = [chain_fixture.joins(job_id, new_key()) for _ in range(3)]
    chain_fixture.clock.now += newcomers.compute_watched_s(lease_s) + 1.0
    for _ in range(2):
        for worker in late:
            chain_fixture.mark_asking(worker)
        chain_fixture.settle_down()
    reserved = [chain_fixture.account(job_id, worker).reserved for worker in late]
    assert sorted(reserved) == [0, 0, PRICE], "a round that stands has money for one more each twenty leases"


@FULL
def test_a_worker_that_earns_once_and_leaves_locks_one_price_and_the_others_go_on(
    chain_fixture: ChainFixture, new_key: NewKey
) -> None:
    job_id = chain_fixture.running_job(budget=200 * PRICE)
    staying = [chain_fixture.joins(job_id, new_key()) for _ in range(5)]
    for times in (1, newcomers.ESTABLISHED):
        chain_fixture.settle_down()
        for worker in staying:
            chain_fixture.earns(job_id, worker, times)
    passing = []
    for _ in range(25):
        passing.append(chain_fixture.joins(job_id, new_key()))
        with chain_fixture.chain.begin() as work:  # as its own answers elsewhere have it: it has money of its own
            work.get_one(Worker, passing[-1]).accepted_at = chain_fixture.clock()
        chain_fixture.settle_down()
        chain_fixture.earns(job_id, passing[-1])
        chain_fixture.settle_down()
        chain_fixture.clock.now += 46
        for worker in staying:
            chain_fixture.mark_asking(worker)
    left = [chain_fixture.account(job_id, worker) for worker in passing]
    locked = sum(account.reserved - account.earned for account in left) // PRICE
    assert locked == len(passing)
    for worker in staying:
        chain_fixture.earns(job_id, worker, 5)
    chain_fixture.settle_down()
    accounts = [chain_fixture.account(job_id, worker) for worker in staying]
    assert all(account.reserved - account.earned >= PRICE for account in accounts)


def test_the_books_follow_the_chain_not_the_wish(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id = chain_fixture.running_job()
    worker = chain_fixture.joins(job_id, new_key())
    chain_fixture.chain_worker.step()
    rows = chain_fixture.all(Transaction, Transaction.kind == "reserve")
    assert len(rows) == 1
    if rows[0].state != "mined":
        assert chain_fixture.account(job_id, worker).reserved == 0
    chain_fixture.settle_down()
    assert chain_fixture.account(job_id, worker).reserved == PRICE


@FULL
def test_nothing_is_reserved_for_workers_that_leave_are_gone_or_are_in_another_job(
    chain_fixture: ChainFixture, new_key: NewKey
) -> None:
    job_id = chain_fixture.running_job()
    leaving, gone, other = [chain_fixture.joins(job_id, new_key()) for _ in range(3)]
    chain_fixture.clock.now += 46
    for worker in (leaving, other):
        chain_fixture.mark_asking(worker)
    with chain_fixture.chain.begin() as work:
        work.get_one(Worker, leaving).capacity = 0
        work.get_one(Worker, other).jobs = ["00000000000000bb"]
    chain_fixture.joins(job_id, new_key())
    chain_fixture.settle_down()
    assert chain_fixture.account(job_id, leaving).reserved == chain_fixture.account(job_id, gone).reserved == 0
    chain_job = chain_fixture.job(job_id).chain_job or 0
    assert chain_fixture.ledger.account(chain_job, other).reserved == 0
    assert chain_fixture.ledger.job(chain_job).reserved == PRICE


@FULL
def test_nothing_is_reserved_for_a_worker_that_asks_for_other_jobs_alone(
    chain_fixture: ChainFixture, new_key: NewKey
) -> None:
    """It had an account here before it named its jobs."""
    job_id, other = chain_fixture.running_job(), chain_fixture.running_job()
    picky, any_job = chain_fixture.joins(job_id, new_key()), chain_fixture.joins(job_id, new_key())
    chain_fixture.joins(other, new_key())
    with chain_fixture.chain.begin() as work:
        work.get_one(Worker, picky).jobs = [other]
        work.get_one(Worker, any_job).jobs = [other, job_id]
    chain_fixture.settle_down()
    assert [chain_fixture.account(job_id, worker).reserved for worker in (picky, any_job)] == [0, PRICE]


def test_nothing_is_reserved_for_a_class_that_cannot_share_the_job_s_tasks(
    chain_fixture: ChainFixture, new_key: NewKey
) -> None:
    """It would lie there to the job's end, and the last task would have no money."""
    job_id = chain_fixture.running_job()
    own, alien = chain_fixture.joins(job_id, new_key()), chain_fixture.joins(job_id, new_key())
    chain_fixture.set_job(job_id, determinism_class="cpu")
    with chain_fixture.chain.begin() as work:
        work.get_one(Worker, own).determinism_class = "cpu"
        work.get_one(Worker, alien).determinism_class = "gpu"
    chain_fixture.settle_down()
    assert [chain_fixture.account(job_id, worker).reserved for worker in (own, alien)] == [PRICE, 0]


def test_a_paused_or_ended_job_reserves_nothing(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id = chain_fixture.running_job()
    chain_fixture.set_job(job_id, state=JobState.PAUSED)
    worker = chain_fixture.joins(job_id, new_key())
    chain_fixture.settle_down()
    assert chain_fixture.account(job_id, worker).reserved == 0


@FULL
def test_a_worker_vindicated_after_a_job_s_end_is_covered_before_the_refund(
    chain_fixture: ChainFixture, new_key: NewKey
) -> None:
    job_id = chain_fixture.running_job()
    worker = chain_fixture.joins(job_id, new_key())
    chain_fixture.earns(job_id, worker)
    chain_fixture.audits(job_id, AuditState.DUE)
    chain_fixture.settle_down()
    chain_job = chain_fixture.job(job_id).chain_job or 0
    chain_fixture.set_job(job_id, state=JobState.FINISHED, ended_at=chain_fixture.clock())
    outvoted = chain_fixture.joins(job_id, new_key())
    chain_fixture.outvotes(job_id, outvoted)
    chain_fixture.settle_down()
    assert chain_fixture.ledger.free(chain_job) == PRICE
    chain_fixture.earns(job_id, outvoted)
    chain_fixture.audits(job_id, AuditState.FAILED)
    chain_fixture.settle_down()
    assert chain_fixture.ledger.account(chain_job, outvoted).reserved == PRICE
    assert chain_fixture.ledger.account(chain_job, outvoted).credited == PRICE
    assert chain_fixture.ledger.free(chain_job) == 0


@FULL
@pytest.mark.parametrize("audited", [False, True])
def test_a_cancel_frees_within_a_minute_all_but_what_an_audit_may_award_and_the_silent_hold(
    chain_fixture: ChainFixture, new_key: NewKey, audited: bool
) -> None:
    """Ten earned once and are gone, thirty asked once and are gone; nobody signs a release any more.

    Each that earned holds at most as much again, and those that did not at most a quarter of the deposit together.
    """
    job_id = chain_fixture.running_job(budget=100 * PRICE)
    earners = [chain_fixture.joins(job_id, new_key()) for _ in range(10)]
    chain_fixture.settle_down()
    for worker in earners:
        chain_fixture.earns(job_id, worker)
    for _ in range(30):
        chain_fixture.joins(job_id, new_key())
    if audited:
        chain_fixture.audits(job_id, AuditState.DUE)
        chain_fixture.outvotes(job_id, earners[0])
    chain_fixture.settle_down()
    cancelled_at, chain_job = chain_fixture.clock(), chain_fixture.job(job_id).chain_job or 0
    chain_fixture.set_job(job_id, state=JobState.CANCELLED, ended_at=cancelled_at)
    chain_fixture.settle_down()
    assert chain_fixture.clock() - cancelled_at <= 60.0
    assert chain_fixture.ledger.free(chain_job) == PRICE * audited
    accounts = chain_fixture.all_accounts(job_id)
    held = {account.worker: account.reserved - account.earned for account in accounts}
    assert all(held[worker] <= PRICE for worker in earners)
    assert sum(units for worker, units in held.items() if worker not in earners) <= 25 * PRICE
    assert chain_fixture.ledger.job(chain_job).reserved == sum(account.reserved for account in accounts)


def test_a_low_balance_is_recorded_once_and_before_the_deposit_is_used_up(
    chain_fixture: ChainFixture, new_key: NewKey
) -> None:
    job_id = chain_fixture.running_job(budget=6 * PRICE)
    workers = [chain_fixture.joins(job_id, new_key()) for _ in range(5)]
    with chain_fixture.chain.begin() as work:
        for known in workers[:2]:
            work.get_one(Worker, known).accepted_at = chain_fixture.clock()
    chain_fixture.settle_down()
    assert chain_fixture.all(JobEvent, JobEvent.kind == "low_balance") == []
    for worker in workers:
        chain_fixture.earns(job_id, worker)
    chain_fixture.settle_down()
    (event,) = chain_fixture.all(JobEvent, JobEvent.kind == "low_balance")
    assert event.body["free"] == str(PRICE)
    assert chain_fixture.ledger.job(chain_fixture.job(job_id).chain_job or 0).reserved == 6 * PRICE


@FULL
def test_a_leaving_worker_s_release_is_recorded_and_not_reserved_anew(
    chain_fixture: ChainFixture, new_key: NewKey
) -> None:
    job_id, key = chain_fixture.running_job(), new_key()
    worker = chain_fixture.joins(job_id, key)
    chain_fixture.settle_down()
    with chain_fixture.chain.begin() as work:
        work.get_one(Worker, worker).capacity = 0
    fund_gas(chain_fixture.ledger.web3, worker, 10**18)
    require_receipt(claims.release(chain_fixture.ledger, key, chain_fixture.job(job_id).chain_job or 0, Units(0)))
    chain_fixture.settle_down()
    assert chain_fixture.account(job_id, worker).reserved == 0
    assert chain_fixture.ledger.free(chain_fixture.job(job_id).chain_job or 0) == chain_fixture.job(job_id).budget
    assert address_of(key) == worker


@FULL
def test_a_reservation_not_sent_before_the_job_s_end_is_dropped(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    """Its workers have released the rest by then; the demo's requester once lacked three of their reservations."""
    job_id = chain_fixture.running_job()
    worker = chain_fixture.joins(job_id, new_key())
    assert reservations.post_reservations(chain_fixture.chain)
    chain_fixture.set_job(job_id, state=JobState.FINISHED, ended_at=chain_fixture.clock())
    chain_fixture.settle_down()
    chain = chain_fixture.ledger.job(chain_fixture.job(job_id).chain_job or 0)
    assert (chain.reserved, chain.deposited) == (0, 0), "all of it went back"
    assert chain_fixture.account(job_id, worker).reserved == 0
    assert not chain_fixture.all(Transaction, Transaction.kind == "reserve")
    again = chain_fixture.running_job()
    chain_fixture.joins(again, new_key())
    chain_fixture.settle_down()
    assert chain_fixture.ledger.job(chain_fixture.job(again).chain_job or 0).reserved == 2 * PRICE, "for both who ask"
