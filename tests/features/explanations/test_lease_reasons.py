"""Each reason why a worker gets no lease, the state that gives it, and its words: a reason without a case fails."""

from collections.abc import Callable
from typing import Any

import pytest

from gradmarket.market.rules.assignment import Idle, Reason
from gradmarket.market.terms import AuditState, JobState
from gradmarket.market.wire.poll import LeaseReturn
from requester.features import explanations
from requester.features.audits.audit_tables import Audit
from requester.features.explanations import LeaseReason
from requester.store.strikes import StrikeChange, change_strikes
from requester.store.tables import Account, Job, Replica, Reputation, Trouble, Worker
from tests.features.private.test_private_jobs import holder, listed
from tests.features.proven.test_proven import open_job, prove
from tests.kit.behaviour import IDLE
from tests.requester.market_fixture import CLASS, PRICE, MarketFixture
from tests.requester.market_workers import SimWorker

NewMarket = Callable[..., MarketFixture]
State = Callable[[NewMarket], SimWorker]
"""Builds a market and returns the worker of it that asks."""
ALONE = {"name": "fixed", "replicas": 1, "max_replicas": 1}
ELSEWHERE = "00000000000000bb"
THREADS = "cpu/x86_64-amd/avx2/torch-2.13.0/threads-{}"
CASES: dict[tuple[Reason | Idle, str], State] = {}
"""By reason and words: several states may give one reason in words of their own."""


def gives(kind: Reason | Idle, words: str = "") -> Callable[[State], State]:
    def note(state: State) -> State:
        assert CASES.setdefault((kind, words or str(kind)), state) is state
        return state

    return note


def explain(market: MarketFixture, worker: SimWorker) -> LeaseReason:
    with market.reading() as reader:
        return explanations.find_lease_reason(reader, worker.address, market.clock())


def change(market: MarketFixture, table: type[Any], key: object, **values: Any) -> None:
    with market.context.begin() as work:
        row = work.get_one(table, key)
        for name, value in values.items():
            setattr(row, name, value)


def open_second(new_market: NewMarket, **spec: Any) -> MarketFixture:
    """Three hold the first of two tasks; the second one is open, and the job has its class."""
    market = new_market(tasks_per_round=2, **spec)
    for _ in range(3):
        market.worker()
    market.gather()
    return market


def poll_as(worker: SimWorker, **said: Any) -> SimWorker:
    worker.send_poll(**said)
    return worker


def give_back(worker: SimWorker) -> None:
    lease = worker.newest().lease
    worker.send_poll(given_up=[LeaseReturn(replica=lease.replica, fence=lease.fence)], capacity=0)


@gives(Reason.NO_HOLDER)
def one_without_rows(new_market: NewMarket) -> SimWorker:
    market = new_market(data=listed(2), tasks_per_round=2)
    holder(market, IDLE)
    absent = market.worker()
    market.gather()
    return absent


@gives(Reason.ALREADY_TRIED)
def one_that_gave_its_lease_back(new_market: NewMarket) -> SimWorker:
    market = new_market()
    three = [market.worker() for _ in range(3)]
    market.gather()
    full = poll_as(market.worker(), capacity=0)
    change(market, Worker, full.address, asking_until=market.clock() + 60.0)
    give_back(three[0])
    return poll_as(three[0], capacity=1)


@gives(Reason.NOT_SEPARATED, f"{Reason.NOT_SEPARATED}: it has the payout address of another worker")
def one_of_two_with_one_payout(new_market: NewMarket) -> SimWorker:
    market = new_market(separation=["operator"])
    first, other = market.worker(), market.worker()
    twin = market.worker(payout=first.address)
    market.worker()
    market.gather()
    give_back(other)
    (left,) = [one for one in (first, twin) if not market.replicas(one)]
    return poll_as(left)


@gives(Reason.OTHER_CLASS)
def one_of_another_class(new_market: NewMarket) -> SimWorker:
    return poll_as(open_second(new_market).worker(determinism_class="gpu"))


