"""A plain `nn.Module` becomes two graph documents, of training and of evaluation, that are proven to equal it.

Where no part asks if it is in training, the traces of training and of evaluation are one.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import torch
import torch._dynamo.config
import torch.fx.config
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.utils._pytree import tree_map_only

from graphdoc.document.decisions import capture_decisions, exchange_function
from graphdoc.document.emit import emit_document
from graphdoc.document.equality import check_equal, failed_on_rows, rows_taken
from graphdoc.document.graph import Precision
from graphdoc.document.interpret import STEP_ERRORS, Program
from graphdoc.document.product_precisions import multiply_whole
from graphdoc.document.refusals import CTC
from graphdoc.document.schema import parse_document, set_arithmetic
from graphdoc.document.sequences import OneCall
from graphdoc.document.unfit import refuse_sum, refuse_unfit
from graphdoc.errors import DocumentRefused
from graphdoc.figures import Published


class _Asked:
    """Replaces `training` of all modules, and reports each reader."""

    def __init__(self, on_read: Callable[[], None]) -> None:
        self._on_read = on_read

    def __get__(self, module: Any, _owner: Any) -> Any:
        if module is None:
            return self
        self._on_read()
        return vars(module)["training"]

    def __set__(self, module: Any, value: bool) -> None:
        vars(module)["training"] = value


@contextmanager
def watch_mode_reads(on_read: Callable[[], None]) -> Iterator[None]:
    """Reports within the block each time that a module's mode is read."""
    nn.Module.training = _Asked(on_read)  # type: ignore[assignment]
    try:
        yield
    finally:
        del nn.Module.training


Loss = Callable[[Any, Tensor], tuple[Tensor, dict[str, Tensor]]]
"""(the module's answer, the target) -> (mean loss over the rows, each metric's sum over the rows)."""

MetricValues = Callable[[Any, Tensor], Mapping[str, Tensor]]
"""(the module's answer, the target) -> metrics of all rows together, each one float32."""

Around = Callable[[], AbstractContextManager[Any]]
"""A context for tracing the model and the loss, where they can be traced in it."""

TARGET: Final = "y"
_PREFIX: Final = "model."
_UNCACHED: Final = partial(torch._dynamo.config.patch, fake_tensor_cache_enabled=False)
"""torch caches the results of a call by shapes; where the rows are a symbol, the cache costs more than it saves."""
_EXPORT_ERRORS: Final = (
    RuntimeError, ValueError, TypeError, AssertionError, LookupError, AttributeError, ArithmeticError
)  # fmt: skip


_UNPACKED: Final = "lengths from data cannot be traced: for padded sequences keep the padding and mask what is beyond"
_REMEDIES: Final = {
    "failed to unpack": _UNPACKED,
    "pack_padded": _UNPACKED,
    "_ctc_loss": CTC,
    "data-dependent expression": "a computed or drawn number decides which operators run: choose by torch.where, or "
    "switch it off (layerdrop=0.0, and of masks that NumPy draws apply_spec_augment=False, in transformers)",
    "Constraints violated": "what is computed depends on the number of rows or on the data: use "
    "torch.where(mask, x, 0), no index",
}
"""By words of torch that reveal the reason."""


@dataclass(frozen=True)
class Size:
    """A dimension whose length may differ between batches: its maximum, and its place in each data input."""

    maximum: int
    places: Mapping[str, int]


