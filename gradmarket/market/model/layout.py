"""The tensors of a step's answer by name and shape. No torch."""

from dataclasses import replace

from gradmarket.market.errors import JobRefused
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from gradmarket.market.job import JobSpec
from gradmarket.market.rules import row_weights
from graphdoc.document.graph import Document


def build_layout(document: Document) -> Layout:
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
    field, _, why = row_weights.find_row_weights_fault(spec.aggregator.name, spec.verifier.name).partition(": ")
    if field:
        raise JobRefused(field, why)
