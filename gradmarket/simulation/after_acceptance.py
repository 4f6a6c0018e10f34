"""The fate of an accepted task in a simulation: it may be drawn for an audit, becomes final, or is revoked."""

from gradmarket.market.features.audits import auditing
from gradmarket.market.rules import secrets
from gradmarket.market.terms import Hash
from gradmarket.simulation.checks import Checks
from gradmarket.simulation.play_outcome import PlayOutcome
from gradmarket.simulation.scenario import Scenario
from gradmarket.simulation.simulated_market import SimulatedOperator, SimulatedTask


class Aftermath:
    """`secret` is the requester's; its link is used only once tasks are accepted."""

    def __init__(self, scenario: Scenario, checks: Checks, outcome: PlayOutcome, secret: Hash) -> None:
        self._scenario, self._checks, self._outcome = scenario, checks, outcome
        (self._link,) = secrets.derive_links(secret, 1)

    def accept(self, task: SimulatedTask, now: float) -> None:
        outcome = self._outcome
        outcome.tasks += 1
        outcome.votes += task.plan.first_wave > 1
        cast = sum(replica.answer is not None for replica in task.replicas.values())
        for replica in task.replicas.values():
            agreed = replica.worker in task.agreeing
            if replica.answer is not None:
                self._checks.voted(replica.worker.operator, agreed, cast, now)
                replica.worker.operator.pending -= not agreed
        for worker in task.agreeing:
            tally = outcome.kinds[worker.kind]
            tally.paid += 1
            tally.lies_accepted += task.wrong
            self._hold_task(worker.operator, task)

    def _hold_task(self, operator: SimulatedOperator, task: SimulatedTask) -> None:
        """Adds the task to the operator's window; the oldest one beyond the window becomes final."""
        operator.window.append(task)
        if len(operator.window) > self._scenario.window:
            operator.window.popleft()

    def draw(self, task: SimulatedTask, root: Hash) -> bool:
        """Returns whether it is audited: by chance, or because an agreeing worker has failed an audit meanwhile."""
        failed = any(worker.operator.barred for worker in task.agreeing)
        if failed or auditing.is_audit_drawn(self._link, task.offer, root, task.plan.audit):
            return True
        self._free_stakes(task)
        return False

    def audit(self, task: SimulatedTask, now: float) -> None:
        self._free_stakes(task)
        if not task.audited:
            self._outcome.audits += 1
            self._run_again(task, now)

    def _free_stakes(self, task: SimulatedTask) -> None:
        """Frees the part of the stakes that the task held."""
        for worker in task.agreeing:
            worker.operator.pending -= 1

    def _run_again(self, task: SimulatedTask, now: float) -> None:
        task.audited = True
        self._checks.audited((worker.operator for worker in task.agreeing), not task.wrong, now)
        if not task.wrong:
            return
        self._outcome.revoked += 1
        for worker in task.agreeing:
            tally = self._outcome.kinds[worker.kind]
            tally.lies_caught += 1
            tally.stake_lost += worker.operator.stake
            worker.operator.stake = 0.0
            worker.operator.barred = True
        for worker in task.agreeing:
            self._audit_window_again(worker.operator, now)

    def _audit_window_again(self, operator: SimulatedOperator, now: float) -> None:
        """Audits the other tasks of a failed operator that are neither final nor audited."""
        doubtful = [task for task in operator.window if not task.audited]
        operator.window.clear()
        for task in doubtful:
            if not task.audited:
                self._outcome.reopened += 1
                self._run_again(task, now)
