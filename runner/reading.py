"""The child that reads strangers' partitions: confined like the one that computes, and without torch.

Run by process.py as `python -I -m gradmarket.runner.reading <configuration as JSON>`.
"""

from gradmarket.market.data.formats import format_of, names
from gradmarket.runner import serving
from gradmarket.runner.arena import Arena, decoded
from gradmarket.runner.serving import Request


class Reading:
    """`arena` holds the file first, and its arrays after it."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._formats = {name: format_of(name) for name in names()}

    def read(self, request: Request) -> None:
        places = decoded(request["result"])
        expected = {place.name: (place.shape, place.dtype) for place in places}
        (data,) = self._arena.read_bytes([request["length"]])
        self._arena.write(places, self._formats[request["format"]].read(data, expected))


def main() -> None:
    """Answers requests until the parent closes the pipe."""
    told = serving.configuration()
    reading = Reading(Arena(told.arena))
    serving.serve(told, lambda: "reading", {"read": reading.read})


if __name__ == "__main__":
    main()
