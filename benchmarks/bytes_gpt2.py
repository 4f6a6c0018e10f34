"""Loss by bytes of GPT-2 small's blocks, over characters: 85 million parameters, for as long as an hour allows."""

from collections.abc import Iterator
from typing import Final

from benchmarks.bytes_large import Large, measured
from benchmarks.figure import Figure
from benchmarks.size import sized

PREFIX = "bytes.gpt2"
BLOCKS: Final = sized({"depth": 12, "width": 768, "heads": 12}, {"depth": 1, "width": 16, "heads": 2})
EVERY, ROUNDS = sized((15, 8), (2, 1))
GPT2: Final = Large("gpt2", BLOCKS, 1, ROUNDS * EVERY, EVERY, local=EVERY, rounds=ROUNDS, rate=6e-4)


def measure() -> Iterator[Figure]:
    yield from measured(GPT2)
