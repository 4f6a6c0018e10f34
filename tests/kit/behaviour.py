"""Deviations of scripted workers from honest ones: in their answer, and in the steps of a task."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.terms import Address

Arrays = dict[str, Vector]
Spoil = Callable[[Arrays, Address], Arrays]
Change = Callable[[Vector], Vector]


def _same(answer: Arrays, _address: Address) -> Arrays:
    return answer


@dataclass(frozen=True)
class Behaviour:
    """`spoil` makes the committed answer of the honest one and the address; `takes` is its way to compute."""

    spoil: Spoil = _same
    commits: bool = True
    reveals: bool = True
    uploads: bool = True
    sketches: Callable[[bytes], bytes] = bytes
    """Turns its payload into the one that its sketch describes."""
    takes: str = "honest"
    """honest, or one of the short cuts that whoever computes for it knows."""


def changed(change: Change, *names: str) -> Behaviour:
    """Changes these tensors of the answer; none named: all but the loss. Workers with the same change collude."""

    def spoil(answer: Arrays, _address: Address) -> Arrays:
        wanted = names or tuple(name for name in answer if name != "loss")
        return answer | {name: change(answer[name]).astype(np.float32) for name in wanted}

    return Behaviour(spoil)


def scaled(factor: float) -> Behaviour:
    return changed(lambda array: array * np.float32(factor), "w")


def filled(name: str, value: float) -> Behaviour:
    return changed(lambda array: np.full_like(array, value), name)


def _own_noise(answer: Arrays, address: Address) -> Arrays:
    noise = np.random.default_rng(int(address, 16) % 2**63).standard_normal(answer["w"].shape).astype(np.float32)
    return answer | {"w": noise}


HONEST = Behaviour()
NOISE = Behaviour(_own_noise)
"""Every such worker gives another answer."""
SIGN_FLIP = scaled(-1.0)
TRIPLED = scaled(3.0)
IDLE = Behaviour(commits=False)
COMMIT_AND_STALL = Behaviour(reveals=False)
WITHHOLDER = Behaviour(uploads=False)
