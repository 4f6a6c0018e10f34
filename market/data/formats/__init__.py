"""How a partition's arrays lie in a file: one file per format, its name is the one in the manifest.

A format reads a stranger's bytes: nothing comes out of `read` but exactly the arrays that were declared, and a file
that says otherwise is refused before anything of the size that it claims is made. None runs code that it finds. What
parses is native code in places (Arrow, zlib), so a service or worker reads only in the runner's confined child.
"""

from collections.abc import Mapping
from typing import Final, Protocol, cast

import numpy as np

from gradmarket.market import plugins
from gradmarket.market.model.tensors import Expected

Arrays = Mapping[str, np.ndarray]
DEFAULT: Final = "safetensors"


class Format(Protocol):
    """What a file in this folder offers."""

    def write(self, arrays: Arrays) -> bytes:
        """The file of these arrays of one number of rows: the same bytes every time. Raises TensorsRefused."""

    def read(self, data: bytes, expected: Expected) -> dict[str, np.ndarray]:
        """Exactly the expected arrays, in C order. Raises TensorsRefused, naming what is otherwise."""


def names() -> tuple[str, ...]:
    """The formats there are."""
    return plugins.names(__name__)


def format_of(name: str) -> Format:
    """The format of that name. Raises Refused where there is none."""
    return cast(Format, plugins.load(__name__, name))
