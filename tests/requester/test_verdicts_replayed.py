"""A verdict replayed from its evidence alone: what honest evidence proves, and every lie in it found."""

from collections.abc import Callable
from typing import Any

import pytest

from gradmarket.market.job import Publication
from gradmarket.market.signing import address_of
from gradmarket.market.terms import TaskState
from gradmarket.requester.api.round_routes import evidence_of
from gradmarket.requester.store.tables import Job, Task
from gradmarket.verdicts import ReplayedEvidence, VerdictCase, faults
from tests.databases import SQLITE
from tests.requester.market_auditor import SimAuditor
from tests.requester.market_fixture import MarketFixture
from tests.requester.market_workers import NOISE, SIGN_FLIP

NewFloor = Callable[..., MarketFixture]
Shown = dict[str, Any]
NOTHING = "0x" + "00" * 32
OTHER = "blake3:" + "0" * 64


def shown(market: MarketFixture, task: Task) -> Shown:
    """As the API answers."""
    with market.reading() as reader:
        return evidence_of(reader, task).model_dump(mode="json")


def found(market: MarketFixture, told: Shown) -> list[str]:
    with market.reading() as reader:
        publication = Publication.model_validate(reader.get_one(Job, market.job).publication)
    return faults(
        VerdictCase(
            market.context.domain, address_of(market.signer), publication, ReplayedEvidence.model_validate(told)
        )
    )


def changed(told: Shown, *path: Any, value: Any) -> Shown:
    """A deep copy with one thing told otherwise."""
    key, *rest = path
    items = list(told) if isinstance(told, list) else dict(told)
    items[key] = changed(items[key], *rest, value=value) if rest else value  # type: ignore[index,call-overload]
    return items  # type: ignore[return-value]


@pytest.fixture
def judged(new_floor: NewFloor) -> tuple[MarketFixture, Task]:
    """A task that two decided against a third, and that no audit was drawn for."""
    market = new_floor(audit={"probability": 1e-9})
    market.worker(SIGN_FLIP), market.worker(), market.worker()
    market.play()
    (task,) = market.tasks()
    assert task.state == TaskState.FINAL
    return market, task


@SQLITE
def test_evidence_proves_its_verdicts_and_each_lie_in_it_is_found(judged: tuple[MarketFixture, Task]) -> None:
    market, task = judged
    told = shown(market, task)
    assert found(market, told) == []
    outvoted = next(n for n, replica in enumerate(told["replicas"]) if replica["root"] != told["root"])
    winner = next(n for n, replica in enumerate(told["replicas"]) if replica["root"] == told["root"])
    wrong = told["replicas"][outvoted]["root"]
    lies: list[tuple[str, Shown]] = [
        ("not signed by", changed(told, "offer", "price", value=11)),
        ("digest is another", changed(told, "offer", "round", value=1)),
        ("commitment is not signed", changed(told, "replicas", winner, "sealed", value=NOTHING)),
        ("do not open its commitment", changed(told, "replicas", winner, "salt", value=NOTHING)),
        ("closed over other commitments", changed(told, "replicas", winner, "wave", value=1)),
        ("does not lead to the offer's anchor", changed(told, "waves", 0, "secret", value=NOTHING)),
        ("another seed", changed(told, "waves", 0, "seed", value=NOTHING)),
        ("by its ballots the task has the root", changed(told, "root", value=wrong)),
        ("verdict is not signed", changed(told, "replicas", winner, "outcome", value=2)),
        ("rejected, and its ballot is the quorum's", changed(told, "replicas", winner, "outcome", value=2)),
        ("promised pay for another root", changed(told, "replicas", outvoted, "outcome", value=1)),
        ("promised pay for another root than its own", changed(told, "replicas", winner, "verdict_root", value=wrong)),
        ("rejected for a root that the quorum", changed(told, "replicas", outvoted, "verdict_root", value=wrong)),
        ("the link that draws audits", changed(told, "audit_link", value=NOTHING)),
        ("the link that draws audits is not shown", changed(told, "audit_link", value=None)),
        ("the job promises another", changed(told, "plan", "audit", value=0.5)),
    ]
    for words, lie in lies:
        assert any(words in fault for fault in found(market, lie)), words


@SQLITE
def test_a_vindicated_worker_is_proven_right_by_the_audit(new_floor: NewFloor) -> None:
    market = new_floor(audit={"probability": 1.0}, rounds=1, tasks_per_round=2)
    market.worker(SIGN_FLIP), market.worker(SIGN_FLIP), market.worker()
    market.until(lambda: any(task.state == TaskState.ACCEPTED for task in market.tasks()))
    SimAuditor(market).work()
    task = next(task for task in market.tasks() if task.state == TaskState.REVOKED)
    assert found(market, shown(market, task)) == ["no ballot is shown yet: evidence opens when the task is decided"]
    market.cancel()
    told = shown(market, task)
    assert found(market, told) == []
    assert any(
        "no audit found its root" in fault for fault in found(market, changed(told, "audit", "root", value=OTHER))
    )
    assert any("no audit found its root" in fault for fault in found(market, changed(told, "audit", value=None)))


@SQLITE
def test_a_task_that_is_not_decided_shows_nothing_to_copy(new_floor: NewFloor) -> None:
    market = new_floor()
    for _ in range(3):
        market.worker(NOISE)
    market.gather()
    market.commit()
    (task,) = market.tasks()
    told = shown(market, task)
    assert found(market, told) == ["no ballot is shown yet: evidence opens when the task is decided"]
    assert told["audit_link"] is None
