"""Loss by bytes of GPT-2 small's blocks, over characters: 85 million parameters, for as long as an hour allows."""

from collections.abc import Iterator
from typing import Final

from benchmarks.bytes_large import Large, measured
from benchmarks.figure import Figure

PREFIX = "bytes.gpt2"
BLOCKS: Final = {"depth": 12, "width": 768, "heads": 12}
GPT2: Final = Large("gpt2", BLOCKS, rows=1, steps=120, every=15, local=15, rounds=8, rate=6e-4)


def measure() -> Iterator[Figure]:
    yield from measured(GPT2)
