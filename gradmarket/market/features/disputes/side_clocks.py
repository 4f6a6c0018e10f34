"""The time of each side of a hearing: some for every answer, and a sum for all, as on a chess clock. Pure.

Without the sum, a side that answers each question in its last second would hold the other for their number times that
long. A side's sum covers every run of the task that a hearing may ask of it in full, and SPARE_S for all the rest.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from gradmarket.market.features.disputes.questions import MOST_LATER
from gradmarket.market.terms import Address
from gradmarket.market.wire.hearing_messages import AskedInHearing

SPARE_S: Final = 600
"""Seconds of a side for all questions of a hearing that need no run of the task."""
RUNS: Final = 3
"""Questions of a hearing that need the task computed: the checkpoints, the operations of a part, and values."""


@dataclass
class SideClocks:
    """The clocks of both sides; `answer_s`: seconds for one answer, `total_s`: for all answers of a side."""

    answer_s: int
    total_s: int
    _spent: dict[Address, int] = field(default_factory=dict)

    def stop(self, side: Address, until: int, at: int) -> None:
        """Counts a side's answer of time `at` to a question that everybody may answer until `until`."""
        self._spent[side] = self._spent.get(side, 0) + max(0, at - (until - self.answer_s))

    def find_end(self, side: Address, until: int) -> int:
        """Returns the Unix time by which the side must answer a question that everybody may answer until `until`."""
        return until - max(0, self.answer_s - (self.total_s - self._spent.get(side, 0)))


def count_total(answer_s: int, across: bool) -> int:
    """Returns the seconds that all answers of a side may take together; `across`: of sides of two classes."""
    return answer_s * (RUNS - 1 + 2 * (1 + MOST_LATER) if across else RUNS) + SPARE_S


def read_clocks(answer_s: int, across: bool, asked: Iterable[AskedInHearing]) -> SideClocks:
    """Returns the clocks after these questions of a hearing and their answers."""
    clocks = SideClocks(answer_s, count_total(answer_s, across))
    for each in asked:
        for said in each.answers:
            clocks.stop(said.side, each.until, said.at)
    return clocks
