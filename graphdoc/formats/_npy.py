"""One array as an npy file (NEP 1). The header is compared with the declaration, never evaluated; no pickles."""

import io
import math
import re
from typing import Any, Final

import numpy as np
from numpy.lib import format as npy

from graphdoc.errors import TensorsRefused

HEADER_LIMIT: Final = 10_000
_LENGTHS: Final = {b"\x93NUMPY\x01\x00": 2, b"\x93NUMPY\x02\x00": 4}
_HEADER: Final = re.compile(
    r"\{'descr': (?P<kind>.+), 'fortran_order': (?P<columns>True|False), 'shape': \((?P<shape>[0-9, ]*)\),? *\} *\n"
)


def encode_npy_array(array: np.ndarray) -> bytes:
    """Returns the file of an array in C order, version 1.0."""
    file = io.BytesIO()
    npy.write_array(file, np.asarray(array, order="C"), version=(1, 0), allow_pickle=False)
    return file.getvalue()


def parse_npy_array(name: str, data: bytes, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Returns the array, of exactly this shape and element type. Raises TensorsRefused."""
    # Reads the header's text and the bytes after it. Raises TensorsRefused.
    width = _LENGTHS.get(data[:8])
    if width is None:
        raise TensorsRefused(f"{name} is no npy array of version 1.0 or 2.0")
    start = 8 + width
    length = int.from_bytes(data[8:start], "little")
    if length > min(HEADER_LIMIT, len(data) - start):
        raise TensorsRefused(f"{name} has an npy header longer than the file or {HEADER_LIMIT} bytes")
    header, body = data[start : start + length].decode("latin-1"), data[start + length :]
    match = _HEADER.fullmatch(header)
    if match is None:
        raise TensorsRefused(f"{name} has no npy header")
    kind, numbers = (
        match["kind"],
        [number for number in match["shape"].replace(" ", "").split(",") if number],
    )
    if "'|O'" in kind:
        raise TensorsRefused(f"{name} has pickled objects, which are never read")
    if kind != repr(npy.dtype_to_descr(dtype)) or numbers != [str(size) for size in shape]:
        raise TensorsRefused(f"{name} is {kind[:80]}[{', '.join(numbers)[:80]}], not {dtype}{list(shape)}")
    if len(body) != dtype.itemsize * math.prod(shape):
        raise TensorsRefused(f"{name} has {len(body)} bytes, which is not what its header says")
    array = np.frombuffer(body, dtype)
    in_columns = match["columns"] == "True"
    return np.array(array.reshape(shape[::-1]).T if in_columns else array.reshape(shape), order="C")
