"""Convolutions, and the extraction and sum of their windows."""

from typing import Final

from graphdoc.operators.costs import count_convolution, count_elements, transposed_convolution
from graphdoc.operators.entry import Entries, aten

ENTRIES: Final[Entries] = {
    "conv1d.default": aten("tensor tensor tensor? ints ints ints int -> tensor", count_convolution),
    "conv2d.default": aten("tensor tensor tensor? ints ints ints int -> tensor", count_convolution),
    "conv3d.default": aten("tensor tensor tensor? ints ints ints int -> tensor", count_convolution),
    "conv1d.padding": aten("tensor tensor tensor? ints same|valid ints int -> tensor", count_convolution),
    "conv2d.padding": aten("tensor tensor tensor? ints same|valid ints int -> tensor", count_convolution),
    "conv3d.padding": aten("tensor tensor tensor? ints same|valid ints int -> tensor", count_convolution),
    "conv_transpose1d.default": aten("tensor tensor tensor? ints ints ints int ints -> tensor", transposed_convolution),
    "conv_transpose2d.input": aten("tensor tensor tensor? ints ints ints int ints -> tensor", transposed_convolution),
    "conv_transpose3d.input": aten("tensor tensor tensor? ints ints ints int ints -> tensor", transposed_convolution),
    "im2col.default": aten("tensor ints ints ints ints -> tensor", count_elements),
    "col2im.default": aten("tensor ints ints ints ints ints -> tensor", count_elements),
}
