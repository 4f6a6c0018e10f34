"""What one task computes, a gradient or local steps, and the optimizers that apply it to parameters."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from gradmarket.market.fields import Chosen, Count, Name, Part


class Schedule(Part):
    name: Literal["constant", "linear", "cosine"] = "constant"
    warmup: int = Field(default=0, ge=0, le=1_000_000)


class InnerOptimizer(Chosen):
    """`name` is a file of gradient/optimizers; the other fields are that optimizer's settings."""

    name: Name = "sgd"
    lr: float = Field(gt=0, le=1e6)
    clip: float | None = Field(default=None, gt=0)


class Optimizer(InnerOptimizer):
    """The requester's own optimizer, whose rate may follow a schedule over the rounds."""

    schedule: Schedule = Schedule()


class Passes(Part):
    """Gradients over `rows` rows, computed `microbatch` rows at a time."""

    rows: Count
    microbatch: Count | None = None

    @property
    def moves(self) -> int:
        """How often the parameters change within a task; each time on new rows."""
        return 1

    @property
    def pass_rows(self) -> int:
        """Rows of the largest microbatch."""
        return min(self.microbatch or self.rows, self.rows)

    @property
    def pass_sizes(self) -> tuple[int, ...]:
        """The row counts of microbatches: the largest, and the last one where it is smaller."""
        last = self.rows % self.pass_rows
        return (self.pass_rows, last) if last else (self.pass_rows,)

    @property
    def passes(self) -> int:
        """The number of forward and backward passes of a whole task."""
        return self.moves * -(-self.rows // self.pass_rows)


class GradientStep(Passes):
    """One task computes the mean gradient over its rows."""

    kind: Literal["gradient"] = "gradient"


class LocalStep(Passes):
    """One task takes `steps` inner steps from the round's parameters, each by the gradient over `rows` new rows.

    Its answer is the pseudo-gradient, parameters before less parameters after (DiLoCo, Douillard et al. 2023).
    """

    kind: Literal["local"]
    steps: int = Field(ge=1, le=10_000)
    optimizer: InnerOptimizer

    @property
    def moves(self) -> int:
        return self.steps


def _kind(step: Any) -> str:
    return str(step.get("kind", "gradient") if isinstance(step, dict) else getattr(step, "kind", "gradient"))


Step = Annotated[
    Annotated[GradientStep, Tag("gradient")] | Annotated[LocalStep, Tag("local")],
    Discriminator(_kind, "no_such_step", "no step of this kind; there is gradient, local"),
]
"""`kind` is a file of model/steps."""
