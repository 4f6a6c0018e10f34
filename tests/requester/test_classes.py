"""Which class a job settles on, and for how long; and how audits prove it.

Three operators' own tasks prove it; until then all that one replica decides is audited.
"""

from collections.abc import Callable
from dataclasses import replace

from gradmarket.market.features.audits import class_checks
from gradmarket.market.rules.assignment import Party
from gradmarket.market.terms import Address, AuditState, JobState, Plan, Units
from requester.features.audits.audit_draws import UNPROVEN
from requester.store.tables import Job, Worker
from tests.kit.behaviour import IDLE, scaled
from tests.lanes import FULL
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import CLASS, PRICE, MarketFixture
from tests.requester.market_workers import SimWorker

NewMarket = Callable[..., MarketFixture]
ALONE = {"replication": {"name": "audited", "audit": 1e-9}, "norm_bound": 1e6}


def test_only_what_one_replica_decides_is_audited_for_certain() -> None:
    assert class_checks.choose_audit_rate(Plan(1, 1, 1, 0.1), False) == 1.0
    assert class_checks.choose_audit_rate(Plan(1, 1, 1, 0.1), True) == 0.1
    assert class_checks.choose_audit_rate(Plan(3, 2, 5, 0.1), False) == 0.1
    ann, bea, cem = (Party(Address(name), name, Address(f"{name}'s"), None) for name in ("ann", "bea", "cem"))
    assert class_checks.is_class_proven([ann, bea, cem])
    assert not class_checks.is_class_proven([ann, bea, ann])
    assert not class_checks.is_class_proven([ann, bea, replace(ann, operator="another key")]), (
        "one wallet, under two keys"
    )


@FULL
def test_three_operators_prove_a_class_and_audits_are_drawn_from_then_on(new_market: NewMarket) -> None:
    market = new_market(tasks_per_round=3, rounds=2, **ALONE)
    workers = [market.worker() for _ in range(3)]
    market.gather()
    assert market.the_job().proven_class is None
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    assert market.the_job().proven_class == CLASS
    (told,) = market.events("class_proven")
    assert told["operators"] == sorted(worker.address for worker in workers)
    assert {(audit.reason, audit.rate, audit.state) for audit in audits_of(market)} == {
        (UNPROVEN, 1.0, AuditState.PASSED)
    }
    assert 3 <= len(audits_of(market)) < len(market.tasks())


@FULL
def test_three_workers_of_one_operator_prove_nothing(new_market: NewMarket) -> None:
    market = new_market(tasks_per_round=3, separation=["network"], **ALONE)
    first = market.worker()
    market.worker(payout=first.address), market.worker(payout=first.address)
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    assert market.the_job().proven_class is None
    assert len(audits_of(market)) == len(market.tasks()) == 3


def test_a_false_claim_is_found_in_its_first_task(new_market: NewMarket) -> None:
    """Whose kernels differ answers otherwise than the class does, and is audited once in a billion tasks by chance."""
    market = new_market(tasks_per_round=2, **ALONE)
    other, honest = market.worker(scaled(1.0001)), market.worker()
    market.until(lambda: market.earned().get(other.address))
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    assert [event["workers"] for event in market.events("audit_failed")] == [[other.address]]
    assert market.earned()[honest.address] > 0


def test_where_replicas_vote_nothing_more_is_audited(new_market: NewMarket) -> None:
    market = new_market(rounds=1, audit={"probability": 1e-9})
    for _ in range(3):
        market.worker()
    market.play()
    assert market.state() == JobState.FINISHED
    assert audits_of(market) == []


def pinned(market: MarketFixture, *workers: SimWorker) -> None:
    """As it was settled while these asked."""
    with market.context.begin() as work:
        work.get_one(Job, market.job).determinism_class = workers[0].determinism_class


def idle_identities(market: MarketFixture, count: int) -> list[SimWorker]:
    """They poll, name a class and never have room, so that none of them is ever drawn."""
    made = [market.worker(IDLE, determinism_class="made-up", reserved=0) for _ in range(count)]
    for worker in made:
        worker.capacity = 0
        worker.request_work()
    return made


def rounds_of(market: MarketFixture, idle: list[SimWorker], *honest: SimWorker) -> None:
    for _ in range(12):
        for worker in idle:
            worker.request_work()
        market.take_turns(*honest)
        market.lapse(2.0)


def test_identities_that_never_have_room_settle_no_class(new_market: NewMarket) -> None:
    market = new_market()
    idle = idle_identities(market, 4)
    assert market.the_job().determinism_class is None
    assert "has 0" in market.why_waiting()
    honest = [market.worker() for _ in range(3)]
    rounds_of(market, idle, *honest)
    assert market.state() == JobState.FINISHED
    assert market.earned() == {worker.address: PRICE for worker in honest}


def test_a_class_ends_when_none_of_its_newcomers_can_be_drawn_any_more(new_market: NewMarket) -> None:
    market = new_market()
    idle = idle_identities(market, 4)
    pinned(market, *idle)
    rounds_of(market, idle, *(market.worker() for _ in range(3)))
    assert market.state() == JobState.FINISHED
    assert market.the_job().determinism_class == CLASS


@FULL
def test_proven_workers_replace_a_class_of_newcomers(new_market: NewMarket) -> None:
    """Even one whose newcomers ask with room, while no known worker of it is there."""
    market = new_market()
    sybils = [market.worker(IDLE, determinism_class="made-up", reserved=0) for _ in range(9)]
    for sybil in sybils:
        sybil.send_poll()
    pinned(market, *sybils)
    known = [market.worker() for _ in range(3)]
    with market.context.begin() as work:
        for worker in known:
            work.get_one(Worker, worker.address).accepted_at = market.clock()
    rounds_of(market, sybils, *known)
    assert market.state() == JobState.FINISHED
    assert market.earned() == {worker.address: PRICE for worker in known}


def test_newcomers_at_work_keep_their_class_though_they_ask_no_more(new_market: NewMarket) -> None:
    market = new_market(tasks_per_round=2)
    team = [market.worker() for _ in range(3)]
    market.gather(*team)
    assert len(market.replicas()) == 3
    for other in [market.worker(determinism_class="other") for _ in range(3)]:
        other.request_work()
    assert market.the_job().determinism_class == CLASS
    assert len(market.replicas()) == 3


def test_newcomers_that_want_more_than_this_job_pays_settle_no_class(new_market: NewMarket) -> None:
    market = new_market()
    for sybil in [market.worker(IDLE, determinism_class="made-up") for _ in range(3)]:
        sybil.send_poll(min_prices={market.job: Units(10**18)})
    market.drive()
    assert market.the_job().determinism_class is None
