"""Ends jobs and leases: tasks without commitments are cancelled; those with commitments are still judged and paid.

Where payloads come with their commitments, any lease may have one under way: such a lease stands until it ends.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gradmarket.market.rules import lifecycle, newcomers
from gradmarket.market.terms import JobState, ReplicaState, TaskState
from requester.context import Context
from requester.feature import features_of
from requester.moves import verdicts
from requester.notifier import ended_topic, worker_topic
from requester.store import accounts, earned_rows, in_hand, jobs, strikes, tasks
from requester.store.in_hand import TaskInHand
from requester.store.ready_rows import BUSY
from requester.store.review import review_of
from requester.store.strikes import StrikeChange
from requester.store.tables import Account, Job, Replica, Task, Worker
from requester.store.work import Work, record_event


def end_job(context: Context, work: Work, job: Job, state: JobState, reason: str) -> bool:
    """Moves the job, which the caller has locked, to a final state and cancels its open work.

    Returns False if the job has ended already.
    """
    now = context.clock()
    if not work.set_state_now(job, state, reason=reason, ended_at=now):
        return False
    context.states.take(job.id)  # the job is never merged again
    cancel_open_tasks(context, work, job.id)
    record_event(work, job.id, state.value, now, reason=reason)
    review_of(work).settle_waiting_pay(work, job, context.voucher, now)
    topics = (topic(address) for address in accounts.workers_of(work, job.id) for topic in (worker_topic, ended_topic))
    work.notify("settle", "rollback", "collect", *topics)
    return True


def cancel_open_tasks(context: Context, work: Work, job_id: str, round_number: int | None = None) -> None:
    """Cancels tasks (of one round, or all) without commitments; waves with commitments close with those they have.

    A review brings no more payloads, since no worker is paid for them.
    """
    for hand in in_hand.of_tasks(work, tasks.lock_gathering_tasks(work, job_id, round_number)).values():
        if tasks.awaits_review(hand.task):
            hand.task.due_at = 0.0
            continue
        if not jobs.load_spec(hand.job).answered_at_once:
            end_leases(work, hand.replicas)
        hand.task.wave_size = len(hand.in_state(ReplicaState.COMMITTED))
        cancel_if_idle(context, work, hand)
    work.notify("close", "expire")


def cancel_if_idle(context: Context, work: Work, hand: TaskInHand) -> bool:
    """Cancels a task that is called off once no worker has a lease of it or committed to it.

    Returns whether it is called off: its wave needs no further commitment.
    """
    if hand.task.wave_size == 0 and not hand.in_state(*BUSY):
        verdicts.sign_inconclusive_verdicts(context, work, hand, "no longer needed")
        work.move(hand.task, TaskState.CANCELLED, ended_at=context.clock(), reason="no longer needed")
    return hand.task.wave_size == 0


def end_leases(
    work: Work,
    replicas: Iterable[Replica],
    state: ReplicaState = ReplicaState.NOT_NEEDED,
    reason: str = "",
) -> list[Replica]:
    """Ends the leases among a task's replicas, and returns those replicas."""
    leased = [replica for replica in replicas if replica.state == ReplicaState.LEASED]
    work.move_many(leased, state, reason=reason)
    work.notify(*(worker_topic(replica.worker) for replica in leased))
    return leased


@dataclass(frozen=True, slots=True)
class _Blame:
    """A place that a worker left, or whose strike is taken back; `silent`: unanswered, so that the worker rests."""

    context: Context
    changes: tuple[StrikeChange, ...]
    silent: tuple[str, str] | None = None
    records: tuple[tuple[str, str], ...] = ()
    """For a place that was left, the keys of the records with its determinism class."""


def strike_replicas(
    context: Context, work: Work, task: Task, replicas: Iterable[Replica], withheld: bool = False
) -> None:
    """Adds a strike for each replica that owed the task an answer and gave none, at the transaction's end."""
    for replica in replicas:
        changes = tuple(StrikeChange(task.job_id, key, True, withheld) for key in _list_strike_keys(replica))
        silent: tuple[str, str] | None = None
        records: tuple[tuple[str, str], ...] = ()
        if replica.state in lifecycle.SILENT:  # a fault that it reports may be the job's
            silent = (task.job_id, replica.worker)
            records = tuple((change.operator, replica.determinism_class) for change in changes)
        work.gather(_apply_blames, _Blame(context, changes, silent, records))


def work_off(context: Context, work: Work, task: Task, replicas: Iterable[Replica]) -> None:
    """Removes one strike for each replica, so that a worker that rarely lapses is not suspended."""
    for replica in replicas:
        changes = tuple(StrikeChange(task.job_id, key, False) for key in _list_strike_keys(replica))
        work.gather(_apply_blames, _Blame(context, changes))


def _list_strike_keys(replica: Replica) -> list[str]:
    """Returns the wallet and the operator of a replica; a worker that joins another operator keeps its strikes."""
    return sorted({replica.worker, replica.operator})


def _apply_blames(work: Work, blames: Sequence[_Blame]) -> None:
    """Writes the blames of all tasks of a transaction: accounts are locked in one call, and after them strikes."""
    context = blames[0].context
    now, silent = context.clock(), [blame.silent for blame in blames if blame.silent is not None]
    accounts = earned_rows.lock_accounts(work, silent)
    for account in (accounts[key] for key in silent if key in accounts):
        set_rest(work, account, now)
    changes = [change for blame in blames for change in blame.changes]
    repeated = strikes.list_struck(work, [change for change in changes if change.more], now)
    left = [key for blame in blames for key in blame.records if (blame.changes[0].job_id, key[0]) in repeated]
    for feature in features_of(work):
        feature.places_left(work, left, now)
    strikes.change_strikes(work, changes, now, context.settings.max_strikes)


def set_rest(work: Work, account: Account, now: float) -> None:
    """Makes a worker that left a place of the job unanswered rest before its next one there, longer each time."""
    account.stalls += 1
    account.stalled_at = now
    known = work.get_one(Worker, account.worker).accepted_at is not None
    account.rests_until = now + newcomers.rest_s(account.stalls, known)


def rest_workers(work: Work, replicas: Iterable[Replica], now: float) -> None:
    """Makes workers rest whose answers were found wrong before any was accepted, like those that left a place: a lie
    costs two runs.

    The caller has locked the tasks.
    """
    accounts = earned_rows.lock_accounts(work, [(replica.job_id, replica.worker) for replica in replicas])
    for account in accounts.values():
        set_rest(work, account, now)


def record_accepted_answers(known: Iterable[tuple[Worker, Account]], now: float) -> None:
    """Records that these workers' answers were accepted: they are no newcomers any more, and their stalls are halved.

    The caller has locked the accounts, and before them the newcomers.
    """
    for worker, account in known:
        account.stalls //= 2
        account.rests_until = 0.0
        if worker.accepted_at is None:
            worker.accepted_at = now
