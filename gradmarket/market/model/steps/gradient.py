"""Computes the mean gradient over the rows, or the noised one of `per_row` (model.row_noise)."""

from gradmarket.market.model.row_noise import compute_step_gradient
from gradmarket.market.step import GradientStep
from graphdoc.document.interpret import Program
from graphdoc.passes import Arrays, Outcome, build_tensors, numpy_of


def compute(program: Program, state: Arrays, batch: Arrays, seed: bytes, step: GradientStep, device: str) -> Outcome:
    answer, buffers = compute_step_gradient(program, build_tensors(state, device), batch, seed, step, device)
    return numpy_of(answer | buffers)
