"""Answers of rows that weigh unequally, such as texts of which padding is no target: how a merge weighs them.

A task answers with the weighted mean over its rows and the weight W of these. So that a round's result is the mean over
all of its rows, whichever task computed them, its answers are merged as

    (W_1 g_1 + … + W_n g_n) / (W_1 + … + W_n)

The weight is part of the payload: it is voted on, signed and audited like every other bit, and whoever lies about it
lies about the answer. That needs votes on equal bits, or audits that compute them, and an aggregator that weighs: what
compares answers as equals would give a task of ten targets the say of one of ten thousand. In a private job nobody can
check what a holder says of its rows, so no answer brings a weight there: each is the mean over its own holder's
targets, and weighs as that job says (rules.private_jobs).
"""

import math
from collections.abc import Sequence
from statistics import median
from typing import Final

from gradmarket.market.rules.private_jobs import MEAN

MOST_MEDIANS: Final = 8.0
"""One lie that is accepted, by a lone replica or a quorum that colludes, is at most so many honest answers."""


def fault(aggregator: str, judged: str) -> str:
    """Returns why answers of weighted rows cannot be merged in a job, the field first; empty where they can."""
    why = "the model's rows have weights (targets that are ignored, or weights of classes)"
    if aggregator != MEAN:
        return f"aggregator: {why}, and {aggregator} gives each answer one say: take {MEAN}"
    if judged != "exact":
        return f"verifier: {why}, and {judged} compares no weights: leave out verifier"
    return ""


def scales(weights: Sequence[float]) -> tuple[float, ...]:
    """Returns what answers of these weights are multiplied by, so that their plain mean is the weighted one.

    A weight counts as at most MOST_MEDIANS times the round's median of those above 0. The same in any order of the
    answers. Where no row of a round has a weight, all answers are zeros, and count alike.
    """
    some = [weight for weight in weights if weight > 0.0]
    if not some:
        return (1.0,) * len(weights)
    most = MOST_MEDIANS * median(some)
    counted = [min(weight, most) for weight in weights]
    total = math.fsum(counted)
    return tuple(len(counted) * weight / total for weight in counted)
