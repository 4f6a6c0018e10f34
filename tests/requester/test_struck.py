"""Strikes are a job's own and an operator's: their cost, their bearers, and their end."""

from sqlalchemy import event, select

from gradmarket.market.rules.strikes import HALF_LIFE_S
from gradmarket.market.terms import JobState, ReplicaState
from requester.exchange import poll
from requester.store import identities, strikes
from requester.store.strikes import StrikeChange
from requester.store.tables import Job, Replica, Worker
from tests.kit.behaviour import IDLE
from tests.lanes import FULL
from tests.requester.market_fixture import MarketFixture
from tests.requester.market_workers import SimWorker

SUSPENDED_ADDRESSES = select(Worker.address).where(strikes.SUSPENDED)

ALONE = {"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}}


def declined(market: MarketFixture, worker: SimWorker) -> None:
    market.gather(worker)
    worker.send_poll(given_up=[worker.give_up(worker.newest())])
    market.drive()


def leased_in(market: MarketFixture, job: str) -> set[str]:
    return {replica.worker for replica in market.all(Replica, Replica.job_id == job)}


def test_strikes_in_one_job_leave_every_other_job_open(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(settings={"max_strikes": 1}, **ALONE)
    worker = market.worker()
    declined(market, worker)
    worker.request_work()
    assert "of this job unanswered" in worker.waiting
    market.also("00000000000000bb", 8, **ALONE)
    worker.request_work()
    assert leased_in(market, "00000000000000bb") == {worker.address}


def test_a_suspended_worker_comes_back_by_itself(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(settings={"max_strikes": 1}, tasks_per_round=2, **ALONE)
    worker = market.worker()
    declined(market, worker)
    worker.request_work()
    assert len(market.replicas(worker)) == 1
    market.lapse(HALF_LIFE_S + 1)
    worker.request_work()
    assert len(market.replicas(worker)) == 2


def test_all_strikes_of_a_transaction_are_locked_by_one_statement_after_the_accounts(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(tasks_per_round=3, **ALONE)
    team = [market.worker() for _ in range(3)]
    market.gather()
    said = [worker.poll(given_up=[worker.give_up(worker.newest())]) for worker in team]
    locks: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_others: object) -> None:
        locks.extend(
            name
            for name in ("accounts", "strikes")
            if statement.startswith(f"SELECT {name}.") and "ORDER BY" in statement
        )

    engine = market.context.sessions.kw["bind"]
    event.listen(engine, "before_cursor_execute", note)
    poll.handle_polls(market.context, said)
    event.remove(engine, "before_cursor_execute", note)
    assert locks == ["accounts", "strikes"]
    assert [market.strikes(worker) for worker in team] == [1, 1, 1]


def test_fresh_wallets_of_one_operator_have_its_strikes(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(settings={"max_strikes": 2}, tasks_per_round=4, **ALONE)
    first = market.worker()
    second = market.worker(payout=first.address, consent=1)
    market.gather()
    for worker in (first, second):
        worker.send_poll(given_up=[worker.give_up(worker.newest())])
    fresh, stranger = market.worker(payout=first.address, consent=2), market.worker()
    market.gather(fresh, stranger)
    assert market.replicas(fresh) == []
    assert len(market.replicas(stranger)) == 1


def test_a_worker_with_another_s_payout_address_strikes_itself_alone(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(settings={"max_strikes": 1}, **ALONE)
    victim = market.worker()
    liar = market.worker(payout=victim.address)
    declined(market, liar)
    assert (market.strikes(liar), market.strikes(victim)) == (1, 0)


def test_a_worker_that_joins_an_operator_keeps_its_wallet_s_strikes(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(settings={"max_strikes": 1}, tasks_per_round=2, **ALONE)
    worker, boss = market.worker(), market.worker()
    market.gather(worker)
    worker.send_poll(given_up=[worker.give_up(worker.newest())])
    with market.context.begin() as work:
        identities.sign_in(work, worker.address, boss.address, None, market.clock(), 1)
    worker.request_work()
    assert len(market.replicas(worker)) == 1
    assert "comes back by itself" in worker.waiting
    assert market.strikes(boss) == 0


@FULL
def test_answers_that_come_too_late_cost_strikes(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=4, settings={"max_strikes": 2})
    staller, *_honest = market.worker(IDLE), market.worker(), market.worker(), market.worker()
    market.play()
    assert market.state() == JobState.FINISHED
    assert {replica.state for replica in market.replicas(staller)} <= {ReplicaState.TOO_LATE, ReplicaState.EXPIRED}
    assert len(market.replicas(staller)) <= 2


def test_withheld_answers_in_three_jobs_suspend_in_every_job(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(settings={"max_strikes": 1})
    worker, other = market.worker(), market.worker()
    jobs = [f"00000000000000b{number}" for number in range(4)]
    for number, job in enumerate(jobs):
        market.also(job, 20 + number)
    with market.context.begin() as work:
        operators = [work.get_one(Worker, worker.address).operator]
        struck = [StrikeChange(job, operator, True, job in jobs[:2]) for job in jobs for operator in operators]
        strikes.change_strikes(work, struck, market.clock(), 1)

    def suspended() -> dict[str, bool]:
        with market.reading() as reader:
            found = {}
            for name in (market.job, *jobs):
                listed = set(reader.session.scalars(SUSPENDED_ADDRESSES, {"job": name, "now": market.clock()}))
                row = reader.get_one(Worker, worker.address)
                assert bool(strikes.suspended_among(reader, name, [row], market.clock())) == (row.address in listed)
                found[name] = row.address in listed
                assert other.address not in listed
                assert reader.get_one(Job, name)
            return found

    assert suspended() == {market.job: False} | dict.fromkeys(jobs, True)
    with market.context.begin() as work:
        strikes.change_strikes(work, [StrikeChange(jobs[2], name, True, True) for name in operators], market.clock(), 1)
    assert suspended()[market.job], "withheld in three jobs: it is no job's fault"
    market.lapse(2 * HALF_LIFE_S)
    assert not any(suspended().values())
