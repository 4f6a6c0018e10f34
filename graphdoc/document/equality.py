"""Checks that a document computes the same bits as its module, at other seeds and shapes than it was traced at.

Custom autograd functions and tensor hooks export without an error and lose their backward pass; this check finds them.
Only digests of the results are kept, so that a large model's gradients are not in memory twice.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Final

import numpy as np
import torch
from blake3 import blake3
from torch import Tensor, nn

from graphdoc.document.draws import HashedDraws
from graphdoc.document.interpret import STEP_ERRORS, Program, compute_gradients
from graphdoc.document.product_precisions import multiply_whole
from graphdoc.document.ranges import find_input_ranges
from graphdoc.document.schema import parse_document
from graphdoc.errors import DocumentRefused
from graphdoc.values import find_misfit

BATCHES: Final = ((1, 3, False), (2, 2, True))
"""(seed, rows, whether the batch differs from the example's: shorter by one in each named dimension, and perturbed)."""
_DRAW_SEED: Final = bytes(range(32))

Answers = dict[str, Tensor]
Digests = dict[str, bytes]
"""The digest of each answer's bits."""
Data = Mapping[str, Tensor]


def check_equal(
    objective: nn.Module, document: bytes, state: Answers, example: Data, prefix: str, training: bool
) -> None:
    """Compares loss and metrics, and in training the gradients and buffers, bit by bit.

    In training it uses rows of the example unchanged, and others whose floats are perturbed within their column's
    values (`_draw_batch`); in evaluation on the example's. Where a module does not take the others, or has no finite
    answer, it uses the example's instead, and at last all of them: a few rows may be without a target. Rows with labels
    or indices that the document does not take are left out. `objective` maps data by name to (loss, *metrics); its
    parameters have the document's names after `prefix`. Raises DocumentRefused, naming an answer that differs or is not
    finite.
    """
    program = Program(parse_document(document))
    whole = multiply_whole(program.document.precision)
    # as a run receives them: contiguous, for any strides here
    travelling = {name: tensor.detach().reshape(-1).view(tensor.shape) for name, tensor in state.items()}
    taken = rows_taken(program, example)
    count = len(next(iter(taken.values())))
    for seed, rows, another in BATCHES if training else ((*BATCHES[-1][:2], False),):
        tries = [(rows, True)] * another + [(rows, False), (count, False)]
        while tries:
            picked, perturbed = tries.pop(0)
            data = _draw_batch(program, taken, seed, picked, another or not training, perturbed)
            try:
                with whole:
                    expected = _module_answers(objective, program, data, prefix, training)
            except (*STEP_ERRORS, _NotFinite) as error:
                if not tries:
                    raise failed_on_rows(error) from None
                continue
            with whole:
                trainable = program.document.trainable
                leaves = {entry.name: travelling[entry.name].detach().requires_grad_() for entry in trainable}
                results = program.run(travelling | leaves, data, _DRAW_SEED)
                answers = {"loss": results.loss, **results.metrics, **results.updates}
                found = _digest_answers(answers, results.loss, leaves if training else None)
            for name, digest in found.items():
                if digest != expected[name]:
                    raise DocumentRefused(f"{name} is not what the module computes: {_guess_reason(name, state)}")
            break


def failed_on_rows(error: Exception) -> DocumentRefused:
    """Returns the error to raise where the module itself fails on rows of the data."""
    if isinstance(error, _NotFinite):
        return DocumentRefused(error.detail)
    reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
    return DocumentRefused(f"the module or the loss fails on rows of the data: {reason}")


class _NotFinite(DocumentRefused):
    """The module's own loss, or a gradient of it, is not a number."""


def rows_taken(program: Program, example: Data) -> Data:
    """Returns the example without rows that the model does not take; unchanged where it takes none."""
    rows = len(next(iter(example.values())))
    taken = find_input_ranges(program, min(2, rows))
    arrays = [{name: tensor[row : row + 1].numpy() for name, tensor in example.items()} for row in range(rows)]
    good = np.array([find_misfit(one, taken) is None for one in arrays])
    return {name: tensor[torch.from_numpy(good)] for name, tensor in example.items()} if good.any() else example


def _guess_reason(name: str, state: Answers) -> str:
    """Returns the likely reason why the bits differ."""
    strided = [entry for entry, tensor in state.items() if not tensor.is_contiguous()]
    if strided:
        fault = f"{strided[0]} does not lie in memory as it will at workers"
        return f"{fault}: write parameter.data = parameter.data.contiguous() before training"
    if name in state:
        return "a hook, or its own backward? Write the gradient as torch's own operators give it"
    return "it takes another path when it is traced? Look for is_compiling, is_exporting or is_tracing"


def _draw_batch(
    program: Program, example: Data, seed: int, rows: int, shorter: bool, perturbed: bool
) -> dict[str, Tensor]:
    """Returns rows of the example, the first `rows` of a drawn order.

    `shorter` shortens every named dimension by one. Where `perturbed`, each float of an input other than `y` becomes
    another one that its column may have: between two of the example's, or where these are whole numbers one of them.
    """
    generator = torch.Generator().manual_seed(seed)
    count = len(next(iter(example.values())))
    picked = torch.cat([torch.randperm(count, generator=generator) for _ in range(-(-rows // count))])[:rows]
    sizes = {entry.name: entry.named for entry in program.document.of("data")}
    data = {}
    for name, tensor in example.items():
        taken = tensor[picked]
        if perturbed and taken.is_floating_point() and name != "y":
            others = tensor.gather(0, torch.randint(count, taken.shape, generator=generator))
            whole = tensor.eq(tensor.round()).all(0)
            least, most = torch.minimum(taken, others), torch.maximum(taken, others)
            part = torch.rand(taken.shape, generator=generator)
            taken = torch.where(whole, others, torch.minimum(most, least + part * (others - taken).abs()))
        for place, _ in sizes[name] if shorter else ():
            taken = taken.narrow(place + 1, 0, max(1, taken.shape[place + 1] - 1))
        data[name] = taken.contiguous()
    return data


def _module_answers(objective: nn.Module, program: Program, data: Data, prefix: str, training: bool) -> Digests:
    """Returns the digests of what the module computes.

    Raises DocumentRefused where a gradient flows to a tensor that is neither a parameter of the module nor data: it
    would silently not be trained. The data's gradient (wav2vec2 asks for it) changes nothing.
    """
    document = program.document
    parameters = _plain_names(objective.named_parameters(remove_duplicate=False), prefix)
    buffers = _plain_names(objective.named_buffers(remove_duplicate=False), prefix)
    leaves = {entry.name: parameters[entry.name] for entry in document.trainable}
    with restore_buffers(buffers.values()), torch.enable_grad():
        with HashedDraws(_DRAW_SEED) if program.document.draws else nullcontext():
            loss, *metrics = objective(data)
        rows = {tensor.untyped_storage().data_ptr() for tensor in data.values()}
        own = {id(parameter) for parameter in parameters.values()}
        waiting, seen = [loss.grad_fn], set()
        while waiting:
            step = waiting.pop()
            if step is None or step in seen:
                continue
            seen.add(step)
            waiting += [before for before, _ in step.next_functions]
            leaf = getattr(step, "variable", None)
            if leaf is not None and id(leaf) not in own and leaf.untyped_storage().data_ptr() not in rows:
                raise DocumentRefused(
                    f"the loss reads a trainable tensor of shape {list(leaf.shape)} that is not a parameter of the "
                    "module and would never change: make it a parameter of the module, and let the module's answer "
                    "bring what the loss needs"
                )
        if not loss.isfinite().all():
            raise _NotFinite(f"the loss of the data's own rows is {float(loss.detach())}: nothing can be trained on it")
        updates = {name: buffers[name].clone() for name in document.updates}
        answers = {"loss": loss, **dict(zip(document.metrics, metrics, strict=True)), **updates}
        return _digest_answers(answers, loss, leaves if training else None)


def _digest_answers(outputs: Answers, loss: Tensor, leaves: Answers | None) -> Digests:
    """Returns the digests of the answers and, if there are leaves, of the loss's gradient by each leaf."""
    digests = {name: _digest_tensor(tensor) for name, tensor in outputs.items()}
    if leaves is None:
        return digests
    computed = dict(zip(leaves, compute_gradients(loss, list(leaves.values())), strict=True))
    bad = next((name for name, gradient in computed.items() if not gradient.isfinite().all()), None)
    if bad is not None:
        raise _NotFinite(
            f"the gradient of {bad} is not finite on the data's own rows: look for a root, a logarithm or a division "
            "at 0, also in the branch of torch.where that is not taken"
        )
    return digests | {name: _digest_tensor(gradient) for name, gradient in computed.items()}


def _digest_tensor(tensor: Tensor) -> bytes:
    """Returns a digest of the shape, the element type and the bits."""
    body = tensor.detach().contiguous().flatten().view(torch.uint8).numpy().data
    return blake3(f"{tensor.dtype}{tuple(tensor.shape)}".encode() + b"\0").update(body).digest()


def _plain_names(named: Iterator[tuple[str, Tensor]], prefix: str) -> Answers:
    return {name.removeprefix(prefix): tensor for name, tensor in named}


@contextmanager
def restore_buffers(buffers: Iterable[Tensor]) -> Iterator[None]:
    """Restores the buffers after any writes within the block."""
    buffers = list(buffers)
    before = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in zip(buffers, before, strict=True):
                buffer.copy_(value)
