"""Signs and stores verdicts in the transaction that decides them."""

from gradmarket.market.messages import Outcome, Verdict
from gradmarket.market.terms import Digest, ReplicaState, Units
from gradmarket.market.wire.poll import NO_ROOT, hash_of
from requester.context import Context
from requester.notifier import worker_topic
from requester.store.in_hand import TaskInHand
from requester.store.tables import Replica, Task
from requester.store.work import Work


def sign_verdict(
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
    price = Units(task.offer.price if outcome in (Outcome.ACCEPTED, Outcome.DIVERGED) else 0)
    agreed = hash_of(Digest(root)) if root else NO_ROOT
    verdict = Verdict(task.offer_digest, replica.worker, int(outcome), agreed, price)
    signed = {"outcome": int(outcome), "verdict_root": root, "verdict_signature": context.sign(verdict)}
    work.move(replica, state, reason=reason, **signed, **({} if heard is None else {"heard": heard}))
    notify_worker(work, replica)


def notify_worker(work: Work, replica: Replica) -> None:
    work.notify(worker_topic(replica.worker))


def sign_inconclusive_verdicts(context: Context, work: Work, hand: TaskInHand, reason: str) -> None:
    """Signs an inconclusive verdict for the replicas that revealed: without blame, and without pay.

    Outvoted replicas get one too: a rejection would name the root that the next attempt is to find.
    """
    undecided = hand.in_state(ReplicaState.REVEALED, ReplicaState.AGREE)
    for replica in [*undecided, *filter(is_outvoted, hand.replicas)]:
        sign_verdict(context, work, hand.task, replica, ReplicaState.INCONCLUSIVE, Outcome.INCONCLUSIVE, None, reason)


def is_outvoted(replica: Replica) -> bool:
    """Returns whether a verdict rejected the replica for another root than its own, though its own opened its seal."""
    judged = replica.state == ReplicaState.REJECTED and replica.outcome == Outcome.REJECTED
    return judged and None not in (replica.verdict_root, replica.root) and replica.verdict_root != replica.root
