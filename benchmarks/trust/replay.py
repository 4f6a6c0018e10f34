"""A run as the service plays an audited job: votes, audits drawn after acceptance, merged lies taken back.

The rules of drawing, voting, auditing, inspecting and merging are the market's own. A failed audit has the consequences
of requester.features.audits: the answer is revoked and its workers barred;
all that is not final and has one of them behind it is audited, or all where more rounds are kept than must be, as is
the same answer given again. Once no audit is left the first wrong round opens again with its other answers, and what
came after it is done anew.
tests/requester/test_trust_replay.py holds the two side by side.

The auditor is as late as the service bears: a round's audits are over only when the round two after it is to open. It
is final then, or some rounds later (`audit.final_after`). All tasks of a round are out at once. An answer that diverges
pauses the job, and nothing is given out before its audit is over: that one is run at once, and where it fails the task
is done again. Where it passes, lies that were merged have made the honest gradients too long. The auditor then runs
all due audits, and the requester resumes the job if they take rounds back; if not, the job stays paused, and its
model stays.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from benchmarks.trust.attacks import QUIET
from benchmarks.trust.defences import VOTES, Crew, Decided, Defence, agreed
from benchmarks.trust.run import Run, Setting
from benchmarks.trust.workloads import Trained
from gradmarket.market.features.audits import auditing, class_checks
from gradmarket.market.features.proven import seat_rules
from gradmarket.market.gradient.arrays import Tensors
from gradmarket.market.gradient.round_merge import MergedAnswer
from gradmarket.market.rules import assignment, secrets
from gradmarket.market.rules.overlap import ROUNDS_BEHIND
from gradmarket.market.rules.replication import proven
from gradmarket.market.terms import Address, Digest, Hash, Plan, blob_digest, domain_hash
from gradmarket.market.wire.poll import hash_of

ALONE: Final = Plan(first_wave=1, quorum=1, maximum=1)
"""One worker answers, and the auditor decides."""
CONVICTING: Final = 2
"""Computations of an audit that fails: the convicting auditor has found the same twice."""


@dataclass
class Task:
    """An accepted one that is not final, or one that diverged. `right`: the root that an auditor finds."""

    round: int
    index: int
    agreeing: frozenset[int]
    answer: MergedAnswer
    root: Digest
    right: Digest
    due: bool
    """An audit of it waits."""
    diverged: bool = False
    """Its answer is over the norm bound: paid, audited for certain, never merged."""
    audited: bool = False


@dataclass
class Course:
    """The costs of a run."""

    accepted: int = 0
    """Tasks, those that were taken back among them."""
    needed: int = 0
    audits: int = 0
    """Tasks that the auditor computed."""
    failed: int = 0
    diverged: int = 0
    """Tasks answered beyond the norm bound, which pauses the job until they are audited."""
    rounds: int = 0
    """Merges, those that were taken back among them."""
    gone: int | None = None
    """Merges after which too few colluders were left for a quorum; None where they never were."""
    left: int = 0
    """Colluders at large in the end."""
    paused: bool = False
    """An honest answer diverged, and no audit that was due took back why."""


class Replayed(Run):
    """`courses` and `accuracies`: of every hostile run so far, by attack."""

    def __init__(self, trained: Trained, defence: Defence, setting: Setting) -> None:
        self.courses: dict[str, list[Course]] = {}
        self.accuracies: dict[str, list[float]] = {}
        self._seed = 0
        self._plan = defence.plan or VOTES
        self._final_after = defence.final_after
        super().__init__(trained, defence, setting)

    def accuracy(self, attack: str | None) -> float:
        """The worst of the setting's tries."""
        found = []
        for seed in range(1 if attack is None else self.setting.tries):
            self._seed = seed
            found.append(super().accuracy(attack))
            self.courses.setdefault(attack or "", []).append(self._course)
        self.accuracies[attack or ""] = found
        return min(found)

    def _train(self, rounds: int, attack: str | None) -> None:
        shared = Crew(self.setting.workers, self.setting.hostile, Random(self._seed))
        self._tasks: dict[tuple[int, int], Task] = {}
        self._attempts: dict[tuple[int, int], int] = {}
        self._wrong: set[Digest] = set()
        self._alert_until = -1
        self._course = Course(needed=(rounds - len(self.models) + 1) * self.setting.workers)
        while True:
            closed = len(self.models) - 1
            wrong = self._audit(shared, closed - 1 if closed == rounds else closed - ROUNDS_BEHIND)
            if wrong is not None:
                self._take_back(wrong)
            elif closed == rounds or self._course.paused:
                self._course.left = shared.at_large()
                return
            else:
                self._finish(closed - self._final_after)
                self._play(shared, attack)

    def _play(self, shared: Crew, attack: str | None) -> None:
        """The round's tasks that have no accepted attempt, and its merge."""
        number, model = len(self.models) - 1, self.models[-1]
        honest = self._honest(model, number)
        while missing := [index for index in range(self.setting.workers) if (number, index) not in self._tasks]:
            for index in missing:
                self._tasks[number, index] = self._accept(shared, attack, number, index, honest)
            if self._clear(shared):
                self._look_back(shared)
                return
        answers = [self._tasks[number, index].answer for index in range(self.setting.workers)]
        self._order_long_audits(number)
        self.models.append(self._merged(model, answers))
        self._course.rounds += 1
        if self._course.gone is None and shared.at_large() < self._plan.quorum:
            self._course.gone = self._course.rounds - 1

    def _order_long_audits(self, number: int) -> None:
        tasks = {task_id: self._tasks[number, int(task_id)] for task_id in map(str, range(self.setting.workers))}
        norms = {task_id: self._norm(task.answer) for task_id, task in tasks.items()}
        for task_id in auditing.list_long_answers(norms):
            tasks[task_id].due |= not tasks[task_id].audited

    def _accept(self, shared: Crew, attack: str | None, number: int, index: int, honest: Sequence[Tensors]) -> Task:
        """By attempt after attempt: where there is no quorum the task is issued again."""
        while True:
            attempt = self._attempts[number, index] = self._attempts.get((number, index), -1) + 1
            secret = _secret(self._seed, number, index, attempt)
            plan = ALONE if self._is_audited(number) else self._plan
            decided = self._decided(shared, plan, self._restrain(attack), secret)
            if decided is not None:
                decided = self._refer(shared, decided) if plan is ALONE else decided
                answer = self._answer(index, honest, None if decided.honest else attack)
                task = self._drawn(number, index, decided, answer, honest, secret)
                return replace(task, due=task.diverged, audited=True) if plan is ALONE else task

    def _is_audited(self, number: int) -> bool:
        """Returns whether the round is one whose tasks an audit settles before they are accepted, as `proven` does."""
        is_last = number >= self.trained.workload.rounds - proven.LAST
        return self._plan.referred and (is_last or number <= self._alert_until)

    def _refer(self, shared: Crew, decided: Decided) -> Decided:
        """Has the auditor settle the task of a worker that answers alone, which votes no more where it lied."""
        self._course.audits += 1
        shared.caught |= frozenset() if decided.honest else decided.agreeing
        return replace(decided, honest=True)

    def _clear(self, shared: Crew) -> list[Task]:
        """Audits diverged answers; returns the right ones, whose places are empty again."""
        suspects = [task for task in self._tasks.values() if task.diverged]
        self._course.diverged += len(suspects)
        right = [task for task in suspects if self._examine(shared, task)]
        for task in right:
            del self._tasks[task.round, task.index]
        return right

    def _look_back(self, shared: Crew) -> None:
        """Runs all audits that are due: the first wrong round is taken back, and without one the job stays paused."""
        wrong = self._audit(shared, None)
        if wrong is None:
            self._course.paused = True
        else:
            self._take_back(wrong)

    def _decided(self, shared: Crew, plan: Plan, attack: str | None, secret: Hash) -> Decided | None:
        present = {Address(str(worker)): worker for worker in shared.present()}
        order = [present[name] for name in assignment.draw_order(domain_hash("draw", secret), present)]
        if attack is None:
            return Decided(frozenset(order[: plan.first_wave]), honest=True)
        return agreed(shared, plan, order[: plan.maximum], attack in QUIET)

    def _drawn(
        self, number: int, index: int, decided: Decided, answer: MergedAnswer, honest: Sequence[Tensors], secret: Hash
    ) -> Task:
        found = blob_digest(answer.data)
        right = blob_digest(self._answer(index, honest, None).data)
        link = secrets.of_task(secret, self._plan.maximum)[-1]
        rate = class_checks.choose_audit_rate(self._plan, proven=False)
        diverged = not self._is_usable(answer)
        self._course.accepted += not diverged
        drawn = auditing.is_audit_drawn(link, domain_hash("offer", secret), hash_of(found), rate)
        due = diverged or found in self._wrong or drawn
        return Task(number, index, decided.agreeing, answer, found, right, due, diverged)

    def _audit(self, shared: Crew, through: int | None) -> int | None:
        """Runs the audits of the rounds up to this one, and where one fails all that are due: the first wrong round.

        `through` None: all that are due.
        """
        wrong: int | None = None
        while due := self._due(None if wrong is not None else through):
            task = due[0]
            if not self._examine(shared, task):
                wrong = task.round if wrong is None else min(wrong, task.round)
        return wrong

    def _examine(self, shared: Crew, task: Task) -> bool:
        """Whether the task stands; it is revoked if not."""
        task.due, task.audited = False, True
        passed = auditing.judge_audit(task.root, task.right, before=task.right)
        self._course.audits += 1 if passed else CONVICTING
        if not passed:
            self._fail(shared, task)
        return bool(passed)

    def _due(self, through: int | None) -> list[Task]:
        """Lists the tasks that wait for audits, the oldest first; `through` None: of any round."""
        due = [task for task in self._tasks.values() if task.due and (through is None or task.round <= through)]
        return sorted(due, key=lambda task: (task.round, task.index))

    def _fail(self, shared: Crew, task: Task) -> None:
        """Revokes the task, bars its workers, and audits their other answers."""
        self._course.failed += 1
        self._wrong.add(task.root)
        begun = max(number for number, _ in self._tasks)
        self._alert_until = max(self._alert_until, seat_rules.find_last_alert_round(task.round, begun))
        del self._tasks[task.round, task.index]
        shared.caught |= task.agreeing
        looks_back = self._final_after > ROUNDS_BEHIND
        for other in self._tasks.values():
            other.due |= not other.audited and (looks_back or not task.agreeing.isdisjoint(other.agreeing))

    def _take_back(self, number: int) -> None:
        """Opens the round again from its parameters; later rounds are discarded."""
        del self.models[number + 1 :]
        self._tasks = {place: task for place, task in self._tasks.items() if task.round <= number}

    def _finish(self, through: int) -> None:
        self._tasks = {place: task for place, task in self._tasks.items() if task.round > through}


def _secret(seed: int, *place: int) -> Hash:
    return domain_hash("secret", *(part.to_bytes(8, "big") for part in (seed, *place)))
