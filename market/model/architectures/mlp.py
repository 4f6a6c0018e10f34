"""A multi-layer perceptron over the flattened input."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import Field
from torch import nn

from gradmarket.market.model.architectures._arguments import (
    ACTIVATIONS,
    Activation,
    Arguments,
    Probability,
    Width,
    parsed,
)
from gradmarket.market.model.document.publish import classification

OBJECTIVE: Final = classification


class MlpArguments(Arguments):
    """`hidden` has the width of each hidden layer."""

    hidden: Annotated[list[Width], Field(max_length=64)] = [128]
    activation: Activation = "relu"
    dropout: Probability = 0.0


def build(arguments: Mapping[str, Any], input_shape: Sequence[int], classes: int) -> nn.Module:
    """Returns a module: float32[rows, *input_shape] -> logits float32[rows, classes].

    Raises JobRefused, naming the field.
    """
    settings = parsed(MlpArguments, arguments)
    layers: list[nn.Module] = [nn.Flatten()]
    width = math.prod(input_shape)
    for hidden in settings.hidden:
        layers += [nn.Linear(width, hidden), ACTIVATIONS[settings.activation]()]
        if settings.dropout:
            layers.append(nn.Dropout(settings.dropout))
        width = hidden
    return nn.Sequential(*layers, nn.Linear(width, classes))
