"""A command's input: JSON files and settings are read, checked and refused in words; other files are to be written."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.fields import Model, faults_of, first_fault, in_words


def load_json_object(file: str, *needed: str) -> dict[str, Any]:
    """Returns the object in the file, or from standard input for "-", with the fields that are needed.

    Raises NotFound, or Refused for anything else.
    """
    try:
        value = json.loads(sys.stdin.read() if file == "-" else parse_place(file).read_text())
    except FileNotFoundError:
        raise NotFound(f"there is no file {file}") from None
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}", "name a file that you may read") from None
    except (ValueError, RecursionError) as error:
        raise Refused(f"{file} is not JSON: {error}", "correct it there, or name another file") from None
    if not isinstance(value, dict):
        raise Refused(f"{file} is not a JSON object")
    if absent := [name for name in needed if name not in value]:
        raise Refused(f"{file} has no {' and no '.join(absent)}", "add it there")
    return value


def check_input(kind: type[Model], given: Mapping[str, Any], name: str) -> Model:
    """Returns the input as a `kind`. Raises Refused with every error, by its field, or by `name` for the whole."""
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        faults = (in_words(fault, fault["loc"], given) for fault in faults_of(error))
        raise Refused("; ".join(f"{field or name}: {message}" for field, message in faults)) from None


def parse_place(text: str) -> Path:
    """Returns the path of a command's argument. Raises Refused for an empty one, from a variable that is not set: it
    would be the folder in which the command was called."""
    if not text.strip():
        raise Refused("the name of a file or folder is empty", "name it; `.` is the folder that you are in")
    return Path(text)


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


def settings_from(kind: type[Model], given: Mapping[str, Any], options: Mapping[str, str] | None = None) -> Model:
    """Returns settings made from a command's options, which come before the environment; None is not given.

    Raises Refused that names the option (those in `options` by the name there) or the variable.
    """
    stated = {name: value for name, value in given.items() if value is not None}
    try:
        return kind(**stated)
    except ValidationError as error:
        place, detail = first_fault(error)
        field = place.partition(".")[0]
        option = (options or {}).get(field, "--" + field.replace("_", "-"))
        name = option if field in stated else f"{kind.model_config.get('env_prefix', '')}{field}".upper()
        raise Refused(f"{name}: {detail}", f"name another value for {name}, or leave it out") from error
    except ValueError as error:  # the environment's value is not JSON where JSON is required
        raise Refused(str(error), "see `gradmarket settings` for what it takes") from error
