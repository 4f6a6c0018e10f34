"""Ready architectures: each file has `build(arguments, input_shape, classes) -> nn.Module`, and OBJECTIVE, a loss."""

from typing import Final

from torch import nn

from gradmarket.market.model.arguments import Activation

ACTIVATIONS: Final[dict[Activation, type[nn.Module]]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "silu": nn.SiLU,
}
