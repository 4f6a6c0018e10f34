"""The stage that hears answers that differ: asks, computes the one operation where two part, rules, and settles."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from sqlalchemy import select

from gradmarket.market.errors import MarketError, Refused, RunnerFailed
from gradmarket.market.features.disputes import refereed
from gradmarket.market.features.disputes.hearing import judge_operation
from gradmarket.market.features.disputes.questions import HEARING_S, MOST_VALUES, OVER, DisputeQuestion, Question
from gradmarket.market.features.disputes.referee import Referee
from gradmarket.market.features.disputes.transcript import Body, play_hearing, terms_of
from gradmarket.market.job import Publication
from gradmarket.market.messages import Offer
from gradmarket.market.rules.assignment import find_thread_count
from gradmarket.market.terms import Address, Digest, Hash
from gradmarket.market.wire.hearing_messages import (
    AskedInHearing,
    PublishedHearing,
    SaidInHearing,
    SignedRuling,
    build_ruling,
)
from requester.context import Context
from requester.feature import AnswersLeft, HearingParty, features_of
from requester.features.disputes import hearing_rows
from requester.features.disputes.hearing_rows import DisputeUnderWay, TaskHearing
from requester.features.disputes.referee_child import RefereeCourse, open_referee_course
from requester.features.disputes.workers_heard import WorkersHeard
from requester.notifier import worker_topic
from requester.store import in_hand, jobs
from requester.store.in_hand import TaskInHand
from requester.store.locks import lock_row, retry_on_conflict
from requester.store.tables import Job, JobEvent, Task
from requester.store.work import RowReader, Work, record_event

TOPIC: Final = "hearings"
MOST_HELD: Final = 3
"""Answers elsewhere for whose time a side's next question waits: it is in four hearings at once."""
WORKERS: Final = WorkersHeard()


@dataclass(frozen=True)
class _Scene:
    """A task whose answers differ `since` a Unix time, the `classes` in which they were computed, and its hearings so
    far."""

    task: str
    since: float
    run: int | None
    party: HearingParty
    offer: Offer
    offer_digest: Hash
    publication: Publication
    answers: dict[Address, Digest]
    classes: dict[Address, str]
    heard: list[refereed.Heard]
    number: int
    open: PublishedHearing | None
    body: Body
    """Reads an answer's bytes when they are played: a hearing may have far more than this process has memory."""

    @property
    def threads(self) -> int:
        named = {find_thread_count(each) for each in self.classes.values()} - {None}
        return (named.pop() if len(named) == 1 else None) or 1


def ready(reader: RowReader, now: float) -> Sequence[str]:
    return hearing_rows.list_ready_tasks(reader, now)


def run(context: Context, task_id: str) -> float | None:
    """Does the next thing about a task: begins a hearing, goes on with the open one, or settles the task."""
    with context.reading() as reader:
        scene = _load_scene(context, reader, task_id)
    if scene is None:
        # nobody waits for a ruling any more: the dispute ends with nobody wrong
        with context.begin() as work:
            hand = in_hand.lock_task_if_free(work, task_id)
            if hand is None:
                return context.settings.sweep_s
            run = work.get_one(DisputeUnderWay, task_id).run
            if find_party(work, run).load_answers(work, hand.task, run):
                return None
            hearing_rows.end_dispute(work, task_id)
            for row in hearing_rows.list_hearings(work, task_id):
                if row.ruling is None:
                    ruling = _sign_ruling(context, hand.task.offer_digest, row.publish(), frozenset(), None, OVER)
                    _write_ruling(context, work, hand, row, ruling)
        return None
    sides = refereed.choose_sides(scene.answers, scene.heard) if scene.open is None else scene.open.sides
    if sides is None:
        # no two answers that stand are left to be heard
        with context.begin() as work:
            hand = in_hand.lock_task_if_free(work, scene.task)
            if hand is None:
                return context.settings.sweep_s
            heard = hearing_rows.list_heard(hearing_rows.list_hearings(work, scene.task), scene.run)
            found = scene.party.load_answers(work, hand.task, scene.run)
            answers = {side: answer.root for side, answer in found.items()}
            if not answers or refereed.choose_sides(answers, heard) is not None:
                return None
            hearing_rows.end_dispute(work, scene.task)
            left = AnswersLeft(refereed.list_standing(answers, heard), refereed.find_standing_root(answers, heard))
            scene.party.settle(context, work, hand, scene.run, left)
        return None
    if (held_s := _find_hold_s(context, scene, sides)) is not None:
        return held_s
    return _begin(context, scene, sides) if scene.open is None else _go_on(context, scene, scene.open)


