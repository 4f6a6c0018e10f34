"""Further honest calls, for kernels that have several ways; written as in lines.py."""

from collections.abc import Mapping
from typing import Final

OTHERS: Final[Mapping[str, tuple[str, ...]]] = {
    "scaled_dot_product_attention.default": (
        "f:ABCD f:ABED f:ABEF null 0.0 false 0.5 false",
        "f:ABCD f:ABED f:ABED f:ABCE 0.0 false null false",
        "f:ABCD f:ABED f:ABED b:CE 0.0 false null false",
        "f:A(6)CD f:A(2)ED f:A(2)ED q:1E 0.0 false null true",
        "f:BCD f:BED f:BED null 0.0 false null false",
    ),
    "attention.dropout": (
        "f:A(6)CD f:A(2)ED f:A(2)ED null 0.5 true null true 1",
        "f:ABCD f:ABED f:ABED b:CE 0.25 false 2.0 false 3",
    ),
    "lstm.input": (
        "f:BTI ( f:4B3 f:4B4 ) ( f:(16)I f:(16)3 f:(16) f:(16) f:34 f:(16)I f:(16)3 f:(16) f:(16) f:34 "
        "f:(16)6 f:(16)3 f:(16) f:(16) f:34 f:(16)6 f:(16)3 f:(16) f:(16) f:34 ) true 2 0.0 true true true",
        "q:TBI ( q:1B4 q:1B4 ) ( q:(16)I q:(16)4 q:(16) q:(16) ) true 1 0.0 false false false",
        "f:TBI ( f:2B8 f:2B8 ) ( f:(32)I f:(32)8 f:(32)8 f:(32)8 ) false 2 0.0 true false false",
    ),
    "gru.input": (
        "f:BTI f:2B4 ( f:(12)I f:(12)4 f:(12) f:(12) f:(12)4 f:(12)4 f:(12) f:(12) ) true 2 0.0 false false true",
    ),
    "conv1d.default": ("f:B4(17) f:62(3) null [2] [2] [2] 2", "f:4(9) f:D4(2) f:D [1] [0] [1] 1"),
    "conv2d.default": ("f:B4(12)(9) f:42(3)(3) f:4 [2,1] [1,2] [1,2] 2", "f:B6(8)(8) f:61(3)(3) f:6 [1] [1] [1] 6"),
    "conv_transpose2d.input": ("f:B455 f:42(3)(3) f:4 [2,1] [1,0] [1,0] 2 [1,1]",),
    "max_pool2d.default": ("f:C(9)(8) [3,2] [] [1,0] [2,1] true", "f:BC(9)(8) [3] [2] [1] [1] false"),
    "avg_pool2d.default": ("f:C(9)(8) [3,2] [] [1,0] true false null",),
    "cross_entropy_loss.default": ("f:BC q:BC null 2 -100 0.25", "f:BC4 i:B4 null 0 1 0.0", "f:4 i: q:4 1 0 0.5"),
    "embedding.default": ("f:5C i: 2 true false", "f:(40)(33) i:BC -1 true false"),
    "index.Tensor": ("f:44C ( null i:B i:AB )", "f:BC4 ( b:BC )", "f:4C4 ( i:B1 null i:D )"),
    "index_put.default": (
        "f:44C ( i:B i:B ) f:C false",
        "f:BC ( b:BC ) f: false",
        "f:4C4 ( null null i:B ) f:4CB true",
    ),
    "einsum.default": (
        '"ab,cb->ac" ( f:AB f:CB ) null',
        '"...ab,...bc->...ac" ( f:DAB f:DBC ) null',
        '"ab,bc,cd->ad" ( f:AB f:BC f:CD ) null',
        '"aab->b" ( f:AAB ) null',
    ),
    "cdist.default": ("f:ABD f:ACD 1.0 1", "f:BD f:CD 3.0 2", "f:BD f:CD 0.0 0"),
    "pad.default": (
        'f:BC6 [2,1] "reflect" null',
        'f:B66 [1,2,3,1] "replicate" null',
        'f:BC66 [1,-1,2,0] "constant" 1.5',
    ),
    "grid_sampler.default": ("f:BC44 f:B332 1 1 true", "f:BC44 f:B332 2 2 false", "f:BC444 f:B3333 0 1 true"),
    "scatter_reduce.two": (
        'f:4C 0 i:3C f:3C "mean" false',
        'f:4C 1 i:41 f:41 "prod" true',
        'f:4C 0 i:3C f:3C "sum" true',
    ),
    "layer_norm.default": ("f:ABC [B,C] f:BC f:BC 0.1 false", "f:B(40) [40] null null 0.1 true"),
    "batch_norm.training": ("f:BC77 f:C f:C q:C q:C 0.1 0.5", "f:BC null null q:C q:C 0.1 0.5"),
    "sort.default": ("f:B(40) 1 true", "f:BC 0 false"),
    "topk.default": ("f:B(40) 7 -1 false false",),
}
