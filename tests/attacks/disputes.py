"""Disputes that waste an honest side's time, and sides that fall silent in one: on a small task, in this process."""

from collections.abc import Iterator, Sequence
from functools import cache
from random import Random

from gradmarket.market.disputes.hearing import hear_dispute
from gradmarket.market.disputes.questions import Question, Reply, count_questions
from gradmarket.market.disputes.referee import Referee
from gradmarket.market.messages import DisputeQuestion
from gradmarket.market.model.traced.course import PlanCourse, redo_operation
from gradmarket.market.signing import address_of
from tests.attacks.registry import Seen, attack
from tests.attacks.scene import Scene
from tests.kit.disputes import ANSWER_S, HONEST, LIAR, Lie, asking, hear, side_of, tell_lie, terms_of
from tests.kit.traced import SmallTask, asked, small_cnn

COPIES = 20
BOUNDED = "the griefer loses at its node; the honest side answered log2 times and ran once, the referee did one node"
SILENT = "the silent side loses, whatever the question, and the honest one is not asked twice"


@cache
def disputed() -> tuple[SmallTask, Lie]:
    """A task of local steps, and an answer with another gradient of one node."""
    task = small_cnn(asked(kind="local", steps=2, rows=4, optimizer={"name": "adamw", "lr": 0.01}))
    plan = task.operations.plan
    leaves = (leaf for leaf in range(len(plan)) if plan[leaf].kind == "call" and "backward" in plan[leaf].name)
    return task, next(lie for leaf in leaves if (lie := tell_lie(task, leaf, 0, Random(1))) is not None)


@attack("dispute griefing", BOUNDED, share=True)
def a_groundless_dispute_drawn_out_to_the_last_second(_scene: Scene) -> Seen:
    """Each answer comes when its time is nearly over, after twenty that are not signed, too long or of another turn."""
    task, lie = disputed()
    course, terms = PlanCourse(task.operations.plan), terms_of(task, lie)
    honest, griefer = side_of(HONEST, task, task.trace), side_of(LIAR, task, lie.trace)
    referee, now, answers, runs, redone = Referee(terms, course, 0), [0], [0], [0], [0]
    answer_honestly, answer_late = asking(honest, course, terms), asking(griefer, course, terms)

    def ask_honest(asked_: DisputeQuestion, question: Question) -> Iterator[Reply]:
        answers[0] += 1
        runs[0] += question.asked == "values"
        yield from answer_honestly(asked_, question)

    def ask_griefer(asked_: DisputeQuestion, question: Question) -> Iterator[Reply]:
        now[0] = asked_.until
        for number in range(COPIES):
            yield Reply(griefer.address, asked_.number + number % 2, bytes(2**16), bytes(65))
            yield Reply(honest.address, asked_.number, b"", bytes(65))
        yield from answer_late(asked_, question)

    def redo(leaf: int, inputs: Sequence[bytes]) -> bytes:
        redone[0] += 1
        return redo_operation(task.operations, leaf, inputs)

    asks = {honest.address: ask_honest, griefer.address: ask_griefer}
    verdict = hear_dispute(referee, asks, redo, lambda: now[0])
    most = count_questions(len(course))
    figures = {"answers": float(answers[0]), "seconds at most": float(most * ANSWER_S)}
    bounded = answers[0] <= most and now[0] <= most * ANSWER_S and runs == redone == [1]
    if verdict.wrong != {griefer.address} or verdict.leaf != lie.leaf or not bounded:
        return Seen(f"{verdict.why}: {answers[0]} answers, {runs[0]} runs, {redone[0]} operations, {now[0]} s", figures)
    return Seen(BOUNDED, figures)


@attack("a silent side of a dispute", SILENT)
def a_side_that_falls_silent_at_any_question(_scene: Scene) -> str:
    task, lie = disputed()
    course, terms = PlanCourse(task.operations.plan), terms_of(task, lie)
    speaking = asking(side_of(LIAR, task, lie.trace), course, terms)
    for quiet in range(count_questions(len(course))):

        def ask(asked_: DisputeQuestion, question: Question, quiet: int = quiet) -> Iterator[Reply]:
            yield from speaking(asked_, question) if asked_.number < quiet else ()

        verdict, referee = hear(task, lie, liar=ask)
        silent = "in time" in verdict.why and referee.asked.number == quiet
        if verdict.wrong != {address_of(LIAR)} or not (silent or verdict.leaf == lie.leaf):
            return f"silent at question {quiet}: {verdict.why}"
    return SILENT
