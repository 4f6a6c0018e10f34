"""numpy's zip of npy arrays, stored or deflated; written stored, since deflated bytes depend on zlib's version."""

import io
import math
import zipfile
import zlib
from typing import Final

import numpy as np

from graphdoc.errors import TensorsRefused
from graphdoc.formats import Arrays, _npy
from graphdoc.tensors import Expected, check_dtype, check_names, check_truths

SUFFIX: Final = ".npy"
_BEGINNING: Final = (1980, 1, 1, 0, 0, 0)
_ENCRYPTED: Final = 0x1 | 0x40
_READ: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BROKEN: Final = (
    zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError, OSError, OverflowError,
)  # fmt: skip
"""The errors that zipfile raises for a broken file; OverflowError where it claims impossible sizes."""


def write(arrays: Arrays) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(arrays):
            check_dtype(name, arrays[name])
            archive.writestr(zipfile.ZipInfo(name + SUFFIX, _BEGINNING), _npy.encode_npy_array(arrays[name]))
    return file.getvalue()


def read(data: bytes, expected: Expected) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            check_names((member.filename.removesuffix(SUFFIX) for member in members), expected)
            arrays = {}
            for member in sorted(members, key=lambda member: member.filename):
                name = member.filename.removesuffix(SUFFIX)
                shape, dtype = expected[name]
                kind = np.dtype(dtype)
                if member.flag_bits & _ENCRYPTED:
                    raise TensorsRefused(f"{member.filename} is encrypted")
                if member.compress_type not in _READ:
                    raise TensorsRefused(f"{member.filename} is neither stored nor deflated")
                size = kind.itemsize * math.prod(shape)
                limit = size + _npy.HEADER_LIMIT + 12
                if member.file_size > limit:
                    detail = f"unpacks to {member.file_size} bytes where {size} were declared"
                    raise TensorsRefused(f"{member.filename} {detail}")
                with archive.open(member) as file:
                    body = file.read(limit + 1)  # never more than array and header need, for any size that is claimed
                arrays[name] = _npy.parse_npy_array(name, body, tuple(shape), kind)
                check_truths(name, arrays[name])
            return arrays
    except _BROKEN as error:
        raise TensorsRefused(f"it is no zip of arrays: {str(error)[:150]}") from None
