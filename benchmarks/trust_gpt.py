"""The character GPT under hostile workers: draws docs/trust_gpt.svg."""

from collections.abc import Iterator

from benchmarks.figure import Figure
from benchmarks.trust import figures
from benchmarks.trust.workloads import characters

PREFIX = "trust.btard.gpt."


def measure() -> Iterator[Figure]:
    yield from figures.figures(characters, "trust_gpt.svg")
