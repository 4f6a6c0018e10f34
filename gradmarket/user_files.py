"""Files that a user names: JSON is read, validated against a model and refused in words; others are to be written."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.fields import faults_of, in_words

Model = TypeVar("Model", bound=BaseModel)


def load_json_object(file: str) -> dict[str, Any]:
    """Returns the object in the file, or from standard input for "-". Raises NotFound, or Refused for anything else."""
    try:
        value = json.loads(sys.stdin.read() if file == "-" else Path(file).read_text())
    except FileNotFoundError:
        raise NotFound(f"there is no file {file}") from None
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}", "name a file that you may read") from None
    except (ValueError, RecursionError) as error:
        raise Refused(f"{file} is not JSON: {error}", "correct it there, or name another file") from None
    if not isinstance(value, dict):
        raise Refused(f"{file} is not a JSON object")
    return value


def check_input(kind: type[Model], given: Mapping[str, Any], name: str) -> Model:
    """Returns the input as a `kind`. Raises Refused with every error, by its field, or by `name` for the whole."""
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        faults = (in_words(fault, fault["loc"], given) for fault in faults_of(error))
        raise Refused("; ".join(f"{field or name}: {message}" for field, message in faults)) from None


def check_writable(path: Path) -> Path:
    """Returns the path if a file can be written there. Raises Refused, so that no work is done in vain."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise Refused(f"{path} cannot be written: there is no folder {folder}", "make the folder, or name another file")
    if path.is_dir():
        raise Refused(f"{path} is a folder", "name a file")
    return path


def write_all(texts: Mapping[Path, str]) -> None:
    """Writes the files. Raises OSError, with none of them left, where one cannot be written: a disk may be full."""
    try:
        for path, text in texts.items():
            path.write_text(text)
    except OSError:
        for path in texts:
            if path.is_file():  # not /dev/stdout
                path.unlink()
        raise
