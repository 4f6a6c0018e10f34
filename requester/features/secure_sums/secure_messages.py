"""Takes the messages of holders in the steps of a round's secure aggregation, and returns the replies.

Each message is checked completely and written once: another one of the same step is refused. A holder that has sent its
message of the open step keeps its lease while it waits for the others; an awaited holder has the time that its lease
has left.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from gradmarket.market.errors import Conflict, NotFound, Refused
from gradmarket.market.features.secure_sums import Aggregation, collector
from gradmarket.market.features.secure_sums.job_sum import most_json, number_of
from gradmarket.market.features.secure_sums.sum_messages import (
    HolderKeysMessage,
    MaskedMessage,
    NeighbourKeys,
    Said,
    SharesForHolder,
    SharesMessage,
    StepTold,
    SurvivorsProposed,
    SurvivorsSigned,
    UnmaskAnswer,
    UnmaskRequest,
    parse_step_message,
)
from gradmarket.market.terms import Address, Digest, ReplicaState, domain_hash
from requester.blobs.disk import Incoming
from requester.context import Context
from requester.exchange.commitments import TooEarly, TooLate
from requester.features.secure_sums import sum_rows
from requester.features.secure_sums.secure_steps import TAG
from requester.features.secure_sums.secure_tables import SecureMessage, SecureSum
from requester.features.secure_sums.sum_rows import MASKED, SUMMED
from requester.moves import blob_cleanup
from requester.store import in_hand, jobs
from requester.store.in_hand import OwnReplica, ReplicaInHand
from requester.store.locks import lock_row
from requester.store.tables import Replica, Task
from requester.store.work import RowReader, Work

TOLD: Final[dict[int, tuple[str, type[Any]]]] = {
    1: ("keys", NeighbourKeys),
    2: ("shares", SharesForHolder),
    3: ("survivors", SurvivorsProposed),
    4: ("unmask", UnmaskRequest),
}
"""The content of a step's reply, by its name in StepTold."""


@dataclass(frozen=True)
class StepAsked:
    """A holder's request: a step of an attempt at the sum of the round in which it has a lease."""

    worker: Address
    replica: str
    attempt: int
    step: int


@dataclass(frozen=True)
class StepDoor:
    """The upload that a request may bring: most bytes of JSON and, in step 3, of a vector; `known`: it came before."""

    asked: StepAsked
    job: str
    most_json: int
    vector: int = 0
    known: bool = False


def find_step_grant(context: Context, asked: StepAsked) -> StepDoor:
    """Returns the bounds of the upload before a byte of it is read.

    Raises NotFound where the worker holds no such lease, or the job's rounds are not summed so; TooLate where the lease
    is over.
    """
    with context.reading() as reader:
        own = _check_own_replica(in_hand.own_replicas(reader, [asked.replica]).get(asked.replica), asked)
        data, row = jobs.load_spec(own.job).private, sum_rows.of_round(reader, own.job.id, own.task.round)
        found = StepDoor(asked, own.job.id, most_json(len(data.holders) if data else 0))
        if row is None or asked.step != MASKED:
            return found
        members = sum_rows.build_current_attempt(own.job, row)
        mine = sum_rows.find_message(reader, row, MASKED, number_of(members.holders, asked.worker))
        known = mine is not None or (row.attempt, row.step) != (asked.attempt, asked.step)
        return replace(found, vector=members.size * members.ring.dtype.itemsize, known=known)


def _check_own_replica(own: OwnReplica | None, asked: StepAsked) -> OwnReplica:
    if own is None or own.replica.worker != asked.worker:
        raise NotFound(f"this worker holds no replica {asked.replica[:80]}")
    if jobs.load_spec(own.job).secure is None:
        raise NotFound("the rounds of this job are not summed by secure aggregation")
    _check_leased(own.replica)
    return own


def _check_leased(replica: Replica) -> None:
    if replica.state != ReplicaState.LEASED:
        raise TooLate(f"the lease is over ({replica.state})")


def take_message(context: Context, asked: StepAsked, body: bytes, incoming: Incoming | None = None) -> StepTold:
    """Takes a holder's message, unless it sent the same before; returns the reply, once that is known.

    Raises Refused for a message that breaks a rule, Conflict for a second, other message, TooEarly and TooLate where
    the step is not open.
    """
    message = parse_step_message(asked.step, body)
    with context.reading() as reader:
        own = _check_own_replica(in_hand.own_replicas(reader, [asked.replica]).get(asked.replica), asked)
        row = sum_rows.of_round(reader, own.job.id, own.task.round)
        if row is None:
            return _renew_lease(context, own.replica, own.task, StepTold(attempt=0, step=0))
        members = sum_rows.build_current_attempt(own.job, row)
        if message.holder != number_of(members.holders, asked.worker):
            raise Refused(f"this worker is holder {number_of(members.holders, asked.worker)}, not {message.holder}")
        reply = _find_answer_for(reader, row, members, asked, message)
        if reply is None and asked.step == MASKED:
            _check_vector(context, members, row, message, incoming)
        waits = row.step < SUMMED and sum_rows.find_message(reader, row, row.step, message.holder) is not None
    if reply is not None:
        return _renew_lease(context, own.replica, own.task, reply) if waits else reply
    vector: Digest | None = None
    if incoming is not None and asked.step == MASKED:
        # with a tag that its holder does not know, so that no other blob is the same
        tag = domain_hash("masked", own.job.secret, asked.replica.encode(), asked.attempt.to_bytes(8, "big"))[:TAG]
        incoming.write(tag)
        vector = context.blobs.store_blob(incoming)
    try:
        with context.begin() as work:
            held = in_hand.of_replicas(work, [asked.worker], [asked.replica])[asked.replica]
            _check_leased(held.replica)
            row = lock_row(work, SecureSum, sum_rows.name_of(held.hand.job.id, held.hand.task.round))
            if (row.attempt, row.step) == (asked.attempt, asked.step):
                _record_message(context, work, held, row, message, vector)
            reply = StepTold(attempt=row.attempt, step=row.step)
    finally:
        if vector is not None:
            blob_cleanup.drop_blob_if_unneeded(
                context, vector, lambda reader: sum_rows.is_vector_needed(reader, vector)
            )
    return reply