def _find_hold_s(context: Context, scene: _Scene, sides: tuple[Address, Address]) -> float | None:
    """Returns for how long the next question waits, where a side owes an answer in another hearing; else None.

    A new hearing also waits for others of its sides to end. A side computes its answers one after another, in one child
    that each other hearing takes from it, while its clock would run in all of them: none runs for a question that is
    not put. Who owes an answer to hold others up holds up its own hearings alone, each question by MOST_HELD answers at
    most, and pays for it with its clock there: the held hearings' other sides owe nothing.
    """
    begins, since = scene.open is None, scene.since
    if scene.open is not None:
        answers = scene.open.questions[-1].answers
        if len(answers) < len(sides):  # it is put already, or was not answered in time
            return None
        since = max(reply.at for reply in answers)
    with context.reading() as reader:
        listed = [row for side in sides for row in hearing_rows.list_open_hearings(reader, side, owed=not begins)]
    others = [row for row in listed if row.task_id != scene.task]
    if not others:
        return None
    since = max([since, *(row.began for row in others)]) if begins else since
    left = since + MOST_HELD * _find_answer_s(scene.offer) - context.clock()
    return left if left > 0 else None


def _find_answer_s(offer: Offer) -> int:
    return max(HEARING_S, offer.lease_seconds + offer.upload_seconds)


def find_party(reader: RowReader, run: int | None) -> HearingParty:
    """Returns the party whose answers differ: the task's workers, or the auditors of a run of its audit."""
    parties = (feature.hearing_party for feature in features_of(reader) if feature.hearing_party is not None)
    return WORKERS if run is None else next(parties)


def _load_scene(context: Context, reader: RowReader, task_id: str) -> _Scene | None:
    task, dispute = reader.get_one(Task, task_id), reader.get_one(DisputeUnderWay, task_id)
    run = dispute.run
    party = find_party(reader, run)
    answers = party.load_answers(reader, task, run)
    if not answers:
        return None
    rows = hearing_rows.list_hearings(reader, task_id)
    row = next((row for row in rows if row.ruling is None), None)
    number = len(rows) if row is None else row.number

    def load_body(question: int, reply: SaidInHearing) -> bytes | None:
        with context.reading() as later:
            return hearing_rows.load_value(later, task_id, number, question, reply)

    return _Scene(
        task=task_id,
        since=dispute.at,
        run=run,
        party=party,
        offer=task.offer,
        offer_digest=task.offer_digest,
        publication=jobs.load_publication(reader.get_one(Job, task.job_id)),
        answers={side: answer.root for side, answer in answers.items()},
        classes={side: answer.determinism_class for side, answer in answers.items()},
        heard=hearing_rows.list_heard(rows, run),
        number=number,
        open=None if row is None else row.publish(),
        body=load_body,
    )


