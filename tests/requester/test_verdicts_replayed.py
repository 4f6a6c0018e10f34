"""A verdict replayed from its evidence alone: honest evidence is faultless, and every lie in it is found."""

from collections.abc import Callable
from typing import Any

import pytest

from gradmarket.market.features.verify import VerdictCase, list_case_faults
from gradmarket.market.job import Publication
from gradmarket.market.rules.proof import Fault
from gradmarket.market.signing import address_of
from gradmarket.market.terms import JobState, TaskState
from gradmarket.market.wire.evidence import PublishedEvidence
from requester.features.records.evidence_routes import evidence_of
from requester.store.tables import Job, Task
from tests.kit.behaviour import COMMIT_AND_STALL, HONEST, IDLE, NOISE, SIGN_FLIP, WITHHOLDER, Behaviour
from tests.lanes import leave_to_full
from tests.requester.market_auditor import SimAuditor
from tests.requester.market_fixture import MarketFixture

NewMarket = Callable[..., MarketFixture]
Shown = dict[str, Any]
NOTHING = "0x" + "00" * 32
OTHER = "blake3:" + "0" * 64


def shown(market: MarketFixture, task: Task) -> Shown:
    """As the API answers."""
    with market.reading() as reader:
        return evidence_of(reader, task).model_dump(mode="json")


def found(market: MarketFixture, told: Shown) -> set[Fault]:
    with market.reading() as reader:
        publication = Publication.model_validate(reader.get_one(Job, market.job).publication)
    evidence = PublishedEvidence.model_validate(told)
    case = VerdictCase(market.context.domain, address_of(market.signer), publication.checks, evidence)
    return {finding.fault for finding in list_case_faults(case)}


def changed(told: Shown, *path: Any, value: Any) -> Shown:
    """Returns a deep copy with one changed value."""
    key, *rest = path
    items = list(told) if isinstance(told, list) else dict(told)
    items[key] = changed(items[key], *rest, value=value) if rest else value  # type: ignore[index,call-overload]
    return items  # type: ignore[return-value]


@pytest.fixture
def judged(new_market: NewMarket) -> tuple[MarketFixture, Task]:
    """A task that two decided against a third, and that no audit was drawn for."""
    market = new_market(audit={"probability": 1e-9})
    market.worker(SIGN_FLIP), market.worker(), market.worker()
    market.play()
    (task,) = market.tasks()
    assert task.state == TaskState.FINAL
    return market, task


def test_evidence_proves_its_verdicts_and_each_lie_in_it_is_found(judged: tuple[MarketFixture, Task]) -> None:
    market, task = judged
    told = shown(market, task)
    assert found(market, told) == set()
    outvoted = next(n for n, replica in enumerate(told["replicas"]) if replica["root"] != told["root"])
    winner = next(n for n, replica in enumerate(told["replicas"]) if replica["root"] == told["root"])
    wrong = told["replicas"][outvoted]["root"]
    agreed = told["replicas"][outvoted] | {"state": "agree", "outcome": 1, "verdict_root": wrong}
    paid = changed(told, "replicas", outvoted, value=agreed | {"state": "payable"})
    lies: list[tuple[Fault, Shown]] = [
        (Fault.UNSIGNED_OFFER, changed(told, "offer", "price", value=11)),
        (Fault.OTHER_OFFER, changed(told, "offer", "round", value=1)),
        (Fault.UNSIGNED_COMMITMENT, changed(told, "replicas", winner, "sealed", value=NOTHING)),
        (Fault.BROKEN_COMMITMENT, changed(told, "replicas", winner, "salt", value=NOTHING)),
        (Fault.OTHER_COMMITMENTS, changed(told, "replicas", winner, "wave", value=1)),
        (Fault.WRONG_SECRET, changed(told, "waves", 0, "secret", value=NOTHING)),
        (Fault.OTHER_SEED, changed(told, "waves", 0, "seed", value=NOTHING)),
        (Fault.OTHER_TASK_ROOT, changed(told, "root", value=wrong)),
        (Fault.UNSIGNED_VERDICT, changed(told, "replicas", winner, "outcome", value=2)),
        (Fault.REJECTED_UNPROVEN, changed(told, "replicas", winner, "outcome", value=2)),
        (Fault.PAID_WITHOUT_AUDIT, changed(paid, "replicas", outvoted, "verdict_root", value=wrong)),
        (Fault.AGAINST_QUORUM, changed(paid, "replicas", outvoted, value=agreed)),
        (Fault.OTHER_ROOT, changed(told, "replicas", winner, "verdict_root", value=wrong)),
        (Fault.REJECTED_UNPROVEN, changed(told, "replicas", outvoted, "verdict_root", value=wrong)),
        (Fault.WRONG_LINK, changed(told, "audit_link", value=NOTHING)),
        (Fault.NO_LINK, changed(told, "audit_link", value=None)),
        (Fault.OTHER_PLAN, changed(told, "plan", "audit", value=0.5)),
    ]
    for fault, lie in lies:
        assert fault in found(market, lie), fault


def test_a_vindicated_worker_is_proven_right_by_the_audit(new_market: NewMarket) -> None:
    market = new_market(audit={"probability": 1.0}, rounds=1, tasks_per_round=2)
    market.worker(SIGN_FLIP), market.worker(SIGN_FLIP), market.worker()
    market.until(lambda: any(task.state == TaskState.ACCEPTED for task in market.tasks()))
    SimAuditor(market).work()
    task = next(task for task in market.tasks() if task.state == TaskState.REVOKED)
    assert found(market, shown(market, task)) == {Fault.NOT_SHOWN}
    market.cancel()
    told = shown(market, task)
    assert found(market, told) == set()
    assert Fault.PAID_WITHOUT_AUDIT in found(market, changed(told, "audit", "root", value=OTHER))
    assert Fault.PAID_WITHOUT_AUDIT in found(market, changed(told, "audit", value=None))


@pytest.mark.parametrize(
    "others", leave_to_full([[NOISE] * 2, [WITHHOLDER], [WITHHOLDER] * 2, [COMMIT_AND_STALL] * 2, [IDLE]])
)
def test_however_its_workers_behave_an_honest_market_s_evidence_is_proven(
    new_market: NewMarket, others: list[Behaviour]
) -> None:
    """Every attempt, failed ones and those that are called off included, once nothing of it is kept back."""
    market = new_market(rounds=1, tasks_per_round=2)
    for behaviour in [HONEST, HONEST, *others]:
        market.worker(behaviour)
    market.play(passes=30)
    if market.state() == JobState.RUNNING:
        market.cancel()
    faults_of = {task.id: found(market, shown(market, task)) for task in market.tasks()}
    assert {fault for faults in faults_of.values() for fault in faults} <= {Fault.NOT_SHOWN}
    assert set() in faults_of.values()


def test_a_task_that_is_not_decided_shows_nothing_to_copy(new_market: NewMarket) -> None:
    market = new_market()
    for _ in range(3):
        market.worker(NOISE)
    market.gather()
    market.commit()
    (task,) = market.tasks()
    told = shown(market, task)
    assert found(market, told) == {Fault.NOT_SHOWN}
    assert told["audit_link"] is None
