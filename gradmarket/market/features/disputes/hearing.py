"""Decides the operation that a dispute has come to, by computing it again."""

from collections.abc import Callable, Sequence
from functools import partial

from gradmarket.market.errors import Refused
from gradmarket.market.features.disputes.referee import Referee
from gradmarket.market.terms import Address

Redo = Callable[[int, Sequence[bytes]], bytes]
"""Computes an operation from the bytes of what it reads. Raises Refused where it cannot."""
Judge = Callable[[int, Sequence[bytes], Sequence[bytes]], bool | None]
"""Returns whether an operation can have given these results on the values, within its rounding; None where no bound is
known. Raises Refused where the operation cannot be computed."""


def judge_operation(referee: Referee, leaf: int, redo: Redo, judge: Judge | None = None) -> None:
    """Decides by computing the operation again, between classes by its rounding; names no loser where that is
    impossible."""
    compute_decision(referee, leaf, redo, judge)()


def compute_decision(referee: Referee, leaf: int, redo: Redo, judge: Judge | None = None) -> Callable[[], object]:
    """Computes the operation again, and returns a callable that gives the referee the result."""
    if referee.terms.across:
        judged: dict[Address, bool | None] = {}
        for side in referee.terms.sides:
            shown = referee.list_judged()[side]
            try:
                judged[side] = None if judge is None or shown is None else judge(leaf, *shown)
            except Refused:
                judged[side] = None
        return partial(referee.decide_across, judged)
    try:
        return partial(referee.decide, redo(leaf, referee.inputs))
    except Refused as error:
        return partial(referee.decide, None, error.detail)
