"""The time of each side of a hearing: some for every answer, and a sum for all, as on a chess clock. Pure.

Without the sum, a side that answers each question in its last second would hold the other for their number times that
long. A side's sum covers every run of the task that a hearing may ask of it in full, and SPARE_S for all the rest.
"""

from dataclasses import dataclass, field
from typing import Final

from gradmarket.market.features.disputes.questions import MOST_LATER
from gradmarket.market.terms import Address

SPARE_S: Final = 600
"""Seconds of a side for all questions of a hearing that need no run of the task."""
RUNS: Final = 3
"""Questions of a hearing that need the task computed: the checkpoints, the operations of a part, and values."""


@dataclass
class SideClocks:
    """The clocks of both sides, which have `answer_s` seconds for each answer; `across`: they are of two classes."""

    answer_s: int
    across: bool
    _spent: dict[Address, int] = field(default_factory=dict)

    def stop(self, side: Address, until: int, at: int) -> None:
        """Counts a side's answer of time `at` to a question that everybody may answer until `until`."""
        self._spent[side] = self._spent.get(side, 0) + max(0, at - (until - self.answer_s))

    def find_end(self, side: Address, until: int) -> int:
        """Returns the Unix time by which the side must answer a question that everybody may answer until `until`."""
        left = max(0, count_total(self.answer_s, self.across) - self._spent.get(side, 0))
        return until - max(0, self.answer_s - left)


def count_total(answer_s: int, across: bool) -> int:
    """Returns the seconds that all answers of a side may take together."""
    return answer_s * (RUNS - 1 + 2 * (1 + MOST_LATER) if across else RUNS) + SPARE_S
