"""Operators of whole layers, family by family: products, convolutions, normalisations, activations, losses."""

from collections.abc import Mapping
from typing import Final

from graphdoc.operators.costs import (
    adaptive_pooling,
    added_contraction,
    build_interpolation_cost,
    count_attention,
    count_bilinear,
    count_contraction,
    count_convolution,
    count_distances,
    count_einsum,
    count_elements,
    count_pooling,
    count_recurrence,
    count_transcendental,
    summed_contraction,
    transposed_convolution,
)
from graphdoc.operators.entry import Entries, aten, own

ALGEBRA: Final[Entries] = {
    "linear.default": aten("tensor tensor tensor? -> tensor", count_contraction),
    "matmul.default": aten("tensor tensor -> tensor", count_contraction),
    "mm.default": aten("tensor tensor -> tensor", count_contraction),
    "bmm.default": aten("tensor tensor -> tensor", count_contraction),
    "mv.default": aten("tensor tensor -> tensor", count_contraction),
    "dot.default": aten("tensor tensor -> tensor", count_contraction),
    "outer.default": aten("tensor tensor -> tensor", count_elements),
    "addmm.default": aten("tensor tensor tensor number number -> tensor", added_contraction),
    "baddbmm.default": aten("tensor tensor tensor number number -> tensor", added_contraction),
    "addbmm.default": aten("tensor tensor tensor number number -> tensor", summed_contraction),
    "bilinear.default": aten("tensor tensor tensor tensor? -> tensor", count_bilinear),
    "einsum.default": aten("equation tensors ints? -> tensor", count_einsum),
    "cdist.default": aten("tensor tensor float int? -> tensor", count_distances),
    "linalg_cross.default": aten("tensor tensor int -> tensor", count_elements),
}
"""Linear algebra."""
CONVOLUTION: Final[Entries] = {
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
"""Convolutions, and the extraction and sum of their windows."""
POOLING: Final[Entries] = {
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
"""Pooling and interpolation."""
NORMALIZATION: Final[Entries] = {
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
"""Normalisation. BatchNorm is our own: running statistics are arguments and results; nothing is written in place."""
ACTIVATIONS: Final[Entries] = {
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
"""Activations."""
ATTENTION: Final[Entries] = {
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
"""Attention and recurrence. Attention's dropout is our own operator; recurrent operators have none."""
LOSSES: Final[Entries] = {
    "cross_entropy_loss.default": aten("tensor tensor tensor? int int float -> tensor", count_transcendental),
    "nll_loss.default": aten("tensor tensor tensor? int int -> tensor", count_transcendental),
    "nll_loss_nd.default": aten("tensor tensor tensor? int int -> tensor", count_transcendental),
    "mse_loss.default": aten("tensor tensor int -> tensor", count_transcendental),
    "l1_loss.default": aten("tensor tensor int -> tensor", count_transcendental),
    "smooth_l1_loss.default": aten("tensor tensor int float -> tensor", count_transcendental),
    "huber_loss.default": aten("tensor tensor int float -> tensor", count_transcendental),
    "kl_div.default": aten("tensor tensor int bool -> tensor", count_transcendental),
    "binary_cross_entropy.default": aten("tensor tensor tensor? int -> tensor", count_transcendental),
    "binary_cross_entropy_with_logits.default": aten(
        "tensor tensor tensor? tensor? int -> tensor", count_transcendental
    ),
    "soft_margin_loss.default": aten("tensor tensor int -> tensor", count_transcendental),
    "margin_ranking_loss.default": aten("tensor tensor tensor float int -> tensor", count_transcendental),
    "hinge_embedding_loss.default": aten("tensor tensor float int -> tensor", count_transcendental),
    "cosine_embedding_loss.default": aten("tensor tensor tensor float int -> tensor", count_transcendental),
    "triplet_margin_loss.default": aten(
        "tensor tensor tensor float float float bool int -> tensor", count_transcendental
    ),
    "poisson_nll_loss.default": aten("tensor tensor bool bool float int -> tensor", count_transcendental),
    "cosine_similarity.default": aten("tensor tensor int float -> tensor", count_transcendental),
    "pairwise_distance.default": aten("tensor tensor float float bool -> tensor", count_transcendental),
}
"""Losses and similarities."""

FAMILIES: Final[Mapping[str, Entries]] = {
    "algebra": ALGEBRA,
    "convolution": CONVOLUTION,
    "pooling": POOLING,
    "normalization": NORMALIZATION,
    "activations": ACTIVATIONS,
    "attention": ATTENTION,
    "losses": LOSSES,
}
