"""What a task computes from a round's parameters: one file per kind of step, its name is the `kind` in the job.

A step is one pure function of what it is given. Whatever it remembers while it computes is gone when it has answered:
workers keep nothing from task to task, so any of them can take the next one.
"""

from typing import Any, Protocol, cast

from gradmarket.market import plugins
from gradmarket.market.model.document.interpret import Program
from gradmarket.market.model.passes import Arrays, Outcome


class StepRule(Protocol):
    """What a file in this folder offers."""

    def compute(self, program: Program, state: Arrays, batch: Arrays, seed: bytes, step: Any, device: str) -> Outcome:
        """loss, gradient (what the optimizer goes against) and float buffers by the names of `layout`: float32.

        `state` and `batch` were checked against the document; the batch has step.moves * step.rows rows. Raises
        Refused, OutOfMemory.
        """


def step(kind: str) -> StepRule:
    """The step of that kind. Raises Refused where there is none."""
    return cast(StepRule, plugins.load(__name__, kind))
