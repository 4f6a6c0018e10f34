"""Turns a torch module and a loss into graph documents, proven to equal them, and brings trained state back."""

import copy
import logging
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from graphdoc.document import schema
from graphdoc.document.alone import as_when_alone
from graphdoc.document.graph import Precision
from graphdoc.document.interpret import Program
from graphdoc.document.publish import MetricValues, publish_metrics, publish_module
from graphdoc.document.ranges import find_input_ranges
from graphdoc.document.unfit import refuse_unfit
from graphdoc.errors import DocumentRefused, Refused
from graphdoc.figures import Published
from graphdoc.values import IGNORED, check_labels

Loss = Callable[[Any, Tensor], Any]
"""(the module's output, the target) -> the mean loss over the rows, or (loss, each metric's sum over the rows)."""

_ONE_AT_A_TIME: Final = threading.Lock()
"""Held while a module is exported: torch.export, and the functions replaced for it, belong to the whole process."""
EXAMPLE_ROWS: Final = 8
"""Rows from all over the data, on which document and module are compared."""

_NOT_THEIRS: Final = ("torch", "graphdoc", "gradmarket", "contextlib")
"""Packages whose lines do not explain a researcher's fault."""
_LOUD: Final = ("torch._subclasses.fake_tensor", "torch.fx.experimental")


def export_module(
    module: nn.Module,
    loss: Loss,
    arrays: Mapping[str, np.ndarray],
    precision: Precision = "fp32",
    metrics: MetricValues | None = None,
) -> Published:
    """Returns the documents of a copy of `module`, which is not changed.

    Inputs other than a single `x` are passed by name. Threads that publish wait for each other.

    If the target is labels and the output is a score per class, `accuracy` is measured too; with `metrics` there is a
    document of them (figures.Published). Raises DocumentRefused, naming the operator that the market lacks, or the
    difference from the module.
    """
    if len(arrays["y"]) < 2:
        raise Refused("a dataset needs at least two rows")
    # rows from all over, one with a label that losses ignore among them: such rows show unequal weights
    rows = [int(row) for row in np.unique(np.linspace(0, len(arrays["y"]) - 1, EXAMPLE_ROWS).astype(int))]
    whole = [array for array in arrays.values() if array.dtype.kind == "i"]
    found = [np.flatnonzero((array == IGNORED).reshape(len(array), -1).any(1))[:1] for array in whole]
    first = min((int(row) for at in found for row in at), default=0)
    rows = rows if first in rows else [*rows[:-1], first]
    example = {name: torch.from_numpy(np.array(array[rows])) for name, array in arrays.items()}
    y = example.pop("y")
    inputs = example["x"] if set(example) == {"x"} else example
    refuse_unfit(module)
    failed: list[Exception] = []
    measured = _with_metrics(loss, failed)
    try:
        with _ONE_AT_A_TIME, _without_logs():
            copied = _copied(module)
            made = publish_module(copied, measured, (inputs, y), precision=precision, around=as_when_alone)
            return made if metrics is None else _with_metrics_document(made, copied, metrics, (inputs, y), precision)
    except DocumentRefused as refused:
        # the last line of a researcher's own, or a library's, on the way to the error
        frames = traceback.walk_tb(refused.__cause__.__traceback__ if refused.__cause__ else None)
        theirs = [at for at in frames if at[0].f_globals.get("__name__", "").split(".")[0] not in _NOT_THEIRS]
        place = ""
        if theirs:
            code = theirs[-1][0].f_code
            place = f" ({Path(code.co_filename).name}, line {theirs[-1][1]}, in {code.co_name})"
        raise DocumentRefused(f"{refused.detail}{place}{_hint(arrays) if failed else ''}", refused.remedy) from None


def _with_metrics_document(
    made: Published, module: nn.Module, metrics: MetricValues, example: tuple[Any, Tensor], precision: Precision
) -> Published:
    try:
        document, state = publish_metrics(module, metrics, example, precision)
    except Refused as refused:  # without the way through torch's tracing
        raise type(refused)(refused.detail, refused.remedy) from refused.__cause__
    if own := sorted(set(state) - set(made.parameters)):
        tensor = f"a tensor of shape {list(state[own[0]].shape)}"
        raise DocumentRefused(
            f"a metric brings {tensor}, which workers' parameters have not: make it inside the metric, by torch.arange "
            "or torch.full, or keep it as a buffer that the module's forward reads"
        )
    return replace(made, metrics=document)


