"""Composes poll answers from a worker's news: leases, opened waves, uploads, verdicts and vouchers."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gradmarket.market.messages import Outcome
from gradmarket.market.rules import lifecycle
from gradmarket.market.terms import Address, JobId, ReplicaId, ReplicaState, TaskId, TaskState
from gradmarket.market.wire.poll import (
    Answer,
    CommitmentRequest,
    Lease,
    LeaseReturn,
    OfferFields,
    PayloadPart,
    PollAnswer,
    PollRequest,
    RefusedItem,
    Reveal,
    SignedVerdict,
    SignedVoucher,
    UploadRequest,
    WaveOpened,
)
from requester.context import Context
from requester.exchange import payload_upload
from requester.exchange.payload_upload import Delivery
from requester.store import jobs, unheard
from requester.store.answer_kind import explanation_of
from requester.store.in_hand import TaskInHand
from requester.store.tables import Account, Job, Replica, Task
from requester.store.unheard import Held
from requester.store.work import RowReader

Vouchers = dict[tuple[JobId, Address], SignedVoucher | None]


@dataclass(frozen=True, slots=True)
class Poll:
    """A worker and its poll request, with the payloads that arrived, and those refused before."""

    worker: Address
    request: PollRequest
    deliveries: tuple[Delivery, ...] = ()
    refused: tuple[RefusedItem, ...] = ()

    @property
    def items(self) -> Sequence[CommitmentRequest | Reveal | LeaseReturn | Answer | PayloadPart]:
        request = self.request
        return (*request.commitments, *request.reveals, *request.given_up, *request.answers, *request.payloads)


def load_poll_answers(context: Context, polls: Sequence[Poll]) -> list[PollAnswer]:
    """Returns each worker's news, in the order of the polls."""
    with context.reading() as reader:
        held = unheard.load_held_replicas(reader, {poll.worker for poll in polls})
        return build_poll_answers(context, reader, polls, held, context.clock())


def last_answer(context: Context, poll: Poll) -> PollAnswer:
    """Returns the answer to a poll whose waiting time is over: why the worker has no lease, and what it may release."""
    now = context.clock()
    with context.reading() as reader:
        (news,) = build_poll_answers(context, reader, [poll], unheard.load_held_replicas(reader, [poll.worker]), now)
        if poll.request.leaving:  # it wants no lease, and the reason costs ten times the poll
            return news
        waiting = explanation_of(reader).explain_no_lease(reader, poll.worker, now)
        found = unheard.find_unused_reservations(reader, poll.worker, False, now)
    return news.model_copy(update={"waiting": waiting, "unused": found})


def list_addressed_workers(context: Context) -> Sequence[str]:
    """Returns the workers with a replica whose end they do not know yet."""
    with context.reading() as reader:
        return unheard.list_workers_with_news(reader)


def any_in(answer: PollAnswer) -> bool:
    """Returns whether the answer has anything but `waiting` and `unused`, so that it is sent at once."""
    return bool(
        answer.leases
        or answer.waves
        or answer.uploads
        or answer.verdicts
        or answer.vouchers
        or answer.refusals
        or answer.hearings
    )


def only_verdicts(answer: PollAnswer) -> bool:
    """Returns whether the answer brings verdicts, and nothing that the worker would act on next."""
    return bool(answer.verdicts) and not (answer.leases or answer.waves or answer.uploads)


def all_over(answer: PollAnswer) -> bool:
    """Returns whether each verdict in the answer is a final one."""
    return all(lifecycle.is_final_state(verdict.state) for verdict in answer.verdicts)


