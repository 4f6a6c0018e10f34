"""A small step along a gradient, to see on which rows it lowers the loss: rules.loss_change judges by that.

    x' = x - h g / |g|,    h = 10^-3 |x|

How long the gradient is does not matter, so nobody can make the step larger or smaller than it is meant to be.
"""

from typing import Final

import numpy as np

from gradmarket.market.gradient.arrays import Arrays, Tensors
from gradmarket.market.gradient.norm import norm

SHARE: Final = 1e-3
"""The step's length over the parameters': large enough for a float32 loss to tell, and still nearly straight."""


def probe(state: Arrays, gradient: Tensors) -> Arrays:
    """The state with its parameters moved along `gradient`, which names them; as it is where the gradient is zero."""
    moved = {name: np.asarray(state[name], np.float32) for name in gradient}
    length = norm(tensor.reshape(-1) for tensor in gradient.values())
    if length == 0.0:
        return state
    rate = np.float32(SHARE * norm(tensor.reshape(-1) for tensor in moved.values()) / length)
    return {**state, **{name: moved[name] - rate * gradient[name] for name in gradient}}
