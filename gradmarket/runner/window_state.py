"""The state of a task of local steps between two of them: all that the next inner step needs besides its rows.

That is, by name: parameters and float buffers as the document names them, the inner optimizer's memory under
MEMORY + key, and under LOSSES the loss of each inner step so far; where rows have weights, under WEIGHTS that of each
step's rows. A colon is in no name of a document. No torch.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from blake3 import blake3

from gradmarket.market.errors import TensorsRefused
from gradmarket.market.gradient.optimizers import load_optimizer
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.step import LocalStep
from gradmarket.market.terms import Hash
from graphdoc import tensors
from graphdoc.document.graph import WEIGHT
from graphdoc.encoding import Bytes
from graphdoc.tensors import Expected

Arrays = Mapping[str, np.ndarray]
State = dict[str, np.ndarray]
MEMORY: Final = "memory:"
LOSSES: Final = "losses:"
WEIGHTS: Final = "weights:"
COUNT: Final = "steps"
"""Name of the step count in the memory of optimizers that count their steps."""
_KEPT: Final = "state/"
"""Prefix of a name in the bytes of a state, with the colon as a slash; memory and losses stand beside it."""

_HEADER: Final = 512
"""Bytes that an array takes at most in the header of the file, with its name."""


def build_start_state(layout: Layout, state: Arrays, step: LocalStep) -> State:
    """Returns the state before the first inner step, from a round's parameters."""
    parameters = {entry.name: np.asarray(state[entry.name], order="C") for entry in layout.of("gradient")}
    buffers = {entry.name: np.asarray(state[entry.name], order="C") for entry in layout.of("buffer")}
    rule = load_optimizer(step.optimizer.name)
    memory = rule.start(parameters, rule.Settings(**step.optimizer.settings))
    kept = {MEMORY + key: array for key, array in memory.items()}
    return {**parameters, **buffers, **kept, **{name: np.empty(0, np.float32) for name in by_step(layout)}}


def by_step(layout: Layout) -> tuple[str, ...]:
    """Returns the names under which a state has one number of each inner step so far, float32."""
    return (LOSSES, WEIGHTS) if layout.weighed else (LOSSES,)


def join_states(layout: Layout, before: Arrays, after: Arrays) -> State:
    """Returns the state after a window; `before` is the state before it, `after` the window's answer."""
    return {**after, **{name: np.concatenate([before[name], after[name]]) for name in by_step(layout)}}


def memory_of(state: Arrays) -> State:
    """Returns the inner optimizer's memory by its own keys."""
    return {name.removeprefix(MEMORY): array for name, array in state.items() if name.startswith(MEMORY)}


def own_names(state: Arrays, layout: Layout) -> Iterable[str]:
    """Returns the names of the arrays that change from window to window, out of a step's inputs; not the losses."""
    changing = {entry.name for entry in (*layout.of("gradient"), *layout.of("buffer"))}
    return (name for name in state if name in changing or name.startswith(MEMORY))


def build_task_answer(layout: Layout, before: Arrays, after: Arrays) -> dict[str, np.ndarray]:
    """Returns a task's answer from its states before the first inner step and after the last."""
    with np.errstate(invalid="ignore", over="ignore"):
        change = {entry.name: before[entry.name] - after[entry.name] for entry in layout.of("gradient")}
    return join_task_answer(layout, change, after)


def join_task_answer(layout: Layout, change: Arrays, after: Arrays) -> dict[str, np.ndarray]:
    """Returns a task's answer from its changes, and buffers, losses and weights after the last inner step.

    Its loss is the mean over the inner steps; where their rows have weights, weighted by these, and theirs is the sum.
    """
    buffers = {entry.name: after[entry.name] for entry in layout.of("buffer")}
    weights = [float(weight) for weight in after[WEIGHTS]] if layout.weighed else [1.0] * len(after[LOSSES])
    total = whole = 0.0
    for loss, weight in zip(after[LOSSES], weights, strict=True):  # not sum(): from Python 3.12 on it compensates
        total += float(loss) * weight
        whole += weight
    tensors = {WEIGHT: np.array(whole, np.float32)} if layout.weighed else {}
    return {"loss": np.array(total / (whole or 1.0), np.float32), **change, **buffers, **tensors}


def pack_state(state: Arrays) -> bytes:
    """Returns the canonical bytes of a state; their blake3 is its leaf."""
    return tensors.pack_tensors({_escape_name(name): array for name, array in state.items()})


def compute_leaf(packed: Bytes) -> Hash:
    return Hash(blake3(packed).digest())


def unpack_state(data: Bytes, layout: Layout, step: LocalStep, done: int) -> State:
    """Returns the state after `done` inner steps from its bytes, which may be a stranger's. Raises TensorsRefused."""
    wanted = describe_state(layout, step, done)
    arrays = tensors.unpack_tensors(data, {_escape_name(name): described for name, described in wanted.items()})
    _check_count(arrays, done)
    return {name: arrays[_escape_name(name)] for name in wanted}


def check_packed_state(data: Bytes, layout: Layout, step: LocalStep, done: int) -> None:
    """Raises TensorsRefused unless these are the bytes of a state after `done` inner steps; copies nothing."""
    wanted = {_escape_name(name): described for name, described in describe_state(layout, step, done).items()}
    arrays = tensors.view_tensors(data)
    given = {name: (array.shape, array.dtype.name) for name, array in arrays.items()}
    if given != wanted or len(data) > most_bytes(layout, step, done):
        raise TensorsRefused("this is no state of a task of the job")
    _check_count(arrays, done)


def _check_count(arrays: Arrays, done: int) -> None:
    """Raises TensorsRefused where the optimizer counts steps that cannot be: from less than 0 none could go on."""
    count = arrays.get(_escape_name(MEMORY + COUNT))
    if count is not None and not 0 <= int(count) <= done:
        raise TensorsRefused(f"its optimizer counts {int(count)} steps, and {done} were taken")


def describe_state(layout: Layout, step: LocalStep, done: int) -> Expected:
    """Returns shape and element type of each array of a state after `done` inner steps."""
    entries = (*layout.of("gradient"), *layout.of("buffer"))
    first = build_start_state(
        layout, {entry.name: np.broadcast_to(np.float32(0), entry.shape) for entry in entries}, step
    )
    shapes = {name: (array.shape, array.dtype.name) for name, array in first.items()}
    return shapes | dict.fromkeys(by_step(layout), ((done,), "float32"))


def most_bytes(layout: Layout, step: LocalStep, done: int) -> int:
    """Returns an upper bound for the bytes of a state after `done` inner steps."""
    sizes = describe_state(layout, step, done).values()
    arrays = sum(int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize for shape, dtype in sizes)
    return arrays + _HEADER * (len(sizes) + 1)


def _escape_name(name: str) -> str:
    """Returns the name in the bytes, where a colon may not be."""
    return name.replace(":", "/", 1) if ":" in name else _KEPT + name
