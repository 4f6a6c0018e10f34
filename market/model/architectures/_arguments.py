"""The arguments and activations that the ready architectures share."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import nn

from gradmarket.market.errors import JobRefused
from gradmarket.market.fields import first_fault

Width = Annotated[int, Field(ge=1, le=65_536)]
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
Activation = Literal["relu", "gelu", "tanh", "silu"]
ACTIVATIONS: Final[dict[str, type[nn.Module]]] = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh, "silu": nn.SiLU}


class Arguments(BaseModel):
    """A frozen model that refuses unknown fields and other types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


Parsed = TypeVar("Parsed", bound=Arguments)


def parsed(kind: type[Parsed], arguments: Mapping[str, Any]) -> Parsed:
    """Returns the arguments as an instance of `kind`. Raises JobRefused, naming the field."""
    try:
        return kind.model_validate(dict(arguments))
    except ValidationError as error:
        raise JobRefused(*first_fault(error, "model.arguments")) from None
