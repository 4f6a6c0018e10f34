"""Hearings as rows: a referee's questions to two workers, or two auditors, whose answers differ, and their answers."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import JSON, ForeignKey, Index, String, cast, delete, exists, func, or_, select
from sqlalchemy.orm import Mapped, mapped_column

from gradmarket.market.features.disputes.questions import SideClocks
from gradmarket.market.features.disputes.referee import SHOWN
from gradmarket.market.features.disputes.refereed import Heard
from gradmarket.market.features.log import job_log
from gradmarket.market.terms import Address, Digest, Hash
from gradmarket.market.wire.hearing_messages import AskedInHearing, PublishedHearing, SaidInHearing, SignedRuling
from gradmarket.market.wire.log_proofs import LeafKind
from requester.feature import LogRecords
from requester.store.among import NOW
from requester.store.review import review_of
from requester.store.stored_times import SLACK_S
from requester.store.tables import Base, Job, Task
from requester.store.work import RowReader, Work

AHEAD_S: Final = SLACK_S + 1.0
"""Seconds by which a question, which ends at a whole second, may outlast its rule: beyond them a clock was wrong."""
QUEUE_S: Final = 60.0
"""Seconds that an answer as long as tensors may wait to be stored, after it arrived in time."""
AT_ONCE: Final = 64
"""Most hearings that are looked at together."""


class DisputeUnderWay(Base):
    """A task whose answers differ, until it is settled. Only the holder of its task's lock writes it."""

    __tablename__ = "disputed_tasks"

    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    at: Mapped[float]
    over: Mapped[bool]
    run: Mapped[int | None] = mapped_column(default=None)
    """The run of the task's audit in whose panel answers differ; None where its workers' do."""

    __table_args__ = (Index("disputed_tasks_under_way", "over", "at"),)


class TaskHearing(Base):
    """Hearing `number` of a task. Only the holder of its task's lock writes it."""

    __tablename__ = "hearings"

    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    one: Mapped[Address]
    other: Mapped[Address]
    one_root: Mapped[Digest]
    other_root: Mapped[Digest]
    answer_s: Mapped[int]
    most_values: Mapped[int]
    across: Mapped[bool]
    questions: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    """Each an AskedInHearing."""
    most_bytes: Mapped[int]
    """Most bytes of an answer to the last question."""
    due_at: Mapped[float | None]
    """The time after which its stage goes on: 0 where both sides have answered, None once there is a ruling."""
    ruling: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    run: Mapped[int | None] = mapped_column(default=None)
    """As its dispute's."""

    __table_args__ = (
        Index("hearings_due", "due_at"),
        Index("hearings_of_one", "one", "due_at"),
        Index("hearings_of_other", "other", "due_at"),
    )

    @property
    def sides(self) -> tuple[Address, Address]:
        return self.one, self.other

    @property
    def open(self) -> AskedInHearing:
        """The last question."""
        return AskedInHearing.model_validate(self.questions[-1])

    @property
    def began(self) -> float:
        """The Unix time at which the first question was put, or put anew."""
        return float(self.questions[0]["until"] - self.answer_s)

    @property
    def answered(self) -> set[Address]:
        return {Address(reply.side) for reply in self.open.answers}

    def find_ends(self) -> dict[Address, int]:
        """Returns the Unix time by which each side that has not answered the last question must."""
        clocks, last = SideClocks(self.answer_s, self.across), self.open
        for each in self.questions:  # as they are stored: some answers are long
            for said in each["answers"]:
                clocks.stop(Address(said["side"]), each["until"], said["at"])
        silent = [side for side in self.sides if side not in {said.side for said in last.answers}]
        return {side: clocks.find_end(side, last.until) for side in silent}

    def find_due(self) -> float:
        """Returns the time after which the stage goes on: at once where both sides have answered."""
        ends = self.find_ends().values()
        return min(ends) + find_queue_s(self.open.asked) if ends else 0.0

    def publish(self) -> PublishedHearing:
        return PublishedHearing(
            sides=self.sides,
            roots=(self.one_root, self.other_root),
            answer_s=self.answer_s,
            most_values=self.most_values,
            across=self.across,
            run=self.run,
            questions=tuple(map(AskedInHearing.model_validate, self.questions)),
            ruling=None if self.ruling is None else SignedRuling.model_validate(self.ruling),
        )


def find_queue_s(asked: str) -> float:
    """Returns for how long an answer to such a question may wait to be stored."""
    return QUEUE_S if asked in SHOWN else 0.0


class HearingValue(Base):
    """The bytes of a long answer, until there is a ruling."""

    __tablename__ = "hearing_values"

    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    question: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    side: Mapped[Address] = mapped_column(primary_key=True)
    body: Mapped[bytes]


def list_hearings(reader: RowReader, task_id: str) -> Sequence[TaskHearing]:
    rows = select(TaskHearing).where(TaskHearing.task_id == task_id).order_by(TaskHearing.number)
    return reader.session.scalars(rows, execution_options={"populate_existing": True}).all()


def list_heard(rows: Sequence[TaskHearing], run: int | None) -> list[Heard]:
    """Returns the ended hearings of the run's party, as the rules read them."""
    over = [(row.sides, row.ruling) for row in rows if row.ruling is not None and row.run == run]
    return [Heard(sides, SignedRuling.model_validate(ruling).wrong) for sides, ruling in over]


def load_value(reader: RowReader, task_id: str, number: int, question: int, reply: SaidInHearing) -> bytes | None:
    """Returns the bytes of an answer."""
    if reply.body is not None:
        return bytes.fromhex(reply.body[2:])
    held = reader.get(HearingValue, (task_id, number, question, reply.side))
    return None if held is None else held.body


