"""Tells workers what a referee asks them, and takes what they say: signed before a byte of it is read, and once."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select

from gradmarket.market.errors import Conflict, NotFound, Refused
from gradmarket.market.features.disputes.questions import Question, digest_said, name_dispute
from gradmarket.market.features.disputes.referee import SHOWN
from gradmarket.market.messages import DisputeAnswer
from gradmarket.market.signing import check_struct_signature
from gradmarket.market.terms import Address, ReplicaId, TaskState
from gradmarket.market.wire.hearing_messages import (
    MOST_SAID,
    HearingAnswer,
    HearingQuestion,
    HearingQuestions,
    SaidInHearing,
)
from gradmarket.market.wire.poll import hash_of
from requester.context import Context
from requester.features.disputes import hearing_rows
from requester.features.disputes.hearing_rows import HearingValue, TaskHearing
from requester.features.disputes.hearings import TOPIC
from requester.store.locks import lock_row
from requester.store.tables import Replica, Task
from requester.store.work import RowReader, Work

LATE = "the answer is late"
NOT_ASKED = "no referee asks you that: ask for the open question"


@dataclass(frozen=True)
class HearingDoor:
    """What a side may bring by `until`: at most `most_bytes`, and a longer answer only as said to be so long."""

    task: str
    most_bytes: int
    until: int
    may_be_longer: bool


def list_asked_questions(context: Context, worker: Address) -> HearingQuestions:
    with context.reading() as reader:
        rows = hearing_rows.list_open_hearings(reader, worker)
        return HearingQuestions(questions=tuple(_build_question(reader, row, worker) for row in rows))


def _build_question(reader: RowReader, row: TaskHearing, worker: Address) -> HearingQuestion:
    asked = row.open
    own = _list_replicas(reader, row, worker)[0]
    return HearingQuestion(
        replica=ReplicaId(own),
        sides=row.sides,
        roots=(hash_of(row.one_root), hash_of(row.other_root)),
        number=len(row.questions) - 1,
        asked=asked.asked,
        level=asked.level,
        place=asked.place,
        until=asked.until,
        signature=asked.signature,
    )


def admit_answer(context: Context, worker: Address, said: HearingAnswer) -> HearingDoor:
    """Raises Refused or NotFound unless this worker signed an answer to the question that it is asked now."""
    with context.reading() as reader:
        row = _find_asked(context, reader, worker, said)
        return HearingDoor(row.task_id, row.most_bytes, row.open.until, row.open.asked in SHOWN)


def _find_asked(context: Context, reader: RowReader, worker: Address, said: HearingAnswer) -> TaskHearing:
    rows = hearing_rows.list_open_hearings(reader, worker)
    own = (row for row in rows if said.replica in _list_replicas(reader, row, worker))
    row = next(own, None)
    if row is None or said.side != worker or said.number != len(row.questions) - 1:
        raise NotFound(NOT_ASKED)
    if context.clock() > row.open.until:
        raise NotFound(LATE)
    task, asked = reader.get_one(Task, row.task_id), row.open
    dispute = name_dispute(task.offer_digest, row.sides, (hash_of(row.one_root), hash_of(row.other_root)))
    question = Question(asked.asked, asked.level, asked.place).digest(dispute, said.number)
    struct = DisputeAnswer(dispute, worker, said.number, question, said.said)
    check_struct_signature(context.domain, struct, said.signature, worker)
    return row


def _list_replicas(reader: RowReader, row: TaskHearing, worker: Address) -> Sequence[str]:
    own = select(Replica.id).where(Replica.task_id == row.task_id, Replica.worker == worker)
    return reader.session.scalars(own.order_by(Replica.id)).all()


def store_answer(
    context: Context, worker: Address, door: HearingDoor, said: HearingAnswer, body: bytes | None, size: int
) -> None:
    """Writes an answer down; `body` is none of one that is longer than the referee holds.

    Raises Refused for other bytes than were signed, NotFound where they come too late.
    """
    if body is not None and digest_said(body) != said.said:
        raise Refused("the bytes are not those that were signed")
    if body is not None and len(body) != size:
        raise Refused(f"the answer has another length than the {size} bytes of its content-length")
    with context.begin() as work:
        task = lock_row(work, Task, door.task)
        row = _find_asked(context, work, worker, said)
        work.refresh(row)
        if task.state != TaskState.REFERRED or worker in row.answered:
            raise Conflict("it was answered already")
        _write_answer(work, row, said, body, size, int(context.clock()))
        if len(row.answered) == 2:
            work.notify(TOPIC)


def _write_answer(work: Work, row: TaskHearing, said: HearingAnswer, body: bytes | None, size: int, at: int) -> None:
    inline = body is not None and size <= MOST_SAID
    shown = SaidInHearing(
        side=said.side,
        said=said.said,
        signature=said.signature,
        size=size,
        at=at,
        body="0x" + body.hex() if body is not None and inline else None,
    )
    asked = row.open
    answered = asked.model_copy(update={"answers": (*asked.answers, shown)})
    row.questions = [*row.questions[:-1], answered.model_dump(mode="json")]
    if body is not None and not inline:
        key = {"task_id": row.task_id, "number": row.number, "question": said.number, "side": said.side}
        work.add(HearingValue(**key, body=body))
