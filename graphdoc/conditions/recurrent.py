"""Recurrences: torch's shape rules broadcast where the kernels of the CPU read on, so this file checks every shape."""

from collections.abc import Sequence
from typing import Any, Final

from graphdoc.conditions.condition_rules import (
    Condition,
    Conditions,
    check_has_elements,
    check_tensor_rank,
    check_tensor_shape,
    one_float_type,
    repeat_condition,
)
from graphdoc.document.arguments import refuse_unless

LAYERS_LIMIT: Final = 64


def _build_recurrent_condition(gates: int, held: int) -> Condition:
    """[places, rows, features] (rows first where `batch_first`), and every state and weight as nn.LSTM makes them."""

    def condition(arguments: Sequence[Any]) -> None:
        tensor, state, weights, biases, layers, _dropout, _train, bidirectional, batch_first = arguments
        states = list(state) if held > 1 else [state]
        refuse_unless(len(states) == held, "its state is not a pair")
        refuse_unless(1 <= layers <= LAYERS_LIMIT, f"its layers are not 1 to {LAYERS_LIMIT}")
        check_tensor_rank(tensor, (3,), "its input")
        check_has_elements(tensor, "its input")
        one_float_type([tensor, *states, *weights])
        ways = 2 if bidirectional else 1
        runs, each_run = layers * ways, 4 if biases else 2
        projected = held == 2 and len(weights) == runs * (each_run + 1)
        each_run += projected
        refuse_unless(len(weights) == runs * each_run, f"it has not {runs * each_run} weights")
        check_tensor_rank(weights[1], (2,), "a weight")
        hidden, out = weights[1].shape[0] // gates, weights[1].shape[1]
        refuse_unless(hidden > 0 and (projected or out == hidden), "its weights are not of one hidden size")
        rows = tensor.shape[0 if batch_first else 1]
        check_tensor_shape(states[0], (runs, rows, out), "its state")
        check_tensor_shape(states[-1], (runs, rows, hidden if held == 2 else out), "its state")
        for run in range(runs):
            to_input, to_state, *others = weights[run * each_run :][:each_run]
            width = tensor.shape[2] if run < ways else out * ways
            check_tensor_shape(to_input, (gates * hidden, width), "an input's weight")
            check_tensor_shape(to_state, (gates * hidden, out), "a state's weight")
            for bias in others[:2] if biases else ():
                check_tensor_shape(bias, (gates * hidden,), "a bias")
            if projected:
                check_tensor_rank(others[-1], (2,), "a projection")
                check_tensor_shape(others[-1], (out, others[-1].shape[1]), "a projection")
                refuse_unless(others[-1].shape[1] == hidden, "a projection is not of the hidden size")

    return condition


def _build_cell_condition(gates: int, states: int) -> Condition:
    """One place of one layer: [rows, features], its state, two weights and two biases."""

    def condition(arguments: Sequence[Any]) -> None:
        tensor, state, to_input, to_state, *biases = arguments
        held = list(state) if states > 1 else [state]
        refuse_unless(len(held) == states, f"its state is not {states} tensors")
        check_tensor_rank(tensor, (2,), "its input")
        check_has_elements(tensor, "its input")
        check_tensor_rank(to_state, (2,), "a weight")
        one_float_type([tensor, *held, to_input, to_state, *biases])
        hidden = to_state.shape[1]
        refuse_unless(hidden > 0, "its weights have no elements")
        refuse_unless((biases[0] is None) == (biases[1] is None), "it has one bias of two")
        check_tensor_shape(to_state, (gates * hidden, hidden), "a state's weight")
        check_tensor_shape(to_input, (gates * hidden, tensor.shape[1]), "an input's weight")
        for bias in biases:
            check_tensor_shape(bias, (gates * hidden,), "a bias")
        for one in held:
            check_tensor_shape(one, (tensor.shape[0], hidden), "its state")

    return condition


CONDITIONS: Final[Conditions] = {
    "lstm.input": _build_recurrent_condition(4, 2),
    "gru.input": _build_recurrent_condition(3, 1),
    **repeat_condition(_build_recurrent_condition(1, 1), "rnn_tanh.input rnn_relu.input"),
    "lstm_cell.default": _build_cell_condition(4, 2),
    "gru_cell.default": _build_cell_condition(3, 1),
    **repeat_condition(_build_cell_condition(1, 1), "rnn_tanh_cell.default rnn_relu_cell.default"),
}


def compute_recurrent_shapes(arguments: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    """Returns the result shapes of lstm, gru and rnn for valid arguments: every place's output, and the last states.

    By formula: torch's own shape rule runs every place.
    """
    tensor, states, weights = arguments[:3]
    held = list(states) if isinstance(states, list | tuple) else [states]
    out = weights[1].shape[1] * (2 if arguments[-2] else 1)
    return ((*tensor.shape[:2], out), *(tuple(state.shape) for state in held))


def cell_shapes(arguments: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    """Returns the result shapes of a cell for valid arguments: each of its states, unchanged."""
    state = arguments[1]
    return tuple(tuple(one.shape) for one in (state if isinstance(state, list | tuple) else [state]))


CELLS: Final = frozenset({"lstm_cell.default", "gru_cell.default", "rnn_tanh_cell.default", "rnn_relu_cell.default"})
SEQUENCES: Final = frozenset({"lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input"})
