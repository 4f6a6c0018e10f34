"""Documents grown node by node: any allowed operator, each argument of its type, honest or at the edge of its range."""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from graphdoc.document.arguments import DTYPES, INPUT_DTYPES, INTEGER_LIMIT, MEMORY_FORMATS
from graphdoc.document.schema import DIMENSION_LIMIT
from graphdoc.operators import ALLOWED

Raw = dict[str, Any]
EDGES: Final = (-(2**31), 2**16, 2**31, 2**33, INTEGER_LIMIT, -INTEGER_LIMIT)
NODES: Final = (0, 1, 1, 2, 3, 5, 8, 20)
_EQUATIONS: Final = ("ab,cb->ac", "a...,a...->...", "ij->ji", "ab,ab", "abc", "a,b->ab", ",", "->", "...", "aa->a")
_OPERATORS: Final = sorted(ALLOWED)


def grown(chance: Random) -> Raw:
    """A document of a parameter, data and a buffer, whose loss always is one number."""
    inputs = _inputs(chance)
    tensors, count = list(range(len(inputs))), len(inputs)
    integers: list[int] = []
    nodes: list[Raw] = []
    for _ in range(chance.choice(NODES)):
        op = chance.choice(_OPERATORS)
        entry = ALLOWED[op]
        arguments = [_argument(kind, chance, tensors, integers) for kind in entry.arguments]
        kinds = ["tensor"] * chance.randrange(1, 4) if entry.gives_list else list(entry.results)
        out = list(range(count, count + len(kinds)))
        nodes.append({"op": op, "args": arguments, "out": out})
        for number, kind in zip(out, kinds, strict=True):
            (tensors if kind == "tensor" else integers).append(number)
        count += len(kinds)
    return _ended(inputs, nodes, count, chance.choice(tensors))


def _inputs(chance: Random) -> list[Raw]:
    features = chance.choice((1, 3, 3, 3, 8, DIMENSION_LIMIT)) if chance.random() < 0.1 else 3
    shape = chance.choice(([4, features], [1, features], [features], [], [2, 3, 3, 3]))
    inputs = [
        {"kind": "param", "name": "w", "shape": shape, "dtype": "float32", "grad": True},
        {"kind": "buffer", "name": "mean", "shape": [features], "dtype": "float32", "grad": False},
        {"kind": "data", "name": "x", "shape": ["rows", features], "dtype": "float32", "grad": False},
        {"kind": "data", "name": "image", "shape": ["rows", 3, 8, 8], "dtype": "float32", "grad": False},
        {"kind": "data", "name": "y", "shape": ["rows"], "dtype": chance.choice(sorted(INPUT_DTYPES)), "grad": False},
    ]
    return inputs if chance.random() < 0.5 else [entry for entry in inputs if entry["name"] != "image"]


def _ended(inputs: list[Raw], nodes: list[Raw], count: int, value: int) -> Raw:
    """The mean of one value and of the parameter's squares is the loss."""
    values = (value, 0)
    nodes = [
        *nodes,
        {"op": "mul.Tensor", "args": [{"v": values[0]}, {"v": values[1]}], "out": [count]},
        {"op": "mean.default", "args": [{"v": count}, None], "out": [count + 1]},
    ]
    updates = {"mean": 1}
    head = {"format": "gradgraph/1", "sizes": {}, "inputs": inputs}
    return {**head, "nodes": nodes, "loss": count + 1, "metrics": {}, "updates": updates}


def _argument(kind: str, chance: Random, tensors: list[int], integers: list[int]) -> Any:
    if kind.endswith("?"):
        return None if chance.random() < 0.5 else _argument(kind[:-1], chance, tensors, integers)
    if "|" in kind:
        return chance.choice(kind.split("|"))
    if kind == "tensor":
        return {"v": chance.choice(tensors)}
    if kind in ("tensors", "places"):
        return [{"v": chance.choice(tensors)} for _ in range(chance.choice((1, 2, 2, 3)))]
    if kind == "operand":
        return {"v": chance.choice(tensors)} if chance.random() < 0.6 else _integer(chance, integers)
    if kind in ("int", "number"):
        return _integer(chance, integers)
    if kind == "ints":
        return [_integer(chance, integers) for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 4)))]
    return _CONSTANTS[kind](chance)


def _integer(chance: Random, integers: list[int]) -> Any:
    draw = chance.random()
    if integers and draw < 0.2:
        return {"v": chance.choice(integers)}
    return chance.choice(EDGES) if draw < 0.25 else chance.choice((-1, 0, 0, 1, 1, 2, 3, 8))


def _float(chance: Random) -> Any:
    word = {"f": chance.choice(("inf", "-inf", "nan"))}
    return word if chance.random() < 0.05 else chance.choice((0.0, 0.1, 0.5, 1.0, -1.0, 1e-5, 1e30))


_CONSTANTS: Final[dict[str, Callable[[Random], Any]]] = {
    "float": _float,
    "floats": lambda chance: [_float(chance) for _ in range(chance.randrange(3))],
    "bool": lambda chance: chance.random() < 0.5,
    "dtype": lambda chance: chance.choice(sorted(DTYPES)),
    "memory": lambda chance: chance.choice(MEMORY_FORMATS),
    "equation": lambda chance: chance.choice(_EQUATIONS),
    "none": lambda chance: None,
    "true": lambda chance: True,
    "false": lambda chance: False,
    "zero": lambda chance: 0.0,
}
