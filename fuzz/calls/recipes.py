"""Honest calls of every operator, made from their lines in lines.py."""

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from fuzz.calls.lines import RECIPES
from fuzz.calls.others import OTHERS
from graphdoc.operators import ALLOWED

LARGER: Final = 0.2
"""Of the calls, how many have a size beyond a few: kernels go other ways there."""
SMALL: Final = (1, 2, 2, 3, 4)
LARGE: Final = ((24, 32), (64, 96), (200, 256), (600, 700))
"""Sizes at which memory can be measured, for operators of many dimensions and of few."""
Made = dict[str, Any]
"""A tensor: `shape`, `dtype`, `fill` (which numbers) and `layout` (how they lie)."""

_DTYPES: Final = {"f": "float32", "q": "float32", "p": "float32", "i": "int64", "n": "int32", "m": "int32", "b": "bool"}
_FILLS: Final = {"f": "small", "q": "part", "p": "part", "i": "index", "n": "index", "m": "count", "b": "index"}


def honest(key: str, chance: Random, sizes: Sequence[int] = SMALL) -> list[Any]:
    """The arguments of an honest call in their order, its tensors of such sizes."""
    return _of_sizes(key, chance, {letter: chance.choice(sizes) for letter in "ABCDEFIT"})


def _of_sizes(key: str, chance: Random, sizes: dict[str, int]) -> list[Any]:
    if chance.random() < LARGER:
        sizes[chance.choice("ABCDEFIT")] = chance.choice((7, 8, 16, 17, 33, 65))
    lines = [RECIPES[key]] if key in RECIPES else []
    lines += OTHERS.get(key, ())
    if lines and (key in RECIPES or chance.random() < 0.5):
        return _read(chance.choice(lines).split(), sizes)
    return [_by_type(kind, chance, sizes) for kind in ALLOWED[key].arguments]


def _read(words: list[str], sizes: Mapping[str, int]) -> list[Any]:
    found: list[list[Any]] = [[]]
    for word in words:
        if word == "(":
            found.append([])
        elif word == ")":
            last = found.pop()
            found[-1].append(last)
        elif word[1:2] == ":":
            found[-1].append(tensor(word[0], _shape(word[2:], sizes)))
        else:
            for letter, size in sizes.items():
                word = word if '"' in word or word[0].islower() else word.replace(letter, str(size))
            found[-1].append(json.loads(word))
    return found[0]


def tensor(letter: str, shape: list[int]) -> Made:
    return {"shape": shape, "dtype": _DTYPES[letter], "fill": _FILLS[letter], "layout": "plain", "grad": letter in "fp"}


def _shape(word: str, sizes: Mapping[str, int]) -> list[int]:
    """`B3(16)` is a size by letter, three and sixteen."""
    shape = []
    for place, part in enumerate(word.replace(")", "(").split("(")):
        shape += [int(part)] if place % 2 else [int(one) if one.isdigit() else sizes[one] for one in part]
    return shape


def _by_type(kind: str, chance: Random, sizes: Mapping[str, int]) -> Any:
    if kind.endswith("?"):
        return None if chance.random() < 0.5 else _by_type(kind[:-1], chance, sizes)
    if "|" in kind:
        return chance.choice(kind.split("|"))
    plain = tensor("f", [sizes["B"], sizes["C"]])
    return {
        "tensor": plain, "operand": plain, "tensors": [plain, plain], "places": [plain], "int": 1, "ints": [0],
        "float": 0.5, "floats": [1.0, 1.0], "number": chance.choice((1, 2, 0.5)), "bool": chance.random() < 0.5,
        "dtype": chance.choice(("float32", "float64", "bfloat16")), "memory": "contiguous_format",
        "equation": "ab,ab->a", "none": None, "true": True, "false": False, "zero": 0.0,
    }[kind]  # fmt: skip
