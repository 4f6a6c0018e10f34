"""Graph documents written by hand, honest and not."""

import json
from typing import Any

Raw = dict[str, Any]


def encoded(document: Any) -> bytes:
    """Canonical JSON."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def value(number: int) -> Raw:
    return {"v": number}


def tensor(kind: str, name: str, shape: list[Any], dtype: str = "float32", grad: bool = False) -> Raw:
    return {"kind": kind, "name": name, "shape": shape, "dtype": dtype, "grad": grad}


def node(op: str, args: list[Any], *out: int) -> Raw:
    return {"op": op, "args": args, "out": list(out)}


def linear() -> Raw:
    """Linear regression of three features: mean squared error of x @ w.T and y."""
    return {
        "format": "gradgraph/1",
        "sizes": {},
        "inputs": [
            tensor("param", "w", [1, 3], grad=True),
            tensor("data", "x", ["rows", 3]),
            tensor("data", "y", ["rows", 1]),
        ],
        "nodes": [
            node("linear.default", [value(1), value(0), None], 3),
            node("mse_loss.default", [value(3), value(2), 1], 4),
        ],
        "loss": 4,
        "metrics": {},
        "updates": {},
    }


def with_nodes(*nodes: Raw) -> Raw:
    """`linear` after these nodes, whose first value is 3."""
    document = linear()
    last = max(number for entry in nodes for number in entry["out"])
    answer = node("linear.default", [value(1), value(0), None], last + 1)
    loss = node("mse_loss.default", [value(last + 1), value(2), 1], last + 2)
    return {**document, "nodes": [*nodes, answer, loss], "loss": last + 2}
