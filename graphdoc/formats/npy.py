"""One npy array: the input itself where there is one, else an array of records with a field for each input."""

import math
from typing import Any, Final

import numpy as np

from graphdoc.errors import TensorsRefused
from graphdoc.formats import Arrays, _npy
from graphdoc.tensors import Expected, check_dtype, check_truths

RECORD_LIMIT: Final = 2**31 - 1
"""Most bytes of a record: numpy counts them in a C int, which silently overflows."""


def write(arrays: Arrays) -> bytes:
    described = {name: (array.shape, array.dtype.name) for name, array in arrays.items()}
    for name, array in arrays.items():
        check_dtype(name, array)
    if len(arrays) == 1:
        return _npy.encode_npy_array(*arrays.values())
    records = np.zeros(_count_shared_rows(described), _build_record_dtype(described))
    for name, array in arrays.items():
        records[name] = array
    return _npy.encode_npy_array(records)


def read(data: bytes, expected: Expected) -> dict[str, np.ndarray]:
    if len(expected) == 1:
        ((name, (shape, dtype)),) = expected.items()
        arrays = {name: _npy.parse_npy_array(name, data, tuple(shape), np.dtype(dtype))}
    else:
        records = _npy.parse_npy_array(
            "the array", data, (_count_shared_rows(expected),), _build_record_dtype(expected)
        )
        arrays = {name: np.array(records[name], order="C") for name in sorted(expected)}
    for name, array in arrays.items():
        check_truths(name, array)
    return arrays


def _count_shared_rows(expected: Expected) -> int:
    """Returns the number of rows of all inputs. Raises TensorsRefused where it differs."""
    rows = {shape[0] if shape else 0 for shape, _ in expected.values()}
    if len(rows) != 1:
        raise TensorsRefused(f"records have inputs of one number of rows, not {sorted(rows)}")
    return rows.pop()


def _build_record_dtype(expected: Expected) -> np.dtype[Any]:
    """Returns the element type of one packed record, with a field for each input by name. Raises TensorsRefused."""
    size = sum(np.dtype(dtype).itemsize * math.prod(shape[1:]) for shape, dtype in expected.values())
    if size > RECORD_LIMIT:
        raise TensorsRefused(f"a row of {size} bytes is larger than numpy's records may be")
    fields = [(name, dtype, tuple(shape[1:])) for name, (shape, dtype) in sorted(expected.items())]
    try:
        return np.dtype(fields)
    except (ValueError, OverflowError) as error:
        raise TensorsRefused(f"numpy has no such records: {str(error)[:150]}") from None
