"""Takes a small step along a gradient, so that rules.loss_change_test can see on which rows it lowers the loss.

    x' = x - h g / |g|,    h = 10^-3 |x|

The gradient's length does not matter, so nobody can change the length of the step.
"""

from typing import Final

import numpy as np

from gradmarket.market.gradient.arrays import Arrays, Tensors
from gradmarket.market.gradient.norm import compute_norm

SHARE: Final = 1e-3
"""The step's length over the parameters' norm: large enough to show in a float32 loss, small enough to be linear."""


def move_along_gradient(state: Arrays, gradient: Tensors) -> Arrays:
    """Returns the state with its parameters moved along `gradient`, which has a tensor for each of them.

    The state is unchanged where the gradient is zero.
    """
    moved = {name: np.asarray(state[name], np.float32) for name in gradient}
    length = compute_norm(tensor.reshape(-1) for tensor in gradient.values())
    if length == 0.0:
        return state
    rate = np.float32(SHARE * compute_norm(tensor.reshape(-1) for tensor in moved.values()) / length)
    return {**state, **{name: moved[name] - rate * gradient[name] for name in gradient}}
