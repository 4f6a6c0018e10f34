"""Bounds the information on one row in its holder's answers: (epsilon, delta)-differential privacy by row.

DP-SGD (Abadi et al. 2016, "Deep learning with differential privacy", algorithm 1), computed by the holder's own worker:
each row's gradient is scaled down to an L2 norm of at most C (`clip_norm`), they are summed, normal noise of deviation
z C is added to each element of the sum, and the sum is divided by the step's rows, a number that everybody knows. Two
holders are neighbours where the gradients of one row are zeros in one of them (zero-out adjacency), so a step's sum
differs by C at most.

A holder takes its rows in epochs: no row is in two steps of an epoch. Given all other rows, all steps of an epoch but
one are the same functions of the earlier messages for either of two neighbours. So an epoch is one Gaussian mechanism
of sensitivity C and deviation z C, and U epochs are one of sensitivity C sqrt(U): the composition and formula of
holder_budget, with uses of a row in place of rounds. All that follows a step (its optimizer, local steps, codec, masks,
pay) uses its noised gradient alone.

With `sampling` at `poisson` a step takes each of a holder's n rows with probability q = rows / n instead, apart from
all others, by a secret of the holder that is new for every step, and is counted by sampled_privacy. The sum is
divided by `rows`, its mean number of rows, and not by the number drawn. Every step computes on as many rows
(`count_room`): rows beside the drawn ones count as zeros. Where more are drawn than there is room for, the step draws
anew. That costs nothing: for any given choice of the other rows, the draw has the row with probability q where there is
room for it and with 0 where there is none.
"""

from dataclasses import dataclass

from gradmarket.market.features.private import sampled_privacy
from gradmarket.market.features.private.holder_budget import compute_epsilon, count_affordable_rounds
from gradmarket.market.features.private.sampled_privacy import SampledSteps
from gradmarket.market.job_fields import JobFields
from gradmarket.market.job_parts import PrivateData
from gradmarket.market.step import RowPrivacy


def count_affordable_uses(asked: RowPrivacy, rate: float = 1.0) -> int:
    """Returns the number of steps that epsilon allows where each takes a row with this probability."""
    if rate < 1.0:
        return sampled_privacy.count_affordable_steps(asked.noise_multiplier, rate, asked.delta, asked.epsilon)
    return count_affordable_rounds(asked.noise_multiplier, asked.delta, asked.epsilon)


def compute_spent_epsilon(asked: RowPrivacy, uses: int, rate: float = 1.0) -> float:
    """Returns the epsilon that `uses` steps spend where each takes a row with probability `rate`."""
    if rate < 1.0:
        return sampled_privacy.compute_sampled_epsilon((SampledSteps(asked.noise_multiplier, rate, uses),), asked.delta)
    return compute_epsilon(asked.noise_multiplier, asked.delta, uses)


def compute_row_rate(asked: RowPrivacy, rows: int, held: int) -> float:
    """Returns the probability of each of `held` rows in a step of `rows` rows that takes it; 1 by epochs."""
    return min(1.0, rows / held) if asked.by_chance else 1.0


def count_slots(asked: RowPrivacy, rows: int, held: int) -> int:
    """Returns the number of steps that take a row at most once; 1 where any of them may."""
    return 1 if asked.by_chance else max(1, held // rows)


def count_row_uses(steps: int, slots: int) -> int:
    """Returns the most uses of a row in `steps` steps, where an epoch has `slots`."""
    return -(-steps // slots)


def find_row_privacy_fault(asked: RowPrivacy | None, rows: int, moves: int, least_rows: int | None) -> str:
    """Returns why a task of `moves` steps of `rows` rows cannot be computed so, the field first; empty where it can.

    least_rows: of a holder; None where the job's rows are published.
    """
    if asked is None:
        return ""
    if not asked.by_chance and count_affordable_uses(asked) < 1:
        least = compute_spent_epsilon(asked, 1)
        return f"step.per_row.epsilon: one use of a row spends {least:.4g}: name more, or a greater noise_multiplier"
    if least_rows is None:
        return "step.per_row: others must compute the same, and noise is secret: name holders in data, or leave it out"
    if asked.delta * least_rows >= 1:
        least = 1 / least_rows
        return f"step.per_row.delta: of {least_rows} rows it allows to disclose one whole: name less than {least:.3g}"
    needed, rate = (
        count_row_uses(moves, count_slots(asked, rows, least_rows)),
        compute_row_rate(asked, rows, least_rows),
    )
    if needed > (allowed := count_affordable_uses(asked, rate)):
        uses = (
            f"draws a row {needed} times with probability {rate:.3g}"
            if asked.by_chance
            else f"uses a row {needed} times"
        )
        return (
            f"step.per_row: a round {uses} where a holder has {least_rows}, and epsilon allows {allowed}: "
            "name more least_rows, fewer steps, or a greater noise_multiplier"
        )
    return ""


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
        return count_slots(self.asked, self.rows, self.least_rows)

    @property
    def rate(self) -> float:
        """The probability of each of the fewest rows in a step that may use it."""
        return compute_row_rate(self.asked, self.rows, self.least_rows)

    @property
    def rounds(self) -> int:
        """The most rounds that epsilon allows."""
        return count_affordable_uses(self.asked, self.rate) * self.slots // self.moves

    def uses_after(self, rounds: int) -> int:
        """Returns the most uses of a row in `rounds` rounds; by chance, the number of its draws."""
        return count_row_uses(rounds * self.moves, self.slots)

    def spent(self, rounds: int) -> float:
        """Returns the most epsilon that `rounds` rounds spend."""
        return compute_spent_epsilon(self.asked, self.uses_after(rounds), self.rate)

    def find_end(self, merged: int, noised_rounds: float | None) -> str:  # noqa: ARG002
        """Returns why no round may follow the merged ones; empty where one may."""
        if merged < self.rounds:
            return ""
        done = self.spent(merged)
        return f"{done:.4g} of epsilon {self.asked.epsilon:g} of a row is spent, and another round would pass it"


def build_row_spending(spec: JobFields) -> RowSpending | None:
    """Returns the privacy that the job's rounds spend of one row, where its steps are noised by row."""
    if spec.step.per_row is None:
        return None
    least = spec.data.least_rows if isinstance(spec.data, PrivateData) else spec.step.rows
    return RowSpending(spec.step.per_row, spec.step.rows, spec.step.moves, least)
