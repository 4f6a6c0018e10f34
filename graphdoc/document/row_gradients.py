"""The gradient of each row of a batch by itself: torch.func's vmap of grad over a document that is run on one row.

A row's loss is the document's over a batch of that row alone. So a document is fit for it where no node computes with
several rows at once, and where vmap has a rule for every node; both are known from shapes, before any row is read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import torch
from torch import Tensor

from graphdoc.document.graph import Node, Scan
from graphdoc.document.interpret import STEP_ERRORS, Program, explain_error
from graphdoc.document.meter import Limits, Meter, TooMuch
from graphdoc.document.row_calls import BY_ROWS
from graphdoc.errors import DocumentRefused, GraphdocError

MIXING: Final = ("batch_norm.training", "batch_norm.batch")
"""Operators that compute with all rows of a batch."""


def row_gradients(
    program: Program, state: Mapping[str, Tensor], data: Mapping[str, Tensor], seed: bytes
) -> dict[str, Tensor]:
    """Returns the gradient of each row's own loss, [rows, …] for each trainable parameter.

    A random draw is the same for all of these rows. No value of a row makes it fail (row_calls). Raises DocumentRefused
    as `peak_by_rows` does, and OutOfMemory.
    """
    trained = [entry.name for entry in program.document.trainable]

    def loss(parameters: Mapping[str, Tensor], row: Mapping[str, Tensor]) -> Tensor:
        alone = {name: value.unsqueeze(0) for name, value in row.items()}
        return program.run({**state, **parameters}, alone, seed, None, BY_ROWS).loss

    apart = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))
    try:
        found: dict[str, Tensor] = apart({name: state[name] for name in trained}, dict(data))
    except GraphdocError:
        raise
    except STEP_ERRORS as error:
        raise explain_error("backward", error) from None
    return found


def peak_by_rows(program: Program, state: Mapping[str, Tensor], data: Mapping[str, Tensor], limits: Limits) -> int:
    """Returns the bytes alive at once while these rows' gradients are computed; the tensors have no elements.

    Raises TooMuch over the limits, and DocumentRefused where the document is not fit for it.
    """
    document = program.document
    for place, node in _iterate_all_nodes(document.nodes):
        if node.op in MIXING:
            why = "computes with all rows of a batch, so that no row has a gradient of its own"
            raise DocumentRefused(f"step.per_row: node {place} ({node.op}) {why}: normalize by layer or group")
    if document.updates:
        raise DocumentRefused("step.per_row: the model keeps running statistics, which tell of rows and get no noise")
    nodes = [node for _, node in _iterate_all_nodes(document.nodes)]
    longest = max((node.length for node in nodes if isinstance(node, Scan)), default=0)
    meter = Meter(limits, len(nodes) * (1 + longest))
    try:
        with meter:
            for tensor in (*state.values(), *data.values()):
                meter.hold(tensor)
            row_gradients(program, state, data, bytes(32))
    except TooMuch:
        raise
    except DocumentRefused as error:
        raise DocumentRefused(f"step.per_row: vmap cannot compute each row by itself: {error.detail}") from None
    return meter.peak


def _iterate_all_nodes(nodes: Sequence[Node | Scan]) -> Iterator[tuple[int, Node | Scan]]:
    """Yields every node with its place among its own; those of a scan's body follow it."""
    for place, node in enumerate(nodes):
        yield place, node
        if isinstance(node, Scan):
            yield from _iterate_all_nodes(node.body)
