"""One safetensors file: a JSON header and the arrays' bytes. The default, as it is read at the speed of memory."""

import numpy as np

from gradmarket.market.data.formats import Arrays
from gradmarket.market.model import tensors
from gradmarket.market.model.tensors import Expected


def write(arrays: Arrays) -> bytes:
    return tensors.pack(arrays)


def read(data: bytes, expected: Expected) -> dict[str, np.ndarray]:
    return tensors.unpack(data, expected)
