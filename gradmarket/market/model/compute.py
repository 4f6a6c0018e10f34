"""The deterministic step that a worker computes and an auditor repeats."""

import numpy as np
import torch

from gradmarket.market.errors import Refused
from gradmarket.market.gradient.payload_layout import WEIGHT
from gradmarket.market.model import steps
from gradmarket.market.model.layout import check_batch, check_state, layout
from gradmarket.market.model.task_cost import EVALUATION_ROWS
from gradmarket.market.step import Step, WindowStep
from graphdoc.document.interpret import Program
from graphdoc.figures import Metrics
from graphdoc.passes import Arrays, Shares, microbatches, tensors


def compute(
    program: Program, state: Arrays, batch: Arrays, seed: bytes, step: Step, device: str = "cpu"
) -> dict[str, np.ndarray]:
    """Returns a step's answer: float32 arrays in `layout`'s order.

    These are the mean loss over the batch, its gradient and the float buffers' new values; where the document has a
    weight, that of the rows too, under passes.WEIGHT. The batch has
    step.moves * step.rows rows. The file of the step's kind defines the gradient. For a WindowStep the answer is the
    state after it (model.window_state), and `state` has the one before it too. Raises Refused, OutOfMemory.
    """
    rows = check_batch(program.document, batch)
    check_state(program.document, state)
    if rows != step.moves * step.rows:
        raise Refused(f"a step of {step.moves} times {step.rows} rows got {rows}")
    answer = steps.step(step.kind).compute(program, state, batch, seed, step, device)
    if isinstance(step, WindowStep):
        return answer
    given = layout(program.document)
    weight = {WEIGHT: answer[WEIGHT]} if given.weighed else {}
    return {entry.name: answer[entry.name] for entry in given.entries} | weight


def evaluate(program: Program, state: Arrays, batch: Arrays, device: str = "cpu") -> Metrics:
    """Returns loss and metrics of an evaluation document over all rows of the batch.

    Raises Refused, also where the rows have a weight and it is 0 altogether, and OutOfMemory.
    """
    rows = check_batch(program.document, batch)
    check_state(program.document, state)
    inputs = tensors(state, device)
    loss, shares = 0.0, Shares()
    sums = dict.fromkeys(program.document.metrics, 0.0)
    for part, share in microbatches(batch, rows, EVALUATION_ROWS, device):
        with torch.no_grad():
            results = program.run(inputs, part, bytes(32))
        counts = shares.of(results, share)
        loss += float(results.loss) * counts if counts else 0.0
        sums = {name: total + float(results.metrics[name]) for name, total in sums.items()}
    if program.document.weight is not None and shares.weight == 0.0:
        raise Refused("no row of what is measured has a target")
    return Metrics(rows, loss / shares.whole, {name: total / rows for name, total in sums.items()})