@gives(Reason.OTHER_CLASS, "it runs 2 threads, and the job's workers 1 (--threads)")
def one_of_another_thread_count(new_market: NewMarket) -> SimWorker:
    market = new_market(tasks_per_round=2, audited_classes=(THREADS.format(1),))
    for _ in range(3):
        market.worker(determinism_class=THREADS.format(1))
    market.gather()
    return poll_as(market.worker(determinism_class=THREADS.format(2)))


@gives(Reason.OTHER_CLASS, "it has not named its determinism class")
def worker_without_class(new_market: NewMarket) -> SimWorker:
    return poll_as(open_second(new_market).worker(), determinism_class="")


@gives(Reason.NO_RESERVATION)
def one_without_money(new_market: NewMarket) -> SimWorker:
    return poll_as(open_second(new_market).worker(reserved=PRICE - 1))


@gives(Reason.OTHER_JOB)
def one_of_another_job(new_market: NewMarket) -> SimWorker:
    return poll_as(open_second(new_market).worker(), jobs=[ELSEWHERE])


@gives(Reason.HIGHER_PRICE)
def one_that_wants_more(new_market: NewMarket) -> SimWorker:
    return poll_as(open_second(new_market).worker(), min_price=PRICE + 1)


@gives(Reason.AT_CAPACITY)
def one_with_its_lease(new_market: NewMarket) -> SimWorker:
    return poll_as(open_second(new_market).workers[0])


@gives(Reason.BARRED)
def one_that_an_audit_caught(new_market: NewMarket) -> SimWorker:
    market = open_second(new_market)
    caught = poll_as(market.worker())
    with market.context.begin() as work:
        now = market.clock()
        work.add(Reputation(operator=caught.address, determinism_class=CLASS, evidence=0.0, at=now, failed_at=now))
    return caught


@gives(Reason.SUSPENDED)
def one_that_left_much_unanswered(new_market: NewMarket) -> SimWorker:
    market = open_second(new_market)
    silent = poll_as(market.worker())
    with market.context.begin() as work:
        change_strikes(work, [StrikeChange(market.job, silent.address, more=True)], market.clock(), most=1)
    return silent


@gives(Reason.RESTS)
def one_that_left_a_place(new_market: NewMarket) -> SimWorker:
    market = open_second(new_market)
    resting = poll_as(market.worker())
    change(market, Account, (market.job, resting.address), rests_until=market.clock() + 30.0)
    return resting


@gives(Idle.NO_JOB)
def one_where_no_job_runs(new_market: NewMarket) -> SimWorker:
    market = new_market()
    market.cancel()
    return poll_as(market.worker())


@gives(Idle.HELD_UP, "no job is running; 1 paused, 1 without their deposit yet")
def one_whose_jobs_are_held_up(new_market: NewMarket) -> SimWorker:
    market = new_market()
    market.also(ELSEWHERE, 8)
    change(market, Job, market.job, state=JobState.PAUSED)
    change(market, Job, ELSEWHERE, state=JobState.AWAITING_FUNDS)
    return poll_as(market.worker())


@gives(Idle.NO_TASK)
def one_more_than_the_tasks_need(new_market: NewMarket) -> SimWorker:
    market = new_market()
    for _ in range(3):
        market.worker()
    market.gather()
    return poll_as(market.worker())


@gives(Idle.WAITS, "needs 3 separate workers of one determinism class, has 2")
def one_of_too_few(new_market: NewMarket) -> SimWorker:
    market = new_market()
    market.worker()
    one = market.worker()
    market.gather()
    return one


@gives(
    Idle.WAITS,
    "needs 3 separate workers of one determinism class, has 2; 1 of 3: it has the payout address of another worker",
)
def one_of_three_with_one_payout(new_market: NewMarket) -> SimWorker:
    market = new_market()
    first = market.worker()
    twin = market.worker(payout=first.address)
    market.worker()
    market.gather()
    return twin


