"""Computes the mean gradient over the rows, or the noised one of `per_row` (model.row_noise)."""

from gradmarket.market.step import GradientStep
from gradmarket.runner.row_noise import compute_step_gradient, count_rows
from graphdoc.document.interpret import Program
from graphdoc.passes import Arrays, Tensors, place_state


def compute(program: Program, state: Arrays, batch: Arrays, seed: bytes, step: GradientStep, device: str) -> Tensors:
    counted, inputs = count_rows(state, step, 0), place_state(program, state, device)
    answer, buffers = compute_step_gradient(program, inputs, batch, seed, step, device, counted)
    return answer | buffers
