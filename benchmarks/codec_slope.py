"""Effect of each codec on a gradient's elements: by how much it shortens them, and how far it moves their mean.

With x the elements and q their unpacked values: slope = sum q x / sum x^2, the share of the gradient that arrives
along it, and bias = mean(q - x) / deviation of x. No codec has a memory, so the lost part of an element is lost.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.figure import Figure
from benchmarks.size import sized
from gradmarket.market.gradient.codecs import load_codec

PREFIX = "codec_slope."
ELEMENTS: Final = sized(2**22, 2**16)
SEED: Final = bytes(32)
SMALL: Final = 0.1
Drawn = NDArray[np.float32]


def _half(chance: np.random.Generator) -> NDArray[np.float64]:
    return chance.standard_normal(ELEMENTS) * (chance.random(ELEMENTS) < 0.5)


DRAWS: Final[Mapping[str, Callable[[np.random.Generator], NDArray[np.float64]]]] = {
    "normal": lambda chance: chance.standard_normal(ELEMENTS),
    "t3": lambda chance: chance.standard_t(3, ELEMENTS),
    "half": _half,
    "skewed": lambda chance: chance.exponential(1.0, ELEMENTS) - 1.0,
}
"""Normal; Student's t of 3 degrees, of heavy tails; normal, half of them exactly 0; exponential less its mean."""


def measure() -> Iterator[Figure]:
    for name in ("bf16", "int8", "int4", "fp4", "two_bit", "topk"):
        for draw, drawn in DRAWS.items():
            before = drawn(np.random.default_rng(1)).astype(np.float32)
            after = _unpacked(name, before)
            yield Figure(f"codec_slope.{name}.{draw}", _slope(before, after), "of the gradient")
            if draw == "skewed":
                bias = float((after.astype(np.float64) - before).mean() / before.std())
                yield Figure(f"codec_slope.{name}.bias", bias, "deviations")
            if draw == "half":
                yield Figure(f"codec_slope.{name}.zeros", float(np.count_nonzero(after[before == 0])), "zeros moved")
        yield Figure(f"codec_slope.{name}.small", _small(name), "times its value", note=f"of {SMALL} deviations")


def _unpacked(name: str, values: Drawn) -> Drawn:
    used = load_codec(name)
    return used.unpack(memoryview(used.pack(values, SEED)), values.size, SEED)


def _slope(before: Drawn, after: Drawn) -> float:
    wide = before.astype(np.float64)
    return float(wide @ after / (wide @ wide))


def _small(name: str) -> float:
    """Returns the mean result of an element of a tenth of its normal neighbours' deviation."""
    values = np.random.default_rng(2).standard_normal(ELEMENTS).astype(np.float32)
    values[::64] = SMALL
    return float(_unpacked(name, values)[::64].astype(np.float64).mean() / SMALL)
