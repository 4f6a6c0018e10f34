"""A plain `nn.Module` becomes two graph documents, of training and of evaluation, that are proven to equal it."""

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from gradmarket.market.errors import DocumentRefused
from gradmarket.market.model.document.emit import emit
from gradmarket.market.model.document.equality import check_equal, restored
from gradmarket.market.model.figures import Published

Loss = Callable[[Tensor, Tensor], tuple[Tensor, dict[str, Tensor]]]
"""(the module's answer, the target) -> (mean loss over the rows, each metric's sum over the rows)."""

_PREFIX: Final = "model."
_EXPORT_ERRORS: Final = (RuntimeError, ValueError, TypeError, AssertionError, LookupError, AttributeError)


def classification(logits: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Cross-entropy of logits float32[rows, classes] with target int64[rows]; `accuracy` counts the right answers."""
    return nn.functional.cross_entropy(logits, target), {"accuracy": logits.argmax(1).eq(target).sum()}


def regression(answer: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean squared error of two float32 tensors of one shape."""
    return nn.functional.mse_loss(answer, target), {}


class Objective(nn.Module):
    """What is exported: (x, y) -> (loss, *metrics)."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        loss, metrics = self.loss(self.model(x), y)
        return (loss, *metrics.values())

    def metric_names(self, example: tuple[Tensor, Tensor]) -> tuple[str, ...]:
        with torch.no_grad(), restored(self.buffers()):
            return tuple(self.loss(self.eval().model(example[0]), example[1])[1])


def publish(module: nn.Module, loss: Loss, example: tuple[Tensor, Tensor]) -> Published:
    """The documents and the initial state of `module`, whose data inputs are called `x` and `y`.

    `example` is (x, y) with at least two rows; its values do not matter beyond their range. Loss, metrics, gradients
    and buffers of both documents are compared with the module's own, bit by bit, at two seeds and two numbers of rows.
    The module is left in training mode, its state as it was. Raises DocumentRefused.
    """
    objective = Objective(module, loss)
    names = objective.metric_names(example)
    evaluation, evaluated = _document(objective.eval(), names, example)
    document, trained = _document(objective.train(), names, example)
    state = trained | evaluated
    parameters = {name: tensor.detach().cpu().contiguous().numpy().copy() for name, tensor in state.items()}
    return Published(document, evaluation, parameters)


def _document(
    objective: Objective, metrics: Sequence[str], example: tuple[Tensor, Tensor]
) -> tuple[bytes, dict[str, Tensor]]:
    document, state = emit(_exported(objective, example), metrics, _PREFIX)
    check_equal(objective, document, state, example, _PREFIX)
    return document, state


def _exported(objective: Objective, example: tuple[Tensor, Tensor]) -> ExportedProgram:
    rows = {0: Dim("rows", min=2)}
    try:
        return torch.export.export(objective, example, dynamic_shapes=(rows, rows))
    except _EXPORT_ERRORS as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DocumentRefused(f"the model cannot be traced: {reason[:300]}") from error
