"""The digits' convolutional network under hostile workers: draws docs/trust.svg."""

from collections.abc import Iterator

from benchmarks.figure import Figure
from benchmarks.trust import figures
from benchmarks.trust.workloads import digits

PREFIX = "trust.btard.cnn."


def measure() -> Iterator[Figure]:
    yield from figures.figures(digits, "trust.svg")
