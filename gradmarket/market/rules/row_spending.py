"""The privacy of one row that a job spends by noising each holder's steps, for a holder of the fewest rows.

Such a holder uses its rows most often, if it takes part in every round. A holder of more rows spends less. Each worker
counts its own uses, and does not rely on this.
"""

from dataclasses import dataclass

from gradmarket.market.rules import row_privacy
from gradmarket.market.rules.row_privacy import RowPrivacy


@dataclass(frozen=True, slots=True)
class RowSpending:
    """`asked` for steps of `rows` rows, `moves` of which a round has, of holders of `least_rows` at least."""

    asked: RowPrivacy
    rows: int
    moves: int
    least_rows: int

    @property
    def slots(self) -> int:
        """The number of steps in an epoch of the fewest rows; 1 where rows are drawn by chance."""
        return self.asked.slots_of(self.rows, self.least_rows)

    @property
    def rate(self) -> float:
        """The probability of each of the fewest rows in a step that may use it."""
        return self.asked.rate_of(self.rows, self.least_rows)

    @property
    def rounds(self) -> int:
        """The most rounds that epsilon allows."""
        return self.asked.count_uses(self.rate) * self.slots // self.moves

    def uses_after(self, rounds: int) -> int:
        """Returns the most uses of a row in `rounds` rounds; by chance, the number of its draws."""
        return row_privacy.count_row_uses(rounds * self.moves, self.slots)

    def spent(self, rounds: int) -> float:
        """Returns the most epsilon that `rounds` rounds spend."""
        return self.asked.after(self.uses_after(rounds), self.rate)
