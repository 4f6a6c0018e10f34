"""The tensors of a step's answer by name and shape. No torch, and nothing of a job."""

from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from graphdoc.document.graph import Document


def build_layout(document: Document) -> Layout:
    """Returns the layout of a step's answer.

    It has the loss, a gradient for each trainable parameter in document order, and the float buffers sorted by name.
    It is weighed where the document's rows have weights.
    """
    gradients = [LayoutEntry(entry.name, entry.shape, "gradient") for entry in document.trainable]
    buffers = [LayoutEntry(name, document.state[name][0], "buffer") for name in sorted(document.updates)]
    return Layout((LayoutEntry("loss", (), "loss"), *gradients, *buffers), weighed=document.weight is not None)
