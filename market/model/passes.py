"""Forward and backward passes: one after another, in the same order and with the same roundings on every machine."""

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
    """Copies in C order in torch's own memory: order and alignment decide a kernel's path, and so the bits."""
    return {name: torch.tensor(np.asarray(array, order="C"), device=device) for name, array in arrays.items()}


def numpy_of(values: Tensors) -> Outcome:
    """Copies in C order."""
    return {name: np.array(value.cpu().numpy(), order="C") for name, value in values.items()}


def microbatches(batch: Arrays, rows: int, size: int, device: str) -> Iterator[tuple[Tensors, float]]:
    """Each microbatch in order, with its share of the rows."""
    for start in range(0, rows, size):
        part = {name: array[start : start + size] for name, array in batch.items()}
        yield tensors(part, device), min(size, rows - start) / rows


def mean_gradient(
    program: Program, inputs: Tensors, batch: Arrays, seed: bytes, step: Passes, device: str
) -> tuple[Tensors, Tensors]:
    """(mean loss and gradients over the batch's step.rows rows by entry name, new float buffers), from `inputs`.

    The batch is cut into microbatches of `step.microbatch` rows (the last may be shorter; null means one), taken one at
    a time on every machine. Each contributes its mean times its share of the rows, added in order. Buffers go from one
    microbatch to the next: with BatchNorm, statistics are those of a microbatch, and the running ones move once for
    each. Dropout's seed is that of the microbatch. Raises Refused, OutOfMemory.
    """
    sums: Tensors = {}
    buffers: Tensors = {}
    for number, (part, share) in enumerate(microbatches(batch, step.rows, step.pass_rows, device)):
        answer, updates = _answer(program, inputs | buffers, part, numbered(b"microbatch", number, seed))
        _accumulate(sums, answer, share)
        buffers |= updates
    return sums, buffers


def numbered(what: bytes, number: int, seed: bytes) -> bytes:
    """The seed of part `number` of what `seed` belongs to."""
    return hashlib.sha256(what + number.to_bytes(8, "big") + seed).digest()


def _answer(program: Program, inputs: Tensors, part: Tensors, seed: bytes) -> tuple[Tensors, Tensors]:
    """(loss and gradients by entry name, new buffers) of one microbatch."""
    names = [entry.name for entry in program.document.trainable]
    leaves = {name: inputs[name].detach().requires_grad_() for name in names}
    results: Results = program.run(inputs | leaves, part, seed)
    found = gradients(results.loss, list(leaves.values()))
    updates = {name: update.detach() for name, update in results.updates.items()}
    return {"loss": results.loss.detach(), **dict(zip(names, found, strict=True))}, updates


def _accumulate(sums: Tensors, answer: Tensors, share: float) -> None:
    """sums += share * answer, in two roundings on every machine: a fused multiply-add would round once on some."""
    for name, tensor in answer.items():
        part = tensor if share == 1.0 else tensor * share
        if name in sums:
            sums[name].add_(part)
        else:
            sums[name] = part
