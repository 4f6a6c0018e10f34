"""The file formats of partitions. Each format is one file, and a manifest refers to it by the file's name.

A format reads a stranger's bytes. `read` returns exactly the declared arrays, and refuses any other file before it
allocates anything of a size that the file claims. No format executes code from a file. Some parsers are native code
(Arrow, zlib), so strangers' files are read in the runner's confined child only.
"""

from collections.abc import Mapping
from typing import Final, Protocol, cast

import numpy as np

from graphdoc import plugins
from graphdoc.tensors import Expected

Arrays = Mapping[str, np.ndarray]
DEFAULT: Final = "safetensors"


class Format(Protocol):
    """The interface of a file in this folder."""

    def write(self, arrays: Arrays) -> bytes:
        """Returns the file of these arrays, all of equally many rows; always the same bytes. Raises TensorsRefused."""

    def read(self, data: bytes, expected: Expected) -> dict[str, np.ndarray]:
        """Returns exactly the expected arrays, in C order. Raises TensorsRefused, naming the difference."""


def list_format_names() -> tuple[str, ...]:
    """Returns the names of all formats."""
    return plugins.list_plugin_names(__name__)


def format_of(name: str) -> Format:
    """Returns the format of that name. Raises Refused where there is none."""
    return cast(Format, plugins.load_plugin(__name__, name))
