"""Carries one dispute from its first question to its verdict; the clock is given."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from gradmarket.market.errors import Refused
from gradmarket.market.features.disputes.questions import DisputeQuestion, Question, Reply
from gradmarket.market.features.disputes.referee import DisputeVerdict, Referee
from gradmarket.market.terms import Address

Ask = Callable[[DisputeQuestion, Question], Iterable[Reply]]
"""Carries a question to a side, and returns the replies that arrive in time: none, one, or too many."""
Redo = Callable[[int, Sequence[bytes]], bytes]
"""Computes an operation from the bytes of what it reads. Raises Refused where it cannot."""
Judge = Callable[[int, Sequence[bytes], Sequence[bytes]], bool | None]
"""Returns whether an operation can have given these results on the values, within its rounding; None where no bound is
known. Raises Refused where the operation cannot be computed."""


def hear_dispute(
    referee: Referee,
    sides: Mapping[Address, Ask],
    redo: Redo,
    clock: Callable[[], int],
    judge: Judge | None = None,
) -> DisputeVerdict:
    """Returns the verdict. An invalid reply of a side counts as none."""
    while referee.verdict is None:
        asked, question = referee.open_question, referee.question
        for ask in sides.values():
            for answer in ask(asked, question):
                try:
                    referee.receive(answer, clock())
                except Refused:
                    continue
        if (leaf := referee.operation) is not None:
            judge_operation(referee, leaf, redo, judge)
        elif referee.open_question == asked:
            referee.expire(max(clock(), asked.until + 1))
    return referee.verdict


def judge_operation(referee: Referee, leaf: int, redo: Redo, judge: Judge | None = None) -> None:
    """Decides by computing the operation again, between classes by its rounding; names no loser where that is
    impossible."""
    compute_decision(referee, leaf, redo, judge)()


def compute_decision(referee: Referee, leaf: int, redo: Redo, judge: Judge | None = None) -> Callable[[], object]:
    """Computes the operation again, and returns a callable that gives the referee the result."""
    if referee.terms.across:
        judged = {side: _judge_side(referee, leaf, side, judge) for side in referee.terms.sides}
        return partial(referee.decide_across, judged)
    try:
        return partial(referee.decide, redo(leaf, referee.inputs))
    except Refused as error:
        return partial(referee.decide, None, error.detail)


def _judge_side(referee: Referee, leaf: int, side: Address, judge: Judge | None) -> bool | None:
    shown = referee.list_judged()[side]
    try:
        return None if judge is None or shown is None else judge(leaf, *shown)
    except Refused:
        return None
