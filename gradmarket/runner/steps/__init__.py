"""The computation of a task from a round's parameters. Each kind of step is one file; a job's `kind` is the file's
name.

A step is a pure function of its arguments and keeps no state after its answer: workers keep nothing between tasks, so
any of them can take the next one.
"""

from typing import Any, Protocol, cast

from graphdoc import plugins
from graphdoc.document.interpret import Program
from graphdoc.passes import Arrays, Tensors


class StepRule(Protocol):
    """The interface of a file in this folder."""

    def compute(self, program: Program, state: Arrays, batch: Arrays, seed: bytes, step: Any, device: str) -> Tensors:
        """Returns loss, gradient and float buffers by `layout`'s names, as float32, on the device or on the host.

        The optimizer goes against the gradient. `state` and `batch` were checked against the document; the batch has
        step.moves * step.room rows. Raises Refused, OutOfMemory.
        """


def load_step_rule(kind: str) -> StepRule:
    """Returns the step of that kind. Raises Refused where there is none."""
    return cast(StepRule, plugins.load_plugin(__name__, kind))
