"""Activations."""

from typing import Final

from graphdoc.operators.costs import count_elements, count_transcendental
from graphdoc.operators.entry import Entries, aten

ENTRIES: Final[Entries] = {
    "relu.default": aten("tensor -> tensor", count_elements),
    "relu6.default": aten("tensor -> tensor", count_elements),
    "leaky_relu.default": aten("tensor number -> tensor", count_elements),
    "prelu.default": aten("tensor tensor -> tensor", count_elements),
    "threshold.default": aten("tensor number number -> tensor", count_elements),
    "hardtanh.default": aten("tensor number number -> tensor", count_elements),
    "hardswish.default": aten("tensor -> tensor", count_elements),
    "hardsigmoid.default": aten("tensor -> tensor", count_elements),
    "hardshrink.default": aten("tensor number -> tensor", count_elements),
    "softshrink.default": aten("tensor number -> tensor", count_elements),
    "gelu.default": aten("tensor none|tanh -> tensor", count_transcendental),
    "silu.default": aten("tensor -> tensor", count_transcendental),
    "mish.default": aten("tensor -> tensor", count_transcendental),
    "elu.default": aten("tensor number number number -> tensor", count_transcendental),
    "celu.default": aten("tensor number -> tensor", count_transcendental),
    "selu.default": aten("tensor -> tensor", count_transcendental),
    "softplus.default": aten("tensor number number -> tensor", count_transcendental),
    "glu.default": aten("tensor int -> tensor", count_transcendental),
    "tanh.default": aten("tensor -> tensor", count_transcendental),
    "sigmoid.default": aten("tensor -> tensor", count_transcendental),
    "log_sigmoid.default": aten("tensor -> tensor", count_transcendental),
    "softmax.int": aten("tensor int dtype? -> tensor", count_transcendental),
    "log_softmax.int": aten("tensor int dtype? -> tensor", count_transcendental),
}
