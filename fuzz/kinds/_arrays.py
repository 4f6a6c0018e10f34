"""Honest arrays, their declarations, and the duties of every reader of arrays."""

import math
from collections.abc import Mapping
from random import Random
from typing import Final

import numpy as np

from fuzz.case import Case, Declared
from graphdoc.formats import format_of

Arrays = Mapping[str, np.ndarray]
DTYPES: Final = ("float32", "int64", "int32", "uint8", "bool")
SHAPES: Final = ((), (1,), (3,), (2, 2), (4, 1, 2))
HOSTILE_DIMENSIONS: Final = (0, 1, 5, 2**16, 2**20, 2**31 - 1, 2**31)


def arrays(chance: Random) -> dict[str, np.ndarray]:
    """One to three small arrays of one number of rows."""
    rows, count = chance.randrange(1, 5), chance.choice((1, 2, 2, 3))
    return {name: _array(chance, (rows, *chance.choice(SHAPES))) for name in ("x", "y", "a.weight")[:count]}


def _array(chance: Random, shape: tuple[int, ...]) -> np.ndarray:
    dtype = chance.choice(DTYPES)
    numbers = [chance.randrange(2) if dtype == "bool" else chance.randrange(-100, 100) for _ in range(math.prod(shape))]
    return np.array(numbers, dtype=np.int64).astype(dtype).reshape(shape)


def declared(found: Arrays) -> Declared:
    return {name: (array.shape, array.dtype.name) for name, array in found.items()}


def otherwise(right: Declared, chance: Random) -> Declared:
    """Returns the declaration, changed in one place three times in ten: a manifest is a stranger's too."""
    wrong = dict(right)
    if chance.random() < 0.7:
        return wrong
    name = chance.choice(list(wrong))
    shape, dtype = wrong[name]
    place = chance.randrange(len(shape))
    changes: list[tuple[tuple[int, ...], str]] = [
        (shape, chance.choice(DTYPES)),
        ((*shape[:place], chance.choice(HOSTILE_DIMENSIONS), *shape[place + 1 :]), dtype),
        ((*shape, chance.choice(HOSTILE_DIMENSIONS)), dtype),
        (shape[:1] + (2**31,) * chance.randrange(1, 8), dtype),
        (shape[::-1], dtype),
    ]
    wrong[name] = chance.choice(changes)
    return wrong


def read_as(name: str, case: Case) -> Arrays:
    """Returns the arrays that the format reads, which must be exactly the declared ones."""
    found = format_of(name).read(case.data, case.declared)
    assert declared(found) == {key: (tuple(shape), dtype) for key, (shape, dtype) in case.declared.items()}
    assert all(array.flags.c_contiguous for array in found.values())
    return found
