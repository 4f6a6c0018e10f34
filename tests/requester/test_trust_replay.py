"""The runs behind docs/results/attacks.md go as the service goes: its draws in, its results out."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.trust.defences import Crew
from benchmarks.trust.replay import Replayed, Task
from benchmarks.trust.run import Setting
from gradmarket.market.gradient.round_merge import MergedAnswer
from gradmarket.market.job import JobSpec
from gradmarket.market.terms import Address, Digest, JobState, TaskState
from requester.features.audits.audit_draws import DRAWN, SUSPECT
from requester.features.audits.auditor_claims import Claimed
from requester.features.audits.rollback import IN_FLIGHT
from requester.store.tables import Reputation
from requester.store.tables import Task as TaskRow
from tests.kit.behaviour import Arrays as Answered
from tests.kit.behaviour import Behaviour, scaled
from tests.lanes import FULL
from tests.requester.market_auditor import SimAuditor, audits_of
from tests.requester.market_fixture import DEADLINES, MarketFixture, first_parameters

ROUNDS, TASKS = 5, 3
HUGE = 1e6
"""Times the honest gradient: over the job's norm bound."""
RIGHT = Digest("blake3:" + "0" * 64)
NewMarket = Callable[..., MarketFixture]


def played(market: MarketFixture) -> None:
    """Plays with the latest auditor that the service bears: it runs one audit whenever the job stands still.

    While the job is paused it runs the audits of diverged answers, and no other.
    """
    auditor = SimAuditor(market)
    while market.state() != JobState.FINISHED:
        market.until(lambda: _stands_still(market))
        if market.state() == JobState.PAUSED:
            _lift(market, auditor)
            continue
        before = len(market.tasks())
        while market.state() == JobState.RUNNING and len(market.tasks()) == before and (claimed := auditor.claim()):
            _answer(auditor, claimed)
            market.lapse(2.0)


def _stands_still(market: MarketFixture) -> bool:
    """Returns whether all leases are answered; a paused job gives out none."""
    out = set(IN_FLIGHT) - ({TaskState.OPEN} if market.state() == JobState.PAUSED else set())
    return not any(task.state in out for task in market.tasks())


def _lift(market: MarketFixture, auditor: SimAuditor) -> None:
    """Lets the claims of other due audits lapse unanswered."""
    claims = list(iter(auditor.claim, None))
    market.lapse(DEADLINES["lease_s"] + 1.0)
    suspects = {audit.task_id for audit in audits_of(market) if audit.reason == SUSPECT}
    for claimed in claims:
        if claimed.task in suspects:
            _answer(auditor, claimed)
    market.drive()
    assert market.state() == JobState.RUNNING


def _answer(auditor: SimAuditor, claimed: Claimed) -> None:
    again = 0
    while auditor.answer(claimed, again):
        again += 1


class Told(Replayed):
    """A run replayed from the service's record of agreements and drawn audits; nothing is computed."""

    def __init__(self, market: MarketFixture, liars: set[str]) -> None:
        self.setting = Setting(workers=TASKS, hostile=0)
        spec = JobSpec.model_validate(market.the_job().spec)
        self._plan, self._final_after = spec.plan(), spec.final_after
        self._seed = 0
        self.models = [None]  # type: ignore[list-item]
        self.made: dict[str, Task] = {}
        self.taken_back: list[int] = []
        self.crew = Crew(0, 0, None)  # type: ignore[arg-type]
        due = {audit.task_id for audit in audits_of(market) if audit.reason in (DRAWN, SUSPECT)}
        diverged = market.events("diverged")
        paid = {event["task"]: frozenset(event["paid"]) for event in market.events("accepted") + diverged}
        self._waiting: dict[tuple[int, int], list[tuple[str, Task]]] = defaultdict(list)
        self._norms: dict[bytes, float] = {}
        for row in market.tasks(TaskRow.id.in_(paid)):
            root, place = Digest(row.root or ""), (row.round, row.index)
            right = RIGHT if paid[row.id] <= liars else root
            fate = row.id in due, any(event["task"] == row.id for event in diverged)
            answer = MergedAnswer(b"", row.id.encode())
            self._norms[row.id.encode()] = row.norm or 0.0
            self._waiting[place].append((row.id, Task(*place, paid[row.id], answer, root, right, *fate)))

    def _honest(self, *_: Any) -> list[Any]:
        return []

    def _norm(self, answer: MergedAnswer) -> float:
        return self._norms[answer.seed]

    def _merged(self, *_: Any) -> Any:
        return None

    def _accept(self, crew: Crew, _attack: Any, number: int, index: int, _honest: Any) -> Task:
        self.crew = crew
        name, told = self._waiting[number, index].pop(0)
        self.made[name] = told
        return told

    def _take_back(self, number: int) -> None:
        self.taken_back.append(number)
        super()._take_back(number)


def _ever_longer(answer: Answered, address: Address) -> Answered:
    """Within the bound in the first round and beyond it later: an audit of the second lie is to find the first."""
    factor = 3.0 if answer["loss"] == np.square(first_parameters()["w"]).sum() else HUGE
    return scaled(factor).spoil(answer, address)


USABLE, DIVERGING, BOTH = scaled(3.0), scaled(HUGE), Behaviour(_ever_longer)


@FULL
@pytest.mark.databases("sqlite")
@pytest.mark.parametrize(
    ("lie", "probability", "final_after"),
    [(DIVERGING, 0.3, 2), (USABLE, 0.3, 2), (USABLE, 0.3, 4), (USABLE, 0.9, 2), (BOTH, 0.02, 2), (BOTH, 0.9, 2)],
)
def test_the_same_rounds_are_taken_back_and_the_same_tasks_audited(
    new_market: NewMarket, probability: float, lie: Behaviour, final_after: int
) -> None:
    """Each run of this test draws anew: the draws depend on the contract's address."""
    audit = {"probability": probability, "on_failure": "replay", "final_after": final_after}
    market = new_market(rounds=ROUNDS, tasks_per_round=TASKS, audit=audit)
    honest = {market.worker().address for _ in range(3)}
    liars = {market.worker(lie).address for _ in range(3)}
    for worker in market.workers:
        worker.capacity = TASKS
    played(market)
    told = Told(market, liars)
    told._train(ROUNDS, None)
    diverged = {event["task"] for event in market.events("diverged")}
    assert told.taken_back or (lie, probability) != (USABLE, 0.9)
    assert diverged or lie != DIVERGING
    assert told.taken_back == [event["round"] for event in market.events("rewound")]
    assert set(told.made) == {event["task"] for event in market.events("accepted")} | diverged
    assert {name for name, task in told.made.items() if task.audited} == {audit.task_id for audit in audits_of(market)}
    revoked = {task.id for task in market.tasks() if task.state == TaskState.REVOKED}
    assert {name for name, task in told.made.items() if task.audited and task.root != task.right} == revoked
    assert diverged <= revoked, "colluders alone diverge"
    assert told._course.diverged == len(diverged)
    assert told.crew.caught == {row.operator for row in market.all(Reputation, Reputation.failed_at.is_not(None))}
    assert not told.crew.caught & honest
