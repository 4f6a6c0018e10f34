"""The one deterministic step: what a worker sells and an auditor repeats."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import torch
from torch import Tensor

from gradmarket.market.errors import Refused
from gradmarket.market.job import GradientStep
from gradmarket.market.model.document.interpret import Program, Results, gradients
from gradmarket.market.model.figures import Metrics
from gradmarket.market.model.layout import check_batch, check_state, layout

Arrays = Mapping[str, np.ndarray]
EVALUATION_ROWS: Final = 1024
"""Held-out rows that are evaluated at once: fixed, so that the result does not depend on the machine."""


def compute(
    program: Program, state: Arrays, batch: Arrays, seed: bytes, step: GradientStep, device: str = "cpu"
) -> dict[str, np.ndarray]:
    """The mean loss over the batch, its gradient and the float buffers' new values: float32, in `layout`'s order.

    The batch of `step.rows` rows is cut into microbatches of `step.microbatch` rows (the last may be shorter; null
    means one), taken one at a time on every machine. Each contributes its mean times its share of the rows, added in
    order. Buffers go from one microbatch to the next: with BatchNorm, statistics are those of a microbatch, and the
    running ones move once for each. Dropout's seed is that of the microbatch. Raises Refused, OutOfMemory.
    """
    rows = check_batch(program.document, batch)
    check_state(program.document, state)
    if rows != step.rows:
        raise Refused(f"a step of {step.rows} rows got {rows}")
    inputs = _tensors(state, device)
    sums: dict[str, Tensor] = {}
    for number, (part, share) in enumerate(_microbatches(batch, rows, step.microbatch or rows, device)):
        answer, updates = _answer(program, inputs, part, _microbatch_seed(seed, number))
        _accumulate(sums, answer, share)
        inputs |= updates
    sums |= {name: inputs[name] for name in program.document.updates}
    names = [entry.name for entry in layout(program.document).entries]
    return {name: np.array(sums[name].cpu().numpy(), order="C") for name in names}


def evaluate(program: Program, state: Arrays, batch: Arrays, device: str = "cpu") -> Metrics:
    """Loss and metrics of an evaluation document over all rows of the batch. Raises Refused, OutOfMemory."""
    rows = check_batch(program.document, batch)
    check_state(program.document, state)
    inputs = _tensors(state, device)
    loss = 0.0
    sums = dict.fromkeys(program.document.metrics, 0.0)
    for part, share in _microbatches(batch, rows, EVALUATION_ROWS, device):
        with torch.no_grad():
            results = program.run(inputs, part, bytes(32))
        loss += float(results.loss) * share
        sums = {name: total + float(results.metrics[name]) for name, total in sums.items()}
    return Metrics(rows, loss, {name: total / rows for name, total in sums.items()})


def _answer(
    program: Program, inputs: dict[str, Tensor], part: dict[str, Tensor], seed: bytes
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(loss and gradients by entry name, new buffers) of one microbatch."""
    names = [entry.name for entry in program.document.trainable]
    leaves = {name: inputs[name].detach().requires_grad_() for name in names}
    results: Results = program.run(inputs | leaves, part, seed)
    found = gradients(results.loss, list(leaves.values()))
    updates = {name: update.detach() for name, update in results.updates.items()}
    return {"loss": results.loss.detach(), **dict(zip(names, found, strict=True))}, updates


def _accumulate(sums: dict[str, Tensor], answer: dict[str, Tensor], share: float) -> None:
    """sums += share * answer, in two roundings on every machine: a fused multiply-add would round once on some."""
    for name, tensor in answer.items():
        part = tensor if share == 1.0 else tensor * share
        if name in sums:
            sums[name].add_(part)
        else:
            sums[name] = part


def _microbatches(batch: Arrays, rows: int, size: int, device: str) -> Iterator[tuple[dict[str, Tensor], float]]:
    """Each microbatch in order, with its share of the rows."""
    for start in range(0, rows, size):
        part = {name: array[start : start + size] for name, array in batch.items()}
        yield _tensors(part, device), min(size, rows - start) / rows


def _tensors(arrays: Arrays, device: str) -> dict[str, Tensor]:
    """Copies in C order in torch's own memory: order and alignment decide a kernel's path, and so the bits."""
    return {name: torch.tensor(np.asarray(array, order="C"), device=device) for name, array in arrays.items()}


def _microbatch_seed(seed: bytes, number: int) -> bytes:
    return hashlib.sha256(b"microbatch" + number.to_bytes(8, "big") + seed).digest()
