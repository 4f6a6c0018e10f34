"""Named arrays as safetensors, read strictly: equal arrays have equal bytes, and files contain arrays only.

Some arrays no file stores: each is another one moved on by one, as the next tokens of a text are. The stored array has
one element more in its first dimension after the rows than both that are made of it.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, Final

import numpy as np
from safetensors.numpy import save as save_safetensors

from graphdoc.encoding import Bytes
from graphdoc.errors import TensorsRefused

DTYPES: Final = {"F32": "float32", "I64": "int64", "I32": "int32", "U8": "uint8", "BOOL": "bool"}
NUMPY_DTYPES: Final = tuple(np.dtype(name).newbyteorder("<") for name in DTYPES.values())
HEADER_LIMIT: Final = 8 * 2**20
COUNT_LIMIT: Final = 50_000
RANK_LIMIT: Final = 9
_LENGTH: Final = 8
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./]{0,199}")

Expected = Mapping[str, tuple[tuple[int, ...], str]]
"""The shape and element type of each array by its name."""


def pack_tensors(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Returns the canonical safetensors of the arrays, for any order and layout. Raises TensorsRefused."""
    for name, array in arrays.items():
        _check_name(name)
        check_dtype(name, array)
    return bytes(save_safetensors({name: np.asarray(arrays[name], order="C") for name in sorted(arrays)}))


def pack_in_chunks(arrays: Mapping[str, np.ndarray]) -> list[memoryview]:
    """Returns the file of `pack_tensors` in pieces that are not copied: the header, then each contiguous array."""
    codes = {
        name: next(code for code, dtype in DTYPES.items() if array.dtype == dtype) for name, array in arrays.items()
    }
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    ends = [0, *accumulate(arrays[name].nbytes for name in order)]
    entries = {
        name: {"dtype": codes[name], "shape": arrays[name].shape, "data_offsets": list(ends[number : number + 2])}
        for number, name in enumerate(order)
    }
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % _LENGTH)
    head = len(header).to_bytes(_LENGTH, "little") + header
    return [memoryview(head), *(arrays[name].reshape(-1).view(np.uint8).data for name in order)]


def unpack_tensors(data: Bytes, expected: Expected | None = None) -> dict[str, np.ndarray]:
    """Returns the arrays of a file, which may be a stranger's; with `expected`, exactly those. Raises TensorsRefused.

    They are views of the bytes: to copy large files into new memory takes longer than to hash them. Only an array that
    is not aligned for its element type is copied.
    """
    arrays = view_tensors(data)
    locate_tensors(data)
    if expected is not None:
        check_names(arrays, expected)
        for name, (shape, dtype) in expected.items():
            array = arrays[name]
            if (array.shape, array.dtype.name) != (tuple(shape), dtype):
                raise TensorsRefused(f"{name} is {array.dtype.name}{list(array.shape)}, not {dtype}{list(shape)}")
    for name, array in arrays.items():
        check_truths(name, array)
    return {name: np.require(arrays[name], requirements="A") for name in sorted(arrays)}


def view_tensors(data: Bytes) -> dict[str, np.ndarray]:
    """Returns the arrays of a file as views of its bytes, writable where those are. Raises TensorsRefused.

    Of a mapped file, give a memoryview: a slice of the map itself is a copy.
    """
    header = _parse_header(data)
    start = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    arrays = {}
    for name, entry in header.items():
        _check_name(name)
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise TensorsRefused(f"{name} needs exactly dtype, shape and data_offsets")
        code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(code, str) or code not in DTYPES:
            raise TensorsRefused(f"{name} is of {str(code)[:20]}, not of {', '.join(DTYPES)}")
        if not isinstance(shape, list) or len(shape) > RANK_LIMIT:
            raise TensorsRefused(f"{name} has more than {RANK_LIMIT} dimensions")
        if not all(type(dimension) is int and 0 <= dimension < 2**48 for dimension in shape):
            raise TensorsRefused(f"{name} has a dimension out of range")
        if not isinstance(offsets, list) or [type(offset) for offset in offsets] != [int, int]:
            raise TensorsRefused(f"{name} does not lie between two whole numbers of bytes")
        dtype, (begin, end) = np.dtype(DTYPES[code]), offsets
        if end - begin != math.prod(shape) * dtype.itemsize or not 0 <= begin <= end <= len(data) - start:
            raise TensorsRefused(f"{name} does not lie where the header says")
        arrays[name] = np.frombuffer(data[start + begin : start + end], dtype).reshape(shape)
    return arrays


