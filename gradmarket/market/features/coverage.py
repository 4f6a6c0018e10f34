"""The books of coverage: how often a job's updates used the rows of its data, partition by partition."""

from collections.abc import Mapping, Sequence

from gradmarket.market.fields import DeferredModel
from gradmarket.market.views.job_views import CoverageCounts
from gradmarket.market.views.service_views import Page


def compute_partition_uses(rows: Sequence[int], taken: Mapping[int, int], count: int) -> list[float]:
    """Returns how often each partition's rows were used, on average over its rows.

    rows: of each partition. taken: how many merged tasks each partition had; each task takes `count` rows.
    """
    return [taken.get(index, 0) * count / total for index, total in enumerate(rows)]


def count_full_epochs(rows: Sequence[int], merged: int, count: int) -> int:
    """Returns how often every row was used at least, where rows are taken by epochs and places in turn (JobSpec.place).

    merged: how many places from the first on are merged, without one left out.
    """
    turns = len(rows)
    groups = [merged // turns + (index < merged % turns) for index in range(turns)]
    return min((mine * count // total for mine, total in zip(groups, rows, strict=True)), default=0)


def worst_share(uses: Sequence[float]) -> float:
    """Returns the least used over the mean; 1 where all are used alike, 0 where one is never used."""
    mean = sum(uses) / len(uses) if uses else 0.0
    return min(uses) / mean if mean else 0.0


class PartitionCoverage(DeferredModel):
    """`tasks`: in updates, with rows of this partition. `uses`: how often each of its rows was used, on average."""

    name: str
    rows: int
    tasks: int
    uses: float


class CoverageView(Page[PartitionCoverage]):
    """`counts` and `epochs` are of a job whose sampling is `epochs`: every row was used at least `epochs` times.

    `worst_share`: the uses of the least used partition's rows over the mean of all partitions.
    """

    counts: CoverageCounts | None
    epochs: int | None
    worst_share: float
