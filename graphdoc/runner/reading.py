"""The child that reads strangers' partitions: confined like the computing one, and without torch.

process.py runs it as `python -I -m graphdoc.runner.reading <configuration as JSON>`.
"""

from dataclasses import asdict
from typing import Any

import numpy as np

from graphdoc.figures import Range
from graphdoc.formats import format_of, list_format_names
from graphdoc.runner import serving
from graphdoc.runner.arena import Arena, decode_placements
from graphdoc.runner.serving import Request
from graphdoc.tensors import Expected, check_truths, list_stored_arrays, split_stored_arrays
from graphdoc.values import find_misfit


class Reading:
    """Handles the requests. `arena` holds the file first, and its arrays after it."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._formats = {name: format_of(name) for name in list_format_names()}

    def read(self, request: Request) -> None:
        places = decode_placements(request["result"])
        expected = {placement.name: (placement.shape, placement.dtype) for placement in places}
        self._arena.write(places, self._load_arrays(request, expected))

    def check(self, request: Request) -> dict[str, Any] | None:
        """Returns the first value that is outside its range, by its input and row."""
        expected = {name: (tuple(shape), dtype) for name, (shape, dtype) in request["expected"].items()}
        arrays = self._load_arrays(request, expected)
        for name, array in arrays.items():
            check_truths(name, array)
        bad = find_misfit(arrays, {name: [Range(**one) for one in each] for name, each in request["ranges"].items()})
        return None if bad is None else asdict(bad)

    def _load_arrays(self, request: Request, expected: Expected) -> dict[str, np.ndarray]:
        """Returns the file's arrays, and those derived from them."""
        (data,) = self._arena.read_bytes([request["length"]])
        stored = list_stored_arrays(expected, request["shifted"])
        return split_stored_arrays(self._formats[request["format"]].read(data, stored), request["shifted"])


def main() -> None:
    """Serves requests until the parent closes the pipe."""
    settings = serving.parse_configuration()
    reading = Reading(Arena(settings.arena))
    serving.serve_requests(settings, lambda: "reading", {"read": reading.read, "check": reading.check})


if __name__ == "__main__":
    main()
