"""Who gets how much set aside: the rule, and the rule on a real contract."""

from hypothesis import given
from hypothesis import strategies as st
from onchain import NewKey
from sqlalchemy import select
from till import CLASS, PRICE, Till
from web3 import Web3

from gradmarket.contracts import claims
from gradmarket.contracts.local import fund_gas
from gradmarket.contracts.transactions import mined
from gradmarket.market.rules import newcomers
from gradmarket.market.rules.payment import Standing
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, AuditState, JobState, Units
from gradmarket.requester.chain.reservations import Need, headroom, plan
from gradmarket.requester.store.tables import Account, Event, Job, Transaction, Worker

AHEAD = 20


def need(number: int, reserved: int = 0, earned: int = 0, in_flight: int = 0) -> Need:
    standing = Standing(Units(reserved), Units(earned), Units(in_flight))
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
    rows = plan(cases, Units(free), Units(PRICE), AHEAD)
    assert sum(units for _, units in rows) <= free
    assert len({worker for worker, _ in rows}) == len(rows)
    assert all(units > 0 for _, units in rows)
    assert {worker for worker, _ in rows} <= {case.worker for case in cases}


@given(needs(), st.integers(0, 5_000))
def test_who_can_take_no_task_goes_first(cases: list[Need], free: int) -> None:
    given_to = {worker for worker, _ in plan(cases, Units(free), Units(PRICE), AHEAD)}
    stuck = {case.worker for case in cases if case.standing.uncommitted < PRICE}
    assert stuck <= given_to or free // PRICE <= len(given_to & stuck) or free < PRICE * len(stuck)


@given(needs())
def test_enough_money_covers_a_gradient_for_each(cases: list[Need]) -> None:
    rows = dict(plan(cases, Units(10**9), Units(PRICE), AHEAD))
    for case in cases:
        assert case.standing.uncommitted + rows.get(case.worker, 0) >= PRICE


@given(needs(), st.integers(0, 5_000))
def test_the_order_of_the_workers_does_not_matter(cases: list[Need], free: int) -> None:
    one = plan(cases, Units(free), Units(PRICE), AHEAD)
    other = plan(cases[::-1], Units(free), Units(PRICE), AHEAD)
    assert sorted(one) == sorted(other)


