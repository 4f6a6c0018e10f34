"""Limits the merged gradient's norm (Pascanu, Mikolov, Bengio 2013, "On the difficulty of training RNNs")."""

import numpy as np

from gradmarket.market.gradient.arrays import Tensors, Vector
from gradmarket.market.gradient.norm import compute_norm


def compute_clip_factor(length: float, limit: float) -> np.float32 | None:
    """Returns what gradients of this norm are multiplied by, in float32; None where they are not too long.

    The norm and the factor are float64, the same on every machine.
    """
    return None if length <= limit else np.float32(limit / length)


def clip_gradient(gradient: Tensors, limit: float) -> dict[str, Vector]:
    """Returns the gradient scaled down to L2 norm `limit` over all tensors together; as it is where it is no longer."""
    scale = compute_clip_factor(compute_norm(tensor.reshape(-1) for tensor in gradient.values()), limit)
    return dict(gradient) if scale is None else {name: tensor * scale for name, tensor in gradient.items()}
