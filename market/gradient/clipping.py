"""Limits the merged gradient's norm (Pascanu, Mikolov, Bengio 2013, "On the difficulty of training RNNs")."""

import numpy as np

from gradmarket.market.gradient.arrays import Tensors, Vector
from gradmarket.market.gradient.norm import norm


def clip(gradient: Tensors, limit: float) -> dict[str, Vector]:
    """Returns the gradient scaled down to L2 norm `limit` over all tensors together; unchanged where it is not longer.

    The norm and the factor are float64, the same on every machine; each element is multiplied in float32.
    """
    length = norm(tensor.reshape(-1) for tensor in gradient.values())
    if length <= limit:
        return dict(gradient)
    factor = np.float32(limit / length)
    return {name: tensor * factor for name, tensor in gradient.items()}
