"""A transformer's arguments."""

from typing import Annotated

from pydantic import Field, model_validator

from gradmarket.market.arguments import ArchitectureArguments, Probability, Width


class Settings(ArchitectureArguments):
    """A transformer of `depth` blocks of `width`, with `heads` attention heads each."""

    depth: Annotated[int, Field(ge=1, le=128)] = 2
    width: Width = 64
    heads: Annotated[int, Field(ge=1, le=256)] = 4
    dropout: Probability = 0.0

    @model_validator(mode="after")
    def _fits(self) -> "Settings":
        if self.width % self.heads:
            raise ValueError(f"heads: a width of {self.width} is no multiple of {self.heads}")
        return self
