"""Composes poll answers from what a worker does not know yet: leases, opened waves, uploads, verdicts and vouchers."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import and_, select

from gradmarket.market.rules import lifecycle
from gradmarket.market.terms import Address, Hash, JobId, ReplicaId, ReplicaState, TaskId, TaskState
from gradmarket.market.wire import (
    CommitmentRequest,
    Lease,
    LeaseReturn,
    OfferFields,
    PollAnswer,
    PollRequest,
    Reveal,
    SignedVoucher,
    UploadRequest,
    WaveOpened,
)
from gradmarket.requester.context import Context
from gradmarket.requester.exchange import direct_upload, receipts
from gradmarket.requester.store import progress
from gradmarket.requester.store.among import among
from gradmarket.requester.store.tables import Account, Job, Replica, Task, Wave
from gradmarket.requester.store.work import RowReader

Held = list[tuple[Replica, Task]]
"""A worker's replicas, with their tasks, whose end the worker does not know yet."""

Vouchers = dict[tuple[JobId, Address], SignedVoucher | None]


@dataclass(frozen=True, slots=True)
class Poll:
    """A worker and its poll request."""

    worker: Address
    said: PollRequest

    @property
    def items(self) -> Sequence[CommitmentRequest | Reveal | LeaseReturn]:
        return (*self.said.commitments, *self.said.reveals, *self.said.given_up)


_UNHEARD: Final = (
    select(Replica, Task)
    .join(Task, Task.id == Replica.task_id)
    .where(among(Replica.worker, "workers"), Replica.heard.is_(False))
)
"""Built once, since every poll runs it."""


def held(reader: RowReader, workers: Collection[Address]) -> defaultdict[Address, Held]:
    by_worker: defaultdict[Address, Held] = defaultdict(list)
    for replica, task in reader.session.execute(_UNHEARD, {"workers": list(workers)}):
        by_worker[replica.worker].append((replica, task))
    return by_worker


def answers(context: Context, polls: Sequence[Poll]) -> list[PollAnswer]:
    """Returns what is new to each worker, in the order of the polls."""
    with context.reading() as reader:
        return told(context, reader, polls, held(reader, {poll.worker for poll in polls}), context.clock())


def last_answer(context: Context, poll: Poll) -> PollAnswer:
    """Returns the answer to a poll whose waiting time is over, with the reason why the worker has no lease."""
    now = context.clock()
    with context.reading() as reader:
        (news,) = told(context, reader, [poll], held(reader, [poll.worker]), now)
        waiting = progress.why_no_lease(reader, poll.worker, now)
    return news.model_copy(update={"waiting": waiting})


def addressed(context: Context) -> Sequence[str]:
    """Returns the workers with a replica whose end they do not know yet."""
    with context.reading() as reader:
        return reader.session.scalars(select(Replica.worker).where(Replica.heard.is_(False)).distinct()).all()


def any_in(answer: PollAnswer) -> bool:
    """Returns whether the answer has anything but `waiting`, so that it is sent at once."""
    return bool(
        answer.leases or answer.waves or answer.uploads or answer.verdicts or answer.vouchers or answer.refusals
    )


def told(
    context: Context, reader: RowReader, polls: Sequence[Poll], held: defaultdict[Address, Held], now: float
) -> list[PollAnswer]:
    waves = _waves(
        reader, [(replica, task) for each in held.values() for replica, task in each if _opened(replica, task)]
    )
    paid = [(job, poll.worker) for poll in polls for job in _paid_in(poll, held[poll.worker])]
    vouchers = _vouchers(reader, paid)
    return [_told(context, reader, poll, held[poll.worker], waves, vouchers, now) for poll in polls]


def _told(
    context: Context,
    reader: RowReader,
    poll: Poll,
    held: Held,
    waves: dict[str, WaveOpened],
    vouchers: Vouchers,
    now: float,
) -> PollAnswer:
    new = [(replica, task) for replica, task in held if _is_new(poll, replica)]
    uploads = [(replica, task) for replica, task in held if _is_asked(replica, task)]
    paid = [vouchers.get((job, poll.worker)) for job in _paid_in(poll, held)]
    return PollAnswer(
        leases=tuple(_lease(replica, task, now) for replica, task in new if replica.state == ReplicaState.LEASED),
        waves=tuple(waves[replica.id] for replica, _task in held if replica.id in waves),
        uploads=tuple(_upload(context, reader, replica, task, now) for replica, task in uploads),
        verdicts=tuple(receipts.verdict(replica, task) for replica, task in new if _is_judged(replica, task)),
        vouchers=tuple(voucher for voucher in paid if voucher is not None),
    )


