"""One safetensors file: a JSON header and the arrays' bytes. The default, as it is read at the speed of memory."""

import numpy as np

from graphdoc import tensors
from graphdoc.formats import Arrays
from graphdoc.tensors import Expected


def write(arrays: Arrays) -> bytes:
    return tensors.pack_tensors(arrays)


def read(data: bytes, expected: Expected) -> dict[str, np.ndarray]:
    return tensors.unpack_tensors(data, expected)
