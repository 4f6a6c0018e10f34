"""The secure aggregations of jobs' rounds, and the messages of holders in them (rules: market.features.secure_sums)."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeVar

from sqlalchemy import bindparam, delete, exists, func, or_, select

from gradmarket.market.features.secure_sums import Aggregation
from gradmarket.market.features.secure_sums.job_sum import build_receipt as receipt_of
from gradmarket.market.features.secure_sums.job_sum import build_round_aggregation, build_sum_terms, number_of, start_of
from gradmarket.market.features.secure_sums.sum_messages import MaskedMessage
from gradmarket.market.rules.lifecycle import IN_FLIGHT
from gradmarket.market.terms import Address, Digest, Hash, JobState, ReplicaState, RoundState, TaskState
from gradmarket.market.wire import Wire
from gradmarket.market.wire.poll import hash_of
from requester.features.secure_sums.secure_tables import SecureMessage, SecureSum
from requester.store import jobs
from requester.store.facts import layout_of
from requester.store.jobs import ROUNDS_UNDER_WAY
from requester.store.stored_times import bound_row_times
from requester.store.tables import Job, Replica, Round, Task
from requester.store.work import RowReader, Work

SUMMED: Final = 6
"""The step of a sum that is complete."""
MASKED: Final = 3
"""The step in which vectors come."""
MESSAGE = TypeVar("MESSAGE", bound=Wire)


def name_of(job_id: str, number: int) -> str:
    return f"{job_id}-{number}"


def of_round(reader: RowReader, job_id: str, number: int) -> SecureSum | None:
    return reader.get(SecureSum, name_of(job_id, number))


def build_current_attempt(job: Job, row: SecureSum) -> Aggregation:
    """Returns the attempt that is under way."""
    digest, size = hash_of(Digest(job.spec_digest or "")), sum(entry.size for entry in layout_of(job).of("gradient"))
    number, drawn = job.chain_job or 0, row.beacon
    return build_round_aggregation(
        build_sum_terms(jobs.load_spec(job)), digest, row.start, number, row.round, row.attempt, drawn, size
    )


def list_due_jobs(reader: RowReader, now: float) -> list[str]:
    """Returns the running jobs whose newest round has no aggregation yet, or one whose step may end."""
    found = []
    for job in jobs.running(reader):
        row = first_under_way(reader, job.id) if job.under_way and job.spec.secure else None
        if row is None or row.state != RoundState.OPEN:
            continue
        sum_ = of_round(reader, job.id, row.number)
        if sum_ is None or (
            sum_.step < SUMMED
            and ((sum_.due_at is not None and sum_.due_at <= now) or count_messages(reader, sum_) >= sum_.expected)
        ):
            found.append(job.id)
    return found


def count_messages(reader: RowReader, row: SecureSum) -> int:
    """Returns the number of messages that have come in the open step."""
    count: int | None = reader.session.scalar(_COUNT, {"sum": row.id, "attempt": row.attempt, "step": row.step})
    return count or 0


_OF_STEP: Final = (
    SecureMessage.sum_id == bindparam("sum"),
    SecureMessage.attempt == bindparam("attempt"),
    SecureMessage.step == bindparam("step"),
)
_COUNT: Final = select(func.count()).where(*_OF_STEP)
_SAID: Final = select(SecureMessage).where(*_OF_STEP).order_by(SecureMessage.holder)


def list_messages(reader: RowReader, row: SecureSum, step: int) -> Sequence[SecureMessage]:
    """Returns the messages of a step, by the numbers of their holders."""
    asked = {"sum": row.id, "attempt": row.attempt, "step": step}
    return reader.session.scalars(_SAID, asked).all()


def parse_messages(reader: RowReader, row: SecureSum, step: int, kind: type[MESSAGE]) -> dict[int, MESSAGE]:
    """Returns the messages of a step, parsed, by holder."""
    return {one.holder: kind.model_validate_json(one.said) for one in list_messages(reader, row, step)}


def find_message(reader: RowReader, row: SecureSum, step: int, holder: int) -> SecureMessage | None:
    return reader.get(SecureMessage, (row.id, row.attempt, step, holder))


def list_shut_out(reader: RowReader, job: Job, number: int) -> Collection[Address]:
    """Returns the holders that get no task of a round any more: all once the first step of its aggregation is over, but
    for survivors that are still asked for something: their signatures, their shares, and at last their receipts."""
    row = of_round(reader, job.id, number)
    if row is None or row.step == 1:
        return ()
    holders, there = build_current_attempt(job, row).holders, list_survivors(job, row)
    if row.step == SUMMED - 1:
        there = {holders[one.holder] for one in list_messages(reader, row, row.step - 1)}
    return [name for name in holders if name not in there]


def list_survivors(job: Job, row: SecureSum) -> set[Address]:
    """Returns the holders whose vectors are summed; none before that set is fixed."""
    members = build_current_attempt(job, row)
    if row.survivors is None:
        return set()
    stayed = members.members(row.survivors)
    return {name for name, there in zip(members.holders, stayed, strict=True) if there}


def find_receipt(reader: RowReader, job: Job, number: int, worker: Address) -> bytes | None:
    """Returns the receipt for which the worker is paid; None unless its vector is in a complete sum."""
    row = of_round(reader, job.id, number)
    if row is None or row.step < SUMMED or worker not in list_survivors(job, row):
        return None
    found = find_message(reader, row, MASKED, number_of(build_current_attempt(job, row).holders, worker))
    return None if found is None else receipt_of(MaskedMessage.model_validate_json(found.said))


def missing_leases(reader: RowReader, row: SecureSum, holders: Sequence[Address], now: float) -> bool:
    """Returns whether one that computes a task of the round may still send its keys."""
    here = {holders[one.holder] for one in list_messages(reader, row, 1)}
    leased = reader.session.execute(_IN_ROUND, {"job": row.job_id, "round": row.round}).all()
    return any(state == ReplicaState.LEASED and until > now and name not in here for name, state, until in leased)


_IN_ROUND: Final = (
    select(Replica.worker, Replica.state, Replica.lease_until)
    .join(Task, Task.id == Replica.task_id)
    .where(Replica.job_id == bindparam("job"), Task.round == bindparam("round"))
)


def may_merge(reader: RowReader, job: Job, number: int) -> bool:
    """Returns whether the round's sum is complete, and everybody in it was paid, or has left its lease unanswered."""
    row = of_round(reader, job.id, number)
    if row is None or row.step < SUMMED:
        return False
    there = list_survivors(job, row)
    found = reader.session.execute(_IN_ROUND, {"job": job.id, "round": number}).all()
    if any(state in IN_FLIGHT and name in there for name, state, _until in found):
        return False
    accepted = exists().where(Task.job_id == job.id, Task.round == number, Task.state == TaskState.ACCEPTED)
    return bool(reader.session.scalar(select(accepted)))


