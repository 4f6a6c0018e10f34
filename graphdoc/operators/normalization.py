"""Normalisation. BatchNorm is our own: running statistics are arguments and results; nothing is written in place."""

from typing import Final

from graphdoc.operators.costs import count_transcendental
from graphdoc.operators.entry import Entries, aten, own

ENTRIES: Final[Entries] = {
    "batch_norm.training": own(
        "tensor tensor? tensor? tensor tensor float float -> tensor tensor tensor", count_transcendental
    ),
    "batch_norm.batch": own("tensor tensor? tensor? float -> tensor", count_transcendental),
    "batch_norm.evaluation": own("tensor tensor? tensor? tensor tensor float float -> tensor", count_transcendental),
    "layer_norm.default": aten("tensor ints tensor? tensor? float bool -> tensor", count_transcendental),
    "group_norm.default": aten("tensor int tensor? tensor? float bool -> tensor", count_transcendental),
    "rms_norm.default": aten("tensor ints tensor? number? -> tensor", count_transcendental),
    "_weight_norm.default": aten("tensor tensor int -> tensor", count_transcendental),
    "instance_norm.default": aten(
        "tensor tensor? tensor? none none true float float bool -> tensor", count_transcendental
    ),
}
