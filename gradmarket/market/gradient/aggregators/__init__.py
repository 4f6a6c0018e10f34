"""Merges the answers of a round. Each aggregator is one file, and a job refers to it by the file's name.

Every aggregator is one function over stacks. A stack is one shard of all answers. `rows` reads it from their blobs, one
answer after the other, as often as it is called, so an aggregator chooses its own memory:

- one shard: iterate over the rows once and keep a sum (mean);
- one shard of each answer: np.stack the rows and work on columns (trimmed mean, median);
- a pass over all stacks for the answers' Gram matrix, then a weighted sum (Krum, geometric median, centered clip).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, cast

from pydantic import ValidationError

from gradmarket.market.errors import JobRefused, Refused
from gradmarket.market.fields import Part, first_fault
from gradmarket.market.gradient.arrays import Vector
from graphdoc import plugins


@dataclass(frozen=True)
class Band:
    """Neighbouring elements of a shard with one range: |x| <= bound in every answer."""

    part: slice
    bound: float
    gradient: bool = True
    """Whether they are gradients. Loss and buffers are not, and do not count in distances between answers."""


class Stack(Protocol):
    """One shard of all answers of a round."""

    @property
    def addends(self) -> int:
        """The most answers the round could have had, fixed before the first arrived."""

    @property
    def bands(self) -> Sequence[Band]:
        """The bands that the whole shard consists of, in order."""

    def rows(self) -> Iterator[Vector]:
        """Yields the shard of each answer, as flat float32."""


SIDE_BY_SIDE: Final = 1024
"""The most answers that an aggregator compares with each other."""


class Settings(Part):
    """A job's settings of its aggregator besides the name. Unknown fields are refused."""

    most: ClassVar[int] = SIDE_BY_SIDE
    """The most answers that the aggregator can merge."""

    @property
    def least(self) -> int:
        """Returns the fewest answers for which its guarantee holds."""
        return 1

    def check(self, fewest: int, most: int) -> None:
        """Raises Refused where a round can have fewer answers than `least` or more than `most`."""
        if fewest < self.least or most > self.most:
            has = str(most) if fewest == most else f"{fewest} to {most}"
            raise Refused(f"with these settings it takes {self.least} to {self.most} answers, and a round has {has}")


class AggregatorRule(Protocol):
    """The interface of a file in this folder."""

    @property
    def Settings(self) -> type[Any]:  # noqa: N802
        """A subclass of `Settings`."""

    @property
    def SHARDWISE(self) -> bool:  # noqa: N802
        """Whether a merged shard depends on the answers' values in that shard alone."""

    def aggregate(self, stacks: Iterable[Stack], settings: Any) -> Iterator[Vector]:
        """Yields the merged shard for each stack, flat float32; bitwise the same for any order of the rows.

        `stacks` have at least one answer each, and may be iterated more than once.
        """


def load_aggregator(name: str) -> AggregatorRule:
    """Returns the aggregator of that name. Raises Refused where there is none."""
    return cast(AggregatorRule, plugins.load_plugin(__name__, name))


def configure_aggregator(
    name: str, settings: Mapping[str, Any], fewest: int, most: int
) -> tuple[AggregatorRule, Settings]:
    """Returns a job's aggregator and its settings, for rounds of `fewest` to `most` answers.

    Raises JobRefused, naming the job's field, where there is no such aggregator or setting, or where its guarantee
    needs other numbers of answers.
    """
    try:
        rule = load_aggregator(name)
    except Refused as error:
        raise JobRefused("aggregator.name", error.detail) from error
    try:
        chosen: Settings = rule.Settings(**settings)
        chosen.check(fewest, most)
    except ValidationError as error:
        raise JobRefused(*first_fault(error, "aggregator")) from error
    except Refused as error:
        raise JobRefused("aggregator", f"{name}: {error.detail}") from error
    return rule, chosen
