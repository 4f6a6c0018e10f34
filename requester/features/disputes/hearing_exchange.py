"""Passes a referee's questions to workers and auditors and takes their answers, each once.

An answer's signature is checked before its bytes are read.
"""

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select

from gradmarket.market.errors import Conflict, NotFound, Refused
from gradmarket.market.features.disputes.questions import (
    DisputeAnswer,
    DisputeReceipt,
    HearingAnswer,
    HearingQuestion,
    HearingQuestions,
    Question,
    digest_reply,
    encode_run,
)
from gradmarket.market.features.disputes.referee import SHOWN
from gradmarket.market.signing import check_struct_signature
from gradmarket.market.terms import Address, Hash, JobId, ReplicaId, TaskId
from gradmarket.market.wire.hearing_messages import (
    MOST_SAID,
    AskedInHearing,
    AuditorQuestion,
    AuditorQuestions,
    AuditorStatement,
    HearingReceipt,
    SaidInHearing,
    name_dispute,
)
from gradmarket.market.wire.poll import OfferFields, hash_of
from graphdoc.encoding import Bytes
from requester.context import Context
from requester.features.disputes import hearing_rows
from requester.features.disputes.hearing_rows import HearingValue, TaskHearing
from requester.features.disputes.hearings import TOPIC, find_party
from requester.store.locks import lock_row
from requester.store.tables import Replica, Task
from requester.store.work import RowReader

Statement = HearingAnswer | AuditorStatement
LATE: Final = "the answer is late"
NOT_ASKED: Final = "no referee asks you that: ask for the open question"


@dataclass(frozen=True)
class HearingDoor:
    """An answer that a side may bring by `until`: at most `most_bytes`.

    A longer one, where `may_be_longer`, is stored without its bytes.
    """

    task: str
    most_bytes: int
    until: int
    may_be_longer: bool


def list_asked_questions(context: Context, worker: Address) -> HearingQuestions:
    with context.reading() as reader:
        rows = _list_asked(reader, worker, worker, of_auditors=False)
        named = ((_list_replicas(reader, row, worker)[0], row) for row in rows)
        return HearingQuestions(
            questions=tuple(HearingQuestion(replica=ReplicaId(name), **_put(row)) for name, row in named)
        )


def list_auditor_questions(context: Context, operator: str, signer: Address) -> AuditorQuestions:
    with context.reading() as reader:
        rows = _list_asked(reader, signer, operator, of_auditors=True)
        questions = (
            AuditorQuestion(
                job=JobId(row.job_id),
                task=TaskId(row.task_id),
                offer=OfferFields.of(reader.get_one(Task, row.task_id).offer),
                referee=context.signer_address,
                **_put(row),
            )
            for row in rows
        )
        return AuditorQuestions(questions=tuple(questions))


def _put(row: TaskHearing) -> dict[str, Any]:
    asked = row.open
    put = asked.model_dump(include={"asked", "level", "place", "until", "signature"})
    roots = hash_of(row.one_root), hash_of(row.other_root)
    return {"sides": row.sides, "roots": roots, "number": len(row.questions) - 1, **put}


def _list_asked(reader: RowReader, side: Address, caller: str, of_auditors: bool) -> list[TaskHearing]:
    """Returns the open hearings of this side, which the caller is, as a worker or an operator of auditors."""
    rows = hearing_rows.list_open_hearings(reader, side)
    own = (row for row in rows if (row.run is not None) == of_auditors)
    return [row for row in own if find_party(reader, row.run).may_speak(reader, row.task_id, row.run, side, caller)]


def admit_answer(context: Context, caller: str, statement: Statement) -> HearingDoor:
    """Raises Refused or NotFound unless this worker, or an auditor of this operator, signed an answer to the question
    that it is asked now."""
    with context.reading() as reader:
        row = _find_question(context, reader, caller, statement, context.clock())
        return HearingDoor(row.task_id, row.most_bytes, row.find_ends()[statement.side], row.open.asked in SHOWN)


def _find_question(context: Context, reader: RowReader, caller: str, statement: Statement, at: float) -> TaskHearing:
    rows = _list_asked(reader, statement.side, caller, isinstance(statement, AuditorStatement))
    if isinstance(statement, AuditorStatement):
        about = (row for row in rows if row.task_id == statement.task)
    else:
        about = (row for row in rows if statement.replica in _list_replicas(reader, row, statement.side))
    row = next(about, None)
    if row is None or statement.number != len(row.questions) - 1:
        raise NotFound(NOT_ASKED)
    if at > row.find_ends()[statement.side]:
        raise NotFound(LATE)
    _check_signed(context, statement, row.open, _name_dispute(reader, row))
    return row


