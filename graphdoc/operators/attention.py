"""Attention and recurrence. Attention's dropout is our own operator; recurrent operators have none."""

from typing import Final

from graphdoc.operators.costs import count_attention, count_recurrence
from graphdoc.operators.entry import Entries, aten, own

ENTRIES: Final[Entries] = {
    "scaled_dot_product_attention.default": aten(
        "tensor tensor tensor tensor? zero bool number? bool -> tensor", count_attention
    ),
    "attention.dropout": own(
        "tensor tensor tensor tensor? float bool number? bool int -> tensor", count_attention, "seed"
    ),
    "lstm.input": aten("tensor tensors tensors bool int zero bool bool bool -> tensor tensor tensor", count_recurrence),
    "gru.input": aten("tensor tensor tensors bool int zero bool bool bool -> tensor tensor", count_recurrence),
    "rnn_tanh.input": aten("tensor tensor tensors bool int zero bool bool bool -> tensor tensor", count_recurrence),
    "rnn_relu.input": aten("tensor tensor tensors bool int zero bool bool bool -> tensor tensor", count_recurrence),
    "lstm_cell.default": aten("tensor tensors tensor tensor tensor? tensor? -> tensor tensor", count_recurrence),
    "gru_cell.default": aten("tensor tensor tensor tensor tensor? tensor? -> tensor", count_recurrence),
    "rnn_tanh_cell.default": aten("tensor tensor tensor tensor tensor? tensor? -> tensor", count_recurrence),
    "rnn_relu_cell.default": aten("tensor tensor tensor tensor tensor? tensor? -> tensor", count_recurrence),
}
