"""Refuses properties of a module or loss that no document can express and no comparison of answers would show."""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import torch
from torch import Tensor, nn

from gradmarket.market.errors import DocumentRefused
from gradmarket.market.model.document.equality import restored

_TOLERANCE: Final = 1e-3


def refuse_unfit(module: nn.Module) -> None:
    """Raises DocumentRefused for a module whose copy, or whose separately sent tensors, would behave differently."""
    _refuse_hooks(module)
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    refuse_overlaps(tensors, [name for name, tensor in tensors.items() if tensor.requires_grad])


def _refuse_hooks(module: nn.Module) -> None:
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise DocumentRefused(
                f"{name} has a hook on its gradient, which workers would not run: remove it by its handle, and write "
                "what it does into the module's forward, the loss, or the job's clip and optimizer"
            )


def refuse_sum(objective: nn.Module, data: Mapping[str, Tensor]) -> None:
    """Raises DocumentRefused for a loss that grows with the number of rows, since a job's loss is the mean over rows.

    Two rows are repeated once, twice and three times. A contrastive loss between rows of a batch does not grow like
    this.
    """
    once = {name: tensor[:2] for name, tensor in data.items()}
    with torch.no_grad(), restored(objective.buffers()):
        loss = _repeated(objective, once, 1)
        grows = loss != 0 and all(_is_near(_repeated(objective, once, times), times * loss) for times in (2, 3))
    if grows:
        raise DocumentRefused(
            "the loss is a sum over the rows, and a job's loss is their mean: take reduction='mean', or divide it by "
            "len(y)"
        )


def _repeated(objective: nn.Module, data: Mapping[str, Tensor], times: int) -> float:
    loss: Tensor = objective({name: torch.cat([tensor] * times) for name, tensor in data.items()})[0]
    return float(loss)


def _is_near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_TOLERANCE)


def refuse_overlaps(tensors: Mapping[str, Tensor], changing: Collection[str]) -> None:
    """Raises DocumentRefused where a tensor that changes shares elements with another, or with itself.

    Each tensor is sent and updated separately, whereas in the module a change of one would change the other.
    """
    by_storage: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        by_storage.setdefault(tensor.untyped_storage()._cdata, []).append(name)
    for names in by_storage.values():
        if any(name in changing for name in names):
            _refuse_overlaps_in_one({name: tensors[name] for name in names}, changing)


def _refuse_overlaps_in_one(tensors: Mapping[str, Tensor], changing: Collection[str]) -> None:
    if len(tensors) == 1 and all(tensor.is_contiguous() for tensor in tensors.values()):
        return
    taken = torch.zeros(next(iter(tensors.values())).untyped_storage().nbytes(), dtype=torch.uint8)
    seen: list[str] = []
    for name in sorted(tensors, key=lambda name: name not in changing):
        view = _bytes_of(tensors[name], taken)
        if name in changing and _repeats(tensors[name]):
            raise _shared(name, ["itself"])
        if any(other in changing for other in seen) and bool(view.any()):
            raise _shared(name, [other for other in seen if other in changing])
        view.fill_(1)
        seen.append(name)


def _bytes_of(tensor: Tensor, memory: Tensor) -> Tensor:
    """Returns the bytes of `memory` at the positions that the tensor's bytes have in its own storage."""
    size, stride, step = tensor.shape, tensor.stride(), tensor.element_size()
    strides = [step * by for by in stride]
    return memory.as_strided([*size, step], [*strides, 1], step * tensor.storage_offset())


def _repeats(tensor: Tensor) -> bool:
    """Returns whether one element appears at several positions (expanded)."""
    return any(by == 0 and length > 1 for by, length in zip(tensor.stride(), tensor.shape, strict=True))


def _shared(name: str, others: Iterable[str]) -> DocumentRefused:
    return DocumentRefused(
        f"{name} shares memory with {', '.join(others)[:100]}, and both would move apart: keep one parameter and take "
        "its parts in forward, or write parameter.data = parameter.data.clone()"
    )
