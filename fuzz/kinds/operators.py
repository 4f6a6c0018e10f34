"""Calls of every operator that a document may name: honest, at the edge, and beyond it."""

import json
import warnings
from random import Random
from typing import Any, Final

import torch

from fuzz.calls.arrays import from_the_heap
from fuzz.calls.damage import damaged
from fuzz.calls.making import made
from fuzz.calls.recipes import honest
from fuzz.case import Case
from gradmarket.market.errors import DocumentRefused
from gradmarket.market.model.document.conditions import condition_of
from gradmarket.market.model.document.operators import ALLOWED

REFUSED: Final = DocumentRefused
KEYS: Final = sorted(ALLOWED)
STATED: Final = [key for key in KEYS if condition_of(key) is not None]
"""Those whose kernels take much on trust: half of the calls are theirs."""
GROWTH_KIB: Final = 48 * 1024
"""Twelve times what a call that is made here may give."""
BACK: Final = 0.25
"""Of the calls, how many have their backward pass on shapes alone too."""


def case(chance: Random) -> Case:
    key = chance.choice(chance.choice((KEYS, STATED)))
    call = {"op": key, "args": damaged(key, honest(key, chance), chance), "back": chance.random() < BACK}
    return Case(json.dumps(call).encode())


def read(case: Case) -> None:
    """Refused, or the same bits whatever memory held before, of the shape and type that shapes alone tell."""
    call: dict[str, Any] = json.loads(case.data)
    made(call["op"], call["args"], call["back"])


def prepare() -> None:
    """What runner.child sets; uninitialised memory stays as it is, so that what reads it is found."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    from_the_heap()
    for key in KEYS:
        try:
            made(key, honest(key, Random(key)))
        except DocumentRefused as error:
            raise RuntimeError(f"the honest call of {key} is refused: {error}") from None


prepare()
