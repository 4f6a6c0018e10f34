"""JSON lines: a row is an object with a value for each input, as nested lists where it has dimensions. UTF-8, no NaN.

A line's length is bounded by its count of numbers.
"""

import itertools
import json
import math
from typing import Any

import numpy as np

from graphdoc.errors import TensorsRefused
from graphdoc.formats import Arrays
from graphdoc.tensors import Expected, check_dtype, check_names


def write(arrays: Arrays) -> bytes:
    for name, array in arrays.items():
        check_dtype(name, array)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise TensorsRefused(f"{name} is not finite, which JSON cannot express")
    columns = {name: arrays[name].tolist() for name in sorted(arrays)}
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)


def read(data: bytes, expected: Expected) -> dict[str, np.ndarray]:
    declared = {shape[0] if shape else 0 for shape, _ in expected.values()}
    count = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    if declared != {count}:
        raise TensorsRefused(f"it has {count} rows, not {sorted(declared)}")
    lines = data.split(b"\n")[:count]
    # parsed, hostile JSON takes forty times the memory of its text
    most = 1024 + sum(8 * len(name) + 128 * math.prod(shape[1:]) for name, (shape, _) in expected.items())
    for number, line in enumerate(lines, 1):
        if len(line) > most:
            raise TensorsRefused(f"line {number} has {len(line)} bytes, where a row of its shapes needs under {most}")
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line.decode(), parse_constant=_not_a_number, object_pairs_hook=_build_unique_row)
        except (ValueError, RecursionError) as error:
            raise TensorsRefused(f"line {number} is not JSON: {str(error)[:150]}") from None
        if not isinstance(row, dict):
            raise TensorsRefused(f"line {number} is no object")
        try:
            check_names(row, expected)
        except TensorsRefused as error:
            raise TensorsRefused(f"line {number}: {error.detail}") from None
        rows.append(row)
    return {name: _build_row_array(name, [row[name] for row in rows], *expected[name]) for name in sorted(expected)}


def _build_unique_row(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key appears twice")
    return result


def _not_a_number(token: str) -> Any:
    raise ValueError(f"{token} is no JSON number")


def _build_row_array(name: str, values: list[Any], shape: tuple[int, ...], dtype: str) -> np.ndarray:
    flat = values
    for size in shape[1:]:
        if not all(type(value) is list and len(value) == size for value in flat):
            raise TensorsRefused(f"{name} has rows that are not {dtype}{list(shape[1:])}")
        flat = list(itertools.chain.from_iterable(flat))
    json_types: dict[str, set[type]] = {"b": {bool}, "f": {float, int}}
    strange = set(map(type, flat)) - json_types.get(np.dtype(dtype).kind, {int})
    if strange:
        raise TensorsRefused(f"{name} has a {min(kind.__name__ for kind in strange)} where {dtype} was declared")
    try:
        with np.errstate(over="ignore"):
            array = np.array(flat, dtype=dtype).reshape(shape)
    except OverflowError:
        raise TensorsRefused(f"{name} has a number that is no {dtype}") from None
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise TensorsRefused(f"{name} has a number that is no finite {dtype}")
    return array
