"""SCAFFOLD (Karimireddy et al. 2020, https://arxiv.org/abs/1910.06378, algorithm 1, option II), as private jobs do it.

Holder i has a control variate c_i, all have c, the mean of all c_i. In each of K inner steps of rate lr it takes

    y <- y - lr (g_i(y) + c - c_i)

and after them, with the change D_i = x - y that it sends,

    c_i <- c_i - c + D_i / (K lr)

Every holder takes part in every round, so the mean of these new c_i is mean(D_i) / (K lr): c follows from the change of
a round, and nobody has to keep it or send it. With the requester's plain SGD of rate e the round's parameters x and the
next ones x' give c = (x - x') / (e K lr), which each holder computes from what it downloads. A holder keeps its own
correction and change of the last round, and sends neither; no message differs from one without SCAFFOLD.

This holds as long as all corrections c - c_i add up to zeros, each weighing as in the merge, and a single disturbance
of that stays in c for good. So D_i is the change as sent, a holder that lost its own state takes no further part, and
there is no noise in a merge.
"""

from dataclasses import dataclass

import numpy as np

from gradmarket.market.gradient.arrays import Tensors


@dataclass(frozen=True)
class LastRound:
    """A holder's last round: the parameters that it started from, its correction c - c_i, and the change it sent."""

    start: Tensors
    correction: Tensors
    change: Tensors


def compute_variate_correction(
    last: LastRound, start: Tensors, steps: int, lr: float, outer: float
) -> dict[str, np.ndarray]:
    """Returns c - c_i for the round that starts from these parameters. `outer`: the requester's rate."""
    whole = np.float32(1.0 / (steps * lr))
    found = {}
    for name, change in last.change.items():
        everybody = (last.start[name] - start[name]) * np.float32(1.0 / outer) * whole
        found[name] = everybody - (change * whole - last.correction[name])
    return found
