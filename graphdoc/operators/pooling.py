"""Pooling and interpolation."""

from typing import Final

from graphdoc.operators.costs import adaptive_pooling, build_interpolation_cost, count_elements, count_pooling
from graphdoc.operators.entry import Entries, aten

ENTRIES: Final[Entries] = {
    "max_pool1d.default": aten("tensor ints ints ints ints bool -> tensor", count_pooling),
    "max_pool2d.default": aten("tensor ints ints ints ints bool -> tensor", count_pooling),
    "max_pool3d.default": aten("tensor ints ints ints ints bool -> tensor", count_pooling),
    "avg_pool1d.default": aten("tensor ints ints ints bool bool -> tensor", count_pooling),
    "avg_pool2d.default": aten("tensor ints ints ints bool bool int? -> tensor", count_pooling),
    "avg_pool3d.default": aten("tensor ints ints ints bool bool int? -> tensor", count_pooling),
    "adaptive_avg_pool1d.default": aten("tensor ints -> tensor", adaptive_pooling),
    "adaptive_avg_pool2d.default": aten("tensor ints -> tensor", adaptive_pooling),
    "adaptive_avg_pool3d.default": aten("tensor ints -> tensor", adaptive_pooling),
    "adaptive_max_pool1d.default": aten("tensor ints -> tensor tensor", adaptive_pooling),
    "adaptive_max_pool2d.default": aten("tensor ints -> tensor tensor", adaptive_pooling),
    "upsample_nearest1d.vec": aten("tensor ints? floats? -> tensor", build_interpolation_cost(1)),
    "upsample_nearest2d.vec": aten("tensor ints? floats? -> tensor", build_interpolation_cost(1)),
    "upsample_nearest3d.vec": aten("tensor ints? floats? -> tensor", build_interpolation_cost(1)),
    "upsample_linear1d.vec": aten("tensor ints? bool floats? -> tensor", build_interpolation_cost(2)),
    "upsample_bilinear2d.vec": aten("tensor ints? bool floats? -> tensor", build_interpolation_cost(4)),
    "upsample_trilinear3d.vec": aten("tensor ints? bool floats? -> tensor", build_interpolation_cost(8)),
    "upsample_bicubic2d.vec": aten("tensor ints? bool floats? -> tensor", build_interpolation_cost(16)),
    "grid_sampler.default": aten("tensor tensor int int bool -> tensor", build_interpolation_cost(16)),
    "affine_grid_generator.default": aten("tensor ints bool -> tensor", build_interpolation_cost(4)),
    "pixel_shuffle.default": aten("tensor int -> tensor", count_elements),
    "pixel_unshuffle.default": aten("tensor int -> tensor", count_elements),
    "channel_shuffle.default": aten("tensor int -> tensor", count_elements),
}
