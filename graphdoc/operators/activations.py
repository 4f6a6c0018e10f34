"""Activations."""

from typing import Final

from graphdoc.operators.costs import elements, transcendental
from graphdoc.operators.entry import Entries, aten

ENTRIES: Final[Entries] = {
    "relu.default": aten("tensor -> tensor", elements),
    "relu6.default": aten("tensor -> tensor", elements),
    "leaky_relu.default": aten("tensor number -> tensor", elements),
    "prelu.default": aten("tensor tensor -> tensor", elements),
    "threshold.default": aten("tensor number number -> tensor", elements),
    "hardtanh.default": aten("tensor number number -> tensor", elements),
    "hardswish.default": aten("tensor -> tensor", elements),
    "hardsigmoid.default": aten("tensor -> tensor", elements),
    "hardshrink.default": aten("tensor number -> tensor", elements),
    "softshrink.default": aten("tensor number -> tensor", elements),
    "gelu.default": aten("tensor none|tanh -> tensor", transcendental),
    "silu.default": aten("tensor -> tensor", transcendental),
    "mish.default": aten("tensor -> tensor", transcendental),
    "elu.default": aten("tensor number number number -> tensor", transcendental),
    "celu.default": aten("tensor number -> tensor", transcendental),
    "selu.default": aten("tensor -> tensor", transcendental),
    "softplus.default": aten("tensor number number -> tensor", transcendental),
    "glu.default": aten("tensor int -> tensor", transcendental),
    "tanh.default": aten("tensor -> tensor", transcendental),
    "sigmoid.default": aten("tensor -> tensor", transcendental),
    "log_sigmoid.default": aten("tensor -> tensor", transcendental),
    "softmax.int": aten("tensor int dtype? -> tensor", transcendental),
    "log_softmax.int": aten("tensor int dtype? -> tensor", transcendental),
}
