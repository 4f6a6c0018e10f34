"""The inputs and outputs of a step by name, shape and element type. No torch."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gradmarket.market.errors import JobRefused, Refused
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from gradmarket.market.job import JobSpec
from gradmarket.market.rules import row_weights
from graphdoc.document.graph import Document, Expected


def layout(document: Document) -> Layout:
    """Returns the layout of a step's answer.

    It has the loss, a gradient for each trainable parameter in document order, and the float buffers sorted by name.
    It is weighed where the document's rows have weights.
    """
    gradients = [LayoutEntry(entry.name, entry.shape, "gradient") for entry in document.trainable]
    buffers = [LayoutEntry(name, document.state[name][0], "buffer") for name in sorted(document.updates)]
    return Layout((LayoutEntry("loss", (), "loss"), *gradients, *buffers), weighed=document.weight is not None)


def layout_in(spec: JobSpec, whole: Layout) -> Layout:
    """Returns the layout of a job's payloads from its document's.

    Nobody could check the weight that a holder claims of its own rows, so in a private job no answer brings one.
    """
    return replace(whole, leaves=spec.step.leaves, weighed=whole.weighed and spec.private is None)


def check_weighed(spec: JobSpec, whole: Layout) -> None:
    """Raises JobRefused where the document's rows have weights and the job cannot merge by them."""
    if not layout_in(spec, whole).weighed:
        return
    field, _, why = row_weights.fault(spec.aggregator.name, spec.verifier.name).partition(": ")
    if field:
        raise JobRefused(field, why)


def check_state(document: Document, state: Mapping[str, np.ndarray]) -> None:
    """Raises Refused unless the state has every parameter, buffer and constant of the document; it may have more."""
    _check("state", document.state, state)


def check_batch(document: Document, batch: Mapping[str, np.ndarray]) -> int:
    """Returns the number of rows of a batch.

    Raises Refused unless it has exactly the document's data inputs, all with the same number of rows.
    """
    lengths = {array.shape[0] if array.ndim else 0 for array in batch.values()}
    if len(lengths) != 1 or lengths == {0}:
        raise Refused(f"a batch has inputs of one number of rows, not {sorted(lengths)}")
    rows = lengths.pop()
    expected = document.batch(rows, sizes_of(document, batch))
    if set(batch) != set(expected):
        raise Refused(f"a batch has {', '.join(expected)}, not {', '.join(sorted(batch))[:200]}")
    _check("batch", expected, batch)
    return int(rows)


def sizes_of(document: Document, batch: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Returns the sizes of the named dimensions in this batch, taken from the first array with each name.

    Raises Refused where one is out of range. `check_batch` compares the other arrays with them.
    """
    sizes: dict[str, int] = {}
    for entry in document.of("data"):
        shape = batch[entry.name].shape[1:] if entry.name in batch else ()
        for place, name in entry.named:
            if len(shape) == len(entry.shape):
                sizes.setdefault(name, shape[place])
    for name, size in sizes.items():
        if not 1 <= size <= document.sizes[name]:
            raise Refused(f"batch: the {name} is {size}, not 1 to {document.sizes[name]}")
    return sizes


def _check(what: str, expected: Expected, arrays: Mapping[str, np.ndarray]) -> None:
    for name, (shape, dtype) in expected.items():
        if name not in arrays:
            raise Refused(f"{what}: there is no {name}")
        array = arrays[name]
        if tuple(array.shape) != shape or array.dtype != np.dtype(dtype):
            raise Refused(f"{what}: {name} is {array.dtype}{list(array.shape)}, not {dtype}{list(shape)}")
