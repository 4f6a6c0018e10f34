"""A ready architecture by name, with freshly drawn parameters, as graph documents. Runs in the child."""

from collections.abc import Mapping
from typing import Any

import torch

from gradmarket.market import plugins
from gradmarket.market.errors import JobRefused, Refused
from gradmarket.market.model import architectures
from gradmarket.market.model.document.publish import classification, publish
from gradmarket.market.model.figures import Published


def publish_ready(
    architecture: str, arguments: Mapping[str, Any], input_shape: tuple[int, ...], classes: int, seed: int
) -> Published:
    """The documents of a classifier of float32[rows, *input_shape]; `seed` draws its parameters. Raises JobRefused."""
    try:
        plugin = plugins.load(architectures.__name__, architecture)
    except Refused as error:
        raise JobRefused("model.architecture", error.detail) from None
    torch.manual_seed(seed)
    module = plugin.build(arguments, input_shape, classes)
    example = (torch.randn(4, *input_shape), torch.arange(4) % classes)
    return publish(module, classification, example)
