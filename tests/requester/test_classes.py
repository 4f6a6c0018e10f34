"""A class is proven by audits of three operators' own tasks; until then all that one replica decides is audited."""

from collections.abc import Callable
from dataclasses import replace

from databases import SQLITE
from market_auditor import SimAuditor, audits_of
from market_fixture import CLASS, MarketFixture
from market_workers import scaled

from gradmarket.market.rules import classes
from gradmarket.market.rules.assignment import Party
from gradmarket.market.rules.replication import Plan
from gradmarket.market.terms import Address, AuditState, JobState
from gradmarket.requester.moves.audit_draws import UNPROVEN

NewFloor = Callable[..., MarketFixture]
ALONE = {"replication": {"name": "audited", "audit": 1e-9}, "norm_bound": 1e6}


def test_only_what_one_replica_decides_is_audited_for_certain() -> None:
    assert classes.rate(Plan(1, 1, 1, 0.1), False) == 1.0
    assert classes.rate(Plan(1, 1, 1, 0.1), True) == 0.1
    assert classes.rate(Plan(3, 2, 5, 0.1), False) == 0.1
    ann, bea, cem = (Party(Address(name), name, Address(f"{name}'s"), None) for name in ("ann", "bea", "cem"))
    assert classes.proven([ann, bea, cem])
    assert not classes.proven([ann, bea, ann])
    assert not classes.proven([ann, bea, replace(ann, operator="another key")]), "one wallet, under two keys"


def test_three_operators_prove_a_class_and_audits_are_drawn_from_then_on(new_floor: NewFloor) -> None:
    market = new_floor(tasks_per_round=3, rounds=2, **ALONE)
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


@SQLITE
def test_three_workers_of_one_operator_prove_nothing(new_floor: NewFloor) -> None:
    market = new_floor(tasks_per_round=3, separation=["network"], **ALONE)
    first = market.worker()
    market.worker(payout=first.address), market.worker(payout=first.address)
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    assert market.the_job().proven_class is None
    assert len(audits_of(market)) == len(market.tasks()) == 3


@SQLITE
def test_a_false_claim_is_found_in_its_first_task(new_floor: NewFloor) -> None:
    """Whose kernels differ answers otherwise than the class does, and is audited once in a billion tasks by chance."""
    market = new_floor(tasks_per_round=2, **ALONE)
    other, honest = market.worker(scaled(1.0001)), market.worker()
    market.until(lambda: market.earned().get(other.address))
    SimAuditor(market).play()
    assert market.state() == JobState.FINISHED
    assert [event["workers"] for event in market.events("audit_failed")] == [[other.address]]
    assert market.earned()[honest.address] > 0


@SQLITE
def test_where_replicas_vote_nothing_more_is_audited(new_floor: NewFloor) -> None:
    market = new_floor(rounds=1, audit={"probability": 1e-9})
    for _ in range(3):
        market.worker()
    market.play()
    assert market.state() == JobState.FINISHED
    assert audits_of(market) == []