def build_poll_answers(
    context: Context,
    reader: RowReader,
    polls: Sequence[Poll],
    held: defaultdict[Address, Held],
    now: float,
    hands: Mapping[str, TaskInHand] = MappingProxyType({}),
) -> list[PollAnswer]:
    """Returns each worker's news, in the order of the polls; `hands`: by id, tasks that the transaction has in hand."""
    revealing = [pair for each in held.values() for pair in each if pair[1].state == TaskState.REVEALING]
    opened = [pair for pair in revealing if pair[0].state == ReplicaState.COMMITTED]
    waves = _load_opened_waves(reader, opened, hands)
    paid = [(job, poll.worker) for poll in polls for job in _paid_in(poll, held[poll.worker])]
    rows = unheard.list_voucher_accounts(reader, paid)
    vouchers: Vouchers = {(JobId(row.job_id), row.worker): build_signed_voucher(row, number) for row, number in rows}
    answers = []
    for poll in polls:
        own = held[poll.worker]
        new = [(replica, task) for replica, task in own if _is_new(poll, replica)]
        leased = [(replica, task) for replica, task in new if replica.state == ReplicaState.LEASED]
        agreeing = [(replica, task) for replica, task in own if replica.state == ReplicaState.AGREE]
        uploads = [(replica, task) for replica, task in agreeing if task.uploader == replica.id]
        # a rejection waits for the payload: it names the quorum's root, which another attempt would have too
        judged = [
            (replica, task)
            for replica, task in new
            if (replica.state == ReplicaState.AGREE or lifecycle.is_final_state(replica.state))
            and (replica.state, task.state) != (ReplicaState.REJECTED, TaskState.UPLOADING)
        ]
        money = [vouchers.get((job, poll.worker)) for job in _paid_in(poll, own)]
        answers.append(
            PollAnswer(
                leases=tuple(
                    Lease(
                        replica=ReplicaId(replica.id),
                        task=TaskId(task.id),
                        job=JobId(task.job_id),
                        fence=replica.fence,
                        seconds=replica.lease_until - now,
                        offer=OfferFields.of(task.offer),
                        signature=task.offer_signature,
                    )
                    for replica, task in leased
                ),
                waves=tuple(waves[replica.id] for replica, _task in own if replica.id in waves),
                uploads=tuple(_build_upload_request(context, reader, replica, task, now) for replica, task in uploads),
                verdicts=tuple(build_signed_verdict(replica, task) for replica, task in judged),
                vouchers=tuple(voucher for voucher in money if voucher is not None),
                hearings=tuple(
                    ReplicaId(replica.id)
                    for replica, task in own
                    if replica.state == ReplicaState.REVEALED
                    and task.state == TaskState.REFERRED
                    and ReplicaId(replica.id) not in poll.request.attending
                    and jobs.load_spec(reader.get_one(Job, task.job_id)).refereed
                ),
                unused=unheard.find_unused_reservations(reader, poll.worker, True, now) if poll.request.leaving else {},
            )
        )
    return answers


def _is_new(poll: Poll, replica: Replica) -> bool:
    return poll.request.known.get(ReplicaId(replica.id)) != replica.state


def _paid_in(poll: Poll, held: Held) -> list[JobId]:
    """Returns the jobs whose voucher is sent: those the poll names, and those in which it learns that it is paid."""
    paid = (task for replica, task in held if _is_new(poll, replica) and replica.state in lifecycle.PAID)
    return list(dict.fromkeys([*poll.request.vouchers_for, *(JobId(task.job_id) for task in paid)]))


def _build_upload_request(
    context: Context, reader: RowReader, replica: Replica, task: Task, now: float
) -> UploadRequest:
    seconds = (task.due_at or now) - now
    door = payload_upload.find_upload_url(context, reader, replica, task, seconds)
    in_parts = door is None and context.blobs.reached_past_us
    return UploadRequest(replica=ReplicaId(replica.id), seconds=seconds, door=door, in_parts=in_parts)


def _load_opened_waves(reader: RowReader, opened: Held, hands: Mapping[str, TaskInHand]) -> dict[str, WaveOpened]:
    """Returns the opened wave of each replica, with all its commitments."""
    if not opened:
        return {}
    known = [hands[key] for key in {task.id for _, task in opened} & hands.keys()]
    closed = [(hand.wave, hand.list_commitments()) for hand in known if hand.wave is not None]
    waves = {(wave.task_id, wave.number): (wave, members) for wave, members in closed}
    if missing := {task.id for _, task in opened if (task.id, task.wave) not in waves}:
        waves |= {(wave.task_id, wave.number): (wave, own) for wave, own in unheard.closed_waves(reader, missing)}
    news = {}
    for replica, task in opened:
        wave, members = waves[task.id, task.wave]
        news[replica.id] = WaveOpened(
            replica=ReplicaId(replica.id),
            wave=wave.number,
            secret=wave.secret,
            commitments=tuple(sorted(members)),
            signature=wave.signature,
        )
    return news


PROMISES = (Outcome.ACCEPTED, Outcome.DIVERGED)
"""Outcomes whose verdict names the price, even if the replica's state changes afterwards."""


def build_signed_verdict(replica: Replica, task: Task) -> SignedVerdict:
    promised = replica.outcome in PROMISES
    return SignedVerdict(
        replica=ReplicaId(replica.id),
        state=replica.state,
        outcome=replica.outcome,
        root=replica.verdict_root,
        price=task.offer.price if promised else 0,
        reason=replica.reason,
        signature=replica.verdict_signature,
    )


def build_signed_voucher(account: Account | None, chain_job: int | None) -> SignedVoucher | None:
    """Returns the worker's newest voucher in the job, under the contract's job number; None if it earned nothing."""
    if account is None or account.voucher_signature is None:
        return None
    return SignedVoucher(
        job=JobId(account.job_id),
        chain_job=chain_job or 0,
        cumulative=account.promised,
        signature=account.voucher_signature,
    )
