"""Computes the mean gradient over the rows."""

from gradmarket.market.model.document.interpret import Program
from gradmarket.market.model.passes import Arrays, Outcome, mean_gradient, numpy_of, tensors
from gradmarket.market.step import GradientStep


def compute(program: Program, state: Arrays, batch: Arrays, seed: bytes, step: GradientStep, device: str) -> Outcome:
    answer, buffers = mean_gradient(program, tensors(state, device), batch, seed, step, device)
    return numpy_of(answer | buffers)
