"""How the answers of a round become one: one file per aggregator, its name is the one in the job.

Every aggregator is one function over stacks. A stack is one shard of all answers side by side; `rows` reads them from
their blobs one after the other, as often as it is called, so an aggregator chooses its own memory:

- one shard: walk the rows once and keep a sum (mean);
- one shard of each answer: np.stack the rows and work down the columns (trimmed mean, median);
- a pass over all stacks for the answers' Gram matrix, then a weighted sum (Krum, geometric median, centered clip).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from pydantic import BaseModel, ConfigDict

from gradmarket.market import plugins
from gradmarket.market.gradient.arrays import Vector


@dataclass(frozen=True)
class Band:
    """Neighbouring elements of a shard with one range: |x| <= bound in every answer."""

    part: slice
    bound: float
    limbs: int
    """Of an exact sum over them (see `accumulate`)."""


class Stack(Protocol):
    """One shard of all answers of a round."""

    @property
    def addends(self) -> int:
        """The most answers the round could have had: fixed before the first arrived."""

    @property
    def bands(self) -> Sequence[Band]:
        """The shard's elements, all of them, in order."""

    def rows(self) -> Iterator[Vector]:
        """The shard as each answer has it, flat float32."""


class Settings(BaseModel):
    """What a job says to its aggregator beside the name. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Aggregator(Protocol):
    """What a file in this folder offers."""

    @property
    def Settings(self) -> type[Any]:  # noqa: N802
        """A subclass of `Settings`."""

    def aggregate(self, stacks: Iterable[Stack], settings: Any) -> Iterator[Vector]:
        """The merged shard for each stack, flat float32; bitwise the same for any order of the rows.

        stacks: at least one answer each; may be walked more than once.
        """


def aggregator(name: str) -> Aggregator:
    """The aggregator of that name. Raises Refused where there is none."""
    return cast(Aggregator, plugins.load(__name__, name))
