"""Counts the uses of this machine's own rows by private jobs, and stops them at the limit, independent of the market.

Rows are taken in epochs: an epoch goes through the partitions one after the other, and takes each one's rows in a new
order, a fixed number a step; a partition's remainder is left out of the epoch. So no row is used more often than the
number of epochs begun (row_budget). Or a job has them drawn by chance, from all partitions, by secret numbers of this
machine's system that are new for every step: neither the market nor the job has a part in them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from secrets import token_bytes
from typing import Final, Protocol

from gradmarket.compute.held_rows import StepRows, Taken
from gradmarket.market import sampling
from gradmarket.market.errors import Refused
from gradmarket.market.features.private import row_budget, sampled_privacy
from gradmarket.market.features.private.holder_budget import compute_epsilon
from gradmarket.market.features.private.holder_rows import draw_rows_by_chance
from gradmarket.market.features.private.sampled_privacy import SampledSteps
from gradmarket.market.fields import HashField
from gradmarket.market.job import Publication
from gradmarket.market.manifest import Manifest
from gradmarket.market.step import RowPrivacy
from gradmarket.market.terms import Digest, Hash


@dataclass(frozen=True)
class RowUses:
    """The uses for one publication. `order` is a secret that decides the order of rows.

    `steps` were taken of the dataset whose manifest has the digest `rows`, and an epoch of it has `slots`. `before`:
    the uses of a row of earlier datasets, which count for the present rows: they may be the same. noise_multiplier: the
    job's; None where an older release kept it. rate: the greatest probability of a row in a step that may use it, 1 by
    epochs.
    """

    publication: Digest
    rows: Digest
    slots: int
    order: HashField
    noise_multiplier: float | None = None
    steps: int = 0
    before: int = 0
    rate: float = 1.0

    def uses(self, more: int = 0) -> int:
        """Returns the most uses of a row after `more` further steps."""
        return self.before + row_budget.count_row_uses(self.steps + more, self.slots)


class RowUsesStore(Protocol):
    """Keeps one RowUses for each job. A stored one must survive a crash."""

    def load(self, job: str) -> RowUses | None:
        """Returns the stored uses. Raises Refused where they cannot be read: the budget may be spent."""

    def store_uses(self, job: str, uses: RowUses) -> None:
        """Stores the uses before it returns."""

    def load_all(self) -> Sequence[RowUses]:
        """Returns the uses of every job. Raises Refused like `load`."""


@dataclass(frozen=True)
class RowBudget:
    """The owner's limit on the disclosure of one row of a dataset to all jobs together: `delta` as RowPrivacy's."""

    epsilon: float = math.inf
    delta: float = 1e-5

    def spent(self, jobs: Iterable[RowUses]) -> float:
        """Returns the epsilon that these jobs spend together.

        Gaussian mechanisms compose to one: the squares of uses over noise add up (holder_budget). Steps over rows that
        are drawn by chance add up by their losses (sampled_privacy).
        """
        used, parts = [one for one in jobs if one.uses()], list[SampledSteps]()
        for one in used:
            if one.noise_multiplier is None:
                return math.inf
            parts.append(SampledSteps(one.noise_multiplier, one.rate, one.uses()))
        if any(part.rate < 1.0 for part in parts):
            return sampled_privacy.compute_sampled_epsilon(tuple(sorted(parts)), self.delta)
        return compute_epsilon(1.0, self.delta, sum(part.steps / part.noise_multiplier**2 for part in parts))


NO_BUDGET: Final = RowBudget()


class UsesInMemory:
    """Keeps uses as long as the process lives."""

    def __init__(self) -> None:
        self._kept: dict[str, RowUses] = {}

    def load(self, job: str) -> RowUses | None:
        return self._kept.get(job)

    def store_uses(self, job: str, uses: RowUses) -> None:
        self._kept[job] = uses

    def load_all(self) -> Sequence[RowUses]:
        return list(self._kept.values())


@dataclass(frozen=True)
class CountedRows:
    """The rows of a packed dataset for jobs that bound the disclosure of each row. `digest`: of its manifest.

    `budget` bounds all jobs of the store together, finished ones too.
    """

    manifest: Manifest
    digest: Digest
    store: RowUsesStore
    budget: RowBudget = NO_BUDGET

    def slots(self, rows: int) -> int:
        """Returns the number of steps of `rows` rows in an epoch."""
        return sum(partition.rows // rows for partition in self.manifest.partitions)

    def afford(self, publication: Publication) -> RowUses:
        """Returns the job's uses. Raises Refused where another task would exceed the permitted disclosure of a row."""
        asked, used = _require_row_privacy(publication), self._load_job_uses(publication)
        if used.uses(publication.spec.step.moves) > row_budget.count_affordable_uses(asked, used.rate):
            spent = row_budget.compute_spent_epsilon(asked, used.uses(), used.rate)
            raise Refused(f"epsilon {spent:.4g} of {asked.epsilon:g} is spent of a row here, and a task would pass it")
        self._check_budget(used, replace(used, steps=used.steps + publication.spec.step.moves))
        return used

    def _check_budget(self, used: RowUses, after: RowUses) -> None:
        """Raises Refused where all jobs of this folder together would exceed the owner's limit for a row.

        Rows of other datasets count too: a dataset packed again may hold the same rows.
        """
        if not math.isfinite(self.budget.epsilon):
            return
        others = [one for one in self.store.load_all() if one.order != used.order]
        if self.budget.spent([*others, after]) > self.budget.epsilon:
            spent = self.budget.spent([*others, used])
            raise Refused(
                f"epsilon {spent:.4g} of this worker's own {self.budget.epsilon:g} is spent of a row by "
                f"{len(others) + 1} jobs of this worker's folder, and a task would pass it",
                "raise row_epsilon; for rows that no job has seen, work with a new folder (--data)",
            )

    def peek(self, publication: Publication) -> Sequence[StepRows]:
        """Returns the rows that the next task would take, step by step; for values that never leave this machine."""
        return self._list_next_rows(publication, self._load_job_uses(publication))

    def take(self, publication: Publication) -> Sequence[StepRows]:
        """Returns the next task's rows, step by step, and counts them before. Raises Refused like `afford`."""
        used = self.afford(publication)
        self.store.store_uses(publication.job, replace(used, steps=used.steps + publication.spec.step.moves))
        return self._list_next_rows(publication, used)

    def _load_job_uses(self, publication: Publication) -> RowUses:
        known, asked, rows = (
            self.store.load(publication.job),
            _require_row_privacy(publication),
            publication.spec.step.rows,
        )
        held = sum(partition.rows for partition in self.manifest.partitions)
        slots, rate = 1 if asked.by_chance else self.slots(rows), row_budget.compute_row_rate(asked, rows, held)
        if known is None:
            order = Hash(token_bytes(32))
            return RowUses(publication.digest, self.digest, slots, order, asked.noise_multiplier, rate=rate)
        if known.publication != publication.digest:
            raise Refused(
                f"the market shows another publication of job {publication.job} than the one counted for here"
            )
        if known.rows == self.digest:
            return known
        greater = max(rate, known.rate)
        return replace(known, rows=self.digest, slots=slots, steps=0, before=known.uses(), rate=greater)

    def _list_next_rows(self, publication: Publication, used: RowUses) -> Sequence[StepRows]:
        step = publication.spec.step
        if step.by_chance:
            return [self._draw_by_chance(step.rows, step.room) for _ in range(step.moves)]
        return [self._of_step(used, number, step.rows) for number in range(used.steps, used.steps + step.moves)]

    def _draw_by_chance(self, rows: int, room: int) -> StepRows:
        """Returns rows of all partitions under a new secret seed; the first of all rows fills the batch."""
        parts = self.manifest.partitions
        drawn = draw_rows_by_chance(token_bytes(32), sum(part.rows for part in parts), rows, room)
        pieces, first = list[Taken](), 0
        for part in parts:
            mine = [row - first for row in drawn if first <= row < first + part.rows]
            pieces += [(part, mine)] if mine else []
            first += part.rows
        if len(drawn) < room:
            pieces.append((parts[0], [0] * (room - len(drawn))))
        return StepRows(pieces, len(drawn))

    def _of_step(self, used: RowUses, number: int, rows: int) -> StepRows:
        epoch, slot = divmod(number, used.slots)
        for partition in self.manifest.partitions:
            here = partition.rows // rows
            if slot < here:
                seed = used.order + partition.name.encode()
                taken = sampling.draw_shuffled_rows(seed, epoch, slot, partition.rows, rows)
                return StepRows([(partition, taken)], rows)
            slot -= here
        raise Refused("the dataset has no such rows")


def _require_row_privacy(publication: Publication) -> RowPrivacy:
    if (asked := publication.spec.step.per_row) is None:
        raise Refused("the job does not bound what it reveals of a row")
    return asked