def _find_answer_for(
    reader: RowReader, row: SecureSum, members: Aggregation, asked: StepAsked, message: Said
) -> StepTold | None:
    """Returns the reply to the holder; None where its message is still to be taken."""
    here = StepTold(attempt=row.attempt, step=row.step)
    if asked.attempt != row.attempt:
        return here
    if asked.step > row.step:
        raise TooEarly(f"step {row.step} is open, and not {asked.step} yet")
    known = sum_rows.find_message(reader, row, asked.step, message.holder)
    _check_same(known, message)
    if row.survivors is not None and members.members(row.survivors)[message.holder]:
        if row.step == SUMMED:
            return here.model_copy(update={"summed": True})
        if known is None and asked.step < row.step:
            return here  # its vector counts, though it missed another step
    if known is None and asked.step == row.step:
        return None
    if known is None or (known.told is None and asked.step < row.step):
        raise TooLate(f"step {asked.step} is over, and went on without this holder")
    if known.told is None:
        return here
    name, kind = TOLD[asked.step]
    found = kind.model_validate_json(known.told)
    if isinstance(found, NeighbourKeys):  # the list is long and the same for all: it is stored once
        found = found.model_copy(update={"key_list": row.key_list or b""})
    return here.model_copy(update={name: found})


def _check_same(known: SecureMessage | None, message: Said) -> None:
    if known is not None and known.said != message.model_dump_json().encode():
        raise Conflict(f"holder {message.holder} sent another message in this step before")


def _check_vector(
    context: Context, members: Aggregation, row: SecureSum, message: Said, incoming: Incoming | None
) -> None:
    """Raises Refused unless the holder signed the bytes that came."""
    if incoming is None or not isinstance(message, MaskedMessage):
        raise Refused("the masked vector comes after the message of step 3")
    why: Refused | None = None  # a new one: an error's frames would keep the mapping open
    with incoming.mapped() as data:
        try:
            collector.admit_masked(
                members, context.domain, row.key_list or b"", row.sharers or b"", message, memoryview(data)
            )
        except Refused as refused:
            why = type(refused)(refused.detail)
    if why is not None:
        raise why


def _record_message(
    context: Context, work: Work, own: ReplicaInHand, row: SecureSum, message: Said, vector: Digest | None
) -> None:
    """Checks the message against those of others, and writes it; a vector was checked before.

    Raises Refused where the message breaks a rule of the protocol.
    """
    known = sum_rows.find_message(work, row, row.step, message.holder)
    _check_same(known, message)
    if known is not None:
        return
    members, survivors = sum_rows.build_current_attempt(own.hand.job, row), row.survivors or b""
    if isinstance(message, HolderKeysMessage):
        sent = sum_rows.parse_messages(work, row, row.step, HolderKeysMessage)
        collector.admit_keys(members, context.domain, sent, message)
    elif isinstance(message, SharesMessage):
        earlier = _load_earlier_message(work, row, 1, message.holder)
        mine = HolderKeysMessage.model_validate_json(earlier.said)
        keys = NeighbourKeys.model_validate_json(earlier.told or b"{}")
        collector.admit_shares(members, {mine.holder: mine} | {one.holder: one for one in keys.keys}, message)
    elif isinstance(message, SurvivorsSigned):
        collector.admit_signature(members, context.domain, row.sharers or b"", survivors, message)
    elif isinstance(message, UnmaskAnswer):
        _load_earlier_message(work, row, 4, message.holder)
        dealt = SharesForHolder.model_validate_json(_load_earlier_message(work, row, 2, message.holder).told or b"{}")
        shares = {one.sender: SharesMessage(holder=one.sender, shares=[one]) for one in dealt.shares}
        collector.admit_answer(members, survivors, shares, message)
    body, now = message.model_dump_json().encode(), context.clock()
    work.add(
        SecureMessage(
            sum_id=row.id,
            attempt=row.attempt,
            step=row.step,
            holder=message.holder,
            said=body,
            vector=vector,
            told=None,
        )
    )
    work.flush()
    if row.due_at is None:
        row.due_at = now + jobs.load_spec(own.hand.job).deadlines.wave_s
    own.replica.lease_until = now + own.hand.task.offer.lease_seconds
    if sum_rows.count_messages(work, row) >= row.expected:
        work.notify("unmask")


def _load_earlier_message(reader: RowReader, row: SecureSum, step: int, holder: int) -> SecureMessage:
    found = sum_rows.find_message(reader, row, step, holder)
    if found is None:
        raise TooLate(f"step {step} went on without this holder")
    return found


def _renew_lease(context: Context, replica: Replica, task: Task, reply: StepTold) -> StepTold:
    """Renews the lease of a holder that waits for others, once half of it is over."""
    seconds, now = task.offer.lease_seconds, context.clock()
    if replica.lease_until - now < seconds / 2:
        with context.begin() as work:
            own = in_hand.of_replicas(work, [replica.worker], [replica.id]).get(replica.id)
            if own is not None and own.replica.state == ReplicaState.LEASED:
                own.replica.lease_until = now + seconds
    return reply
