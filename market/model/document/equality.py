"""Whether a document computes what its module computes: the same bits, at other seeds and shapes than traced.

Custom autograd functions and tensor hooks export without an error and lose their backward: here they are found.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor, nn

from gradmarket.market.errors import DocumentRefused
from gradmarket.market.model.document.draws import HashedDraws
from gradmarket.market.model.document.interpret import Program, gradients
from gradmarket.market.model.document.schema import load

SEEDS: Final = (1, 2)
ROW_COUNTS: Final = (3, 6)
_DRAW_SEED: Final = bytes(range(32))

Answers = dict[str, Tensor]
Data = Mapping[str, Tensor]


def check_equal(objective: nn.Module, document: bytes, state: Answers, example: Data, prefix: str) -> None:
    """Compares loss, metrics, and in training the gradients and buffers, bit by bit.

    `objective` maps data by name to (loss, *metrics); its parameters have the document's names after `prefix`. Raises
    DocumentRefused, naming what differs.
    """
    program = Program(load(document))
    for seed in SEEDS:
        for number, rows in enumerate(ROW_COUNTS):
            data = _batch(program, example, seed, rows, shorter=number > 0)
            expected = _module_answers(objective, program, data, prefix)
            for name, answer in _document_answers(program, state, data).items():
                if not _same_bits(answer, expected[name]):
                    raise DocumentRefused(f"{name} is not what the module computes: a hook, or its own backward?")


def _batch(program: Program, example: Data, seed: int, rows: int, shorter: bool) -> dict[str, Tensor]:
    """Rows like the example's, drawn anew: floats but for `y` are noise, everything else is picked from the example.

    `shorter` takes one element less of every named dimension.
    """
    generator = torch.Generator().manual_seed(seed)
    picked = torch.randint(len(next(iter(example.values()))), (rows,), generator=generator)
    named = {entry.name: entry.named for entry in program.document.of("data")}
    data = {}
    for name, tensor in example.items():
        taken = tensor[picked]
        for place, _ in named[name] if shorter else ():
            taken = taken.narrow(place + 1, 0, max(1, taken.shape[place + 1] - 1))
        noise = taken.is_floating_point() and name != "y"
        data[name] = torch.randn(taken.shape, generator=generator) if noise else taken.contiguous()
    return data


def _document_answers(program: Program, state: Answers, data: Data) -> Answers:
    trainable = program.document.trainable
    leaves = {entry.name: state[entry.name].detach().clone().requires_grad_() for entry in trainable}
    results = program.run(state | leaves, data, _DRAW_SEED)
    found = gradients(results.loss, list(leaves.values()))
    return {"loss": results.loss, **results.metrics, **dict(zip(leaves, found, strict=True)), **results.updates}


def _module_answers(objective: nn.Module, program: Program, data: Data, prefix: str) -> Answers:
    document = program.document
    parameters = _plain_names(objective.named_parameters(remove_duplicate=False), prefix)
    buffers = _plain_names(objective.named_buffers(remove_duplicate=False), prefix)
    leaves = [parameters[entry.name] for entry in document.trainable]
    with restored(buffers.values()), torch.enable_grad(), HashedDraws(_DRAW_SEED):
        loss, *metrics = objective(data)
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


def _same_bits(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(*(tensor.detach().contiguous().flatten().view(torch.uint8) for tensor in (one, other)))
