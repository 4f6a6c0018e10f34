"""An honest call of every operator, as a line: tensors by type and shape, and the numbers that go with them.

`f:BC` is a float tensor whose sizes the letters name (each letter one small size for the whole call), `p:` one of
probabilities, `q:` one without a gradient, `i:B` integers that are small enough to point at anything, `n:` and `m:` any
and positive ones, `b:BC` truths; digits are sizes themselves, `f:` is one number. Parentheses make a list, everything
else is JSON. Operators without a line take tensors of one shape and what their types say.
"""

import json
from collections.abc import Mapping
from random import Random
from typing import Any, Final

from gradmarket.market.model.document.operators import ALLOWED

Made = dict[str, Any]
"""A tensor: `shape`, `dtype`, `fill` (which numbers) and `layout` (how they lie)."""

RECIPES: Final[Mapping[str, str]] = {
    "linear.default": "f:BC f:DC f:D",
    "matmul.default": "f:BC f:CD",
    "mm.default": "f:BC f:CD",
    "bmm.default": "f:ABC f:ACD",
    "mv.default": "f:BC f:C",
    "dot.default": "f:C f:C",
    "outer.default": "f:B f:C",
    "addmm.default": "f:BD f:BC f:CD 1 1.5",
    "baddbmm.default": "f:ABD f:ABC f:ACD 1 1",
    "addbmm.default": "f:BD f:ABC f:ACD 1 1",
    "bilinear.default": "f:BC f:BD f:ECD f:E",
    "einsum.default": '"ab,bc->ac" ( f:AB f:BC ) null',
    "cdist.default": "f:ABD f:ACD 2.0 null",
    "linalg_cross.default": "f:B3 f:B3 -1",
    "conv1d.default": "f:BC9 f:DC3 f:D [1] [1] [1] 1",
    "conv2d.default": "f:BC77 f:DC33 f:D [1,1] [1,1] [1,1] 1",
    "conv3d.default": "f:BC555 f:DC222 f:D [1,1,1] [0,0,0] [1,1,1] 1",
    "conv1d.padding": 'f:BC9 f:DC3 f:D [1] "same" [1] 1',
    "conv2d.padding": 'f:BC77 f:DC33 f:D [1,1] "same" [1,1] 1',
    "conv3d.padding": 'f:BC555 f:DC222 f:D [1,1,1] "valid" [1,1,1] 1',
    "conv_transpose1d.default": "f:BC5 f:CD3 f:D [2] [0] [1] 1 [1]",
    "conv_transpose2d.input": "f:BC55 f:CD33 f:D [2,2] [1,1] [1,1] 1 [1,1]",
    "conv_transpose3d.input": "f:BC333 f:CD222 f:D [1,1,1] [0,0,0] [0,0,0] 1 [1,1,1]",
    "im2col.default": "f:BC66 [2,2] [1,1] [1,1] [1,1]",
    "col2im.default": "f:B(4)9 [4,4] [2,2] [1,1] [0,0] [1,1]",
    "max_pool1d.default": "f:BC8 [2] [2] [0] [1] false",
    "max_pool2d.default": "f:BC66 [2,2] [2,2] [1,1] [1,1] false",
    "max_pool3d.default": "f:BC444 [2,2,2] [] [0,0,0] [1,1,1] true",
    "avg_pool1d.default": "f:BC8 [2] [2] [0] false true",
    "avg_pool2d.default": "f:BC66 [2,2] [2,2] [1,1] false true 3",
    "avg_pool3d.default": "f:BC444 [2,2,2] [2,2,2] [1,1,1] true false null",
    "adaptive_avg_pool1d.default": "f:BC8 [3]",
    "adaptive_avg_pool2d.default": "f:BC66 [3,2]",
    "adaptive_avg_pool3d.default": "f:BC444 [3,2,1]",
    "adaptive_max_pool1d.default": "f:BC8 [3]",
    "adaptive_max_pool2d.default": "f:BC66 [3,2]",
    "upsample_nearest1d.vec": "f:BC4 [7] null",
    "upsample_nearest2d.vec": "f:BC44 null [2.0,1.5]",
    "upsample_nearest3d.vec": "f:BC333 [5,4,3] null",
    "upsample_linear1d.vec": "f:BC4 [7] false null",
    "upsample_bilinear2d.vec": "f:BC44 null true [2.0,1.5]",
    "upsample_trilinear3d.vec": "f:BC333 [5,4,3] true null",
    "upsample_bicubic2d.vec": "f:BC44 [6,7] false null",
    "grid_sampler.default": "f:BC44 f:B332 0 0 false",
    "affine_grid_generator.default": "f:223 [2,1,3,4] false",
    "pixel_shuffle.default": "f:B433 2",
    "pixel_unshuffle.default": "f:BC44 2",
    "channel_shuffle.default": "f:B433 2",
    "batch_norm.training": "f:BC3 f:C f:C q:C q:C 0.1 0.5",
    "batch_norm.batch": "f:BC3 f:C f:C 0.1",
    "batch_norm.evaluation": "f:BC3 f:C f:C q:C q:C 0.1 0.5",
    "layer_norm.default": "f:ABC [C] f:C f:C 0.1 true",
    "group_norm.default": "f:B43 2 f:4 f:4 0.1 true",
    "rms_norm.default": "f:ABC [C] f:C 0.1",
    "instance_norm.default": "f:BC5 f:C f:C null null true 0.1 0.1 true",
    "prelu.default": "f:BC f:C",
    "glu.default": "f:B4 1",
    "scaled_dot_product_attention.default": "f:ABCD f:ABED f:ABEF null 0.0 false null false",
    "attention.dropout": "f:ABCD f:ABED f:ABEF f:CE 0.25 false null false 3",
    "lstm.input": "f:TBI ( f:1B4 f:1B4 ) ( f:(16)I f:(16)4 f:(16) f:(16) ) true 1 0.0 true false false",
    "gru.input": "f:TBI f:2B4 ( f:(12)I f:(12)4 f:(12)I f:(12)4 ) false 1 0.0 true true false",
    "rnn_tanh.input": "f:BTI f:2B4 ( f:4I f:44 f:4 f:4 f:44 f:44 f:4 f:4 ) true 2 0.0 false false true",
    "rnn_relu.input": "f:TBI f:1B4 ( f:4I f:44 f:4 f:4 ) true 1 0.0 true false false",
    "lstm_cell.default": "f:BI ( f:B4 f:B4 ) f:(16)I f:(16)4 f:(16) f:(16)",
    "gru_cell.default": "f:BI f:B4 f:(12)I f:(12)4 f:(12) f:(12)",
    "rnn_tanh_cell.default": "f:BI f:B4 f:4I f:44 f:4 f:4",
    "rnn_relu_cell.default": "f:BI f:B4 f:4I f:44 null null",
    "cross_entropy_loss.default": "f:B4 i:B q:4 1 -100 0.1",
    "nll_loss.default": "f:B4 i:B q:4 1 -100",
    "nll_loss_nd.default": "f:B4C i:BC q:4 1 -100",
    "margin_ranking_loss.default": "f:B f:B f:B 0.5 1",
    "cosine_embedding_loss.default": "f:BC f:BC f:B 0.5 1",
    "binary_cross_entropy_with_logits.default": "f:BC q:BC q:BC q:C 1",
    "soft_margin_loss.default": "f:BC q:BC 1",
    "binary_cross_entropy.default": "p:BC q:BC q:BC 1",
    "triplet_margin_loss.default": "f:BC f:BC f:BC 1.0 2.0 0.1 false 1",
    "cosine_similarity.default": "f:BC f:BC 1 0.1",
    "where.self": "b:BC f:BC f:BC",
    "where.ScalarOther": "b:BC f:BC 1",
    "where.ScalarSelf": "b:BC 1 f:BC",
    "where.Scalar": "b:BC 1 2",
    "masked_fill.Scalar": "f:BC b:BC 2.5",
    "masked_fill.Tensor": "f:BC b:BC f:",
    "fill.Tensor": "f:BC f:",
    "div.Tensor_mode": 'n:BC m:BC "trunc"',
    "div.Scalar_mode": 'n:BC 3 "trunc"',
    "floor_divide.default": "n:BC m:BC",
    "remainder.Tensor": "n:BC m:BC",
    "remainder.Scalar": "n:BC 3",
    "fmod.Scalar": "n:BC 3",
    "pow.Tensor_Scalar": "f:BC 2",
    "pow.Scalar": "2 f:BC",
    **{f"{word}.Tensor": "n:BC n:BC" for word in ("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__")},
    **{f"{word}.Scalar": "n:BC 3" for word in ("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__xor__")},
    "bitwise_not.default": "n:BC",
    "logical_not.default": "b:BC",
    "__xor__.Tensor": "n:BC n:BC",
    "__or__.Scalar": "n:BC 3",
    "topk.default": "f:B5 2 1 true true",
    "sum.dim_IntList": "f:ABC [0,2] false null",
    "mean.dim": "f:ABC [1] true null",
    "norm.ScalarOpt_dim": "f:BC 2 [0] false",
    "linalg_vector_norm.default": "f:BC 2 [0] false null",
    "var.correction": "f:BC [1] 1 false",
    "std.correction": "f:BC [1] 1 false",
    "var_mean.correction": "f:BC [0] 1 true",
    "amax.default": "f:BC [0] false",
    "amin.default": "f:BC [1] true",
    "logsumexp.default": "f:BC [1] false",
    "view.default": "f:B6 [-1,3]",
    "_unsafe_view.default": "f:B6 [-1,2]",
    "reshape.default": "f:B6 [3,-1]",
    "unflatten.int": "f:B6 1 [2,3]",
    "permute.default": "f:ABC [2,0,1]",
    "movedim.intlist": "f:ABC [0,1] [1,2]",
    "squeeze.dims": "f:1B1 [0,2]",
    "flatten.using_ints": "f:ABC 1 2",
    "expand.default": "f:1C [B,C] false",
    "broadcast_to.default": "f:1C [B,C]",
    "repeat.default": "f:BC [2,1,3]",
    "tile.default": "f:BC [2,3]",
    "repeat_interleave.self_int": "f:BC 2 1 null",
    "slice.Tensor": "f:B6 1 1 5 2",
    "narrow.default": "f:B6 1 1 3",
    "select.int": "f:BC 0 0",
    "unfold.default": "f:B6 1 3 2",
    "diagonal.default": "f:BC 0 0 1",
    "diag_embed.default": "f:BC 1 0 2",
    "slice_scatter.default": "f:B6 f:B2 1 1 5 2",
    "select_scatter.default": "f:BC f:C 0 0",
    "diagonal_scatter.default": "f:33 f:3 0 0 1",
    "cat.default": "( f:BC f:AC ) 0",
    "concat.default": "( f:BC f:BD ) 1",
    "stack.default": "( f:BC f:BC ) 1",
    "meshgrid.indexing": '( f:B f:C ) "ij"',
    "split.Tensor": "f:6C 2 0",
    "split_with_sizes.default": "f:6C [2,4] 0",
    "tensor_split.sections": "f:6C 4 0",
    "chunk.default": "f:6C 4 0",
    "unbind.int": "f:BC 0",
    "pad.default": 'f:BC6 [1,2] "circular" null',
    "constant_pad_nd.default": "f:BC6 [1,-2,1,0] 0.5",
    "roll.default": "f:BC [1] [0]",
    "flip.default": "f:BC [0,1]",
    "rot90.default": "f:BC 1 [0,1]",
    "embedding.default": "f:5C i:AB -1 false false",
    "gather.default": "f:4C 0 i:3C false",
    "take_along_dim.default": "f:4C i:3C 0",
    "index_select.default": "f:4C 0 i:B",
    "index.Tensor": "f:44C ( i:B i:B )",
    "index_put.default": "f:4C ( i:B ) f:BC true",
    "index_add.default": "f:4C 0 i:B f:BC 1",
    "index_copy.default": "f:4C 0 i:B f:BC",
    "index_fill.int_Scalar": "f:4C 0 i:B 1",
    "scatter.src": "f:4C 0 i:3C f:3C",
    "scatter.value": "f:4C 0 i:3C 1",
    "scatter_add.default": "f:4C 0 i:3C f:3C",
    "scatter_reduce.two": 'f:4C 0 i:3C f:3C "amax" true',
    "diff.default": "f:B5 1 1 null null",
    "bucketize.Tensor": "f:BC f:4 false false",
    "one_hot.default": "i:BC 4",
    "clamp.default": "f:BC -1 1",
    "creation.full": '[2,3] 1.5 "float32"',
    "creation.arange": '0 7 2 "int64"',
    "creation.linspace": '0 1 5 "float32"',
    "creation.eye": '3 4 "float32"',
    "integer.size": "f:BC 1",
    "copy.broadcast": "f:BC f:1C",
    "clamp.Tensor": "f:BC f:BC null",
    "sort.stable": "f:BC true 1 false",
    "chance.bernoulli": "f:BC p:BC 1",
    "broadcast_tensors.default": "( f:BC f:C )",
    **{f"dropout.{kind}": "f:BCD 0.25 3" for kind in ("hash", "feature", "alpha")},
}
_DTYPES: Final = {"f": "float32", "q": "float32", "p": "float32", "i": "int64", "n": "int32", "m": "int32", "b": "bool"}
_FILLS: Final = {"f": "small", "q": "part", "p": "part", "i": "index", "n": "index", "m": "count", "b": "index"}