def check_taken(made: Published, arrays: Mapping[str, np.ndarray], rows: int) -> None:
    """Raises Refused, naming the first row with a label or index that a pass over `rows` rows does not take."""
    check_labels(arrays, find_input_ranges(Program(schema.parse_document(made.document)), rows))


def _copied(module: nn.Module) -> nn.Module:
    """Returns a copy on the CPU that shares the module's parameter memory; publishing does not write to it."""
    shared = {
        id(parameter): nn.Parameter(parameter.detach(), parameter.requires_grad)
        for parameter in module.parameters()
        if type(parameter) is nn.Parameter
    }
    try:
        return copy.deepcopy(module, shared).cpu()
    except (NotImplementedError, TypeError, AttributeError) as error:
        reason = f"{type(module).__name__} cannot be copied: {str(error)[:200]}"
        raise DocumentRefused(f"{reason}: keep it outside of the module") from None
    except RuntimeError:
        raise DocumentRefused(
            "the module cannot be copied: it keeps a tensor that was computed: detach what it remembers, and "
            "of weight_norm or spectral_norm use those of torch.nn.utils.parametrizations"
        ) from None


def _with_metrics(loss: Loss, failed: list[Exception]) -> Callable[[Any, Tensor], tuple[Tensor, dict[str, Tensor]]]:
    """Returns the loss with its metrics; `failed` collects the errors that the loss raises.

    It raises DocumentRefused where the loss takes a tensor and the module answers with something else.
    """

    def measured(answer: Any, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        try:
            value = loss(answer, target)
        except Exception as error:
            failed.append(error)
            if isinstance(answer, Tensor) or not isinstance(error, TypeError | AttributeError):
                raise
            part = next((f".{name}" for name in ("logits", "last_hidden_state") if hasattr(answer, name)), "[0]")
            part = part if not isinstance(answer, dict) or hasattr(answer, part[1:]) else f"[{next(iter(answer))!r}]"
            raise DocumentRefused(
                f"the module answers with a {type(answer).__name__}, which the loss does not take ({error}): "
                f"write loss=lambda answer, y: your_loss(answer{part}, y)"
            ) from None
        if isinstance(value, tuple):
            return value[0], dict(value[1])
        scores = scores_of(answer)
        labelled = target.dtype == torch.int64 and target.ndim == 1 and scores is not None and scores.ndim == 2
        return value, {"accuracy": scores.argmax(1).eq(target).sum()} if labelled and scores is not None else {}

    return measured


def scores_of(answer: Any) -> Tensor | None:
    """Returns the output itself, its first element, or its `logits`."""
    if isinstance(answer, Mapping):
        answer = answer.get("logits")
    elif isinstance(answer, tuple | list) and answer:
        answer = answer[0]
    return answer if isinstance(answer, Tensor) else None


@contextmanager
def _without_logs() -> Iterator[None]:
    """Keeps torch, within the block, from logging a call that fails on shapes: the refusal names it."""
    loggers = [logging.getLogger(name) for name in _LOUD]
    before = [one.disabled for one in loggers]
    for one in loggers:
        one.disabled = True
    try:
        yield
    finally:
        for one, disabled in zip(loggers, before, strict=True):
            one.disabled = disabled


def _hint(arrays: Mapping[str, np.ndarray]) -> str:
    """Returns the likely fault of the target where a loss fails on it, or nothing."""
    y = arrays["y"]
    if y.ndim == 2 and y.shape[1] == 1:
        return f"; y has the shape {y.shape}: if those are labels, or the answer has no such dimension, give y[:, 0]"
    if y.ndim == 1 and y.dtype.kind == "f" and bool((y == np.rint(y)).all()):
        return f"; y is {y.dtype} and has whole numbers: if those are labels, give y.astype('int64')"
    return ""


def load_state(module: nn.Module, state: Mapping[str, np.ndarray]) -> None:
    """Writes parameters and buffers into `module`, tied ones once. Raises Refused if it is another model."""
    own = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    written = {id(own[name]) for name in state if name in own}
    missing = [name for name, parameter in module.named_parameters() if id(parameter) not in written]
    shapes = [name for name in state if name in own and tuple(own[name].shape) != state[name].shape]
    if missing or shapes:
        raise Refused(f"this is not the model that was trained: {', '.join([*missing, *shapes])[:300]}")
    with torch.no_grad():
        for name, array in state.items():
            if name in own:
                own[name].copy_(torch.from_numpy(np.array(array)))
