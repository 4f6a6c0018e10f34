"""The arguments of each ready architecture: one file for each file of `architectures`, without torch.

So a service that imports no torch refuses a job's arguments when it is posted.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from gradmarket.market.errors import JobRefused, Refused
from gradmarket.market.fields import Part, first_fault
from graphdoc import plugins

Width = Annotated[int, Field(ge=1, le=65_536)]
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
Activation = Literal["relu", "gelu", "tanh", "silu"]


class ArchitectureArguments(Part):
    """A frozen part that refuses unknown fields and other types."""

    model_config = ConfigDict(strict=True)


def parse_model_arguments(architecture: str, arguments: Mapping[str, Any]) -> Any:
    """Returns the arguments as the architecture's `Settings`. Raises JobRefused, naming the field."""
    try:
        return plugins.load_plugin(__name__, architecture).Settings.model_validate(dict(arguments))
    except ValidationError as error:
        raise JobRefused(*first_fault(error, "model.arguments")) from None
    except Refused as error:
        raise JobRefused("model.architecture", error.detail) from None
