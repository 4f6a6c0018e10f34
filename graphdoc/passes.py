"""Forward and backward passes, computed one after another with the same order and roundings on every machine."""

import hashlib
import math
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from gradmarket.market.errors import Refused
from gradmarket.market.gradient.payload_layout import WEIGHT
from gradmarket.market.step import Passes
from graphdoc.document.interpret import Program, Results, gradients

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


class Shares:
    """What each microbatch counts for in a mean over them: its share of the rows, or of their weight.

    A weight is told as a share of the first that is not 0, so that one microbatch alone counts as exactly 1, and the
    sum is divided by `whole` at the end. One of no weight counts for nothing, and its mean may be no number.
    """

    def __init__(self) -> None:
        self.weight = 0.0
        self._first = 0.0

    def of(self, results: Results, share: float) -> float:
        """Returns what the next microbatch counts for. Raises Refused where its weight cannot be one."""
        if results.weight is None:
            return share
        weight = float(results.weight)
        if not (math.isfinite(weight) and weight >= 0.0):
            raise Refused(f"the weight of some rows is {weight:g}: a weight is 0 or more")
        self._first = self._first or weight
        self.weight += weight
        return weight / self._first if weight else 0.0

    @property
    def whole(self) -> float:
        """What the sum is divided by."""
        return self.weight / self._first if self._first else 1.0


def mean_gradient(
    program: Program, inputs: Tensors, batch: Arrays, seed: bytes, step: Passes, device: str
) -> tuple[Tensors, Tensors]:
    """Returns mean loss and gradients over the batch's step.rows rows by entry name, and the new float buffers.

    The batch is cut into microbatches of `step.microbatch` rows (the last may be shorter; null means one microbatch),
    taken one at a time on every machine. Each contributes its mean times its share of the rows, or of their weight
    where the document has one, added in order. Such an answer has the weight of all under WEIGHT; of none, it is zeros.
    Buffers are passed from one microbatch to the next: BatchNorm uses the statistics of a microbatch, and updates the
    running ones once for each. Each microbatch has its own seed for dropout. Raises Refused, OutOfMemory.
    """
    sums: Tensors = {}
    buffers: Tensors = {}
    shares = Shares()
    for number, (part, share) in enumerate(microbatches(batch, step.rows, step.pass_rows, device)):
        results, answer = _answer(program, inputs | buffers, part, numbered(b"microbatch", number, seed))
        _accumulate(sums, answer, shares.of(results, share))
        buffers |= {name: update.detach() for name, update in results.updates.items()}
        del results, answer  # the next pass is not to have them beside its own
    if shares.whole != 1.0:
        sums = {name: value.div_(shares.whole) for name, value in sums.items()}
    if program.document.weight is not None:
        sums[WEIGHT] = torch.tensor(shares.weight, dtype=torch.float32)
    return sums, buffers


def numbered(what: bytes, number: int, seed: bytes) -> bytes:
    """Returns the seed of part `number`, derived from the seed of the whole."""
    return hashlib.sha256(what + number.to_bytes(8, "big") + seed).digest()


def _answer(program: Program, inputs: Tensors, part: Tensors, seed: bytes) -> tuple[Results, Tensors]:
    """Returns the results of one microbatch, and loss and gradients by entry name."""
    names = [entry.name for entry in program.document.trainable]
    leaves = {name: inputs[name].detach().requires_grad_() for name in names}
    results: Results = program.run(inputs | leaves, part, seed)
    computed = gradients(results.loss, list(leaves.values()))
    return results, {"loss": results.loss.detach(), **dict(zip(names, computed, strict=True))}


def _accumulate(sums: Tensors, answer: Tensors, share: float) -> None:
    """Adds share * answer to sums, with two roundings everywhere: a fused multiply-add would round once on some."""
    for name, tensor in answer.items():
        part = _part(tensor, share)
        if name in sums:
            sums[name].add_(part)
        else:
            sums[name] = part


def _part(tensor: Tensor, share: float) -> Tensor:
    if share == 0.0:  # of rows without a target the mean is 0 / 0
        return torch.zeros_like(tensor)
    return tensor if share == 1.0 else tensor * share
