"""Whether a loss compares the rows of a batch with each other: then a microbatch or a task is another objective.

A mean over rows, weighed or not, is of four rows what it is of two and two together. The loss of a contrast between
rows (CLIP, SimCLR, batch-hard), of statistics of the batch (VICReg), of a risk set (Cox) or of a ratio of sums (soft
F1) is not. Without torch: whoever has the document measures.
"""

from collections.abc import Callable, Sequence
from typing import Final

from gradmarket.market.step import Step

ROWS: Final = 4
_HALVES: Final = (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)))
_NEAR: Final = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 3e-2}
"""The change of a loss by rounding, as a share of the largest of them."""
Measured = Callable[[Sequence[int]], tuple[float, float | None]]
"""The rows' places in the data -> their mean loss in evaluation, and their weight (None: not known)."""


def find_coupling(measured: Measured, precision: str) -> tuple[float, float] | None:
    """Returns the loss of four rows, and the mean of two and two, where these differ; None where they are one.

    Where weights are not known the mean is somewhere between the two.
    """
    whole, _ = measured(range(ROWS))
    for halves in _HALVES:
        (first, one), (second, other) = map(measured, halves)
        known = one is not None and other is not None
        if known and one + other == 0.0:  # type: ignore[operator]
            continue
        mean = min(max(whole, min(first, second)), max(first, second))
        if known:
            mean = (one * first + other * second) / (one + other)  # type: ignore[operator]
        if not abs(whole - mean) <= _NEAR[precision] * max(abs(whole), abs(first), abs(second)):
            return whole, mean
    return None


def describe_coupling(found: tuple[float, float], step: Step, tasks: int) -> str:
    """Returns the objective that a job of these steps and `tasks` tasks a round trains instead, or an empty string."""
    parts = step.passes // step.moves
    if parts == 1 and tasks == 1:
        return ""
    whole, mean = found
    among = f"the {step.pass_rows} rows of a microbatch" if parts > 1 else f"the {step.rows} rows of a task"
    remedy = "leave out step.microbatch, and take more rows a task" if parts > 1 else "take more rows a task"
    return (
        f"the loss compares rows with each other: of four rows it is {whole:.4g}, the mean of two and two {mean:.4g}. "
        f"Here it compares {among}, which is another objective than that of a whole round: {remedy}"
    )
