"""A task's workers before its referee: only those with the answer that stands alone are paid."""

from collections.abc import Mapping
from typing import Final

from gradmarket.market.terms import Address, Digest, ReplicaState, TaskState
from requester.context import Context
from requester.feature import AnswersLeft, HeardAnswer, HearingParty
from requester.moves import ending, judging
from requester.store import in_hand
from requester.store.in_hand import TaskInHand
from requester.store.tables import Job, Task
from requester.store.work import RowReader, Work

REASON: Final = "a referee found another answer to be right"
NOBODY_STANDS: Final = "none of its answers stood before a referee"


class WorkersHeard(HearingParty):
    def load_answers(self, reader: RowReader, task: Task, run: int | None) -> Mapping[Address, HeardAnswer]:
        if task.state != TaskState.REFERRED:
            return {}
        revealed = in_hand.of_task(reader, task, reader.get_one(Job, task.job_id)).in_state(ReplicaState.REVEALED)
        return {
            replica.worker: HeardAnswer(Digest(replica.root), replica.determinism_class)
            for replica in revealed
            if replica.root is not None
        }

    def may_speak(self, reader: RowReader, task_id: str, run: int | None, side: Address, caller: str) -> bool:
        return run is None and side == caller

    def settle(self, context: Context, work: Work, hand: TaskInHand, run: int | None, left: AnswersLeft) -> None:
        """Fails the attempt where no answer stands, and has the ballots decide where several do."""
        now, root = context.clock(), left.root
        right = [replica for replica in hand.in_state(ReplicaState.REVEALED) if replica.root == root]
        wrong = [replica for replica in hand.in_state(ReplicaState.REVEALED) if replica not in right]
        if root is None and left.sides:
            judging.judge_unheard(context, work, hand)
            return
        ending.rest_workers(work, wrong, now)
        judging.record_outvoted(work, wrong, now)
        if right:
            judging.accept_answer(context, work, hand, right, wrong, REASON, now)
        else:
            judging.fail_task(context, work, hand, NOBODY_STANDS, now)
