"""Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon): momentum whose matrices are made orthogonal.

m <- momentum * m + g;      u <- orthogonal(g + momentum * m)           (Nesterov, in torch.optim.Muon's form)
p <- p * (1 - lr * decay) - lr * 0.2 * sqrt(max(rows, columns)) * u

A parameter of two or more dimensions is the matrix of its first dimension by all others. The factor gives u the size of
AdamW's steps, so that one rate serves both (Liu et al. 2025, "Muon is Scalable for LLM Training", equation 4). AdamW
moves everything else: vectors, scalars, and the matrices that `adamw` names; Jordan et al. name embeddings and heads.
"""

import math
from fnmatch import fnmatchcase
from typing import Any, Final

import numpy as np
from pydantic import Field

from gradmarket.market.gradient.arrays import Arrays, Tensors, Vector
from gradmarket.market.gradient.optimizers import (
    Memory,
    _adam,
    _newton_schulz,
    adamw,
    check_gradient,
    read_memory_array,
)

ELEMENTWISE: Final = False
LIKE_ADAMW: Final = 0.2
"""The root mean square of AdamW's usual steps, in rates."""


class Settings(_adam.Settings):
    momentum: float = Field(default=0.95, ge=0.0, lt=1.0)
    adamw: tuple[str, ...] = Field(default=(), max_length=100)
    """Patterns (fnmatch: `head.*`) of matrices that AdamW moves, by beta1, beta2 and epsilon."""

    def is_orthogonalized(self, name: str, shape: tuple[int, ...]) -> bool:
        """Returns whether this parameter's steps are made orthogonal."""
        return len(shape) > 1 and math.prod(shape) > 0 and not any(fnmatchcase(name, one) for one in self.adamw)

    def operations(self, name: str, shape: tuple[int, ...]) -> int:
        return _newton_schulz.count_matrix_operations(shape) if self.is_orthogonalized(name, shape) else 0

    def count_scratch_bytes(self, name: str, shape: tuple[int, ...]) -> int:
        return _newton_schulz.count_matrix_scratch(shape) if self.is_orthogonalized(name, shape) else 0


def start(parameters: Tensors, settings: Settings) -> Memory:
    """Returns `momentum/<name>`, zeros, for each matrix, and AdamW's first memory for everything else."""
    matrices, others = _split_parameters(parameters, settings)
    return adamw.start(others, settings) | {
        f"momentum/{name}": np.zeros_like(array) for name, array in matrices.items()
    }


def step(
    parameters: Tensors, gradient: Tensors, memory: Arrays, lr: float, settings: Settings
) -> tuple[dict[str, Vector], Memory]:
    check_gradient(parameters, gradient)
    matrices, others = _split_parameters(parameters, settings)
    moved, kept = adamw.step(others, {name: gradient[name] for name in others}, memory, lr, settings)
    share = np.float32(settings.momentum)
    for name, parameter in matrices.items():
        key, rows = f"momentum/{name}", parameter.shape[0]
        after = read_memory_array(memory, key, parameter) * share + gradient[name]
        update = _newton_schulz.orthogonalize_matrix((gradient[name] + after * share).reshape(rows, -1))
        size = LIKE_ADAMW * math.sqrt(max(rows, parameter.size // rows))
        keep, rate = np.float32(1.0 - lr * settings.choose_weight_decay(name)), np.float32(lr * size)
        moved[name], kept[key] = parameter * keep - update.reshape(parameter.shape) * rate, after
    return {name: moved[name] for name in parameters}, kept


def _split_parameters(parameters: Tensors, settings: Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the parameters whose steps are made orthogonal, and the others."""
    matrices = {name: array for name, array in parameters.items() if settings.is_orthogonalized(name, array.shape)}
    return matrices, {name: array for name, array in parameters.items() if name not in matrices}
