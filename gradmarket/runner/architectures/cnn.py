"""A convolutional network: 3 x 3 convolutions with BatchNorm, each followed by pooling while both sides are >= 2."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from torch import nn

from gradmarket.market.arguments import parse_model_arguments
from gradmarket.market.arguments.cnn import Settings
from gradmarket.market.errors import JobRefused
from gradmarket.runner.architectures import ACTIVATIONS
from graphdoc.document.publish import compute_classification_loss

OBJECTIVE: Final = compute_classification_loss


def build(arguments: Mapping[str, Any], input_shape: Sequence[int], classes: int) -> nn.Module:
    """Returns a module: float32[rows, channels, height, width] -> logits float32[rows, classes].

    An input of two dimensions is one channel. Raises JobRefused, naming the field.
    """
    settings = cast(Settings, parse_model_arguments("cnn", arguments))
    if len(input_shape) not in (2, 3):
        raise JobRefused("model.architecture", f"cnn takes images, and the data has the shape {tuple(input_shape)}")
    before, height, width = (1, *input_shape) if len(input_shape) == 2 else input_shape
    layers: list[nn.Module] = [nn.Unflatten(1, (1, height))] if len(input_shape) == 2 else []
    for channels in settings.channels:
        block: list[nn.Module]
        activation = ACTIVATIONS[settings.activation]()
        if settings.batch_norm:
            block = [nn.Conv2d(before, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), activation]
        else:
            block = [nn.Conv2d(before, channels, 3, padding=1), activation]
        layers += block
        before = channels
        if min(height, width) >= 2:
            layers.append(nn.MaxPool2d(2))
            height, width = height // 2, width // 2
    features = before * height * width
    dropout: list[nn.Module] = [nn.Dropout(settings.dropout)] if settings.dropout else []
    head = [nn.Flatten(), *dropout, nn.Linear(features, classes)]
    return nn.Sequential(*layers, *head)
