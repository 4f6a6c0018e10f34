"""Recurrences: torch's shape rules broadcast where the kernels of the CPU read on, so every shape is held here."""

from collections.abc import Sequence
from typing import Any, Final

from graphdoc.conditions.condition_rules import (
    Condition,
    Conditions,
    each,
    filled,
    one_float_type,
    ranked,
    shaped,
)
from graphdoc.document.arguments import refuse_unless

LAYERS_LIMIT: Final = 64


def _lstm(arguments: Sequence[Any]) -> None:
    tensor, states, weights, *options = arguments
    refuse_unless(len(states) == 2, "its state is not a pair")
    _recurrent(4, tensor, states, weights, *options)


def _single(gates: int) -> Condition:
    def condition(arguments: Sequence[Any]) -> None:
        tensor, state, weights, *options = arguments
        _recurrent(gates, tensor, [state], weights, *options)

    return condition


def _recurrent(
    gates: int,
    tensor: Any,
    states: Sequence[Any],
    weights: Sequence[Any],
    biases: bool,
    layers: int,
    _dropout: float,
    _train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> None:
    """[places, rows, features] (rows first where `batch_first`), and every state and weight as nn.LSTM makes them."""
    refuse_unless(1 <= layers <= LAYERS_LIMIT, f"its layers are not 1 to {LAYERS_LIMIT}")
    ranked(tensor, (3,), "its input")
    filled(tensor, "its input")
    one_float_type([tensor, *states, *weights])
    runs = layers * (2 if bidirectional else 1)
    each_run = 4 if biases else 2
    projected = len(states) == 2 and len(weights) == runs * (each_run + 1)
    each_run += projected
    refuse_unless(len(weights) == runs * each_run, f"it has not {runs * each_run} weights")
    ranked(weights[1], (2,), "a weight")
    hidden, out = weights[1].shape[0] // gates, weights[1].shape[1]
    refuse_unless(hidden > 0 and (projected or out == hidden), "its weights are not of one hidden size")
    rows = tensor.shape[0 if batch_first else 1]
    shaped(states[0], (runs, rows, out), "its state")
    shaped(states[-1], (runs, rows, hidden if len(states) == 2 else out), "its state")
    for run in range(runs):
        first = run < runs // layers
        width = tensor.shape[2] if first else out * (runs // layers)
        _run(gates * hidden, width, out, weights[run * each_run :][:each_run], biases, projected)


def _run(rows: int, width: int, out: int, weights: Sequence[Any], biases: bool, projected: bool) -> None:
    """The weights of one direction of one layer."""
    shaped(weights[0], (rows, width), "an input's weight")
    shaped(weights[1], (rows, out), "a state's weight")
    for bias in weights[2:4] if biases else ():
        shaped(bias, (rows,), "a bias")
    if projected:
        ranked(weights[-1], (2,), "a projection")
        shaped(weights[-1], (out, weights[-1].shape[1]), "a projection")
        refuse_unless(weights[-1].shape[1] * 4 == rows, "a projection is not of the hidden size")


def _cell(gates: int, states: int) -> Condition:
    """One place of one layer: [rows, features], its state, two weights and two biases."""

    def condition(arguments: Sequence[Any]) -> None:
        tensor, state, to_input, to_state, *biases = arguments
        held = list(state) if states > 1 else [state]
        refuse_unless(len(held) == states, f"its state is not {states} tensors")
        ranked(tensor, (2,), "its input")
        filled(tensor, "its input")
        ranked(to_state, (2,), "a weight")
        one_float_type([tensor, *held, to_input, to_state, *biases])
        hidden = to_state.shape[1]
        refuse_unless(hidden > 0, "its weights have no elements")
        refuse_unless((biases[0] is None) == (biases[1] is None), "it has one bias of two")
        shaped(to_state, (gates * hidden, hidden), "a state's weight")
        shaped(to_input, (gates * hidden, tensor.shape[1]), "an input's weight")
        for bias in biases:
            shaped(bias, (gates * hidden,), "a bias")
        for one in held:
            shaped(one, (tensor.shape[0], hidden), "its state")

    return condition


CONDITIONS: Final[Conditions] = {
    "lstm.input": _lstm,
    "gru.input": _single(3),
    **each(_single(1), "rnn_tanh.input rnn_relu.input"),
    "lstm_cell.default": _cell(4, 2),
    "gru_cell.default": _cell(3, 1),
    **each(_cell(1, 1), "rnn_tanh_cell.default rnn_relu_cell.default"),
}


def shapes(arguments: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    """What lstm, gru and rnn give for arguments that fulfil their condition: every place's output, and the last states.

    By formula: torch's own shape rule runs every place.
    """
    tensor, states, weights = arguments[:3]
    held = list(states) if isinstance(states, list | tuple) else [states]
    out = weights[1].shape[1] * (2 if arguments[-2] else 1)
    return ((*tensor.shape[:2], out), *(tuple(state.shape) for state in held))


def cell_shapes(arguments: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    """What a cell gives for arguments that fulfil its condition: each of its states, as it was given."""
    state = arguments[1]
    return tuple(tuple(one.shape) for one in (state if isinstance(state, list | tuple) else [state]))


CELLS: Final = frozenset({"lstm_cell.default", "gru_cell.default", "rnn_tanh_cell.default", "rnn_relu_cell.default"})
SEQUENCES: Final = frozenset({"lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input"})
