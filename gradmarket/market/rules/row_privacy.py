"""Bounds the information on one row in its holder's answers: (epsilon, delta)-differential privacy by row.

DP-SGD (Abadi et al. 2016, "Deep learning with differential privacy", algorithm 1), computed by the holder's own worker:
each row's gradient is scaled down to an L2 norm of at most C (`clip_norm`), they are summed, normal noise of deviation
z C is added to each element of the sum, and the sum is divided by the step's rows, a number that everybody knows. Two
holders are neighbours where the gradients of one row are zeros in one of them (zero-out adjacency), so a step's sum
differs by C at most.

A holder takes its rows in epochs: no row is in two steps of an epoch. Given all other rows, all steps of an epoch but
one are the same functions of the earlier messages for either of two neighbours. So an epoch is one Gaussian mechanism
of sensitivity C and deviation z C, and U epochs are one of sensitivity C sqrt(U): the composition and formula of
rules.privacy, with uses of a row in place of rounds. All that follows a step (its optimizer, local steps, codec, masks,
pay) uses its noised gradient alone.

With `sampling` at `poisson` a step takes each of a holder's n rows with probability q = rows / n instead, apart from
all others, by a secret of the holder that is new for every step, and is counted by rules.sampled_privacy. The sum is
divided by `rows`, its mean number of rows, and not by the number drawn. Every step computes on as many rows
(`count_room`): rows beside the drawn ones count as zeros. Where more are drawn than there is room for, the step draws
anew. That costs nothing: for any given choice of the other rows, the draw has the row with probability q where there is
room for it and with 0 where there is none.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import Field, model_validator

from gradmarket.market.fields import Part
from gradmarket.market.rules import sampled_privacy
from gradmarket.market.rules.privacy import compute_epsilon, count_affordable_rounds
from gradmarket.market.rules.sampled_privacy import SampledSteps

ROOM: Final = 4
"""Deviations of the number of drawn rows that a step has room for beyond its mean."""
RowSampling = Literal["epochs", "poisson"]


def _by_epochs(sampling: RowSampling) -> bool:
    return sampling == "epochs"


class RowPrivacy(Part):
    """What a holder's answers may tell of one of its rows; its own worker adds the noise, counts, and stops."""

    clip_norm: float = Field(ge=1e-6, le=1e9)
    """The greatest L2 norm of one row's gradient, over all tensors together; a longer one is scaled down.

    Its least keeps a step's noise, down to a milliardth of it over a million rows, far above float32's denormals."""
    noise_multiplier: float = Field(ge=1e-3, le=1e6)
    """Deviation of the normal noise on each element of the sum of a step's row gradients, in clip norms."""
    epsilon: float = Field(gt=0, le=1e4)
    """A worker takes no further task that would spend more of any of its rows."""
    delta: float = Field(ge=1e-15, lt=1)
    """What any event may be more probable by than exp(epsilon) times its probability without the row.

    Less than one over the rows of a holder: one part in n would allow to tell all of one row.
    """
    sampling: RowSampling = Field(default="epochs", exclude_if=_by_epochs)
    """How a holder takes its rows: each once in an epoch, or each by chance in every step. Omitted where it is the
    default."""

    @model_validator(mode="after")
    def _one_use_fits(self) -> "RowPrivacy":
        if not self.by_chance and self.uses < 1:
            least = self.after(1)
            raise ValueError(f"epsilon: one use of a row spends {least:.4g}: name more, or a greater noise_multiplier")
        return self

    @property
    def by_chance(self) -> bool:
        """Whether each step draws its rows by chance."""
        return self.sampling == "poisson"

    @property
    def uses(self) -> int:
        """The number of certain uses of each row that epsilon allows."""
        return self.count_uses(1.0)

    def count_uses(self, rate: float) -> int:
        """Returns the number of steps that epsilon allows where each takes a row with this probability."""
        if rate < 1.0:
            return sampled_privacy.count_affordable_steps(self.noise_multiplier, rate, self.delta, self.epsilon)
        return count_affordable_rounds(self.noise_multiplier, self.delta, self.epsilon)

    def after(self, uses: int, rate: float = 1.0) -> float:
        """Returns the epsilon that `uses` steps spend where each takes a row with probability `rate`."""
        if rate < 1.0:
            steps = SampledSteps(self.noise_multiplier, rate, uses)
            return sampled_privacy.compute_sampled_epsilon((steps,), self.delta)
        return compute_epsilon(self.noise_multiplier, self.delta, uses)

    def rate_of(self, rows: int, held: int) -> float:
        """Returns the probability of each of `held` rows in a step of `rows` rows that takes it; 1 by epochs."""
        return min(1.0, rows / held) if self.by_chance else 1.0

    def slots_of(self, rows: int, held: int) -> int:
        """Returns the number of steps that take a row at most once; 1 where any of them may."""
        return 1 if self.by_chance else max(1, held // rows)

    def count_room(self, rows: int) -> int:
        """Returns the number of rows that a step of `rows` rows, or of this mean number, computes on."""
        return rows + ROOM * (1 + math.isqrt(rows - 1)) if self.by_chance else rows


def count_row_uses(steps: int, slots: int) -> int:
    """Returns the most uses of a row in `steps` steps, where an epoch has `slots`."""
    return -(-steps // slots)


def find_row_privacy_fault(asked: RowPrivacy | None, rows: int, moves: int, least_rows: int | None) -> str:
    """Returns why a task of `moves` steps of `rows` rows cannot be computed so, the field first; empty where it can.

    least_rows: of a holder; None where the job's rows are published.
    """
    if asked is None:
        return ""
    if least_rows is None:
        return "step.per_row: others must compute the same, and noise is secret: name holders in data, or leave it out"
    if asked.delta * least_rows >= 1:
        return (
            f"step.per_row.delta: of {least_rows} rows it allows to tell one whole: name less than {1 / least_rows:.3g}"
        )
    needed, rate = count_row_uses(moves, asked.slots_of(rows, least_rows)), asked.rate_of(rows, least_rows)
    if needed > (allowed := asked.count_uses(rate)):
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
        return count_row_uses(rounds * self.moves, self.slots)

    def spent(self, rounds: int) -> float:
        """Returns the most epsilon that `rounds` rounds spend."""
        return self.asked.after(self.uses_after(rounds), self.rate)
