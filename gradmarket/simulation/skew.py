"""Simulates rounds over data whose slow partitions delay every machine: their share of the training, and their loss.

The rules are the service's: which rows a task has, how long a round waits, and which tasks it may leave. The model is a
linear regression whose slow partitions have features of their own, so that its loss on them measures their effect on
training.
"""

import heapq
import random
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gradmarket.market.features.coverage import worst_share
from gradmarket.market.features.late import compute_pace, expected_s, grace_s
from gradmarket.market.rules import stragglers
from gradmarket.market.sampling import epoch_rows

Policy = Literal["ours", "drop", "wait"]
POLICIES: Final[dict[Policy, str]] = {"ours": "ours", "drop": "drop the slowest", "wait": "wait for all"}
FEATURES: Final = 16
NEVER: Final = 1e9


class SkewScenario(BaseModel):
    """Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    partitions: int = Field(default=20, ge=2, le=1000)
    rows: int = Field(default=64, ge=1, le=100_000)
    """Rows of each partition."""
    slow: float = Field(default=0.1, gt=0.0, lt=1.0)
    """The share of the partitions that are slow."""
    slower: float = Field(default=4.0, ge=1.0)
    """How many times longer a task on one of them takes."""
    spread: float = Field(default=0.1, ge=0.0, le=1.0)
    """Sigma of the log-normal factor by which any task's time differs."""
    task_rows: int = Field(default=16, ge=1)
    tasks_per_round: int = Field(default=20, ge=1)
    min_tasks: int = Field(default=16, ge=1)
    staleness: int = Field(default=2, ge=0, le=4)
    wave_s: float = Field(default=30.0, gt=0.0)
    """Bound of the grace window, as in a job; a task on fast rows takes one second."""
    epochs: int = Field(default=20, ge=1, le=1000)
    rate: float = Field(default=0.2, gt=0.0)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class SkewOutcome:
    """`uses`: of each row, by partition. `losses`: mean square, by partition. The slow partitions are the last."""

    policy: Policy
    seconds: float
    rounds: int
    uses: list[list[int]]
    losses: list[float]
    shares: list[float]

    def worst_share(self, slow: int) -> float:
        """Returns the uses of the least used row of the slow partitions over the mean of all rows."""
        every = [count for partition in self.uses for count in partition]
        return worst_share([min(count for one in self.uses[-slow:] for count in one), *every]) if any(every) else 0.0


@dataclass(order=True, slots=True)
class _Answer:
    ends: float
    place: int
    round: int = field(compare=False)
    began: float = field(compare=False)
    gradient: np.ndarray = field(compare=False)


