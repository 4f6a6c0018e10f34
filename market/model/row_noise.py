"""The noised gradient of a step: each row's gradient clipped, then summed, noised, divided (Abadi et al. 2016).

A row's part of the sum is at most `clip_norm` long, whatever the row is: a gradient that is not finite, or cannot be
computed, counts as zeros. What is told is the noised gradient; the loss is told as 0, for it has no noise.
rules.row_privacy counts what it tells.
"""

from typing import Final

import numpy as np
import torch
from torch import Tensor

from gradmarket.market.errors import DocumentRefused
from gradmarket.market.gradient import noise
from gradmarket.market.model.document.interpret import Program
from gradmarket.market.model.document.row_gradients import row_gradients
from gradmarket.market.model.passes import Arrays, Outcome, Tensors, mean_gradient, microbatches, numbered, tensors
from gradmarket.market.rules.row_privacy import RowPrivacy
from gradmarket.market.step import Passes

SHORTER: Final = 1.0 - 2.0**-16
"""Of the clip norm, what a row's part is scaled down to, so that rounding to float32 does not carry it beyond."""
DRAWN: Final = 2**16
"""Normal numbers that are drawn at once."""


def gradient(
    program: Program, inputs: Tensors, batch: Arrays, seed: bytes, step: Passes, device: str
) -> tuple[Tensors, Tensors]:
    """Returns what `mean_gradient` does; noised where the step asks for it, by a seed that must be secret and new."""
    if step.per_row is None:
        return mean_gradient(program, inputs, batch, seed, step, device)
    return _noised(program, inputs, batch, seed, step, step.per_row, device), {}


def _noised(
    program: Program, inputs: Tensors, batch: Arrays, seed: bytes, step: Passes, asked: RowPrivacy, device: str
) -> Tensors:
    sums: Tensors = {}
    for number, (part, _) in enumerate(microbatches(batch, step.rows, step.pass_rows, device)):
        clipped = _clipped(_rows(program, inputs, part, numbered(b"microbatch", number, seed)), asked.clip_norm)
        sums = {name: sums[name] + value if sums else value for name, value in clipped.items()}
    drawn, place = numbered(b"noise", 0, seed), 0
    noised: Outcome = {"loss": np.zeros((), np.float32)}
    for name, value in sums.items():
        noised[name] = _with_noise(value, asked.noise_multiplier * asked.clip_norm, drawn, place) / np.float32(
            step.rows
        )
        place += value.numel()
    return tensors(noised, device)


def _rows(program: Program, inputs: Tensors, part: Tensors, seed: bytes) -> Tensors:
    """Returns each row's gradient; zeros for one that cannot be computed, so that the others stay as they are."""
    try:
        return row_gradients(program, inputs, part, seed)
    except DocumentRefused:
        rows = len(next(iter(part.values())))
        alone = [
            _row(program, inputs, {key: value[at : at + 1] for key, value in part.items()}, seed) for at in range(rows)
        ]
        return {name: torch.cat([one[name] for one in alone]) for name in alone[0]}


def _row(program: Program, inputs: Tensors, row: Tensors, seed: bytes) -> Tensors:
    try:
        return row_gradients(program, inputs, row, seed)
    except DocumentRefused:
        return {entry.name: torch.zeros_like(inputs[entry.name])[None] for entry in program.document.trainable}


def _clipped(rows: Tensors, limit: float) -> Tensors:
    """Returns the sum of the rows' gradients, each scaled down to an L2 norm of `limit` where it is longer."""
    shapes = {name: value.shape[1:] for name, value in rows.items()}
    flat = {
        name: torch.nan_to_num(value.detach().reshape(len(value), -1), 0.0, 0.0, 0.0) for name, value in rows.items()
    }
    norms = [torch.linalg.vector_norm(value, dim=1, dtype=torch.float64) for value in flat.values()]
    longest = torch.stack(norms).square().sum(0).sqrt().clamp(min=SHORTER * limit)
    scale = (SHORTER * limit / longest).float()
    return {name: (scale @ value).view(shapes[name]) for name, value in flat.items()}


def _with_noise(value: Tensor, deviation: float, seed: bytes, place: int) -> np.ndarray:
    """Returns the sum with its noise, as float32; `place` is its first element's among all."""
    flat = value.cpu().numpy().reshape(-1)
    for start in range(0, flat.size, DRAWN):
        part = slice(start, min(start + DRAWN, flat.size))
        flat[part] += deviation * noise.normal(seed, place + part.start, part.stop - part.start)
    return flat.reshape(tuple(value.shape))