def find_mean_blob(reader: RowReader, job_id: str, number: int) -> Digest | None:
    """Returns the blob of the round's mean; None before it exists."""
    row = of_round(reader, job_id, number)
    return None if row is None else row.total


def is_answer_awaited(reader: RowReader, row: SecureSum, holders: Sequence[Address], now: float) -> bool:
    """Returns whether a holder with a lease of the round, whose message the open step expects, has not answered yet."""
    asked, here = ({one.holder for one in list_messages(reader, row, step)} for step in (row.step - 1, row.step))
    missing = {holders[number] for number in asked - here}
    leased = reader.session.execute(_IN_ROUND, {"job": row.job_id, "round": row.round}).all()
    return any(state == ReplicaState.LEASED and until > now and name in missing for name, state, until in leased)


def list_closed_sums(reader: RowReader, job_id: str) -> list[str]:
    """Returns the job's sums whose messages nobody needs any more: of closed rounds, and all once the job is over."""
    return list(reader.session.scalars(_OVER.where(SecureSum.job_id == job_id)))


def jobs_over(reader: RowReader) -> list[str]:
    """Returns the jobs that have such sums."""
    return list(reader.session.scalars(_JOBS_OVER))


_CLOSED: Final = exists().where(
    Round.job_id == SecureSum.job_id, Round.number == SecureSum.round, Round.state == RoundState.CLOSED
)
_ENDED: Final = exists().where(
    Job.id == SecureSum.job_id, Job.state.in_((JobState.FINISHED, JobState.CANCELLED, JobState.FAILED))
)
_OVER: Final = (
    select(SecureSum.id)
    .where(exists().where(SecureMessage.sum_id == SecureSum.id), or_(_CLOSED, _ENDED))
    .order_by(SecureSum.id)
    .limit(64)
)
_JOBS_OVER: Final = _OVER.with_only_columns(SecureSum.job_id)


def delete_messages(work: Work, sum_id: str) -> list[Digest]:
    """Deletes the messages of a sum; returns the blobs of the vectors among them."""
    mine = SecureMessage.sum_id == sum_id
    named = select(SecureMessage.vector).where(mine, SecureMessage.vector.is_not(None))
    vectors = [vector for vector in work.session.scalars(named) if vector]
    work.session.execute(delete(SecureMessage).where(mine).execution_options(synchronize_session="fetch"))
    return vectors


def is_vector_needed(reader: RowReader, digest: str) -> bool:
    """Returns whether an incomplete sum needs the vector."""
    return bool(reader.session.scalar(select(exists().where(SecureMessage.vector == digest))))


def store_replies(reader: RowReader, row: SecureSum, replies: Mapping[int, Wire]) -> None:
    """Stores the holders' replies after the step that ends."""
    for one in list_messages(reader, row, row.step):
        if one.holder in replies:
            one.told = replies[one.holder].model_dump_json().encode()


def build_first_attempt(reader: RowReader, job: Job, row: Round, beacon: Hash) -> SecureSum:
    """Returns the first attempt at the sum of a round."""
    spec, before = jobs.load_spec(job), of_round(reader, job.id, row.number - 1)
    start = start_of(build_sum_terms(spec), hash_of(row.parameters), None if before is None else before.start)
    expected, name = len(spec.private.holders) if spec.private else 0, name_of(job.id, row.number)
    return SecureSum(
        id=name, job_id=job.id, round=row.number, attempt=0, step=1, start=start, beacon=beacon, expected=expected
    )


def bound_times(work: Work, now: float) -> int:
    """Brings steps' ends back that are later than their rule gives; returns how many were."""
    changed = 0
    for row in work.session.scalars(select(SecureSum).where(SecureSum.due_at > now)):
        deadlines = jobs.load_spec(work.session.get_one(Job, row.job_id)).deadlines
        changed += bound_row_times(row, {"due_at": now + max(deadlines.upload_s, deadlines.wave_s)})
    return changed


def first_under_way(reader: RowReader, job_id: str) -> Round | None:
    """Returns the oldest round that is open or being merged: rounds are merged in order."""
    return reader.session.scalar(_FIRST_UNDER_WAY, {"job": job_id})


_FIRST_UNDER_WAY: Final = select(Round).where(*ROUNDS_UNDER_WAY).order_by(Round.number).limit(1)


def sum_topic(job_id: str) -> str:
    """Returns the topic that is notified when a step of a job's secure aggregation ends."""
    return f"sum:{job_id}"
