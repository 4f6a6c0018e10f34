"""A researcher's own module and loss as graph documents, made and compared with the module on this machine."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gradmarket.market.errors import Refused
from gradmarket.market.job import Precision
from gradmarket.market.model.document.publish import publish
from gradmarket.market.model.figures import Published

Loss = Callable[[Tensor, Tensor], Any]
"""(the module's answer, the target) -> the mean loss over the rows, or (loss, each metric's sum over the rows)."""

EXAMPLE_ROWS = 8


def published(
    module: nn.Module, loss: Loss, arrays: Mapping[str, np.ndarray], precision: Precision = "fp32"
) -> Published:
    """The documents of a copy of `module`, which stays as it is. Inputs other than one `x` are given to it by name.

    Where the target is labels and the answer is a score per class, `accuracy` is measured too. Raises DocumentRefused,
    naming the operator that the market does not have, or what differs from the module.
    """
    if len(arrays["y"]) < 2:
        raise Refused("a dataset of one row shows nothing")
    example = {name: torch.from_numpy(np.array(array[:EXAMPLE_ROWS])) for name, array in arrays.items()}
    y = example.pop("y")
    inputs = example["x"] if set(example) == {"x"} else example
    return publish(copy.deepcopy(module).cpu(), _with_metrics(loss), (inputs, y), precision=precision)


def _with_metrics(loss: Loss) -> Callable[[Tensor, Tensor], tuple[Tensor, dict[str, Tensor]]]:
    def measured(answer: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        found = loss(answer, target)
        if isinstance(found, tuple):
            return found[0], dict(found[1])
        labelled = target.dtype == torch.int64 and target.ndim == 1 and answer.ndim == 2
        return found, {"accuracy": answer.argmax(1).eq(target).sum()} if labelled else {}

    return measured


def load(module: nn.Module, state: Mapping[str, np.ndarray]) -> None:
    """Writes parameters and buffers into `module`, tied ones once. Raises Refused where it is another model."""
    there = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    written = {id(there[name]) for name in state if name in there}
    missing = [name for name, parameter in module.named_parameters() if id(parameter) not in written]
    shapes = [name for name in state if name in there and tuple(there[name].shape) != state[name].shape]
    if missing or shapes:
        raise Refused(f"this is not the model that was trained: {', '.join([*missing, *shapes])[:300]}")
    with torch.no_grad():
        for name, array in state.items():
            if name in there:
                there[name].copy_(torch.from_numpy(np.array(array)))
