"""An answer that another task had is found out where one replica decides a task; who was copied stays."""

from collections.abc import Callable

from books import check_books
from databases import SQLITE
from market_auditor import SimAuditor, audits_of
from market_floor import PRICE, Floor
from market_workers import SimWorker

from gradmarket.market.terms import AuditState, JobState, TaskState
from gradmarket.market.wire import CommitmentMade, OfferFields
from gradmarket.requester.stages.copies import ALIKE
from gradmarket.requester.store.answers import history
from gradmarket.requester.store.tables import Earned, Reputation, Task

NewFloor = Callable[..., Floor]
ALONE = {"replication": {"name": "audited", "audit": 1e-9}, "norm_bound": 1e6}
"""One replica decides a task, and no audit is drawn."""


class Copier(SimWorker):
    """It gives the first answer that `source` had, whatever it is asked for, and waits for there to be one."""

    source: SimWorker

    def handed(self) -> bytes:
        return next((held.payload for held in self.source.held.values() if held.payload), b"")

    def commitments(self) -> list[CommitmentMade]:
        return super().commitments() if self.source is self or self.handed() else []

    def compute(self, offer: OfferFields) -> bytes:
        return self.handed() or super().compute(offer)


def copier(floor: Floor, source: SimWorker | None = None) -> Copier:
    made = floor.worker()
    made.__class__ = Copier
    assert isinstance(made, Copier)
    made.source = source or made
    return made


def audited(floor: Floor) -> dict[str, tuple[str, AuditState]]:
    return {audit.task_id: (audit.reason, AuditState(audit.state)) for audit in audits_of(floor)}


def copies_of(floor: Floor, worker: SimWorker) -> int:
    with floor.reading() as session:
        return history(session, worker.address).copies


def test_the_copier_loses_all_and_who_was_copied_nothing(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=2, tasks_per_round=2, **ALONE)
    floor.prove_class()
    honest = floor.worker()
    thief = copier(floor, honest)
    floor.until(lambda: floor.earned().get(honest.address) and floor.earned().get(thief.address))
    reasons = {reason for reason, _ in audited(floor).values()}
    assert reasons == {ALIKE}
    floor.workers.remove(thief)
    SimAuditor(floor).play()
    assert floor.state() == JobState.FINISHED
    (told, *_) = floor.events("copied")
    assert told["workers"] == [thief.address]
    assert told["same_as"]
    assert (copies_of(floor, honest), copies_of(floor, thief)) == (0, 1)
    assert {row.operator for row in floor.all(Reputation, Reputation.failed > 0)} == {thief.address}
    assert {row.worker for row in floor.all(Earned, Earned.revoked)} == {thief.address}
    (state,) = {audit for task, (_, audit) in audited(floor).items() if task in told["same_as"]}
    assert state == AuditState.PASSED
    assert floor.earned()[honest.address] >= 4 * PRICE
    check_books(floor)


@SQLITE
def test_an_answer_given_again_in_the_next_round_is_found(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=2, **ALONE)
    floor.prove_class()
    idle = copier(floor)
    floor.until(lambda: audits_of(floor), idle)
    assert list(audited(floor).values()) == [(ALIKE, AuditState.DUE)]
    floor.workers.remove(idle)
    honest = floor.worker()
    SimAuditor(floor).play()
    assert floor.state() == JobState.FINISHED
    assert copies_of(floor, idle) == 1
    assert copies_of(floor, honest) == 0
    clean = new_floor(rounds=2, **ALONE)
    clean.prove_class()
    clean.worker()
    clean.play()
    assert floor.final_parameters() == clean.final_parameters()


@SQLITE
def test_honest_workers_are_never_audited_for_it(new_floor: NewFloor) -> None:
    floor = new_floor(rounds=1, tasks_per_round=3, **ALONE)
    floor.prove_class()
    floor.worker(), floor.worker()
    floor.play()
    assert floor.state() == JobState.FINISHED
    assert audited(floor) == {}
    assert floor.events("copied") == []
    assert len({task.root for task in floor.tasks(Task.state == TaskState.FINAL)}) == 3
    assert [copies_of(floor, worker) for worker in floor.workers] == [0, 0]