def _begin(context: Context, scene: _Scene, sides: tuple[Address, Address]) -> float | None:
    roots = scene.answers[sides[0]], scene.answers[sides[1]]
    hearing = PublishedHearing(
        sides=sides,
        roots=roots,
        answer_s=_find_answer_s(scene.offer),
        most_values=MOST_VALUES,
        across=False,
        run=scene.run,
        questions=(),
    )
    try:
        with open_referee_course(context, scene.publication, scene.offer, scene.threads) as here:
            across = here.is_across([scene.classes[side] for side in sides])
            hearing = hearing.model_copy(update={"across": across})
            terms = terms_of(context.domain, scene.offer_digest, hearing)
            referee = Referee(terms, here.course, int(context.clock()))
            asked, most = _put_question(context, referee), referee.most_bytes
    except (MarketError, RunnerFailed) as error:
        ruling = _sign_ruling(
            context, scene.offer_digest, hearing, frozenset(), None, f"the referee cannot trace it: {error}"
        )
        return _store_hearing(context, scene, hearing, ruling=ruling)
    return _store_hearing(context, scene, hearing, asked, most)


def _put_question(context: Context, referee: Referee) -> AskedInHearing:
    asked, question = referee.open_question, referee.question
    return AskedInHearing(
        asked=question.asked,
        level=question.level,
        place=question.place,
        until=asked.until,
        signature=context.sign(asked),
    )


def _sign_ruling(
    context: Context, offer: Hash, hearing: PublishedHearing, wrong: frozenset[Address], leaf: int | None, why: str
) -> SignedRuling:
    dispute = terms_of(context.domain, offer, hearing).dispute
    signed = build_ruling(dispute, hearing.sides, wrong, leaf, why := why[:2000])
    return SignedRuling(wrong=tuple(sorted(wrong)), leaf=leaf, why=why, signature=context.sign(signed))


def _store_hearing(
    context: Context,
    scene: _Scene,
    hearing: PublishedHearing,
    asked: AskedInHearing | None = None,
    most: int = 0,
    ruling: SignedRuling | None = None,
) -> float | None:
    """Stores a new hearing, with its first question or a ruling that it cannot be heard."""
    with context.begin() as work:
        hand = in_hand.lock_task_if_free(work, scene.task)
        if hand is None:
            return context.settings.sweep_s
        over = not scene.party.load_answers(work, hand.task, scene.run)
        if over or work.get(TaskHearing, (scene.task, scene.number)) is not None:
            return None
        row = TaskHearing(
            task_id=scene.task,
            number=scene.number,
            job_id=hand.job.id,
            one=hearing.sides[0],
            other=hearing.sides[1],
            one_root=hearing.roots[0],
            other_root=hearing.roots[1],
            answer_s=hearing.answer_s,
            most_values=hearing.most_values,
            across=hearing.across,
            run=scene.run,
            questions=[],
            most_bytes=most,
        )
        work.add(row)
        if asked is not None:
            _write_question(work, row, asked, most)
        if ruling is not None:
            _write_ruling(context, work, hand, row, ruling)
    return None


def _go_on(context: Context, scene: _Scene, hearing: PublishedHearing) -> float | None:
    """Replays the hearing from its stored questions and answers, and stores the next step."""
    terms = terms_of(context.domain, scene.offer_digest, hearing)
    ruling: SignedRuling | None
    try:
        with open_referee_course(context, scene.publication, scene.offer, scene.threads) as here:
            referee = play_hearing(terms, here.course, hearing.questions, scene.body).referee
            _move_referee(referee, here, len(hearing.questions), context.clock)
            asked, most = _put_question(context, referee), referee.most_bytes
    except (MarketError, RunnerFailed) as error:
        ruling = _sign_ruling(
            context, scene.offer_digest, hearing, frozenset(), None, f"the referee cannot go on: {error}"
        )
    else:
        found = referee.verdict
        ruling = (
            _sign_ruling(context, scene.offer_digest, hearing, found.wrong, found.leaf, found.why) if found else None
        )
    with context.begin() as work:
        hand = in_hand.lock_task_if_free(work, scene.task)
        if hand is None:
            return context.settings.sweep_s
        row = hearing_rows.list_hearings(work, scene.task)[scene.number]
        if row.publish() != hearing:  # an answer came meanwhile
            return 0.0
        if ruling is not None:
            _write_ruling(context, work, hand, row, ruling)
        elif referee.open_question.number == len(hearing.questions):
            _write_question(work, row, asked, most)
    return None