def test_an_idle_identity_locks_one_gradient_and_an_earner_four_for_each_that_it_earned() -> None:
    needs = [need(1), need(2, 10, 10), need(3, 30, 30), need(4, 90, 90)]
    rows = dict(plan(needs, Units(10**6), Units(PRICE), AHEAD))
    assert [rows[each.worker] // PRICE for each in needs] == [1, 4, 12, AHEAD]


def test_nothing_is_added_while_half_is_there() -> None:
    assert plan([need(1, 200, 100)], Units(10**6), Units(PRICE), AHEAD) == []
    assert plan([need(1, 199, 100)], Units(10**6), Units(PRICE), AHEAD) != []


def test_less_lies_ahead_as_the_escrow_runs_out() -> None:
    assert headroom(Units(10**6), Units(PRICE), 5, AHEAD) == AHEAD
    assert headroom(Units(1_000), Units(PRICE), 5, AHEAD) == 5
    assert headroom(Units(0), Units(PRICE), 5, AHEAD) == 1
    assert headroom(Units(10), Units(PRICE), 0, AHEAD) == 1


def test_a_shortage_is_shared_gradient_by_gradient() -> None:
    rows = dict(plan([need(1), need(2), need(3)], Units(29), Units(PRICE), AHEAD))
    assert rows == {need(1).worker: PRICE, need(2).worker: PRICE}


@given(st.integers(0, 1000), st.integers(0, 10**6), st.integers(1, 100))
def test_what_lies_with_who_never_earned_is_a_round_s_cost_or_a_quarter(cost: int, deposit: int, price: int) -> None:
    most = newcomers.allowance(Units(deposit), Units(cost * price))
    assert most <= deposit
    assert most <= max(cost * price, deposit // 4)


# --- on the chain ----------------------------------------------------------------------------------------------------


def test_a_worker_that_asks_gets_cover_and_an_earner_more(till: Till, new_key: NewKey) -> None:
    job_id = till.running_job()
    worker = till.joins(job_id, new_key())
    till.settle_down()
    assert till.account(job_id, worker).reserved == PRICE
    till.earns(job_id, worker)
    till.settle_down()
    chain = till.ledger.account(till.job(job_id).chain_job or 0, worker)
    assert till.account(job_id, worker).reserved == chain.reserved == 5 * PRICE


def test_a_thousand_that_ask_get_what_a_round_needs_and_no_account_beyond(till: Till, new_key: NewKey) -> None:
    """Nor a transaction: one reservation is made for all three of them."""
    job_id = till.running_job()
    with till.desk.begin() as session:
        session.get_one(Job, job_id).determinism_class = CLASS
        now = till.clock()
        for number in range(1000):
            name = Web3.to_checksum_address(f"0x{number + 1:040x}")
            asks = {"asking_until": now + 45, "capacity": 1, "determinism_class": CLASS}
            session.add(Worker(address=name, payout=name, operator=name, seen_at=now, joined_at=now, **asks))
    till.settle_down()
    accounts = till.all_accounts(job_id)
    assert [account.reserved for account in accounts] == [PRICE] * 3
    assert len(till.all(Transaction, Transaction.kind == "reserve")) == 1
    till.settle_down()
    assert len(till.all_accounts(job_id)) == 3, "they hold a place each, and nobody else is needed"


def test_who_stalls_makes_place_for_others_until_a_quarter_lies_with_them(till: Till, new_key: NewKey) -> None:
    job_id = till.running_job(budget=40 * PRICE)
    for _ in range(30):
        till.joins(job_id, new_key())
    for _ in range(20):
        till.settle_down()
        with till.desk.begin() as session:
            for account in session.scalars(select(Account).where(Account.reserved > 0)):
                session.get_one(Worker, account.worker).rests_until = till.clock() + 10**6
    chain = till.ledger.job(till.job(job_id).chain_job or 0)
    assert chain.reserved == 10 * PRICE
    known = till.joins(job_id, new_key())
    with till.desk.begin() as session:
        session.get_one(Worker, known).accepted_at = till.clock()
    till.settle_down()
    assert till.account(job_id, known).reserved == PRICE, "who delivered before has money of its own"


def test_the_books_follow_the_chain_not_the_wish(till: Till, new_key: NewKey) -> None:
    job_id = till.running_job()
    worker = till.joins(job_id, new_key())
    till.office.step()
    rows = till.all(Transaction, Transaction.kind == "reserve")
    assert len(rows) == 1
    if rows[0].state != "mined":
        assert till.account(job_id, worker).reserved == 0
    till.settle_down()
    assert till.account(job_id, worker).reserved == PRICE


def test_who_leaves_or_is_gone_or_is_in_another_job_gets_nothing(till: Till, new_key: NewKey) -> None:
    job_id = till.running_job()
    leaving, gone, other = [till.joins(job_id, new_key()) for _ in range(3)]
    till.clock.now += 46
    for worker in (leaving, other):
        till.asks(worker)
    with till.desk.begin() as session:
        session.get_one(Worker, leaving).capacity = 0
        session.get_one(Worker, other).jobs = ["00000000000000bb"]
    till.joins(job_id, new_key())
    till.settle_down()
    assert till.account(job_id, leaving).reserved == till.account(job_id, gone).reserved == 0
    chain_job = till.job(job_id).chain_job or 0
    assert till.ledger.account(chain_job, other).reserved == 0
    assert till.ledger.job(chain_job).reserved == PRICE


def test_nothing_is_reserved_for_who_asks_for_other_jobs_alone(till: Till, new_key: NewKey) -> None:
    """It had an account here before it said so."""
    job_id, other = till.running_job(), till.running_job()
    picky, any_job = till.joins(job_id, new_key()), till.joins(job_id, new_key())
    till.joins(other, new_key())
    with till.desk.begin() as session:
        session.get_one(Worker, picky).jobs = [other]
        session.get_one(Worker, any_job).jobs = [other, job_id]
    till.settle_down()
    assert [till.account(job_id, worker).reserved for worker in (picky, any_job)] == [0, PRICE]


def test_nothing_is_reserved_for_a_class_that_cannot_share_the_job_s_tasks(till: Till, new_key: NewKey) -> None:
    """It would lie there to the job's end, and the last task would have no money."""
    job_id = till.running_job()
    own, alien = till.joins(job_id, new_key()), till.joins(job_id, new_key())
    till.set_job(job_id, determinism_class="cpu")
    with till.desk.begin() as session:
        session.get_one(Worker, own).determinism_class = "cpu"
        session.get_one(Worker, alien).determinism_class = "gpu"
    till.settle_down()
    assert [till.account(job_id, worker).reserved for worker in (own, alien)] == [PRICE, 0]


def test_a_paused_or_ended_job_reserves_nothing(till: Till, new_key: NewKey) -> None:
    job_id = till.running_job()
    till.set_job(job_id, state=JobState.PAUSED)
    worker = till.joins(job_id, new_key())
    till.settle_down()
    assert till.account(job_id, worker).reserved == 0


def test_who_is_vindicated_after_a_job_s_end_is_covered_before_the_rest_comes_back(till: Till, new_key: NewKey) -> None:
    job_id = till.running_job()
    worker = till.joins(job_id, new_key())
    till.earns(job_id, worker)
    till.audits(job_id, AuditState.DUE)
    till.settle_down()
    chain_job = till.job(job_id).chain_job or 0
    till.set_job(job_id, state=JobState.FINISHED, ended_at=till.clock())
    till.settle_down()
    kept = till.ledger.free(chain_job)
    assert kept > 0
    till.earns(job_id, worker, 29)  # more than the 4 that were reserved ahead
    till.audits(job_id, AuditState.FAILED)
    till.settle_down()
    assert till.ledger.account(chain_job, worker).reserved == 30 * PRICE
    assert till.ledger.account(chain_job, worker).credited == 30 * PRICE
    assert till.ledger.free(chain_job) == 0


def test_low_money_is_told_once_and_before_it_is_gone(till: Till, new_key: NewKey) -> None:
    job_id = till.running_job(budget=6 * PRICE)
    workers = [till.joins(job_id, new_key()) for _ in range(5)]
    with till.desk.begin() as session:
        for known in workers[:2]:
            session.get_one(Worker, known).accepted_at = till.clock()
    till.settle_down()
    assert till.all(Event, Event.kind == "low_balance") == []
    for worker in workers:
        till.earns(job_id, worker)
    till.settle_down()
    (event,) = till.all(Event, Event.kind == "low_balance")
    assert event.body["free"] == PRICE
    assert till.ledger.job(till.job(job_id).chain_job or 0).reserved == 6 * PRICE


def test_a_release_is_seen_and_not_reserved_anew_for_who_leaves(till: Till, new_key: NewKey) -> None:
    job_id, key = till.running_job(), new_key()
    worker = till.joins(job_id, key)
    till.settle_down()
    with till.desk.begin() as session:
        session.get_one(Worker, worker).capacity = 0
    fund_gas(till.ledger.web3, worker, 10**18)
    mined(claims.release(till.ledger, key, till.job(job_id).chain_job or 0, Units(0)))
    till.settle_down()
    assert till.account(job_id, worker).reserved == 0
    assert till.ledger.free(till.job(job_id).chain_job or 0) == till.job(job_id).budget
    assert address_of(key) == worker
