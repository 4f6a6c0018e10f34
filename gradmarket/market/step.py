"""The computation of one task, a gradient or local steps, and the optimizers that apply it to parameters."""

import math
from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from gradmarket.market.fields import Chosen, Count, Name, Part
from gradmarket.market.wire.audit_messages import MOST_WINDOWS
from graphdoc.cost import pass_count, pass_sizes


class Schedule(Part):
    """How a rate changes: over the rounds of a job, or over all the inner steps of its local steps."""

    name: Literal["constant", "linear", "cosine", "polynomial"] = "constant"
    warmup: int = Field(default=0, ge=0, le=1_000_000)


def _is_constant(schedule: Schedule) -> bool:
    return schedule == Schedule()


def _is_none(value: float | Part | None) -> bool:
    return not value


class InnerOptimizer(Chosen):
    """`name` is a file of gradient/optimizers; the other fields are that optimizer's settings."""

    name: Name = "sgd"
    lr: float = Field(gt=0, le=1e6)
    clip: float | None = Field(default=None, gt=0)
    """The greatest L2 norm of a gradient, over all tensors together; a longer one is scaled down."""
    schedule: Schedule = Field(default=Schedule(), exclude_if=_is_constant)
    """Over the inner steps of all rounds. Omitted where it is the default, so that older publications keep their
    digests."""


class Optimizer(InnerOptimizer):
    """The requester's own optimizer, whose schedule is over the rounds."""

    schedule: Schedule = Schedule()


ROOM: Final = 4
"""Deviations of the number of drawn rows that a step has room for beyond its mean."""
RowSampling = Literal["epochs", "poisson"]


class RowPrivacy(Part):
    """The bound on what a holder's answers disclose of one row; its own worker adds the noise, counts, and stops."""

    clip_norm: float = Field(ge=1e-6, le=1e9)
    """The greatest L2 norm of one row's gradient, over all tensors together; a longer one is scaled down.

    Its least keeps a step's noise, down to a milliardth of it over a million rows, far above float32's denormals."""
    noise_multiplier: float = Field(ge=1e-3, le=1e6)
    """Deviation of the normal noise on each element of the sum of a step's row gradients, in clip norms."""
    epsilon: float = Field(gt=0, le=1e4)
    """A worker takes no further task that would spend more of any of its rows."""
    delta: float = Field(ge=1e-15, lt=1)
    """The most that an event's probability may exceed exp(epsilon) times its probability without the row.

    Less than one over the rows of a holder: one part in n would allow to disclose all of one row.
    """
    sampling: RowSampling = Field(default="epochs", exclude_if=lambda value: value == "epochs")
    """How a holder takes its rows: each once in an epoch, or each by chance in every step. Omitted where it is the
    default."""

    @property
    def by_chance(self) -> bool:
        """Whether each step draws its rows by chance."""
        return self.sampling == "poisson"

    def count_room(self, rows: int) -> int:
        """Returns the number of rows that a step of `rows` rows, or of this mean number, computes on."""
        return rows + ROOM * (1 + math.isqrt(rows - 1)) if self.by_chance else rows


class Passes(Part):
    """Gradients over `rows` rows, computed `microbatch` rows at a time."""

    rows: Count
    microbatch: Count | None = None
    per_row: RowPrivacy | None = Field(default=None, exclude_if=_is_none)
    """DP-SGD of a private job: each row's gradient is clipped, and their sum noised, by the holder's own
    worker. Omitted where there is none."""

    @property
    def by_row(self) -> bool:
        """Whether each row's gradient is computed, and clipped, by itself."""
        return self.per_row is not None

    @property
    def by_chance(self) -> bool:
        """Whether a holder draws each of its rows by chance, so that `rows` is their number in the mean."""
        return self.per_row is not None and self.per_row.by_chance

    @property
    def room(self) -> int:
        """Rows computed on in one step: `rows`, and more where a draw by chance may have more."""
        return self.rows if self.per_row is None else self.per_row.count_room(self.rows)

    @property
    def moves(self) -> int:
        """The number of changes of the parameters within a task; each on new rows."""
        return 1

    @property
    def leaves(self) -> int:
        """The number of states within a task to which its answer commits (features.windows)."""
        return 0

    @property
    def pass_rows(self) -> int:
        """Rows of the largest microbatch."""
        return min(self.microbatch or self.room, self.room)

    @property
    def pass_sizes(self) -> tuple[int, ...]:
        """The row counts of microbatches: the largest, and the last one where it is smaller."""
        return pass_sizes(self.room, self.pass_rows)

    @property
    def passes(self) -> int:
        """The number of forward and backward passes of a whole task."""
        return self.moves * pass_count(self.room, self.pass_rows)


class GradientStep(Passes):
    """One task computes the mean gradient over its rows."""

    kind: Literal["gradient"] = "gradient"

    def in_round(self, number: int, rounds: int) -> "GradientStep":  # noqa: ARG002
        """Returns the step of a task in this round, which is the same in all."""
        return self


REWARM: Final = {"adamw": 5}
"""The usual re-warm by inner optimizer, where a measured one lowers the loss (docs/training.md)."""


FEWEST: Final = 3
"""Windows of a task: with two, an audit would repeat everything."""


