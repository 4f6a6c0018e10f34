"""The computation of a task from a round's parameters. Each kind of step is one file; a job's `kind` is the file's
name.

A step is a pure function of its arguments and keeps no state after its answer: workers keep nothing between tasks, so
any of them can take the next one.
"""

from typing import Any, Protocol, cast

import numpy as np
import torch

from gradmarket.market.errors import Refused
from gradmarket.market.gradient.payload_layout import build_layout
from gradmarket.market.step import Step, WindowStep
from gradmarket.runner.device_codecs import pack_answer
from graphdoc import plugins
from graphdoc.document.graph import WEIGHT
from graphdoc.document.index_watch import watch_indices
from graphdoc.document.inputs import check_batch, check_state
from graphdoc.document.interpret import Program
from graphdoc.passes import Arrays, Tensors, numpy_of


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


def compute_step(
    program: Program,
    state: Arrays,
    batch: Arrays,
    seed: bytes,
    step: Step,
    device: str = "cpu",
    into: Arrays | None = None,
) -> dict[str, np.ndarray]:
    """Returns a step's answer: float32 arrays in `layout`'s order.

    These are the mean loss over the batch, its gradient and the float buffers' new values; where the document has a
    weight, that of the rows too, under passes.WEIGHT. The batch has
    step.moves * step.room rows. The file of the step's kind defines the gradient. For a WindowStep the answer is the
    state after it (runner.window_state), and `state` has the one before it too. Arrays that can be are written into
    those of `into`, by name, and these are in the answer. Raises Refused, OutOfMemory.
    """
    tensors = _compute_tensors(program, state, batch, seed, step, device)
    answer = numpy_of(tensors, into)
    return {name: answer[name] for name in tensors}


def compute_payload(
    program: Program, state: Arrays, batch: Arrays, seed: bytes, step: Step, device: str, codec: str, into: np.ndarray
) -> None:
    """Writes the payload of a step's answer, which has no leaves, to uint8[payload_bytes]; raises as `compute_step`.

    It is packed where the answer is: nothing else leaves a card, and indices are judged when it has left.
    """
    with watch_indices():
        tensors = _compute_tensors(program, state, batch, seed, step, device)
        there = {name: tensor.to(device) for name, tensor in tensors.items()}
        pack_answer(build_layout(program.document), there, codec, torch.from_numpy(into))


def _compute_tensors(program: Program, state: Arrays, batch: Arrays, seed: bytes, step: Step, device: str) -> Tensors:
    rows = check_batch(program.document, batch)
    check_state(program.document, state)
    if rows != step.moves * step.room:
        raise Refused(f"a step of {step.moves} times {step.room} rows got {rows}")
    with watch_indices():
        answer = load_step_rule(step.kind).compute(program, state, batch, seed, step, device)
    if isinstance(step, WindowStep):
        return answer
    given = build_layout(program.document)
    weight = {WEIGHT: answer[WEIGHT]} if given.weighed else {}
    return {entry.name: answer[entry.name] for entry in given.entries} | weight