def compute_classification_loss(logits: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Cross-entropy of logits float32[rows, classes] with target int64[rows]; `accuracy` counts the right answers."""
    return nn.functional.cross_entropy(logits, target), {"accuracy": logits.argmax(1).eq(target).sum()}


def next_token(logits: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Cross-entropy of logits float32[rows, length, words] with target int64[rows, length], a word for every place."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten()), {}


class Objective(nn.Module):
    """The exported module: data by name -> (loss, *metrics)."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        by_name: bool = False,
        precision: Precision = "fp32",
        around: Around = nullcontext,
    ) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.by_name = by_name
        self.precision = precision
        self.around = around
        self.within: Around = nullcontext
        """The context in which it runs now: none where answers are compared."""
        self._told = SimpleNamespace(metrics=(), asks=False)  # tracing restores attributes of the module itself

    def forward(self, data: dict[str, Tensor]) -> tuple[Tensor, ...]:
        with self.within():
            loss, metrics = self.loss(self.answer(data), data[TARGET])
        return self._record_metrics(loss, metrics)

    def _record_metrics(self, loss: Tensor, metrics: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Records the metrics' names, in the order in which documents have them."""
        self._told.metrics = tuple(sorted(metrics))
        return (loss, *(metrics[name] for name in self._told.metrics))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics, known once the loss was computed."""
        return tuple(self._told.metrics)

    @property
    def has_modes(self) -> bool:
        """Whether training may differ from evaluation, known after tracing."""
        # a part that acts when the mode is set may change then, without reading the mode
        return bool(self._told.asks) or any(type(part).train is not nn.Module.train for part in self.modules())

    @contextmanager
    def traced_in(self, around: Around) -> Iterator[None]:
        """Traces calls within the block: recurrent layers are one call, and readers of the mode are seen."""

        @contextmanager
        def within() -> Iterator[None]:
            with around(), OneCall(), watch_mode_reads(partial(setattr, self._told, "asks", True)):
                yield

        def refused(*_arguments: Any, **_named: Any) -> None:  # a trace would have the gradient as a constant
            raise DocumentRefused(
                "the module or the loss takes a gradient itself (torch.autograd.grad, as of PINN, WGAN-GP or MAML), "
                "which the language does not have: write that derivative out in operators"
            )

        self.within = within
        try:
            with _UNCACHED(), _without_lines(), exchange_function(torch.autograd, "grad", refused):
                yield
        finally:
            self.within = nullcontext

    def answer(self, data: Mapping[str, Tensor]) -> Any:
        """Returns the model's own answer to its inputs, given in order or by name."""
        inputs = {name: tensor for name, tensor in data.items() if name != TARGET}
        if self.precision != "bf16":  # tf32 is the document's arithmetic, and none of a module's
            return self._call_model(inputs)
        with torch.autocast("cpu", torch.bfloat16):
            answer = self._call_model(inputs)
        return tree_map_only(Tensor, lambda part: part.float() if part.dtype == torch.bfloat16 else part, answer)

    def _call_model(self, inputs: Mapping[str, Tensor]) -> Any:
        return self.model(**inputs) if self.by_name else self.model(*inputs.values())


class MetricsObjective(Objective):
    """The module of a metrics document: data by name -> (a number that nobody reads, *metrics of all rows together)."""

    def __init__(self, model: nn.Module, metrics: MetricValues, by_name: bool, precision: Precision) -> None:
        super().__init__(model, lambda answer, y: (torch.zeros(()), dict(metrics(answer, y))), by_name, precision)

    def forward(self, data: dict[str, Tensor]) -> tuple[Tensor, ...]:
        with self.within():
            _, metrics = self.loss(self.answer(data), data[TARGET])
        return self._record_metrics(torch.stack(list(metrics.values())).nan_to_num(0.0, 0.0, 0.0).sum(), metrics)


def publish_metrics(
    module: nn.Module,
    metrics: MetricValues,
    example: tuple[Tensor | Mapping[str, Tensor], Tensor],
    precision: Precision = "fp32",
) -> tuple[bytes, dict[str, Tensor]]:
    """Returns the metrics document of `module` in evaluation, proven to equal it on the example, and its state.

    Data and state have the names of `publish_module`. Raises DocumentRefused.
    """
    inputs, target = example
    by_name = not isinstance(inputs, Tensor)
    data = {**({"x": inputs} if isinstance(inputs, Tensor) else inputs), TARGET: target}
    objective = MetricsObjective(module, metrics, by_name, precision)
    with _own_modes(module):
        objective.eval()
        document, state = document_of(objective, data, {}, training=False)
    return _set_precision(document, precision), state


def publish_module(
    module: nn.Module,
    loss: Loss,
    example: tuple[Tensor | Mapping[str, Tensor], Tensor],
    sizes: Mapping[str, Size] | None = None,
    precision: Precision = "fp32",
    around: Around = nullcontext,
) -> Published:
    """Returns the documents and the initial state of `module`, whose data inputs are called `x` and `y`.

    `example` is (x, y) with at least two rows like the training rows. Where x is a mapping, the module takes those
    inputs by name, and they are the data's names. `sizes` names dimensions other than the rows that may differ from
    batch to batch. In `bf16` the module runs under torch.autocast, and the loss takes its answer in float32; `tf32` is
    an arithmetic of the documents, which are compared before they have it. Training computes every part in the mode
    that it is in: a frozen BatchNorm stays frozen. Loss, metrics, gradients and buffers are compared with the module's
    own, bit by bit: in training on rows of the example and on others of its range, at two shapes, in evaluation on the
    example's. The module is left as it was.

    Raises DocumentRefused.
    """
    inputs, target = example
    by_name = not isinstance(inputs, Tensor)
    data = {**({"x": inputs} if isinstance(inputs, Tensor) else inputs), TARGET: target}
    objective = Objective(module, loss, by_name, precision, around)
    refuse_unfit(module)
    with _own_modes(module):
        document, trained = document_of(objective, data, sizes or {}, training=True)
        objective.eval()
        # Raises DocumentRefused for a sum over the rows; where they have a label or index that is not taken, of others
        try:
            with multiply_whole(objective.precision):
                refuse_sum(objective, data, TARGET)
        except STEP_ERRORS:
            taken = rows_taken(Program(parse_document(document)), data)
            try:
                refuse_sum(objective, {name: torch.cat([rows, rows]) for name, rows in taken.items()}, TARGET)
            except STEP_ERRORS as error:
                raise failed_on_rows(error) from None
        if objective.has_modes:
            evaluation, evaluated = document_of(objective, data, sizes or {}, training=False)
        else:
            evaluation, evaluated = document, trained
    state = trained | evaluated
    parameters = {name: tensor.detach().cpu().contiguous().numpy().copy() for name, tensor in state.items()}
    return Published(_set_precision(document, precision), _set_precision(evaluation, precision), parameters)


def _set_precision(document: bytes, precision: Precision) -> bytes:
    return set_arithmetic(document, "tf32") if precision == "tf32" else document


def document_of(
    objective: Objective, data: dict[str, Tensor], sizes: Mapping[str, Size], training: bool
) -> tuple[bytes, dict[str, Tensor]]:
    """Returns the document of an objective in the current modes of its parts, proven to equal it, and its state.

    `training`: whether gradients and buffers are proven too. Raises DocumentRefused.
    """
    maxima = {name: size.maximum for name, size in sizes.items()}
    named = {
        entry: {size.places[entry]: name for name, size in sizes.items() if entry in size.places} for entry in data
    }
    document, state = emit_document(
        export_objective(objective, data, sizes), named, objective.metrics, _PREFIX, maxima, data
    )
    check_equal(objective, document, state, data, _PREFIX, training)
    return document, state


@contextmanager
def _own_modes(module: nn.Module) -> Iterator[None]:
    """Puts every part into its own mode first and again at the end; parts that act on a change of mode act there."""
    modes = [(part, part.training) for part in module.modules()]

    def put_back() -> None:
        module.train(module.training)
        for part, mode in modes:
            part.training = mode

    put_back()
    try:
        yield
    finally:
        module.training = modes[0][1]
        put_back()


def export_objective(objective: Objective, data: dict[str, Tensor], sizes: Mapping[str, Size]) -> ExportedProgram:
    """Returns the objective as torch traces it. Raises DocumentRefused."""
    shapes: dict[str, dict[int, Dim]] = {name: {0: Dim("rows", min=2)} for name in data}
    for name, size in sizes.items():
        dimension = Dim(name, min=2, max=size.maximum)
        for entry, place in size.places.items():
            shapes[entry][place] = dimension
    failed: list[Exception] = []
    known = capture_decisions(objective, data)
    for around in (objective.around, nullcontext):
        try:
            with objective.traced_in(around), known():
                return torch.export.export(objective, (data,), dynamic_shapes=(shapes,))
        except _EXPORT_ERRORS as error:
            failed.append(error)
    lines = [line.strip() for line in str(failed[0]).splitlines() if line.strip()] or [type(failed[0]).__name__]
    text = " ".join(lines)
    remedy = next((f"; {remedy}" for words, remedy in _REMEDIES.items() if words in text), "")
    raise DocumentRefused(f"the model cannot be traced: {text[:500]}{remedy}") from failed[0]


@contextmanager
def _without_lines() -> Iterator[None]:
    """Keeps torch, within the block, from recording the lines of calls: a sixth of the time. Refusals name the
    module."""
    if not hasattr(torch.fx.config, "do_not_emit_stack_traces"):  # torch 2.11, for one
        yield
        return
    before = torch.fx.config.do_not_emit_stack_traces
    torch.fx.config.do_not_emit_stack_traces = True
    try:
        yield
    finally:
        torch.fx.config.do_not_emit_stack_traces = before
