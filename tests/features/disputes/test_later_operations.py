"""Between classes a market's referee asks about later operations: each question has its whole time."""

from collections.abc import Sequence
from typing import Any, cast

from gradmarket.market.features.disputes.referee import Referee, Terms
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Hash
from gradmarket.runner.features.disputes.traced.course import PlanCourse, judge_results, redo_operation
from requester.features.disputes.hearings import _move_referee
from requester.features.disputes.referee_child import RefereeCourse
from tests.kit.disputes import ANSWER_S, DOMAIN, HONEST, LIAR, OFFER, answer_as, side_of
from tests.kit.torch_tests import TRACING
from tests.market.test_disputes_across import find_later, spoil_both, task

pytestmark = TRACING
LATE_S, AWAY_S = ANSWER_S - 1, 10 * ANSWER_S


class _Here:
    """What the referee's child computes, in this process, and how the time passes meanwhile."""

    def __init__(self) -> None:
        self.now = 0

    def redo(self, leaf: int, values: Sequence[bytes]) -> bytes:
        return redo_operation(task().operations, leaf, values)

    def judge(self, leaf: int, values: Sequence[bytes], results: Sequence[bytes]) -> bool | None:
        self.now += AWAY_S
        return judge_results(task().operations, leaf, values, results)


def test_a_later_operation_s_questions_have_their_whole_time_from_when_they_are_put() -> None:
    """Also after the referee's own computations, whose time is no side's."""
    later = find_later("linear")
    other, course = spoil_both(later, lambda product: product + 1e-3), PlanCourse(task().operations.plan)
    roots = Hash(task().trace.root), Hash(other.root)
    terms = Terms(DOMAIN, OFFER, (address_of(HONEST), address_of(LIAR)), roots, ANSWER_S, 2**24, across=True)
    asks = [
        answer_as(side_of(key, task(), trace), course, terms) for key, trace in ((HONEST, task().trace), (LIAR, other))
    ]
    referee, child = Referee(terms, course, 0), _Here()
    here = RefereeCourse(cast(Any, child), has_rows=True)
    while not referee.is_decided():
        asked, question = referee.open_question, referee.question
        for reply in (each for ask in asks for each in ask(asked, question)):
            referee.receive(reply, child.now + LATE_S)
        child.now += LATE_S + AWAY_S
        _move_referee(referee, here, asked.number + 1, lambda: float(child.now))
        assert referee.is_decided() or referee.open_question.until == child.now + ANSWER_S
    assert referee.verdict is not None
    assert (referee.verdict.wrong, referee.verdict.leaf) == (frozenset({address_of(LIAR)}), later)
