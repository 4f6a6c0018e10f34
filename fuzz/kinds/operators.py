"""Calls of every operator that a document may name: honest, at the edge, and beyond it."""

import json
from functools import cache
from random import Random
from typing import Any, Final

from fuzz.calls.arrays import from_the_heap
from fuzz.calls.damage import damaged
from fuzz.calls.elsewhere import ANSWERING, MEASURING, Elsewhere, prepare
from fuzz.calls.making import made
from fuzz.calls.recipes import LARGE, honest
from fuzz.case import Case
from gradmarket.market.errors import DocumentRefused
from graphdoc.conditions import condition_of
from graphdoc.operators import ALLOWED

REFUSED: Final = DocumentRefused
KEYS: Final = sorted(ALLOWED)
STATED: Final = [key for key in KEYS if condition_of(key) is not None]
"""Those whose kernels take much on trust: half of the calls are theirs."""
GROWTH_KIB: Final = 48 * 1024
"""Twelve times the most bytes of a call's results here."""
BACK: Final = 0.25
"""Of the calls, how many have their backward pass on shapes alone too."""


MEASURED: Final = 0.01
"""How many are honest and large, and have their memory measured."""


def case(chance: Random) -> Case:
    measured = chance.random() < MEASURED
    key = chance.choice(chance.choice((KEYS, STATED)))
    arguments = honest(key, chance, chance.choice(LARGE)) if measured else damaged(key, honest(key, chance), chance)
    call = {"op": key, "args": arguments, "back": chance.random() < BACK, "measured": measured}
    return Case(json.dumps(call).encode())


def read(case: Case) -> None:
    """Refused, or the same bits in another process, in the form derived from shapes alone; or within its bound.

    The other processes begin and end with this one.
    """
    call: dict[str, Any] = json.loads(case.data)
    if call["measured"]:
        _process(MEASURING).begun(call["op"], call["args"])()
    else:
        made(call["op"], call["args"], call["back"], _process(ANSWERING).begun)


@cache
def _process(command: tuple[str, ...]) -> Elsewhere:
    return Elsewhere(command)


def _honest_ones() -> None:
    """Raises RuntimeError where an operator has no honest call that is taken."""
    for key in KEYS:
        try:
            made(key, honest(key, Random(key)))
        except DocumentRefused as error:
            raise RuntimeError(f"the honest call of {key} is refused: {error}") from None


prepare()
from_the_heap()
_honest_ones()
for command in (ANSWERING, MEASURING):
    _process(command)