def _move_referee(referee: Referee, here: RefereeCourse, put: int, clock: Callable[[], float]) -> None:
    """Computes the operation, gives a question that is not among those `put` its whole time, or ends one that is over.

    Raises Refused where the clock was ahead when it was put.
    """
    if not referee.is_decided() and (leaf := referee.operation) is not None:
        try:
            here.check_computable(referee.subject)
        except Refused as error:
            if referee.terms.across:
                referee.decide_across(dict.fromkeys(referee.terms.sides))
            else:
                referee.decide(None, error.detail)
        else:
            judge_operation(referee, leaf, here.course.redo, here.course.judge)
    elif referee.open_question.number < put:
        referee.expire(ceil(clock() - hearing_rows.find_queue_s(referee.question.asked)))
    now = clock()  # read after the computation, whose time is no side's
    if referee.open_question.number == put:
        referee.extend(int(now) + referee.terms.answer_s)
    if not referee.is_decided() and referee.open_question.until > now + referee.terms.answer_s + hearing_rows.AHEAD_S:
        raise Refused("the service's clock was set back meanwhile")


def renew_questions(context: Context) -> None:
    """Puts each open question anew: no side could answer while the service was away, and silence loses."""
    with context.reading() as reader:
        open_now = hearing_rows.list_tasks_asked(reader)
    for task in open_now:
        _renew_question(context, task)


@retry_on_conflict
def _renew_question(context: Context, task_id: str) -> None:
    with context.begin() as work:
        task = lock_row(work, Task, task_id)
        for row in hearing_rows.list_hearings(work, task_id):
            if row.due_at is None or len(row.answered) == len(row.sides):
                continue
            hearing, number = row.publish(), len(row.questions) - 1
            until = max(row.open.until, int(context.clock()) + hearing.answer_s)
            dispute = terms_of(context.domain, task.offer_digest, hearing).dispute
            digest = Question(row.open.asked, row.open.level, row.open.place).digest(dispute, number)
            signature = context.sign(DisputeQuestion(dispute, number, digest, until))
            hearing_rows.put_off(row, until, signature)


def _write_question(work: Work, row: TaskHearing, asked: AskedInHearing, most: int) -> None:
    row.questions = [*row.questions, asked.model_dump(mode="json")]
    row.most_bytes, row.due_at = most, row.find_due()
    polls = (hearing_topic, worker_topic) if row.run is None else (hearing_topic,)
    work.notify(*(topic(side) for topic in polls for side in row.sides))


def _write_ruling(context: Context, work: Work, hand: TaskInHand, row: TaskHearing, ruling: SignedRuling) -> None:
    row.ruling, row.due_at = ruling.model_dump(mode="json"), None
    hearing_rows.drop_values(work, row)
    if hearing_rows.is_open(work, row.task_id, row.run):
        _record_hearing(work, hand.task, row, ruling, context.clock())
    work.notify(TOPIC)


def _record_hearing(work: Work, task: Task, row: TaskHearing, ruling: SignedRuling, now: float) -> None:
    fields = {"task": task.id, "round": task.round, "sides": list(row.sides), "wrong": list(ruling.wrong)}
    record_event(work, task.job_id, "heard", now, **fields, reason=ruling.why)


def record_panel_hearings(work: Work, task: Task, now: float) -> None:
    """Records the hearings of the task's panels that have no event yet, once its audit is over."""
    ended = [row for row in hearing_rows.list_hearings(work, task.id) if row.ruling is not None]
    of_panels = [row for row in ended if row.run is not None]
    if of_panels:
        events = select(JobEvent).where(JobEvent.job_id == task.job_id, JobEvent.kind == "heard")
        recorded = sum(event.body["task"] == task.id for event in work.session.scalars(events))
        for row in of_panels[recorded - (len(ended) - len(of_panels)) :]:
            _record_hearing(work, task, row, SignedRuling.model_validate(row.ruling), now)


def hearing_topic(side: str) -> str:
    return f"hearing:{side}"