def _check_signed(context: Context, statement: Statement, asked: AskedInHearing, dispute: Hash) -> None:
    question = Question(asked.asked, asked.level, asked.place).digest(dispute, statement.number)
    struct = DisputeAnswer(dispute, statement.side, statement.number, question, statement.said)
    check_struct_signature(context.domain, struct, statement.signature, statement.side)


def _name_dispute(reader: RowReader, row: TaskHearing) -> Hash:
    roots = hash_of(row.one_root), hash_of(row.other_root)
    return name_dispute(reader.get_one(Task, row.task_id).offer_digest, row.sides, roots)


def _list_replicas(reader: RowReader, row: TaskHearing, worker: Address) -> Sequence[str]:
    own = select(Replica.id).where(Replica.task_id == row.task_id, Replica.worker == worker)
    return reader.session.scalars(own.order_by(Replica.id)).all()


def store_answer(
    context: Context,
    caller: str,
    door: HearingDoor,
    statement: Statement,
    body: Bytes | None,
    size: int,
    at: float | None = None,
) -> HearingReceipt:
    """Stores an answer, and acknowledges it; `body` is None for one that is longer than the referee holds.

    This process holds one long answer in memory at a time; the others wait in their files, which costs no side time:
    `at` is when all bytes had arrived, or else now. Raises Refused for other bytes than were signed, NotFound where
    they come too late.
    """
    at = context.clock() if at is None else at
    if body is not None and digest_reply(body) != statement.said:
        raise Refused("the bytes are not those that were signed")
    if body is not None and len(body) != size:
        raise Refused(f"the answer has another length than the {size} bytes of its content-length")
    with _LONG if size > MOST_SAID else nullcontext(), context.begin() as work:
        task = lock_row(work, Task, door.task)
        row = _find_question(context, work, caller, statement, at)
        work.refresh(row)
        wanted = find_party(work, row.run).load_answers(work, task, row.run)
        if not wanted or statement.side in row.answered:
            raise Conflict("it was answered already")
        inline = body is not None and size <= MOST_SAID
        taken = SaidInHearing(
            side=statement.side,
            said=statement.said,
            signature=statement.signature,
            size=size,
            at=int(at),
            body="0x" + bytes(body).hex() if body is not None and inline else None,
        )
        asked = row.open
        answered = asked.model_copy(update={"answers": (*asked.answers, taken)})
        row.questions = [*row.questions[:-1], answered.model_dump(mode="json")]
        row.due_at = row.find_due()
        if body is not None and not inline:
            key = {"task_id": row.task_id, "number": row.number, "question": statement.number, "side": statement.side}
            work.add(HearingValue(**key, body=bytes(body)))
        receipt = _acknowledge(context, work, row, statement.number, taken)
        work.notify(TOPIC)  # also for the hearings in which this side's next question waits
    return receipt


_LONG: Final = threading.Lock()


def _acknowledge(
    context: Context, reader: RowReader, row: TaskHearing, number: int, taken: SaidInHearing
) -> HearingReceipt:
    job, dispute = reader.get_one(Task, row.task_id).offer.job, _name_dispute(reader, row)
    struct = DisputeReceipt(job, dispute, encode_run(row.run), taken.side, number, taken.said, taken.at)
    return HearingReceipt(number=number, run=row.run, at=taken.at, signature=context.sign(struct))


def find_receipt(context: Context, statement: Statement) -> HearingReceipt | None:
    """Returns the receipt of the same answer where it was taken before: the response may have been lost.

    Raises SignatureRefused where its side did not sign it.
    """
    with context.reading() as reader:
        task_id: str | None
        if isinstance(statement, AuditorStatement):
            task_id, of_auditors = statement.task, True
        else:
            replica = reader.get(Replica, statement.replica)
            task_id, of_auditors = None if replica is None else replica.task_id, False
        rows = () if task_id is None else hearing_rows.list_hearings(reader, task_id)
        for row in reversed([row for row in rows if (row.run is not None) == of_auditors]):
            for put in row.publish().questions[statement.number : statement.number + 1]:
                taken = {(one.side, one.said): one for one in put.answers}.get((statement.side, statement.said))
                if taken is not None:
                    _check_signed(context, statement, put, _name_dispute(reader, row))
                    return _acknowledge(context, reader, row, statement.number, taken)
    return None
