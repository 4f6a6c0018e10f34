"""Signs and stores verdicts in the transaction that decides them."""

from typing import Final

from sqlalchemy import and_, or_, select

from gradmarket.market.messages import Outcome, Verdict
from gradmarket.market.terms import Address, Digest, Hash, ReplicaState, Units
from gradmarket.market.wire import NO_ROOT, hash_of
from gradmarket.requester.context import Context
from gradmarket.requester.notifier import worker_topic
from gradmarket.requester.store.tables import Replica, Task
from gradmarket.requester.store.work import Work


def sign(
    context: Context,
    work: Work,
    task: Task,
    replica: Replica,
    state: ReplicaState,
    outcome: Outcome,
    root: str | None,
    reason: str = "",
    heard: bool | None = None,
) -> None:
    """Moves the replica to `state` with a signed verdict, and notifies its worker; sets `heard` unless it is None."""
    price = Units(task.offer["price"] if outcome in (Outcome.ACCEPTED, Outcome.DIVERGED) else 0)
    agreed = hash_of(Digest(root)) if root else NO_ROOT
    verdict = Verdict(Hash(task.offer_digest), Address(replica.worker), int(outcome), agreed, price)
    signed = {"outcome": int(outcome), "verdict_root": root, "verdict_signature": context.sign(verdict)}
    work.move(replica, state, reason=reason, **signed, **({} if heard is None else {"heard": heard}))
    wake(work, replica)


_OUTVOTED: Final = and_(
    Replica.state == ReplicaState.REJECTED, Replica.outcome == Outcome.REJECTED, Replica.verdict_root != Replica.root
)


def wake(work: Work, replica: Replica) -> None:
    work.notify(worker_topic(replica.worker))


def inconclusive(context: Context, work: Work, task: Task, reason: str) -> None:
    """Signs an inconclusive verdict for the replicas that revealed: nobody is to blame, and nobody is paid.

    Outvoted replicas get one too: a rejection would name the root that the next attempt is to find.
    """
    undecided = or_(Replica.state.in_((ReplicaState.REVEALED, ReplicaState.AGREE)), _OUTVOTED)
    for replica in work.session.scalars(select(Replica).where(Replica.task_id == task.id, undecided)):
        sign(context, work, task, replica, ReplicaState.INCONCLUSIVE, Outcome.INCONCLUSIVE, None, reason)
