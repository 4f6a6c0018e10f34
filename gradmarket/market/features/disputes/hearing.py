"""Carries one dispute from its first question to its verdict; the clock is given."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from gradmarket.market.errors import Refused
from gradmarket.market.features.disputes.questions import Question, Reply
from gradmarket.market.features.disputes.referee import DisputeVerdict, Referee
from gradmarket.market.messages import DisputeQuestion
from gradmarket.market.terms import Address

Ask = Callable[[DisputeQuestion, Question], Iterable[Reply]]
"""Carries a question to a side, and returns what it has sent by the end of its time: nothing, or too much."""
Redo = Callable[[int, Sequence[bytes]], bytes]
"""Computes an operation from the bytes of what it reads. Raises Refused where it cannot."""


def hear_dispute(
    referee: Referee, sides: Mapping[Address, Ask], redo: Redo, clock: Callable[[], int]
) -> DisputeVerdict:
    """Returns the verdict. What a side sends that is no answer counts as nothing."""
    while referee.verdict is None:
        asked, question = referee.asked, referee.question
        for ask in sides.values():
            for answer in ask(asked, question):
                try:
                    referee.receive(answer, clock())
                except Refused:
                    continue
        if (leaf := referee.operation) is not None:
            judge_operation(referee, leaf, redo)
        elif referee.asked == asked:
            referee.expire(max(clock(), asked.until + 1))
    return referee.verdict


def judge_operation(referee: Referee, leaf: int, redo: Redo) -> None:
    """Decides by the operation done again; without a loser where it cannot be."""
    try:
        computed = redo(leaf, referee.inputs)
    except Refused as error:
        referee.decide(None, error.detail)
        return
    referee.decide(computed)
