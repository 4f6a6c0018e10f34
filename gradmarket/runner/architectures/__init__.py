"""Ready architectures: each file has `build(arguments, input_shape, classes) -> nn.Module`, and OBJECTIVE, a loss."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from gradmarket.market.arguments import Activation
from gradmarket.market.errors import JobRefused, Refused
from gradmarket.market.manifest import Labelled
from gradmarket.runner import ready_metrics
from graphdoc import plugins
from graphdoc.document.calls import TORCH_TYPES
from graphdoc.document.graph import Precision
from graphdoc.document.publish import next_token, publish_metrics, publish_module
from graphdoc.figures import Published

ACTIVATIONS: Final[dict[Activation, type[nn.Module]]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "silu": nn.SiLU,
}


def publish_ready(
    architecture: str,
    arguments: Mapping[str, Any],
    data: Labelled,
    seed: int,
    precision: Precision,
    measured: Sequence[str] = (),
) -> Published:
    """Returns the documents of a model for such data; `seed` draws its parameters, `measured` are ready-made metrics.

    Raises JobRefused.
    """
    try:
        plugin = plugins.load_plugin(__name__, architecture)
    except Refused as error:
        raise JobRefused("model.architecture", error.detail) from None
    required = "tokens" if plugin.OBJECTIVE is next_token else "numbers"
    if data.reads != required:
        raise JobRefused("model.architecture", f"{architecture} takes {required}, and the data has {data.reads}")
    torch.manual_seed(seed)
    module: nn.Module = plugin.build(arguments, data.shape, data.classes)
    if data.dtype == "uint8":
        module = ScaledPixels(module)
    # Four rows of such data
    example: tuple[Tensor, Tensor]
    labels = torch.arange(4 * math.prod(data.shape)).reshape(4, *data.shape) % data.classes
    if data.reads == "tokens":
        example = labels.to(TORCH_TYPES[data.dtype]), labels
    else:
        targets = torch.arange(4) % data.classes
        if data.dtype == "uint8":
            example = torch.randint(0, 256, (4, *data.shape), dtype=torch.uint8), targets
        else:
            example = torch.randn(4, *data.shape), targets
    made = publish_module(module, plugin.OBJECTIVE, example, precision=precision)
    if not measured:
        return made
    try:
        asked = ready_metrics.load_metrics(measured)
        document, _ = publish_metrics(module, partial(ready_metrics.compute_metrics, asked), example, precision)
    except Refused as error:
        raise JobRefused("evaluation.metrics", error.detail) from None
    return replace(made, metrics=document)


class ScaledPixels(nn.Module):
    """A model of numbers from 0 to 1 on pixels of one byte: the document divides by 255, and the data stays small."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        scaled: Tensor = self.model(x.to(torch.float32) / 255)
        return scaled
