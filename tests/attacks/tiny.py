"""The model of every attacked job: a document of two small tensors on 32 rows."""

from typing import Final

import numpy as np

from tests.handmade import encoded, node, tensor, value

ROWS: Final = 32


def document() -> bytes:
    """Linear regression of three features with an offset: two small tensors to be trained."""
    return encoded(
        {
            "format": "gradgraph/1",
            "sizes": {},
            "inputs": [
                tensor("param", "b", [1], grad=True),
                tensor("param", "w", [1, 3], grad=True),
                tensor("data", "x", ["rows", 3]),
                tensor("data", "y", ["rows", 1]),
            ],
            "nodes": [
                node("linear.default", [value(2), value(1), value(0)], 4),
                node("mse_loss.default", [value(4), value(3), 1], 5),
            ],
            "loss": 5,
            "metrics": {},
            "updates": {},
        }
    )


def table(seed: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((ROWS, 3)).astype(np.float32)
    return {"x": x, "y": (x.sum(1, keepdims=True) + 0.5).astype(np.float32)}
