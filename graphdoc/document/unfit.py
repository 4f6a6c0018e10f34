"""Refuses properties of a module or loss that no document can express and no comparison of answers would show."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from graphdoc.document.equality import restore_buffers
from graphdoc.errors import DocumentRefused

_TOLERANCE: Final = 1e-3


def refuse_unfit(module: nn.Module) -> None:
    """Raises DocumentRefused for a module whose copy, or whose separately sent tensors, would behave differently."""
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise DocumentRefused(
                f"{name} has a hook on its gradient, which workers would not run: remove it by its handle, and write "
                "what it does into the module's forward, the loss, or the job's clip and optimizer"
            )
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    refuse_overlaps(tensors, [name for name, tensor in tensors.items() if tensor.requires_grad])


class LossModule(Protocol):
    """The needed interface of a loss: a module that answers data by name, and the loss of an answer."""

    loss: Callable[[Any, Tensor], tuple[Tensor, Any]]

    def answer(self, data: Mapping[str, Tensor]) -> Any: ...

    def buffers(self) -> Iterable[Tensor]: ...

    def __call__(self, data: dict[str, Tensor]) -> tuple[Tensor, ...]: ...


def refuse_sum(objective: LossModule, data: Mapping[str, Tensor], target: str) -> None:
    """Raises DocumentRefused for a loss that grows with the number of rows, since a job's loss is the mean over rows.

    Two rows are repeated once, twice and three times. A contrastive loss between rows of a batch does not grow like
    this. `target` is the name of the target. Where the answer has an entry for each row, the answer to two rows is
    repeated, and more rows are answered only if the loss of that grows: answering is most of the time.
    """
    once = {name: tensor[:2] for name, tensor in data.items()}
    with torch.no_grad(), restore_buffers(objective.buffers()):
        answer = objective.answer(once)
        loss = float(objective.loss(answer, once[target])[0])
        grows = loss != 0
        outputs = [leaf for leaf in tree_leaves(answer) if isinstance(leaf, Tensor)]
        if grows and outputs and all(tensor.shape[:1] == (2,) for tensor in outputs):
            twice = tree_map_only(Tensor, lambda leaf: torch.cat([leaf, leaf]), answer)
            grows = _is_near(float(objective.loss(twice, torch.cat([once[target]] * 2))[0]), 2 * loss)
        for times in (2, 3):
            grows = grows and _is_near(
                float(objective({name: torch.cat([tensor] * times) for name, tensor in once.items()})[0]), times * loss
            )
    if grows:
        raise DocumentRefused(
            "the loss is a sum over the rows, and a job's loss is their mean: take reduction='mean', or divide it by "
            "len(y)"
        )


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
        plain = len(names) == 1 and tensors[names[0]].is_contiguous()
        if plain or not any(name in changing for name in names):
            continue
        taken = torch.zeros(tensors[names[0]].untyped_storage().nbytes(), dtype=torch.uint8)
        seen: list[str] = []
        for name in sorted(names, key=lambda name: name not in changing):
            # the bytes of `taken` at the positions that the tensor's bytes have in its own storage
            tensor, step = tensors[name], tensors[name].element_size()
            strides = [step * by for by in tensor.stride()]
            view = taken.as_strided([*tensor.shape, step], [*strides, 1], step * tensor.storage_offset())
            repeated = any(by == 0 and size > 1 for by, size in zip(strides, tensor.shape, strict=True))
            if name in changing and repeated:
                raise _explain_shared_memory(name, ["itself"])
            moving = [other for other in seen if other in changing]
            if moving and bool(view.any()):
                raise _explain_shared_memory(name, moving)
            view.fill_(1)
            seen.append(name)


def _explain_shared_memory(name: str, others: Iterable[str]) -> DocumentRefused:
    return DocumentRefused(
        f"{name} shares memory with {', '.join(others)[:100]}, and both would move apart: keep one parameter and take "
        "its parts in forward, or write parameter.data = parameter.data.clone()"
    )
