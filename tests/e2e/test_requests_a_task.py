"""Where several vote, the uploader needs three requests for a task and the others two."""

from gradmarket.market.terms import ReplicaState
from gradmarket.market.wire.poll import PollAnswer
from tests.attacks.scene import staged
from tests.attacks.scripted_worker import ScriptedWorker
from tests.lanes import FULL

TASKS = 16


class Counting(ScriptedWorker):
    """Keeps the answer of each of its requests."""

    @property
    def answers(self) -> list[PollAnswer]:
        return vars(self).setdefault("_answers", [])

    def _receive_answer(self, told: PollAnswer) -> None:
        self.answers.append(told)
        super()._receive_answer(told)


def _ends_and_begins(answer: PollAnswer) -> bool:
    """Returns whether the answer has a task's pay and the next lease."""
    paid = any(verdict.state is ReplicaState.PAYABLE for verdict in answer.verdicts)
    return paid and bool(answer.vouchers) and bool(answer.leases)


@FULL
def test_a_reveal_is_answered_with_payment_and_next_lease() -> None:
    with staged() as scene:
        job = scene.post(tasks_per_round=TASKS, budget=str(3 * 10 * 10**9 * TASKS * 2))
        workers = [Counting(job) for _ in range(3)]
        job.play(*workers)
        assert job.fetch_view()["state"] == "finished"
        assert [job.paid(worker) for worker in workers] == [10 * TASKS] * 3
    answers = [answer for worker in workers for answer in worker.answers]
    # 2 of 3 replicas could end so, but for the last task's; a slow machine may be late for some
    assert sum(map(_ends_and_begins, answers)) >= TASKS // 2, len(answers)
