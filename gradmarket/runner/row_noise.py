"""The noised gradient of a step: each row's gradient clipped, then summed, noised, divided (Abadi et al. 2016).

A row's part of the sum is at most `clip_norm` long, whatever the row is: a gradient that is not finite counts as zeros.
Parts, sum and noise are float64, in which neither is near a denormal; only what has its noise is rounded to float32.
Only the noised gradient is published; the loss is published as 0, for it has no noise. private.row_budget counts the
privacy loss.
"""

from typing import Final

import numpy as np
import torch

from gradmarket.market.gradient import noise
from gradmarket.market.step import Passes
from gradmarket.runner.drawn_rows import read_drawn_count
from graphdoc.document.graph import WEIGHT
from graphdoc.document.interpret import Program
from graphdoc.document.row_gradients import row_gradients
from graphdoc.passes import (
    Arrays,
    Outcome,
    Tensors,
    build_tensors,
    derive_part_seed,
    iterate_microbatches,
    mean_gradient,
)

SHORTER: Final = 1.0 - 2.0**-16
"""Share of the clip norm to which a row's part is scaled, so that rounding, the sum's too, does not carry it beyond."""
DRAWN: Final = 2**16
"""Normal numbers that are drawn at once."""


def compute_step_gradient(
    program: Program, inputs: Tensors, batch: Arrays, seed: bytes, step: Passes, device: str, counted: int
) -> tuple[Tensors, Tensors]:
    """Returns the result of `mean_gradient`, noised where the step asks for it, by a seed that must be secret and new.

    counted: how many of the rows count in a noised gradient, the first of them; the others are computed as well.
    """
    if step.per_row is None:
        return mean_gradient(program, inputs, batch, seed, (step.rows, step.pass_rows), device)
    asked = step.per_row
    sums: Tensors = {}
    for number, (rows_of_pass, _) in enumerate(iterate_microbatches(batch, step.room, step.pass_rows, device)):
        drawing, before = derive_part_seed(b"microbatch", number, seed), number * step.pass_rows
        rows = row_gradients(program, inputs, rows_of_pass, drawing)
        clipped = clipped_sum(rows, asked.clip_norm, max(0, counted - before))
        sums = {name: sums[name] + value if sums else value for name, value in clipped.items()}
    drawn, place = derive_part_seed(b"noise", 0, seed), 0
    noised: Outcome = {"loss": np.zeros((), np.float32)}
    for name, value in sums.items():
        flat, deviation = value.cpu().numpy().reshape(-1), asked.noise_multiplier * asked.clip_norm
        for start in range(0, flat.size, DRAWN):  # on noise.noised's grid, by the place of an element among all
            part = slice(start, min(start + DRAWN, flat.size))
            flat[part] = noise.add_normal_noise(flat[part], deviation, drawn, place + start)
        noised[name] = (flat.reshape(tuple(value.shape)) / step.rows).astype(np.float32)
        place += value.numel()
    if program.document.weight is not None:  # each row counts as one, whatever its targets: their number has no noise
        noised[WEIGHT] = np.array(step.rows, np.float32)
    return build_tensors(noised, device), {}


def count_rows(state: Arrays, step: Passes, place: int) -> int:
    """Returns how many rows of the task's step number `place` count: all, or those that were drawn by chance."""
    return read_drawn_count(state, place) if step.by_chance else step.rows


def clipped_sum(rows: Tensors, limit: float, counted: int | None = None) -> Tensors:
    """Returns the sum of the rows' gradients in float64, each scaled down to an L2 norm of `limit` where it is longer.

    A row that has a number that is not finite has no part in it, nor have the rows after the first `counted`.
    """
    flat = {name: value.detach().reshape(len(value), -1) for name, value in rows.items()}
    norms = [torch.linalg.vector_norm(value, dim=1, dtype=torch.float64) for value in flat.values()]
    longest = torch.stack(norms).square().sum(0).sqrt()
    scale = torch.where(longest.isfinite(), (SHORTER * limit / longest).clamp(max=1.0), 0.0)
    if counted is not None:
        scale[counted:] = 0.0
    # The sum of the rows times their scales; infinite values, in rows without a part, count as 0
    return {
        name: (scale @ value.double().nan_to_num_(0.0, 0.0, 0.0)).view(rows[name].shape[1:])
        for name, value in flat.items()
    }
