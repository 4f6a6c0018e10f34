"""A multi-layer perceptron's arguments."""

from typing import Annotated

from pydantic import Field

from gradmarket.market.arguments import Activation, ArchitectureArguments, Probability, Width


class Settings(ArchitectureArguments):
    """`hidden` has the width of each hidden layer."""

    hidden: Annotated[list[Width], Field(max_length=64)] = [128]
    activation: Activation = "relu"
    dropout: Probability = 0.0
