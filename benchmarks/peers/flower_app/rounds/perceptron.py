"""A perceptron of one hidden layer in numpy: its local steps on a holder's rows, and its accuracy."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Arrays = list[np.ndarray]
Held = Mapping[str, np.ndarray]
"""The requester's rows `own_x` and `own_y`, each holder's `x0`, `y0`, …, and the first parameters by name."""
NAMES = ("0.weight", "0.bias", "2.weight", "2.bias")


def first(held: Held) -> Arrays:
    return [held[name] for name in NAMES]


def forward(parameters: Sequence[np.ndarray], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hidden = np.maximum(x @ parameters[0].T + parameters[1], 0)
    return hidden, hidden @ parameters[2].T + parameters[3]


def accuracy(parameters: Sequence[np.ndarray], held: Held) -> float:
    """Returns the share of the requester's rows whose largest logit is their class."""
    _, logits = forward(parameters, held["own_x"])
    return float((logits.argmax(1) == held["own_y"]).mean())


def stepped(parameters: Arrays, x: np.ndarray, y: np.ndarray, lr: float) -> Arrays:
    """Returns the parameters after one step of gradient descent on the mean cross-entropy."""
    hidden, logits = forward(parameters, x)
    odds = np.exp(logits - logits.max(1, keepdims=True))
    off = odds / odds.sum(1, keepdims=True)
    off[np.arange(len(y)), y] -= 1
    off /= len(y)
    back = (off @ parameters[2]) * (hidden > 0)
    gradients = (back.T @ x, back.sum(0), off.T @ hidden, off.sum(0))
    return [(old - lr * slope).astype(np.float32) for old, slope in zip(parameters, gradients, strict=True)]


def trained(
    parameters: Arrays, held: Held, rank: int, options: Mapping[str, Any], generator: np.random.Generator
) -> tuple[Arrays, int]:
    """Returns the parameters after `steps` steps of `rows` rows of a holder, epoch by epoch, and how many it has."""
    x, y, rows, steps = held[f"x{rank}"], held[f"y{rank}"], options["rows"], options["steps"]
    epochs = -(-rows * steps // len(y))
    order = np.concatenate([generator.permutation(len(y)) for _ in range(epochs)])
    for number in range(steps):
        taken = order[number * rows : (number + 1) * rows]
        parameters = stepped(parameters, x[taken], y[taken], options["lr"])
    return parameters, len(y)
