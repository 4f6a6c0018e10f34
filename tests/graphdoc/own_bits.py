"""A document's results beside those of its module in its own modes."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphdoc.document.interpret import Program, compute_gradients
from graphdoc.document.schema import parse_document
from graphdoc.figures import Published

Loss = Callable[[Any, Tensor], Any]


def by_document(made: Published, data: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Loss, gradients and new buffers as a worker computes them: from the bytes that travel."""
    program = Program(parse_document(made.document))
    state = {name: torch.tensor(np.ascontiguousarray(array)) for name, array in made.parameters.items()}
    leaves = {entry.name: state[entry.name].requires_grad_() for entry in program.document.trainable}
    results = program.run(state | leaves, data, bytes(32))
    found = dict(zip(leaves, compute_gradients(results.loss, list(leaves.values())), strict=True))
    return {"loss": results.loss.detach(), **found, **{name: one.detach() for name, one in results.updates.items()}}


def by_module(module: nn.Module, loss: Loss, data: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same as torch alone gives them; the module's buffers move."""
    inputs = {name: tensor for name, tensor in data.items() if name != "y"}
    answer = module(inputs["x"]) if set(inputs) == {"x"} else module(**inputs)
    value = loss(answer, data["y"])
    parameters = {name: one for name, one in module.named_parameters() if one.requires_grad}
    found = torch.autograd.grad(value, list(parameters.values()), allow_unused=True, materialize_grads=True)
    return {"loss": value.detach(), **dict(zip(parameters, found, strict=True)), **dict(module.named_buffers())}


def differences(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> list[str]:
    """Returns the names of tensors with other bits."""
    return [name for name, tensor in ours.items() if not same_bits(tensor, theirs[name])]


def same_bits(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.detach().numpy().tobytes() == other.detach().contiguous().numpy().tobytes()