def locate_tensors(data: Bytes) -> dict[str, slice]:
    """Returns the place of the bytes of each array in a file, in the file's order. Raises TensorsRefused as
    `view_tensors` does, and where anything lies between them or after them."""
    start = done = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    found: dict[str, slice] = {}
    offsets: dict[str, list[int]] = {name: entry["data_offsets"] for name, entry in _parse_header(data).items()}
    for name, (first, last) in sorted(offsets.items(), key=lambda one: one[1]):
        if start + first != done:
            raise TensorsRefused(f"{name} does not follow the array before it")
        found[name] = slice(done, start + last)
        done = start + last
    if done != len(data):
        raise TensorsRefused("the file has bytes after its last array")
    return found


def _parse_header(data: Bytes) -> dict[str, Any]:
    length = int.from_bytes(data[:_LENGTH], "little")
    if len(data) < _LENGTH or length > min(HEADER_LIMIT, len(data) - _LENGTH):
        raise TensorsRefused("the header is longer than the file or the limit")
    try:
        header = json.loads(bytes(data[_LENGTH : _LENGTH + length]).decode(), object_pairs_hook=_build_unique_header)
    except (ValueError, RecursionError) as error:
        raise TensorsRefused(f"the header is not JSON: {str(error)[:100]}") from None
    if not isinstance(header, dict) or len(header) > COUNT_LIMIT:
        raise TensorsRefused(f"the header is not an object of at most {COUNT_LIMIT} arrays")
    return header


def _build_unique_header(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise TensorsRefused("a key appears twice in the header")
    return result


def _check_name(name: str) -> None:
    if name == "__metadata__" or _NAME.fullmatch(name) is None:
        raise TensorsRefused(f"{name[:80]!r} is not the name of an array")


def check_names(given: Iterable[str], expected: Expected) -> None:
    """Raises TensorsRefused unless the names are the expected ones, each once."""
    names = list(given)
    if len(set(names)) != len(names):
        raise TensorsRefused("a name appears twice")
    if set(names) != set(expected):
        differing = ", ".join(sorted(set(names) ^ set(expected)))
        raise TensorsRefused(f"arrays are missing or unexpected: {differing[:200]}")


def check_dtype(name: str, array: np.ndarray) -> None:
    """Raises TensorsRefused unless files of arrays may have this element type."""
    if array.dtype not in NUMPY_DTYPES:
        raise TensorsRefused(f"{name} is of {array.dtype}")


def check_truths(name: str, array: np.ndarray) -> None:
    """Raises TensorsRefused where a bool array has a byte other than 0 and 1."""
    if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
        raise TensorsRefused(f"{name} has truth values other than 0 and 1")


Shifted = Mapping[str, str]
"""Maps the name of each array that is not stored to the array from which it is shifted."""


def list_stored_arrays(expected: Expected, shifted: Shifted) -> Expected:
    """Returns shape and element type of each array that a file of the `expected` ones holds."""
    longer = frozenset(shifted.values())
    return {
        name: ((shape[0], shape[1] + 1, *shape[2:]) if name in longer else shape, dtype)
        for name, (shape, dtype) in expected.items()
        if name not in shifted
    }


def split_stored_arrays(stored: Mapping[str, np.ndarray], shifted: Shifted) -> dict[str, np.ndarray]:
    """Returns the stored arrays with those derived from them, as views."""
    ends = {name: stored[source][:, 1:] for name, source in shifted.items()}
    return {name: array[:, :-1] if name in shifted.values() else array for name, array in stored.items()} | ends


def join_shifted_arrays(arrays: Mapping[str, np.ndarray], shifted: Shifted) -> dict[str, np.ndarray]:
    """Returns the arrays to store, from which `split_stored_arrays` derives these again."""
    ends = {source: arrays[name][:, -1:] for name, source in shifted.items()}
    return {
        name: np.concatenate([array, ends[name]], axis=1) if name in ends else array
        for name, array in arrays.items()
        if name not in shifted
    }
