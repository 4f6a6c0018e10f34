"""How a job's updates used the rows of its data, as the API answers it."""

from pydantic import BaseModel

from gradmarket.market.views.page_view import Page


class PartitionCoverage(BaseModel):
    """`tasks`: in updates, with rows of this partition. `uses`: how often each of its rows was used, on average."""

    name: str
    rows: int
    tasks: int
    uses: float


class CoverageCounts(BaseModel):
    """Tasks in updates; those of them in a later update than their round's; and those whose rows are in none yet."""

    used: int
    late: int
    waiting: int


class CoverageView(Page[PartitionCoverage]):
    """`counts` and `epochs` are of a job whose sampling is `epochs`: every row was used at least `epochs` times.

    `worst_share`: the uses of the least used partition's rows over the mean of all partitions.
    """

    counts: CoverageCounts | None
    epochs: int | None
    worst_share: float
