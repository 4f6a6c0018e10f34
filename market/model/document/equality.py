"""Checks that a document computes the same bits as its module, at other seeds and shapes than it was traced at.

Custom autograd functions and tensor hooks export without an error and lose their backward pass; this check finds them.
Only digests of the results are kept, so that a large model's gradients are not in memory twice.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import torch
from blake3 import blake3
from torch import Tensor, nn

from gradmarket.market.errors import DocumentRefused
from gradmarket.market.model.document.draws import HashedDraws
from gradmarket.market.model.document.interpret import Program, gradients
from gradmarket.market.model.document.schema import load

BATCHES: Final = ((1, 3, False), (2, 2, True))
"""(seed, rows, whether each named dimension is one shorter) in training; in evaluation the last."""
_DRAW_SEED: Final = bytes(range(32))

Answers = dict[str, Tensor]
Digests = dict[str, bytes]
"""The digest of each answer's bits."""
Data = Mapping[str, Tensor]


def check_equal(objective: nn.Module, document: bytes, state: Answers, example: Data, prefix: str) -> None:
    """Compares loss and metrics, and in training the gradients and buffers, bit by bit.

    `objective` maps data by name to (loss, *metrics); its parameters have the document's names after `prefix`. Raises
    DocumentRefused, naming what differs.
    """
    program = Program(load(document))
    travelling = {name: _as_it_travels(tensor) for name, tensor in state.items()}
    for seed, rows, shorter in BATCHES if objective.training else BATCHES[-1:]:
        data = _batch(program, example, seed, rows, shorter)
        expected = _module_answers(objective, program, data, prefix)
        for name, digest in _document_answers(objective.training, program, travelling, data).items():
            if digest != expected[name]:
                raise DocumentRefused(f"{name} is not what the module computes: {_guess(name, state)}")


def _as_it_travels(tensor: Tensor) -> Tensor:
    """Returns the tensor as workers receive it: contiguous, whatever its strides are here."""
    return tensor.detach().reshape(-1).view(tensor.shape)


def _guess(name: str, state: Answers) -> str:
    """Returns the likely reason why bits differ."""
    strided = [entry for entry, tensor in state.items() if not tensor.is_contiguous()]
    if strided:
        fault = f"{strided[0]} does not lie in memory as it will at workers"
        return f"{fault}: write parameter.data = parameter.data.contiguous() before training"
    if name in state:
        return "a hook, or its own backward? Write the gradient as torch's own operators give it"
    return "it takes another path when it is traced? Look for is_compiling, is_exporting or is_tracing"


def _batch(program: Program, example: Data, seed: int, rows: int, shorter: bool) -> dict[str, Tensor]:
    """Returns new rows like the example's: floats except `y` are noise, everything else is picked from the example.

    `shorter` shortens every named dimension by one.
    """
    generator = torch.Generator().manual_seed(seed)
    picked = torch.randint(len(next(iter(example.values()))), (rows,), generator=generator)
    sizes = {entry.name: entry.named for entry in program.document.of("data")}
    data = {}
    for name, tensor in example.items():
        taken = tensor[picked]
        for place, _ in sizes[name] if shorter else ():
            taken = taken.narrow(place + 1, 0, max(1, taken.shape[place + 1] - 1))
        noise = taken.is_floating_point() and name != "y"
        data[name] = torch.randn(taken.shape, generator=generator) if noise else taken.contiguous()
    return data


def _document_answers(training: bool, program: Program, state: Answers, data: Data) -> Digests:
    trainable = program.document.trainable
    leaves = {entry.name: state[entry.name].detach().requires_grad_() for entry in trainable}
    results = program.run(state | leaves, data, _DRAW_SEED)
    answers = {"loss": results.loss, **results.metrics, **results.updates}
    return _digests(answers, results.loss, leaves if training else None)


def _module_answers(objective: nn.Module, program: Program, data: Data, prefix: str) -> Digests:
    document = program.document
    parameters = _plain_names(objective.named_parameters(remove_duplicate=False), prefix)
    buffers = _plain_names(objective.named_buffers(remove_duplicate=False), prefix)
    leaves = {entry.name: parameters[entry.name] for entry in document.trainable}
    with restored(buffers.values()), torch.enable_grad(), HashedDraws(_DRAW_SEED):
        loss, *metrics = objective(data)
        _refuse_strangers(loss, parameters.values())
        updates = {name: buffers[name].clone() for name in document.updates}
        answers = {"loss": loss, **dict(zip(document.metrics, metrics, strict=True)), **updates}
        return _digests(answers, loss, leaves if objective.training else None)


def _digests(outputs: Answers, loss: Tensor, leaves: Answers | None) -> Digests:
    """Returns the digests of the answers and, if there are leaves, of the loss's gradient by each leaf."""
    digests = {name: _digest(tensor) for name, tensor in outputs.items()}
    if leaves is None:
        return digests
    computed = gradients(loss, list(leaves.values()))
    return digests | {name: _digest(gradient) for name, gradient in zip(leaves, computed, strict=True)}


def _digest(tensor: Tensor) -> bytes:
    """Returns a digest of the shape, the element type and the bits."""
    body = tensor.detach().contiguous().flatten().view(torch.uint8).numpy().data
    return blake3(f"{tensor.dtype}{tuple(tensor.shape)}".encode() + b"\0").update(body).digest()


def _refuse_strangers(loss: Tensor, parameters: Iterable[Tensor]) -> None:
    """Raises DocumentRefused where a gradient flows to a tensor that is no parameter of the module.

    Such a tensor would silently not be trained.
    """
    own = {id(parameter) for parameter in parameters}
    waiting, seen = [loss.grad_fn], set()
    while waiting:
        step = waiting.pop()
        if step is None or step in seen:
            continue
        seen.add(step)
        waiting += [before for before, _ in step.next_functions]
        leaf = getattr(step, "variable", None)
        if leaf is not None and id(leaf) not in own:
            shape = list(leaf.shape)
            raise DocumentRefused(
                f"the loss reads a trainable tensor of shape {shape} that is none of the module's parameters and would "
                "never change: make it a parameter of the module, and let the module's answer bring what the loss needs"
            )


def _plain_names(named: Iterator[tuple[str, Tensor]], prefix: str) -> Answers:
    return {name.removeprefix(prefix): tensor for name, tensor in named}


@contextmanager
def restored(buffers: Iterable[Tensor]) -> Iterator[None]:
    """Restores the buffers afterwards, whatever was written to them inside."""
    buffers = list(buffers)
    before = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in zip(buffers, before, strict=True):
                buffer.copy_(value)