def _is_new(poll: Poll, replica: Replica) -> bool:
    return poll.said.known.get(ReplicaId(replica.id)) != replica.state


def _is_asked(replica: Replica, task: Task) -> bool:
    return replica.state == ReplicaState.AGREE and task.uploader == replica.id


def _is_judged(replica: Replica, task: Task) -> bool:
    """Returns whether the replica's verdict may be sent.

    A rejection waits for the payload: it names the quorum's root, which another attempt would have too.
    """
    if replica.state == ReplicaState.REJECTED and task.state == TaskState.UPLOADING:
        return False
    return replica.state == ReplicaState.AGREE or lifecycle.over(replica.state)


def _paid_in(poll: Poll, held: Held) -> list[JobId]:
    """Returns the jobs whose voucher is sent: those it asks for, and those that it learns now it is paid in."""
    paid = (task for replica, task in held if _is_new(poll, replica) and replica.state in lifecycle.PAID)
    return list(dict.fromkeys([*poll.said.vouchers_for, *(JobId(task.job_id) for task in paid)]))


def _vouchers(reader: RowReader, keys: Sequence[tuple[JobId, Address]]) -> Vouchers:
    """Returns the newest vouchers of these jobs and workers, as far as they earned there, by one query."""
    if not keys:
        return {}
    jobs, workers = zip(*keys, strict=True)
    rows = reader.session.execute(_ACCOUNTS, {"jobs": jobs, "workers": workers})
    return {(JobId(job.id), account.worker): receipts.voucher(account, job) for account, job in rows}


_ACCOUNTS: Final = (
    select(Account, Job)
    .join(Job, Job.id == Account.job_id)
    .where(among(Account.job_id, "jobs"), among(Account.worker, "workers"))
)


def _lease(replica: Replica, task: Task, now: float) -> Lease:
    return Lease(
        replica=ReplicaId(replica.id),
        task=TaskId(task.id),
        job=JobId(task.job_id),
        fence=replica.fence,
        seconds=replica.lease_until - now,
        offer=OfferFields.of(task.offer),
        signature=task.offer_signature,
    )


def _upload(context: Context, reader: RowReader, replica: Replica, task: Task, now: float) -> UploadRequest:
    seconds = (task.due_at or now) - now
    door = direct_upload.door(context, reader, replica, task, seconds)
    return UploadRequest(replica=ReplicaId(replica.id), seconds=seconds, door=door)


def _opened(replica: Replica, task: Task) -> bool:
    return replica.state == ReplicaState.COMMITTED and task.state == TaskState.REVEALING


def _waves(reader: RowReader, opened: Held) -> dict[str, WaveOpened]:
    """Returns the opened wave of each replica, with all its commitments."""
    if not opened:
        return {}
    waves: dict[tuple[str, int], Wave] = {}
    members: defaultdict[tuple[str, int], list[tuple[Address, Hash]]] = defaultdict(list)
    for wave, worker, sealed in reader.session.execute(_CLOSED, {"tasks": [task.id for _, task in opened]}):
        place = wave.task_id, wave.number
        waves[place] = wave
        members[place].append((Address(worker), Hash(sealed or b"")))
    return {
        replica.id: _wave(replica, waves[place], members[place])
        for replica, task in opened
        if (place := (task.id, task.wave))
    }


_CLOSED: Final = (
    select(Wave, Replica.worker, Replica.sealed)
    .join(Replica, and_(Replica.task_id == Wave.task_id, Replica.wave == Wave.number, Replica.sealed.is_not(None)))
    .where(among(Wave.task_id, "tasks"))
)


def _wave(replica: Replica, wave: Wave, members: Iterable[tuple[Address, Hash]]) -> WaveOpened:
    return WaveOpened(
        replica=ReplicaId(replica.id),
        wave=wave.number,
        secret=wave.secret,
        commitments=tuple(sorted(members)),
        signature=wave.signature,
    )
