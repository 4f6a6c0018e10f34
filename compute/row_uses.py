"""How often a private job has used this machine's own rows: counted here, and stopped here, whatever a market says.

Rows are taken in epochs: an epoch goes through the partitions one after the other, and takes each one's rows in a new
order, so many a step; what is left of a partition at its end is left out of the epoch. So no row is used more often
than there are epochs begun (market.rules.row_privacy).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from secrets import token_bytes
from typing import Protocol

from gradmarket.market.data.manifest import Manifest, Partition
from gradmarket.market.errors import Refused
from gradmarket.market.fields import HashField
from gradmarket.market.job import Publication
from gradmarket.market.model import sampling
from gradmarket.market.rules import row_privacy
from gradmarket.market.rules.row_privacy import RowPrivacy
from gradmarket.market.terms import Digest, Hash

Taken = tuple[Partition, list[int]]


@dataclass(frozen=True)
class RowUses:
    """What was taken for one publication. `order` is a secret that decides the order of rows.

    `steps` are those taken of the dataset whose manifest has the digest `rows`, and an epoch of it has `slots`.
    `before`: how often a row of earlier ones was used, which counts for those that are there now: they may be the same.
    """

    publication: Digest
    rows: Digest
    slots: int
    order: HashField
    steps: int = 0
    before: int = 0

    def uses(self, more: int = 0) -> int:
        """Returns how often a row is used at most after so many more steps."""
        return self.before + row_privacy.uses(self.steps + more, self.slots)


class RowUsesStore(Protocol):
    """Keeps one RowUses for each job. What was kept must be there after a crash."""

    def load(self, job: str) -> RowUses | None:
        """Returns what was kept. Raises Refused where it cannot be read: it may say that all is spent."""

    def keep(self, job: str, uses: RowUses) -> None:
        """Keeps it before it returns."""


class UsesInMemory:
    """Keeps them as long as the process lives."""

    def __init__(self) -> None:
        self._kept: dict[str, RowUses] = {}

    def load(self, job: str) -> RowUses | None:
        return self._kept.get(job)

    def keep(self, job: str, uses: RowUses) -> None:
        self._kept[job] = uses


@dataclass(frozen=True)
class CountedRows:
    """The rows of a packed dataset for jobs that bound what is told of each row. `digest`: of its manifest."""

    manifest: Manifest
    digest: Digest
    store: RowUsesStore

    def slots(self, rows: int) -> int:
        """Returns how many steps of so many rows an epoch has."""
        return sum(partition.rows // rows for partition in self.manifest.partitions)

    def afford(self, publication: Publication) -> RowUses:
        """Returns what the job has used. Raises Refused where another task would tell more of a row than it may."""
        asked, used = _asked(publication), self._used(publication)
        if used.uses(publication.spec.step.moves) > asked.uses:
            spent = asked.after(used.uses())
            raise Refused(f"epsilon {spent:.4g} of {asked.epsilon:g} is spent of a row here, and a task would pass it")
        return used

    def peek(self, publication: Publication) -> Sequence[Taken]:
        """Returns the rows that the next task would take, step by step; for what never leaves this machine."""
        return self._next(publication, self._used(publication))

    def take(self, publication: Publication) -> Sequence[Taken]:
        """Returns the next task's rows, step by step, and counts them before. Raises Refused as `afford`."""
        used = self.afford(publication)
        self.store.keep(publication.job, replace(used, steps=used.steps + publication.spec.step.moves))
        return self._next(publication, used)

    def _used(self, publication: Publication) -> RowUses:
        known, slots = self.store.load(publication.job), self.slots(publication.spec.step.rows)
        if known is None:
            return RowUses(publication.digest, self.digest, slots, Hash(token_bytes(32)))
        if known.publication != publication.digest:
            raise Refused(
                f"the market shows another publication of job {publication.job} than the one counted for here"
            )
        if known.rows == self.digest:
            return known
        return replace(known, rows=self.digest, slots=slots, steps=0, before=known.uses())

    def _next(self, publication: Publication, used: RowUses) -> Sequence[Taken]:
        step = publication.spec.step
        return [self._of_step(used, number, step.rows) for number in range(used.steps, used.steps + step.moves)]

    def _of_step(self, used: RowUses, number: int, rows: int) -> Taken:
        epoch, slot = divmod(number, used.slots)
        for partition in self.manifest.partitions:
            here = partition.rows // rows
            if slot < here:
                seed = used.order + partition.name.encode()
                return partition, sampling.rows(seed, epoch, slot, partition.rows, rows)
            slot -= here
        raise Refused("the dataset has no such rows")


def _asked(publication: Publication) -> RowPrivacy:
    if (asked := publication.spec.step.per_row) is None:
        raise Refused("the job does not count what it tells of a row")
    return asked
