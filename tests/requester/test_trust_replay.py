"""The runs behind docs/trust.md go as the service goes: what it drew is given to them, and they come to the same."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from market_auditor import SimAuditor, audits_of
from market_floor import Floor
from market_workers import scaled

from benchmarks.trust.defences import Crew
from benchmarks.trust.replay import Replayed, Task
from benchmarks.trust.run import Setting
from gradmarket.market.gradient.merge import Answer
from gradmarket.market.job import JobSpec
from gradmarket.market.terms import Digest, JobState, TaskState
from gradmarket.requester.stages.aftermath import IN_FLIGHT
from gradmarket.requester.stages.audit import DRAWN
from gradmarket.requester.store.tables import Reputation

ROUNDS, TASKS = 5, 3
NO_ANSWER = Answer(b"", b"")
RIGHT = Digest("blake3:" + "0" * 64)
NewFloor = Callable[..., Floor]


def played(floor: Floor) -> None:
    """With an auditor that is as late as the service bears: it runs one audit whenever the job stands still."""
    auditor = SimAuditor(floor)
    while floor.state() == JobState.RUNNING:
        floor.until(lambda: _stands_still(floor))
        before = len(floor.tasks())
        while floor.state() == JobState.RUNNING and len(floor.tasks()) == before and (claimed := auditor.claim()):
            again = 0
            while auditor.answer(claimed, again):
                again += 1
            floor.lapse(2.0)


def _stands_still(floor: Floor) -> bool:
    return not any(task.state in IN_FLIGHT for task in floor.tasks())


class Told(Replayed):
    """A run of which the service tells who agreed on what and which audits were drawn; nothing is computed."""

    def __init__(self, floor: Floor, liars: set[str]) -> None:
        self.setting = Setting(workers=TASKS, hostile=0)
        self._plan = JobSpec.model_validate(floor.the_job().spec).plan()
        self._seed = 0
        self.models = [None]  # type: ignore[list-item]
        self.made: dict[str, Task] = {}
        self.taken_back: list[int] = []
        self.crew = Crew(0, 0, None)  # type: ignore[arg-type]
        rows = {task.id: task for task in floor.tasks()}
        drawn = {audit.task_id for audit in audits_of(floor) if audit.reason == DRAWN}
        self._waiting: dict[tuple[int, int], list[tuple[str, Task]]] = defaultdict(list)
        for event in floor.events("accepted"):
            row, paid = rows[event["task"]], frozenset(event["paid"])
            right = RIGHT if paid <= liars else Digest(row.root)
            told = Task(row.round, row.index, paid, NO_ANSWER, Digest(row.root), right, row.id in drawn)  # type: ignore[arg-type]
            self._waiting[row.round, row.index].append((row.id, told))

    def _honest(self, *_: Any) -> list[Any]:
        return []

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


@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("probability", [0.3, 0.9])
def test_the_same_rounds_are_taken_back_and_the_same_tasks_audited(new_floor: NewFloor, probability: float) -> None:
    """Each run of this test draws anew: the draws depend on the contract's address."""
    audit = {"probability": probability, "on_failure": "replay"}
    floor = new_floor(rounds=ROUNDS, tasks_per_round=TASKS, audit=audit)
    honest = [floor.worker() for _ in range(4)]
    liars = {floor.worker(scaled(3.0)).address for _ in range(3)}
    played(floor)
    told = Told(floor, liars)
    told._train(ROUNDS, None)
    assert told.taken_back or probability < 0.5
    assert told.taken_back == [event["round"] for event in floor.events("rewound")]
    assert set(told.made) == {event["task"] for event in floor.events("accepted")}
    assert {name for name, task in told.made.items() if task.audited} == {audit.task_id for audit in audits_of(floor)}
    revoked = {task.id for task in floor.tasks() if task.state == TaskState.REVOKED}
    assert {name for name, task in told.made.items() if task.audited and task.root != task.right} == revoked
    assert told.crew.caught == {row.operator for row in floor.all(Reputation, Reputation.failed_at.is_not(None))}
    assert not told.crew.caught & {worker.address for worker in honest}