class SkewPlay:
    """One policy over a scenario; call `run` only once. All policies have the same data, times and first parameters."""

    def __init__(self, scenario: SkewScenario, policy: Policy) -> None:
        self.scenario, self.policy = scenario, policy
        self.slow = max(1, round(scenario.slow * scenario.partitions))
        self._data = list[tuple[np.ndarray, np.ndarray]]()
        truth = np.random.default_rng([scenario.seed, 10**6]).standard_normal(FEATURES)
        for index in self._all:  # slow partitions have other features than the others
            chance = np.random.default_rng([scenario.seed, index])
            x = chance.standard_normal((scenario.rows, FEATURES))
            slow = index >= scenario.partitions - self.slow
            x[:, slice(0, FEATURES // 2) if slow else slice(FEATURES // 2, None)] *= 0.0
            self._data.append((x, x @ truth + 0.1 * chance.standard_normal(scenario.rows)))
        self._weights = np.zeros(FEATURES)
        self._places: Iterator[int] = iter(
            range(scenario.epochs * scenario.partitions * scenario.rows // scenario.task_rows)
        )
        self._times: deque[float] = deque(maxlen=8 * scenario.tasks_per_round)
        self._uses = [Counter[int]() for _ in self._all]
        self._taken = Counter[int]()
        self._first: dict[int, int] = {}

    @property
    def _all(self) -> range:
        return range(self.scenario.partitions)

    def run(self) -> SkewOutcome:
        now, number, open_answers = 0.0, 0, list[_Answer]()
        while True:
            open_answers += self._begin_tasks(number, now, self.scenario.tasks_per_round - len(open_answers))
            if not open_answers:
                break
            now = self._merge_at(open_answers, number, now)
            merged = [answer for answer in open_answers if answer.ends <= now]
            left = [answer for answer in open_answers if answer.ends > now]
            self._update_weights(merged)
            open_answers = self._list_carried_answers(left, number + 1, now)
            number += 1
        losses = [float(np.mean((x @ self._weights - y) ** 2)) for x, y in self._data]
        uses = [[self._uses[index][row] for row in range(self.scenario.rows)] for index in self._all]
        total = max(1, self._taken.total())
        return SkewOutcome(self.policy, now, number, uses, losses, [self._taken[index] / total for index in self._all])

    def _begin_tasks(self, number: int, now: float, count: int) -> list[_Answer]:
        places = [place for _, place in zip(range(count), self._places, strict=False)]
        self._first |= dict.fromkeys(places, number)
        return [self._build_answer(place, number, now) for place in places]

    def _build_answer(self, place: int, number: int, now: float) -> _Answer:
        index = place % self.scenario.partitions
        x, y = (part[self._draw_task_rows(place)] for part in self._data[index])
        gradient = 2 * x.T @ (x @ self._weights - y) / len(y)
        return _Answer(now + self._compute_task_seconds(place, number), place, number, now, gradient)

    def _draw_task_rows(self, place: int) -> list[int]:
        index, group = place % self.scenario.partitions, place // self.scenario.partitions
        seed = f"{self.scenario.seed} {index}".encode()
        return epoch_rows(seed, group, self.scenario.rows, self.scenario.task_rows)

    def _compute_task_seconds(self, place: int, number: int) -> float:
        """Returns seconds that depend on the rows, and a little on chance; the same under every policy."""
        chance = random.Random(f"{self.scenario.seed} {place} {number}")
        slow = place % self.scenario.partitions >= self.scenario.partitions - self.slow
        return chance.lognormvariate(0.0, self.scenario.spread) * (self.scenario.slower if slow else 1.0)

    def _merge_at(self, answers: list[_Answer], number: int, opened: float) -> float:
        """Returns the time at which the round is merged; `answers` are all that it may still take."""
        least = len(answers) if self.policy == "wait" else min(self.scenario.min_tasks, len(answers))
        enough = max(opened, heapq.nsmallest(least, answers)[-1].ends)
        if self.policy != "ours":
            return enough
        since = stragglers.due_since(
            number, number + 2, self.scenario.staleness
        )  # the last is the one without any left
        enough = max([enough, *(answer.ends for answer in answers if self._first[answer.place] <= since)])
        self._times.extend(answer.ends - answer.began for answer in answers if answer.ends <= enough)
        times = list(self._times)
        late = [answer for answer in answers if answer.ends > enough]
        expected = [answer.began + expected_s((), times, NEVER) - enough for answer in late]
        until = enough + grace_s(expected, compute_pace(times), self.scenario.wave_s)
        return min(until, max(answer.ends for answer in answers))

    def _list_carried_answers(self, left: list[_Answer], number: int, now: float) -> list[_Answer]:
        """Returns the open answers of the next round: none, the same ones yet to come, or new ones on their rows."""
        if self.policy != "ours":
            return []
        return left if self.scenario.staleness else [self._build_answer(one.place, number, now) for one in left]

    def _update_weights(self, merged: list[_Answer]) -> None:
        self._weights -= self.scenario.rate * np.mean([answer.gradient for answer in merged], axis=0)
        for answer in merged:
            index = answer.place % self.scenario.partitions
            self._taken[index] += 1
            self._uses[index].update(self._draw_task_rows(answer.place))
