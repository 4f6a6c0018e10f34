"""JSON that a person gives: read from a file, checked against its model, refused in words."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from gradmarket.market.errors import NotFound, Refused

Model = TypeVar("Model", bound=BaseModel)


def read(file: str) -> dict[str, Any]:
    """The object in the file, or of standard input where it is "-". Raises NotFound, or Refused for anything else."""
    try:
        found = json.loads(sys.stdin.read() if file == "-" else Path(file).read_text())
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {file}") from error
    except (ValueError, OSError) as error:
        raise Refused(f"{file} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Refused(f"{file} is no JSON object")
    return found


def checked(kind: type[Model], given: Mapping[str, Any], name: str) -> Model:
    """What was given, as a `kind`. Raises Refused with every fault, by its field or, of the whole, by `name`."""
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        faults = ((".".join(map(str, fault["loc"])), fault["msg"]) for fault in error.errors())
        raise Refused("; ".join(f"{field or name}: {message}" for field, message in faults)) from error
