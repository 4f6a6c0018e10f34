"""Computes the mean gradient over the rows, or the noised one of `per_row` (model.row_noise)."""

from gradmarket.market.model.row_noise import gradient
from gradmarket.market.step import GradientStep
from graphdoc.document.interpret import Program
from graphdoc.passes import Arrays, Outcome, numpy_of, tensors


def compute(program: Program, state: Arrays, batch: Arrays, seed: bytes, step: GradientStep, device: str) -> Outcome:
    answer, buffers = gradient(program, tensors(state, device), batch, seed, step, device)
    return numpy_of(answer | buffers)
