"""`python -m graphdoc export`: a torch module of a file as documents and parameters in a folder."""

import importlib.util
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from torch import nn
from torch.nn import functional

from graphdoc import tensors
from graphdoc.errors import Refused
from graphdoc.export import export_module


def export(given: Namespace) -> Iterator[str]:
    """Writes training.json, evaluation.json and parameters.safetensors; yields their names. Raises Refused."""
    path, _, name = given.module.rpartition(":")
    if not path or not name:
        raise Refused(f"{given.module} names no module: write FILE.py:NAME")
    file = Path(path)
    source = _executed(file)
    arrays = tensors.unpack_tensors(given.data.read_bytes())
    if "y" not in arrays or len(arrays) < 2:
        raise Refused(f"{given.data} has {', '.join(arrays) or 'nothing'}: it takes the target y and its inputs")
    found = getattr(source, name, None)
    try:
        module = found() if callable(found) and not isinstance(found, nn.Module) else found
    except TypeError as error:
        raise Refused(f"{name} cannot be made without arguments ({error}): name a function that makes it") from error
    if not isinstance(module, nn.Module):
        raise Refused(f"{file} has no torch.nn.Module {name}")
    loss = getattr(source, given.loss, None) or getattr(functional, given.loss, None)
    if not callable(loss):
        raise Refused(f"there is no loss {given.loss} in {file}, nor in torch.nn.functional")
    made = export_module(module, loss, arrays, given.precision)
    given.out.mkdir(parents=True, exist_ok=True)
    written = {
        "training.json": made.document,
        "evaluation.json": made.evaluation,
        "parameters.safetensors": tensors.pack_tensors(made.parameters),
    }
    for part, data in written.items():
        (given.out / part).write_bytes(data)
        yield str(given.out / part)


def _executed(path: Path) -> ModuleType:
    """Returns the file's module. It is the user's own and runs here, with imports from beside it."""
    if not path.is_file():
        raise Refused(f"there is no file {path}")
    name = f"_exported_{path.stem}"  # no other module is replaced
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise Refused(f"{path} is no Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        specification.loader.exec_module(module)
    except Exception as error:  # any error of the user's file
        raise Refused(f"{path} does not import: {type(error).__name__}: {error}") from error
    return module
