"""Refuses arguments of a kind that Market.train does not take; each refusal names the right kind."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn

from gradmarket.market.errors import DocumentRefused, Refused
from gradmarket.market.gradient import optimizers
from graphdoc import formats, plugins

CALLED: Final = ("started", "round_closed", "ended")
"""Methods of a callback."""
_RATE: Final = 1e-3
_USUAL: Final = {"name": "adamw", "lr": _RATE}


def check_module(module: Any) -> None:
    """Raises DocumentRefused for an object that is no nn.Module, was compiled to another, or has no values yet."""
    if isinstance(module, type):
        raise DocumentRefused(f"{module.__name__} is a class: give an instance, such as {module.__name__}(…)")
    if not isinstance(module, nn.Module):
        raise DocumentRefused(f"a {type(module).__name__} is no nn.Module: write one whose forward calls it")
    if isinstance(module, torch.jit.ScriptModule):
        raise DocumentRefused("the module was compiled by torch.jit: give the nn.Module that it was made of")
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if nn.parameter.is_lazy(tensor):
            raise DocumentRefused(f"{name} has no shape yet: call the module on a batch first, module(x[:2])")
        if tensor.is_meta:
            remedy = "call module.to_empty(device='cpu') and fill it, or load a checkpoint"
            raise DocumentRefused(f"{name} is on the meta device and has no values: {remedy}")


def check_loss(loss: Any) -> None:
    """Raises DocumentRefused unless it can be called with an answer and a target."""
    if isinstance(loss, type):
        raise DocumentRefused(f"{loss.__name__} is a class: give an instance, such as {loss.__name__}()")
    if not callable(loss):
        raise DocumentRefused(
            f"the loss is a {type(loss).__name__}: give a function of the module's answer and y, such as "
            "torch.nn.functional.cross_entropy"
        )


def convert_numbers(value: Any) -> Any:
    """Returns the value with numpy's numbers as Python's, in mappings and lists too: a job is posted as JSON."""
    if isinstance(value, Mapping):
        return {name: convert_numbers(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [convert_numbers(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value


def check_partition_format(name: Any) -> None:
    """Raises Refused, naming the argument, for a format that is not here."""
    if name not in (known := formats.list_format_names()):
        raise Refused(f"partition_format: there is no {name!r}: choose one of {', '.join(known)}")


def settings_of(optimizer: Any) -> dict[str, Any]:
    """Returns an optimizer's name and settings. Raises Refused, naming the argument, for anything but a mapping."""
    if isinstance(optimizer, Mapping):
        return dict(optimizer)
    known = plugins.list_plugin_names(optimizers.__name__)
    kind = optimizer if isinstance(optimizer, type) else type(optimizer)
    name = optimizer.lower() if isinstance(optimizer, str) else kind.__name__.lower()
    torchs = issubclass(kind, torch.optim.Optimizer)
    if name not in known and (isinstance(optimizer, str) or torchs):
        raise Refused(f"optimizer: there is no {name!r}: choose one of {', '.join(known)}")
    rate = optimizer.defaults.get("lr") if isinstance(optimizer, torch.optim.Optimizer) else None
    suggested = {"name": name, "lr": float(rate or _RATE)} if name in known else _USUAL
    raise Refused(
        f"optimizer: the market runs its own optimizers: give {suggested}, and further settings of docs/job.md"
    )


def check_private(private: Any) -> None:
    """Raises Refused unless it is a mapping, or nothing."""
    if private is not None and not isinstance(private, Mapping):
        raise Refused("private: give a mapping, such as {'holders': […]}")


def check_fraction(held_out: Any) -> None:
    """Raises Refused unless it is a number from 0 to below 1."""
    if not isinstance(held_out, int | float) or not 0 <= held_out < 1:
        raise Refused(f"held_out: give a fraction from 0 to below 1, not {str(held_out)[:40]!r}")


def array_of(name: str, value: Any) -> np.ndarray:
    """Returns a tensor, an array or nested lists as an array; half precision in float32, which has all its values.

    Raises Refused, naming the input, for data without an array: sparse, quantized, without values, or ragged.
    """
    if isinstance(value, Tensor):
        tensor: Tensor = value
        if tensor.is_nested:
            raise _ragged(name)
        if tensor.layout is not torch.strided:
            raise Refused(f"{name} is sparse: give {name}.to_dense()")
        if tensor.is_quantized:
            raise Refused(f"{name} is quantized: give {name}.dequantize()")
        if tensor.is_meta:
            raise Refused(f"{name} is on the meta device and has no values: give the tensor that has them")
        tensor = tensor.detach().cpu()
        if tensor.is_floating_point() and tensor.element_size() < 4:
            tensor = tensor.float()
        return tensor.numpy()
    if hasattr(value, "toarray"):
        raise Refused(f"{name} is sparse: give {name}.toarray()")
    try:
        array = np.asarray(value)
    except ValueError:
        raise _ragged(name) from None
    if array.dtype.hasobject:
        raise Refused(f"{name} is not an array of numbers")
    return array


def _ragged(name: str) -> Refused:
    return Refused(f"{name} has rows of unlike shapes: pad them to one shape, and mask what was added in the module")


def check_callbacks(callbacks: Any) -> None:
    """Raises Refused unless they are a list of instances with a callback's methods."""
    if not isinstance(callbacks, Sequence):
        raise Refused("callbacks: give a list, such as [TensorBoard('runs')]")
    for one in callbacks:
        if inspect.isclass(one):
            raise Refused(f"callbacks: {one.__name__} is a class: give an instance, such as {one.__name__}()")
        if missing := [name for name in CALLED if not callable(getattr(one, name, None))]:
            raise Refused(
                f"callbacks: a {type(one).__name__} has no {', '.join(missing)} (gradmarket.callbacks.Callback)"
            )


def check_seconds(name: str, value: Any) -> None:
    """Raises Refused unless it is a number that is not negative, or None."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0):
        raise Refused(f"{name}: give seconds, such as {name}=60, not {str(value)[:40]!r}")


def check_console(value: Any) -> None:
    """Raises Refused unless it is one of rich's, or None."""
    if value is not None and not isinstance(value, Console):
        raise Refused(f"console: give a rich.console.Console, not {str(value)[:40]!r}")


def check_title(value: Any) -> None:
    """Raises Refused unless it is a text or None."""
    if value is not None and not isinstance(value, str):
        raise Refused(f"title: give a text, not {str(value)[:40]!r}")


def check_above_zero(**numbers: Any) -> None:
    """Raises Refused, naming the first that is no number above 0."""
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise Refused(f"{name}: give a number above 0, not {str(value)[:40]!r}")
