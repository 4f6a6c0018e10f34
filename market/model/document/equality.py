"""Whether a document computes what its module computes: the same bits, at other seeds and numbers of rows than traced.

Custom autograd functions and tensor hooks export without an error and lose their backward: here they are found.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from gradmarket.market.errors import DocumentRefused
from gradmarket.market.model.document.dropout import hash_dropout
from gradmarket.market.model.document.interpret import Program, gradients
from gradmarket.market.model.document.schema import load

SEEDS: Final = (1, 2)
ROW_COUNTS: Final = (3, 6)
_DROPOUT_SEED: Final = bytes(range(32))

Answers = dict[str, Tensor]
Pair = tuple[Tensor, Tensor]


def check_equal(objective: nn.Module, document: bytes, state: Answers, example: Pair, prefix: str) -> None:
    """Compares loss, metrics, and in training the gradients and buffers, bit by bit.

    `objective` maps (x, y) to (loss, *metrics); its parameters have the document's names after `prefix`. Raises
    DocumentRefused, naming what differs.
    """
    program = Program(load(document))
    for seed in SEEDS:
        for rows in ROW_COUNTS:
            batch = _batch(example, seed, rows)
            expected = _module_answers(objective, program, batch, prefix)
            for name, answer in _document_answers(program, state, batch).items():
                if not _same_bits(answer, expected[name]):
                    raise DocumentRefused(f"{name} is not what the module computes: a hook, or its own backward?")


def _batch(example: Pair, seed: int, rows: int) -> Pair:
    """Rows like the example's, drawn anew: x is noise where it is float, everything else is picked from the example."""
    generator = torch.Generator().manual_seed(seed)
    picked = torch.randint(len(example[0]), (rows,), generator=generator)
    x, y = (tensor[picked] for tensor in example)
    return (torch.randn(x.shape, generator=generator) if x.is_floating_point() else x), y


def _document_answers(program: Program, state: Answers, batch: Pair) -> Answers:
    trainable = program.document.trainable
    leaves = {entry.name: state[entry.name].detach().clone().requires_grad_() for entry in trainable}
    results = program.run(state | leaves, {"x": batch[0], "y": batch[1]}, _DROPOUT_SEED)
    found = gradients(results.loss, list(leaves.values()))
    return {"loss": results.loss, **results.metrics, **dict(zip(leaves, found, strict=True)), **results.updates}


def _module_answers(objective: nn.Module, program: Program, batch: Pair, prefix: str) -> Answers:
    document = program.document
    parameters = _plain_names(objective.named_parameters(remove_duplicate=False), prefix)
    buffers = _plain_names(objective.named_buffers(remove_duplicate=False), prefix)
    leaves = [parameters[entry.name] for entry in document.trainable]
    with restored(buffers.values()), torch.enable_grad(), _HashedDropout():
        loss, *metrics = objective(*batch)
        found = gradients(loss, leaves)
        updates = {name: buffers[name].clone() for name in document.updates}
    names = (entry.name for entry in document.trainable)
    return {
        "loss": loss,
        **dict(zip(document.metrics, metrics, strict=True)),
        **dict(zip(names, found, strict=True)),
        **updates,
    }


def _plain_names(named: Iterator[tuple[str, Tensor]], prefix: str) -> Answers:
    return {name.removeprefix(prefix): tensor for name, tensor in named}


@contextmanager
def restored(buffers: Iterable[Tensor]) -> Iterator[None]:
    """The buffers as they were, whatever is written to them inside."""
    buffers = list(buffers)
    before = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in zip(buffers, before, strict=True):
                buffer.copy_(value)


class _HashedDropout(TorchFunctionMode):
    """The module's own dropouts, drawn by the document's rule: the n-th call is site n."""

    def __init__(self) -> None:
        super().__init__()
        self._site = -1

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func not in (nn.functional.dropout, torch.dropout):
            return func(*args, **(kwargs or {}))
        return self._drop(*args, **(kwargs or {}))

    def _drop(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training:
            return input
        self._site += 1
        dropped = hash_dropout(input, p, self._site, _DROPOUT_SEED)
        return input.copy_(dropped) if inplace else dropped


def _same_bits(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(*(tensor.detach().contiguous().flatten().view(torch.uint8) for tensor in (one, other)))