@gives(
    Idle.WAITS,
    "needs 3 separate workers of one determinism class, has 2; 1 of 3: it runs 2 threads, and the job's workers 1 "
    "(--threads)",
)
def one_beside_two_of_other_threads(new_market: NewMarket) -> SimWorker:
    market = new_market()
    for threads in (1, 1, 2):
        one = market.worker(determinism_class=THREADS.format(threads))
    market.gather()
    return one


@gives(Idle.WAITS, "needs 3 separate workers of one determinism class, has 2 ")
def one_without_money_in_a_job_that_lacks_a_third(new_market: NewMarket) -> SimWorker:
    """The job has its class, and a reservation alone would start nothing."""
    market = new_market()
    change(market, Job, market.job, determinism_class=CLASS)
    poll_as(market.worker())
    return poll_as(market.worker(reserved=0))


@gives(Idle.CHAIN, "the chain cannot be used, and the job goes on once it can: it does not answer")
def one_whose_money_waits_for_the_chain(new_market: NewMarket) -> SimWorker:
    market = open_second(new_market)
    with market.context.begin() as work:
        work.add(Trouble(part="chain", said="it does not answer"))
    return poll_as(market.worker(reserved=0))


@gives(Idle.ASKS_NOTHING)
def one_that_asks_for_nothing(new_market: NewMarket) -> SimWorker:
    """As after a restore: it holds vouchers that the books do not know."""
    return poll_as(open_second(new_market).worker(), capacity=0)


@gives(
    Idle.QUEUED,
    "newcomers get one task in 1, in turn, until 16 answers of theirs passed an audit, counted by what they cost "
    "beside this job's: it is at place 1 of 1, and its pay may be expected within 1 round",
)
def one_newcomer(new_market: NewMarket) -> SimWorker:
    market, _ = open_job(new_market)
    newcomer = market.worker(reserved=0)
    market.gather()
    return newcomer


@gives(Idle.SPENT)
def worker_without_deposit(new_market: NewMarket) -> SimWorker:
    market = open_second(new_market)
    change(market, Job, market.job, deposited=3 * 1000 * PRICE)
    return poll_as(market.worker(reserved=0))


@gives(
    Idle.SPENT,
    f"{Reason.NO_RESERVATION}: 1000 gradients of the escrow are reserved for 1 workers that are gone: fund the job",
)
def one_whose_money_is_with_a_worker_that_left(new_market: NewMarket) -> SimWorker:
    market = open_second(new_market)
    change(market, Job, market.job, deposited=4 * 1000 * PRICE)
    gone = market.worker()
    change(market, Worker, gone.address, seen_at=market.clock() - 3600.0)
    return poll_as(market.worker(reserved=0))


@gives(Idle.SEATED)
def one_newcomer_with_its_seat(new_market: NewMarket) -> SimWorker:
    market, _ = open_job(new_market, tasks_per_round=2)
    newcomer = market.worker()
    market.gather()
    return poll_as(newcomer, capacity=1)


def open_voted_job(new_market: NewMarket, proven: int, **spec: Any) -> MarketFixture:
    """Proven workers that ask, in a job of their class; nobody is drawn until the stages are driven."""
    market, _ = open_job(new_market, **spec)
    prove(market, *(market.worker() for _ in range(proven)))
    change(market, Job, market.job, determinism_class=CLASS)
    for worker in market.workers:
        worker.send_poll()
    return market


@gives(Idle.NEXT_TURN)
def one_that_answers_faster_than_an_honest_machine(new_market: NewMarket) -> SimWorker:
    market = open_voted_job(new_market, proven=4, tasks_per_round=2, rounds=4)
    market.drive()
    (done, *_), now = market.replicas(), market.clock()
    with market.context.begin() as work:
        replica = work.get_one(Replica, done.id)
        replica.state, replica.root, replica.committed_at = "payable", "blake3:" + "5" * 64, now + 50.0
        passed = {
            "state": AuditState.PASSED,
            "rate": 1.0,
            "determinism_class": CLASS,
            "reason": "",
            "round": 0,
            "created_at": now,
        }
        work.add(Audit(task_id=replica.task_id, job_id=market.job, root=replica.root, **passed))
    (worker,) = [one for one in market.workers if one.address == done.worker]
    market.clock.now += 1.0
    return poll_as(worker)


