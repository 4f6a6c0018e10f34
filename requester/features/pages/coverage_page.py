"""How the rows of a job's partitions are used, those least used first."""

from dataclasses import dataclass
from typing import Final

from gradmarket.market.features.coverage import worst_share
from requester.features.coverage import Books

SHOWN: Final = 50


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """`uses`: how often each row was used, on average. `share`: of the uses of the most used partition, in percent."""

    name: str
    rows: int
    uses: float
    share: float


@dataclass(frozen=True, slots=True)
class CoveragePage:
    """`passes`: uses of a row, the mean over all rows. `left`: the number of partitions that are not in `lines`."""

    partitions: int
    rows: int
    passes: float
    worst_share: float
    epochs: int | None
    lines: list[PartitionLine]
    left: int


def build_coverage_page(books: Books) -> CoveragePage:
    rows, most = sum(books.rows), max(books.uses, default=0.0) or 1.0
    every = zip(books.uses, books.names, books.rows, strict=True)
    lines = [PartitionLine(name, count, uses, 100 * uses / most) for uses, name, count in sorted(every)[:SHOWN]]
    return CoveragePage(
        partitions=len(books.names),
        rows=rows,
        passes=sum(uses * count for uses, count in zip(books.uses, books.rows, strict=True)) / (rows or 1),
        worst_share=worst_share(books.uses),
        epochs=books.epochs,
        lines=lines,
        left=len(books.names) - len(lines),
    )