def honest(key: str, chance: Random) -> list[Any]:
    """The arguments of an honest call in their order."""
    sizes = {letter: chance.choice((1, 2, 2, 3, 4)) for letter in "ABCDEFIT"}
    if key in RECIPES:
        return _read(RECIPES[key].split(), sizes)
    return [_by_type(kind, chance, sizes) for kind in ALLOWED[key].arguments]


def _read(words: list[str], sizes: Mapping[str, int]) -> list[Any]:
    found: list[list[Any]] = [[]]
    for word in words:
        if word == "(":
            found.append([])
        elif word == ")":
            last = found.pop()
            found[-1].append(last)
        elif word[1:2] == ":":
            found[-1].append(tensor(word[0], _shape(word[2:], sizes)))
        else:
            for letter, size in sizes.items():
                word = word if '"' in word or word[0].islower() else word.replace(letter, str(size))
            found[-1].append(json.loads(word))
    return found[0]


def tensor(letter: str, shape: list[int]) -> Made:
    return {"shape": shape, "dtype": _DTYPES[letter], "fill": _FILLS[letter], "layout": "plain", "grad": letter in "fp"}


def _shape(word: str, sizes: Mapping[str, int]) -> list[int]:
    """`B3(16)` is a size by letter, three and sixteen."""
    shape = []
    for place, part in enumerate(word.replace(")", "(").split("(")):
        shape += [int(part)] if place % 2 else [int(one) if one.isdigit() else sizes[one] for one in part]
    return shape


def _by_type(kind: str, chance: Random, sizes: Mapping[str, int]) -> Any:
    if kind.endswith("?"):
        return None if chance.random() < 0.5 else _by_type(kind[:-1], chance, sizes)
    if "|" in kind:
        return chance.choice(kind.split("|"))
    plain = tensor("f", [sizes["B"], sizes["C"]])
    return {
        "tensor": plain, "operand": plain, "tensors": [plain, plain], "places": [plain], "int": 1, "ints": [0],
        "float": 0.5, "floats": [1.0, 1.0], "number": chance.choice((1, 2, 0.5)), "bool": chance.random() < 0.5,
        "dtype": chance.choice(("float32", "float64", "bfloat16")), "memory": "contiguous_format",
        "equation": "ab,ab->a", "none": None, "true": True, "false": False, "zero": 0.0,
    }[kind]  # fmt: skip