@gives(Idle.OPERATOR_SEATED)
def one_beside_its_operators_seat(new_market: NewMarket) -> SimWorker:
    market = open_voted_job(new_market, proven=3, tasks_per_round=2, rounds=3)
    market.drive()
    return poll_as(market.worker(payout=market.workers[0].address, consent=1))


@gives(Idle.OPERATOR_HOLDS)
def one_beside_its_operators_money(new_market: NewMarket) -> SimWorker:
    market = open_voted_job(new_market, proven=3, tasks_per_round=2, rounds=3)
    market.drive()
    return poll_as(market.worker(payout=market.workers[0].address, consent=1, reserved=0))


@gives(Idle.NOT_IN_CREW)
def one_that_is_not_of_the_crew(new_market: NewMarket) -> SimWorker:
    market = open_voted_job(new_market, proven=4)
    (outside,) = [one for one in market.workers if explain(market, one).kind is Idle.NOT_IN_CREW]
    return outside


@gives(Idle.NO_TRIAL)
def one_newcomer_too_many(new_market: NewMarket) -> SimWorker:
    market = new_market(tasks_per_round=3, replication=ALONE)
    known = poll_as(market.worker(), capacity=0)
    change(market, Worker, known.address, accepted_at=market.clock())
    market.worker().request_work()
    return poll_as(market.worker())


@gives(Idle.PROVEN_VOTE)
def one_newcomer_where_proven_ones_vote_without_an_auditor(new_market: NewMarket) -> SimWorker:
    market = new_market(audited_classes=(), replication={"name": "proven"})
    prove(market, *(market.worker() for _ in range(3)))
    change(market, Job, market.job, determinism_class=CLASS)
    for worker in market.workers:
        worker.send_poll()
    return poll_as(market.worker())


@gives(Idle.OTHERS_DRAWN)
def one_that_the_draw_may_still_choose(new_market: NewMarket) -> SimWorker:
    market = new_market()
    three = [market.worker() for _ in range(3)]
    market.gather()
    give_back(three[0])
    return poll_as(market.worker())


@gives(Idle.TOO_FEW)
def one_of_two_left(new_market: NewMarket) -> SimWorker:
    market = open_second(new_market)
    market.worker()
    return poll_as(market.worker())


@pytest.mark.parametrize(("kind", "words"), CASES, ids=[state.__name__ for state in CASES.values()])
def test_a_reason_is_given_in_its_words(new_market: NewMarket, kind: Reason | Idle, words: str) -> None:
    worker = CASES[kind, words](new_market)
    found = explain(worker.market, worker)
    named = kind not in (Idle.NO_JOB, Idle.HELD_UP, Idle.NO_TASK, Idle.CHAIN)
    assert found == LeaseReason(kind, f"test: {words.strip()}" if named else words)


def test_each_reason_has_a_case() -> None:
    assert {kind for kind, _words in CASES} == {*Reason, *Idle}


def test_a_job_that_the_worker_serves_gives_the_reason(new_market: NewMarket) -> None:
    """The first job of the list pays too little, or is another one than it named."""
    market = open_second(new_market)
    market.also(ELSEWHERE, 8)
    worker = poll_as(market.worker(), jobs=[ELSEWHERE])
    assert explain(market, worker).kind is not Reason.OTHER_JOB


@pytest.mark.parametrize(("seconds", "words"), [(119.0, "119 s"), (120.0, "2 min"), (5400.0, "90 min")])
def test_a_time_is_in_seconds_below_two_minutes(seconds: float, words: str) -> None:
    assert explanations.describe_seconds(seconds) == words