def drop_values(work: Work, row: TaskHearing) -> None:
    mine = HearingValue.task_id == row.task_id, HearingValue.number == row.number
    work.session.execute(delete(HearingValue).where(*mine))


def begin_dispute(work: Work, task: Task, now: float, run: int | None) -> None:
    row = work.get(DisputeUnderWay, task.id)
    if row is None:
        work.add(DisputeUnderWay(task_id=task.id, job_id=task.job_id, at=now, over=False, run=run))
    else:
        row.over, row.run, row.at = False, run, now


def end_dispute(work: Work, task_id: str) -> None:
    work.get_one(DisputeUnderWay, task_id).over = True


def list_ready_tasks(reader: RowReader, now: float) -> Sequence[str]:
    """Returns the disputed tasks without an open hearing, and those whose question has both answers or no time left.

    In no order: those that wait for their sides' other hearings hold up no others.
    """
    is_open = exists().where(TaskHearing.task_id == DisputeUnderWay.task_id, TaskHearing.due_at.is_not(None))
    new = select(DisputeUnderWay.task_id).where(DisputeUnderWay.over.is_(False), ~is_open)
    unheard = reader.session.scalars(new.order_by(func.random()).limit(AT_ONCE)).all()
    return [*unheard, *reader.session.scalars(_DUE, {"now": now}).all()]


_DUE: Final = select(TaskHearing.task_id).where(TaskHearing.due_at < NOW).order_by(func.random()).limit(AT_ONCE)
_OPEN: Final = select(TaskHearing).where(TaskHearing.due_at.is_not(None)).order_by(TaskHearing.due_at)


def count_open_hearings(reader: RowReader, job: Job) -> tuple[int, int]:
    """Returns how many tasks have workers, and auditors, that a referee hears now."""
    open_now = select(func.count(), func.count(TaskHearing.run)).where(
        TaskHearing.job_id == job.id, TaskHearing.due_at.is_not(None)
    )
    both, auditors = reader.session.execute(open_now).one()
    return both - auditors, auditors


def list_open_hearings(reader: RowReader, side: Address, owed: bool = True) -> Sequence[TaskHearing]:
    """Returns the open hearings of this side; where `owed`, those in which it must answer the last question."""
    own = or_(TaskHearing.one == side, TaskHearing.other == side)
    rows = reader.session.scalars(_OPEN.where(own)).all()
    return [row for row in rows if not owed or side not in row.answered][:AT_ONCE]


def bound_times(work: Work, now: float) -> int:
    """Makes the stage look at questions that outlast their rule, since their end is signed; returns how many."""
    rows = work.session.scalars(_OPEN.where(TaskHearing.due_at > now + AHEAD_S)).all()
    ahead = [row for row in rows if (row.due_at or 0.0) > now + row.answer_s + find_queue_s(row.open.asked) + AHEAD_S]
    for row in ahead:
        row.due_at = 0.0
    return len(ahead)


def list_tasks_asked(reader: RowReader) -> Sequence[str]:
    """Returns the tasks with an open question."""
    asked = select(TaskHearing.task_id).where(TaskHearing.due_at.is_not(None)).order_by(TaskHearing.task_id)
    return reader.session.scalars(asked).all()


def put_off(row: TaskHearing, until: int, signature: bytes) -> None:
    """Extends the time of the open question."""
    later = row.open.model_copy(update={"until": until, "signature": signature})
    row.questions = [*row.questions[:-1], later.model_dump(mode="json")]
    row.due_at = row.find_due()


def is_open(reader: RowReader, task_id: str, run: int | None) -> bool:
    """Returns whether anybody may see the task's hearings of this run: nobody but its auditors may see that a task is
    audited now."""
    return run is None or not review_of(reader).is_under_way(reader, [task_id])


def _is_leaf_open(reader: RowReader, about: str, fields: Sequence[Any]) -> bool:
    return is_open(reader, about.rpartition("/")[0], fields[_RUN])


def _encode_answers(
    offer: Hash, one: Address, other: Address, run: int | None, questions: list[dict[str, Any]]
) -> bytes:
    said = Counter(said["side"] for each in questions for said in each["answers"])
    return job_log.encode_answers(offer, one, other, run, said[one], said[other])


_ABOUT: Final = TaskHearing.task_id + "/" + cast(TaskHearing.number, String)
_ORDER: Final = (TaskHearing.task_id, TaskHearing.number)
_HEARD: Final = (Task.offer_digest, TaskHearing.one, TaskHearing.other, TaskHearing.run)
_RUN: Final = 3
HEARINGS: Final = LogRecords(
    LeafKind.HEARING,
    _ABOUT,
    _HEARD,
    lambda job: (Task.id == TaskHearing.task_id, TaskHearing.job_id == job),
    job_log.encode_hearing,
    _ORDER,
    _is_leaf_open,
)
ANSWERS: Final = LogRecords(
    LeafKind.ANSWERS,
    _ABOUT,
    (*_HEARD, TaskHearing.questions),
    lambda job: (Task.id == TaskHearing.task_id, TaskHearing.job_id == job, TaskHearing.due_at.is_(None)),
    _encode_answers,
    _ORDER,
    _is_leaf_open,
)
RULINGS: Final = LogRecords(
    LeafKind.RULING,
    _ABOUT,
    (*_HEARD, TaskHearing.ruling),
    lambda job: (Task.id == TaskHearing.task_id, TaskHearing.job_id == job, TaskHearing.due_at.is_(None)),
    lambda offer, one, other, run, ruling: job_log.encode_ruling(
        offer, one, other, run, SignedRuling.model_validate(ruling).signature
    ),
    _ORDER,
    _is_leaf_open,
)
