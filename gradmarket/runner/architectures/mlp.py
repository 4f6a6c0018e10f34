"""A multi-layer perceptron over the flattened input."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from torch import nn

from gradmarket.market.arguments import parse_model_arguments
from gradmarket.market.arguments.mlp import Settings
from gradmarket.runner.architectures import ACTIVATIONS
from graphdoc.document.publish import compute_classification_loss

OBJECTIVE: Final = compute_classification_loss


def build(arguments: Mapping[str, Any], input_shape: Sequence[int], classes: int) -> nn.Module:
    """Returns a module: float32[rows, *input_shape] -> logits float32[rows, classes].

    Raises JobRefused, naming the field.
    """
    settings = cast(Settings, parse_model_arguments("mlp", arguments))
    layers: list[nn.Module] = [nn.Flatten()]
    width = math.prod(input_shape)
    for hidden in settings.hidden:
        layers += [nn.Linear(width, hidden), ACTIVATIONS[settings.activation]()]
        if settings.dropout:
            layers.append(nn.Dropout(settings.dropout))
        width = hidden
    return nn.Sequential(*layers, nn.Linear(width, classes))