def count_windows(steps: int, window: int) -> int:
    """Returns the number of windows of a task of `steps` inner steps."""
    return -(-steps // window)


def find_window_fault(steps: int, window: int) -> str:
    """Returns why a task cannot be cut so; empty where it can."""
    number = count_windows(steps, window)
    if number < FEWEST:
        return f"{number} of {window} steps each make a task of {steps}, and an audit repeats two: make it smaller"
    if number > MOST_WINDOWS:
        return f"a task has at most {MOST_WINDOWS}, not {number}: make it larger"
    return ""


def cut_windows(steps: int, window: int) -> tuple[range, ...]:
    """Returns the inner steps of each window."""
    return tuple(range(start, min(start + window, steps)) for start in range(0, steps, window))


class LocalStep(Passes):
    """One task takes `steps` inner steps from the round's parameters, each by the gradient over `rows` new rows.

    Its answer is the pseudo-gradient, parameters before less parameters after (DiLoCo, Douillard et al. 2023).
    """

    kind: Literal["local"]
    steps: int = Field(ge=1, le=10_000)
    optimizer: InnerOptimizer
    rewarm: int = Field(default=0, ge=0, le=10_000, exclude_if=_is_none)
    """The number of first inner steps of each task in which the rate grows linearly to its schedule's: the optimizer's
    memory is empty then. The service sets `usual_rewarm` in a posted job without one. Omitted where it is 0, as a
    `schedule` is where it is the default."""
    proximal: float = Field(default=0.0, ge=0, le=1e6, exclude_if=_is_none)
    """mu of FedProx (Li et al. 2020, equation 2): each inner gradient gets mu times the way from the round's
    parameters, which keeps holders of unlike rows near each other. Omitted where it is 0."""
    control_variates: bool = Field(default=False, exclude_if=_is_none)
    """SCAFFOLD of a private job: each holder corrects its inner gradients by how its last
    ones differed from all holders'. Omitted where it is false."""
    window: int | None = Field(default=None, ge=1, le=10_000, exclude_if=_is_none)
    """Inner steps after which the answer commits to the task's state each time, so that an audit repeats two windows
    of the task and not all of it (features.windows). Omitted where there is none."""

    @model_validator(mode="after")
    def _windows_fit(self) -> "LocalStep":
        if self.window is not None and (why := find_window_fault(self.steps, self.window)):
            raise ValueError(f"window: {why}")
        if self.window is not None and self.proximal:
            raise ValueError("proximal: a window starts from its own state and not the round's: leave out window")
        if self.control_variates and (why := self._not_plain()):
            raise ValueError(f"control_variates: {why}")
        return self

    def _not_plain(self) -> str:
        """Returns why a task's change is no multiple of its mean gradient; empty where it is."""
        inner = self.optimizer
        if inner.name != "sgd" or inner.settings or inner.clip is not None or not _is_constant(inner.schedule):
            return "what steps change is their mean gradient only with the optimizer sgd and its lr alone"
        if self.rewarm or self.proximal or self.window:
            return "what steps change is their mean gradient only without rewarm, proximal and window"
        return ""

    @property
    def moves(self) -> int:
        return self.steps

    @property
    def leaves(self) -> int:
        return 0 if self.window is None else count_windows(self.steps, self.window) - 1

    @property
    def usual_rewarm(self) -> int:
        """The inner optimizer's in REWARM, or a third of the steps where that is less."""
        return min(REWARM.get(self.optimizer.name, 0), self.steps // 3)

    @property
    def place(self) -> tuple[int, int]:
        """Returns the number of the first inner step among all of the job's, and the number of these."""
        return 0, self.steps

    def in_round(self, number: int, rounds: int) -> "LocalStep":
        """Returns the step of a task in this round; it has its place where its rate follows a schedule."""
        if _is_constant(self.optimizer.schedule):
            return self
        return PlacedStep(**dict(self), first=number * self.steps, total=rounds * self.steps)


class PlacedStep(LocalStep):
    """The local steps of one round: `first` and `total` are counted in inner steps of the whole job."""

    first: int = Field(ge=0)
    total: int = Field(ge=1)

    @property
    def place(self) -> tuple[int, int]:
        return self.first, self.total


class WindowStep(PlacedStep):
    """The inner steps of one task from number `begins` to before number `ends`, counted from 0.

    It starts from the state before them and answers with the state after them (runner.window_state).
    """

    begins: int = Field(ge=0)
    ends: int = Field(ge=1)

    @classmethod
    def of(cls, step: LocalStep, part: range) -> "WindowStep":
        first, total = step.place
        return cls(**(dict(step) | {"first": first, "total": total}), begins=part.start, ends=part.stop)

    @property
    def moves(self) -> int:
        return self.ends - self.begins


def _choose_step_kind(step: Any) -> str:
    return str(step.get("kind", "gradient") if isinstance(step, dict) else getattr(step, "kind", "gradient"))


Step = Annotated[
    Annotated[GradientStep, Tag("gradient")] | Annotated[LocalStep, Tag("local")],
    Discriminator(_choose_step_kind, "no_such_step", "no step of this kind: choose gradient or local"),
]
"""`kind` is a file of model/steps."""

PAYLOAD: Final = "payload:"
"""The name of the packed answer among a child's arrays. A colon is in no name of a document."""

TaskStep = GradientStep | LocalStep | PlacedStep | WindowStep
"""The step that a child computes: a job's step in one round, or a window of it."""
