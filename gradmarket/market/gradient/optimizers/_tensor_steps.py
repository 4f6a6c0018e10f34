"""The part that optimizers share whose memory has arrays of each parameter's shape: a kernel steps tensor by tensor."""

from collections.abc import Callable, Sequence

import numpy as np

from gradmarket.market.gradient.arrays import Arrays, Tensors, Vector
from gradmarket.market.gradient.optimizers import Kernel, Memory, apply_kernel, check_gradient, read_memory_array


def build_zeros(parameters: Tensors, keys: Sequence[str]) -> Memory:
    """Returns `<key>/<name>`, zeros, for each parameter."""
    return {f"{key}/{name}": np.zeros_like(array) for name, array in parameters.items() for key in keys}


def step_tensors(
    parameters: Tensors, gradient: Tensors, memory: Arrays, keys: Sequence[str], kernel_of: Callable[[str], Kernel]
) -> tuple[dict[str, Vector], Memory]:
    """Returns for each parameter the first result of `kernel_of(name)`, and the memory after the step.

    A kernel takes the parameter, its gradient and its arrays `<key>/<name>` of the memory; its further results replace
    these. Raises PayloadRefused as an optimizer's `step` does.
    """
    check_gradient(parameters, gradient)
    first: dict[str, Vector] = {}
    kept: Memory = {}
    for name, parameter in parameters.items():
        named = [f"{key}/{name}" for key in keys]
        before = [read_memory_array(memory, one, parameter) for one in named]
        first[name], *after = apply_kernel(kernel_of(name), 1 + len(keys), parameter, gradient[name], *before)
        kept |= dict(zip(named, after, strict=True))
    return first, kept
