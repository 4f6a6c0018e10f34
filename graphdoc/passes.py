"""Forward and backward passes, computed one after another with the same order and roundings on every machine."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import torch
from torch import Tensor

from graphdoc.cost import EVALUATION_ROWS
from graphdoc.document.graph import WEIGHT
from graphdoc.document.index_watch import watch_indices
from graphdoc.document.inputs import check_batch, check_state
from graphdoc.document.interpret import Program, compute_gradients
from graphdoc.document.randomness import Seed
from graphdoc.errors import Refused
from graphdoc.figures import Metrics

Arrays = Mapping[str, np.ndarray]
Outcome = dict[str, np.ndarray]
Tensors = dict[str, Tensor]
_ANSWER, _UPDATE = "answer:", "update:"
"""Precede the names of a microbatch's results. A colon is in no name of a document."""


def build_tensors(arrays: Arrays, device: str) -> Tensors:
    """Returns copies in C order in torch's own memory: order and alignment decide a kernel's path, and so the bits."""
    if torch.device(device).type != "cpu":  # straight from where they are
        ordered = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        return {name: torch.from_numpy(array).to(device) for name, array in ordered.items()}
    return {name: torch.tensor(np.asarray(array, order="C"), device=device) for name, array in arrays.items()}


def place_state(program: Program, state: Arrays, device: str) -> Tensors:
    """Returns the document's state as tensors of the device: those that it holds there, or copies."""
    return dict(program.held[1]) or build_tensors({name: state[name] for name in program.document.state}, device)


def hold_state(program: Program, name: str, state: Arrays, device: str) -> None:
    """Keeps the state of this name on the device until another replaces it; none where it has no name."""
    if program.held[0] != name:
        program.held = "", {}  # before the next one lies beside it
        program.held = name, place_state(program, state, device) if name else {}


def numpy_of(values: Tensors, into: Arrays | None = None) -> Outcome:
    """Returns copies in C order, in the arrays of `into` where it has them."""
    found = {name: array for name, array in (into or {}).items() if name in values}
    for name, array in found.items():
        torch.from_numpy(array).copy_(values[name])
    return found | {
        name: np.array(value.cpu().numpy(), order="C") for name, value in values.items() if name not in found
    }


def iterate_microbatches(batch: Arrays, rows: int, size: int, device: str) -> Iterator[tuple[Tensors, float]]:
    """Yields each microbatch in order, with its share of the rows."""
    for start in range(0, rows, size):
        part = {name: array[start : start + size] for name, array in batch.items()}
        yield build_tensors(part, device), min(size, rows - start) / rows


class Shares:
    """The weight of each microbatch in a mean over them: its share of the rows, or of their weight.

    A weight is taken as a share of the first that is not 0, so that one microbatch alone counts as exactly 1, and the
    sum is divided by `whole` at the end. One of no weight counts for nothing, and its mean may be no number.
    """

    def __init__(self) -> None:
        self.weight = 0.0
        self._first = 0.0

    def of(self, measured: Tensor | None, share: float) -> float:
        """Returns the share of the next microbatch, given its weight. Raises Refused where the weight is invalid."""
        if measured is None:
            return share
        weight = float(measured)
        if not (math.isfinite(weight) and weight >= 0.0):
            raise Refused(f"the weight of some rows is {weight:g}: a weight is 0 or more")
        self._first = self._first or weight
        self.weight += weight
        return weight / self._first if weight else 0.0

    @property
    def whole(self) -> float:
        """The divisor of the sum."""
        return self.weight / self._first if self._first else 1.0


def mean_gradient(
    program: Program, inputs: Tensors, batch: Arrays, seed: bytes, cut: tuple[int, int], device: str
) -> tuple[Tensors, Tensors]:
    """Returns mean loss and gradients over the batch's rows by entry name, and the new float buffers.

    `cut` is the rows of the batch, and those of a microbatch (the last may be shorter). Microbatches are taken one at a
    time on every machine. Each contributes its mean times its share of the rows, or of their weight
    where the document has one, added in order. Such an answer has the weight of all under WEIGHT; of none, it is zeros.
    Buffers are passed from one microbatch to the next: BatchNorm uses the statistics of a microbatch, and updates the
    running ones once for each. Each microbatch has its own seed for dropout. Raises Refused, OutOfMemory.
    """
    sums: Tensors = {}
    buffers: Tensors = {}
    shares = Shares()
    with watch_indices():
        for number, (part, share) in enumerate(iterate_microbatches(batch, *cut, device)):
            found = _compute_part(program, inputs | buffers, part, derive_part_seed(b"microbatch", number, seed))
            _add_answer(sums, _select_part(found, _ANSWER), shares.of(found.get(WEIGHT), share))
            buffers |= _select_part(found, _UPDATE)
            del found  # the next pass must not have it beside its own
    if shares.whole != 1.0:
        sums = {name: value.div_(shares.whole) for name, value in sums.items()}
    if program.document.weight is not None:
        sums[WEIGHT] = torch.tensor(shares.weight, dtype=torch.float32)
    return sums, buffers


