"""A convolutional network's arguments."""

from typing import Annotated

from pydantic import Field

from gradmarket.market.arguments import Activation, ArchitectureArguments, Probability, Width


class Settings(ArchitectureArguments):
    """`channels` has the width of each convolution."""

    channels: Annotated[list[Width], Field(min_length=1, max_length=64)] = [16, 32]
    activation: Activation = "relu"
    batch_norm: bool = True
    dropout: Probability = 0.0
