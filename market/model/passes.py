"""Forward and backward passes, computed one after another with the same order and roundings on every machine."""

import hashlib
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from gradmarket.market.model.document.interpret import Program, Results, gradients
from gradmarket.market.step import Passes

Arrays = Mapping[str, np.ndarray]
Outcome = dict[str, np.ndarray]
Tensors = dict[str, Tensor]


def tensors(arrays: Arrays, device: str) -> Tensors:
    """Returns copies in C order in torch's own memory: order and alignment decide a kernel's path, and so the bits."""
    return {name: torch.tensor(np.asarray(array, order="C"), device=device) for name, array in arrays.items()}


def numpy_of(values: Tensors) -> Outcome:
    """Returns copies in C order."""
    return {name: np.array(value.cpu().numpy(), order="C") for name, value in values.items()}


def microbatches(batch: Arrays, rows: int, size: int, device: str) -> Iterator[tuple[Tensors, float]]:
    """Yields each microbatch in order, with its share of the rows."""
    for start in range(0, rows, size):
        part = {name: array[start : start + size] for name, array in batch.items()}
        yield tensors(part, device), min(size, rows - start) / rows


def mean_gradient(
    program: Program, inputs: Tensors, batch: Arrays, seed: bytes, step: Passes, device: str
) -> tuple[Tensors, Tensors]:
    """Returns mean loss and gradients over the batch's step.rows rows by entry name, and the new float buffers.

    The batch is cut into microbatches of `step.microbatch` rows (the last may be shorter; null means one microbatch),
    taken one at a time on every machine. Each contributes its mean times its share of the rows, added in order. Buffers
    are passed from one microbatch to the next: BatchNorm uses the statistics of a microbatch, and updates the running
    ones once for each. Each microbatch has its own seed for dropout. Raises Refused, OutOfMemory.
    """
    sums: Tensors = {}
    buffers: Tensors = {}
    for number, (part, share) in enumerate(microbatches(batch, step.rows, step.pass_rows, device)):
        answer, updates = _answer(program, inputs | buffers, part, numbered(b"microbatch", number, seed))
        _accumulate(sums, answer, share)
        buffers |= updates
    return sums, buffers


def numbered(what: bytes, number: int, seed: bytes) -> bytes:
    """Returns the seed of part `number`, derived from the seed of the whole."""
    return hashlib.sha256(what + number.to_bytes(8, "big") + seed).digest()


def _answer(program: Program, inputs: Tensors, part: Tensors, seed: bytes) -> tuple[Tensors, Tensors]:
    """Returns loss and gradients by entry name, and new buffers, of one microbatch."""
    names = [entry.name for entry in program.document.trainable]
    leaves = {name: inputs[name].detach().requires_grad_() for name in names}
    results: Results = program.run(inputs | leaves, part, seed)
    computed = gradients(results.loss, list(leaves.values()))
    updates = {name: update.detach() for name, update in results.updates.items()}
    return {"loss": results.loss.detach(), **dict(zip(names, computed, strict=True))}, updates


def _accumulate(sums: Tensors, answer: Tensors, share: float) -> None:
    """Adds share * answer to sums, with two roundings everywhere: a fused multiply-add would round once on some."""
    for name, tensor in answer.items():
        part = tensor if share == 1.0 else tensor * share
        if name in sums:
            sums[name].add_(part)
        else:
            sums[name] = part