def evaluate(program: Program, state: Arrays, batch: Arrays, device: str = "cpu") -> Metrics:
    """Returns loss and metrics of an evaluation document over all rows of the batch.

    Raises Refused, also where the rows have a weight and it is 0 altogether, and OutOfMemory.
    """
    rows = check_batch(program.document, batch)
    check_state(program.document, state)
    inputs = build_tensors(state, device)
    loss, shares = 0.0, Shares()
    sums = dict.fromkeys(program.document.metrics, 0.0)
    for part, share in iterate_microbatches(batch, rows, EVALUATION_ROWS, device):
        with torch.no_grad(), watch_indices():
            results = program.run(inputs, part, bytes(32))
        counts = shares.of(results.weight, share)
        loss += float(results.loss) * counts if counts else 0.0
        sums = {name: total + float(results.metrics[name]) for name, total in sums.items()}
    if program.document.weight is not None and shares.weight == 0.0:
        raise Refused("no measured row has a target")
    return Metrics(rows, loss / shares.whole, {name: total / rows for name, total in sums.items()})


def measure(program: Program, state: Arrays, batch: Arrays, device: str = "cpu") -> dict[str, float]:
    """Returns the metrics of a metrics document: one pass over all rows, so that none is a mean over batches.

    Raises Refused, OutOfMemory.
    """
    check_batch(program.document, batch)
    check_state(program.document, state)
    with torch.no_grad(), watch_indices():
        results = program.run(build_tensors(state, device), build_tensors(batch, device), bytes(32))
    return {name: float(value) for name, value in results.metrics.items()}


def derive_part_seed(purpose: bytes, number: int, seed: bytes) -> bytes:
    """Returns the seed of part `number`, derived from the seed of the whole."""
    return hashlib.sha256(purpose + number.to_bytes(8, "big") + seed).digest()


def _compute_part(program: Program, inputs: Tensors, part: Tensors, seed: bytes) -> Tensors:
    """Returns the results of one microbatch: after _ANSWER loss and gradients, after _UPDATE new buffers, and its
    weight.

    By a recording of the program's passes where there is one.
    """
    if program.captured is None:
        return _compute_plain_part(program, inputs, part, seed)
    state = {name: inputs[name] for name in program.document.state}
    return program.captured.compute(partial(_compute_plain_part, program), state, part, seed)


def _compute_plain_part(program: Program, inputs: Tensors, part: Tensors, seed: Seed) -> Tensors:
    names = [entry.name for entry in program.document.trainable]
    leaves = {name: inputs[name].detach().requires_grad_() for name in names}
    with program.computing(next(iter(part.values())).device.type):
        results = program.run(inputs | leaves, part, seed)
        computed = compute_gradients(results.loss, list(leaves.values()))
    answer = {"loss": results.loss.detach(), **dict(zip(names, computed, strict=True))}
    found = {_ANSWER + name: value for name, value in answer.items()}
    found |= {_UPDATE + name: update.detach() for name, update in results.updates.items()}
    return found if results.weight is None else {**found, WEIGHT: results.weight.detach()}


def _select_part(found: Tensors, kind: str) -> Tensors:
    return {name.removeprefix(kind): value for name, value in found.items() if name.startswith(kind)}


def _add_answer(sums: Tensors, answer: Tensors, share: float) -> None:
    """Adds share * answer to sums, with two roundings everywhere: a fused multiply-add would round once on some."""
    for name, tensor in answer.items():
        # of rows without a target the mean is 0 / 0
        part = torch.zeros_like(tensor) if share == 0.0 else tensor if share == 1.0 else tensor * share
        if name in sums:
            sums[name].add_(part)
        else:
            sums[name] = part
