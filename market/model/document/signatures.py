"""The operators a document may name, and the types of what each takes and gives. Torch is not needed to read them.

The left column is a dictionary key, never looked up anywhere else. `name.overload` is the ATen operator of that name,
with every argument of its schema in order; the others are our own: `batch_norm.*` (the running statistics go in and
come out), `copy.broadcast`, `dropout.hash` and `integer.*`. No operator writes to its arguments: a document is a pure
function.

Types: tensor, tensors (a list), operand (a tensor or a number), int (may name an integer value), ints, float, number
(an int or a float), bool, dtype, memory (a memory format), none (always null), a|b (one of these words); `?` allows
null.
"""

from dataclasses import dataclass
from typing import Final

ATEN: Final = {
    # linear algebra
    "linear.default": "tensor tensor tensor? -> tensor",
    "matmul.default": "tensor tensor -> tensor",
    "mm.default": "tensor tensor -> tensor",
    "bmm.default": "tensor tensor -> tensor",
    "addmm.default": "tensor tensor tensor number number -> tensor",
    "conv1d.default": "tensor tensor tensor? ints ints ints int -> tensor",
    "conv2d.default": "tensor tensor tensor? ints ints ints int -> tensor",
    "conv2d.padding": "tensor tensor tensor? ints same|valid ints int -> tensor",
    # normalisation
    "layer_norm.default": "tensor ints tensor? tensor? float bool -> tensor",
    "group_norm.default": "tensor int tensor? tensor? float bool -> tensor",
    # pooling
    "max_pool1d.default": "tensor ints ints ints ints bool -> tensor",
    "max_pool2d.default": "tensor ints ints ints ints bool -> tensor",
    "avg_pool1d.default": "tensor ints ints ints bool bool -> tensor",
    "avg_pool2d.default": "tensor ints ints ints bool bool int? -> tensor",
    "adaptive_avg_pool1d.default": "tensor ints -> tensor",
    "adaptive_avg_pool2d.default": "tensor ints -> tensor",
    "adaptive_max_pool2d.default": "tensor ints -> tensor tensor",
    # activations
    "relu.default": "tensor -> tensor",
    "gelu.default": "tensor none|tanh -> tensor",
    "silu.default": "tensor -> tensor",
    "tanh.default": "tensor -> tensor",
    "sigmoid.default": "tensor -> tensor",
    "elu.default": "tensor number number number -> tensor",
    "leaky_relu.default": "tensor number -> tensor",
    "hardtanh.default": "tensor number number -> tensor",
    "softplus.default": "tensor number number -> tensor",
    "prelu.default": "tensor tensor -> tensor",
    "softmax.int": "tensor int dtype? -> tensor",
    "log_softmax.int": "tensor int dtype? -> tensor",
    # losses
    "cross_entropy_loss.default": "tensor tensor tensor? int int float -> tensor",
    "nll_loss_nd.default": "tensor tensor tensor? int int -> tensor",
    "mse_loss.default": "tensor tensor int -> tensor",
    "l1_loss.default": "tensor tensor int -> tensor",
    "binary_cross_entropy_with_logits.default": "tensor tensor tensor? tensor? int -> tensor",
    # element by element
    "add.Tensor": "operand operand number -> tensor",
    "sub.Tensor": "operand operand number -> tensor",
    "mul.Tensor": "operand operand -> tensor",
    "div.Tensor": "operand operand -> tensor",
    "rsub.Scalar": "tensor number number -> tensor",
    "neg.default": "tensor -> tensor",
    "abs.default": "tensor -> tensor",
    "exp.default": "tensor -> tensor",
    "log.default": "tensor -> tensor",
    "sqrt.default": "tensor -> tensor",
    "rsqrt.default": "tensor -> tensor",
    "reciprocal.default": "tensor -> tensor",
    "pow.Tensor_Scalar": "tensor number -> tensor",
    "clamp.default": "tensor number? number? -> tensor",
    "maximum.default": "tensor tensor -> tensor",
    "minimum.default": "tensor tensor -> tensor",
    "where.self": "tensor operand operand -> tensor",
    "masked_fill.Scalar": "tensor tensor number -> tensor",
    "fill.Scalar": "tensor number -> tensor",
    "fill.Tensor": "tensor operand -> tensor",
    "eq.Tensor": "tensor operand -> tensor",
    "ne.Tensor": "tensor operand -> tensor",
    "eq.Scalar": "tensor number -> tensor",
    "ne.Scalar": "tensor number -> tensor",
    "gt.Tensor": "tensor operand -> tensor",
    "lt.Tensor": "tensor operand -> tensor",
    "gt.Scalar": "tensor number -> tensor",
    "lt.Scalar": "tensor number -> tensor",
    "ge.Scalar": "tensor number -> tensor",
    "le.Scalar": "tensor number -> tensor",
    "logical_and.default": "tensor tensor -> tensor",
    "logical_not.default": "tensor -> tensor",
    # reductions
    "sum.default": "tensor dtype? -> tensor",
    "sum.dim_IntList": "tensor ints? bool dtype? -> tensor",
    "mean.default": "tensor dtype? -> tensor",
    "mean.dim": "tensor ints? bool dtype? -> tensor",
    "var.correction": "tensor ints? number? bool -> tensor",
    "amax.default": "tensor ints bool -> tensor",
    "argmax.default": "tensor int? bool -> tensor",
    # shapes
    "view.default": "tensor ints -> tensor",
    "_unsafe_view.default": "tensor ints -> tensor",
    "reshape.default": "tensor ints -> tensor",
    "flatten.using_ints": "tensor int int -> tensor",
    "transpose.int": "tensor int int -> tensor",
    "permute.default": "tensor ints -> tensor",
    "t.default": "tensor -> tensor",
    "unsqueeze.default": "tensor int -> tensor",
    "squeeze.dim": "tensor int -> tensor",
    "squeeze.dims": "tensor ints -> tensor",
    "expand.default": "tensor ints bool -> tensor",
    "slice.Tensor": "tensor int int? int? int -> tensor",
    "slice_scatter.default": "tensor tensor int int? int? int -> tensor",
    "select.int": "tensor int int -> tensor",
    "select_scatter.default": "tensor tensor int int -> tensor",
    "cat.default": "tensors int -> tensor",
    "stack.default": "tensors int -> tensor",
    "split.Tensor": "tensor int int -> tensors",
    "split_with_sizes.default": "tensor ints int -> tensors",
    "broadcast_tensors.default": "tensors -> tensors",
    "pad.default": "tensor ints constant|reflect|replicate|circular number? -> tensor",
    "constant_pad_nd.default": "tensor ints number -> tensor",
    # copies
    "alias.default": "tensor -> tensor",
    "clone.default": "tensor memory? -> tensor",
    "detach.default": "tensor -> tensor",
    "_to_copy.default": "tensor dtype? none none none bool memory? -> tensor",
}

OWN: Final = {
    "batch_norm.training": "tensor tensor? tensor? tensor tensor float float -> tensor tensor tensor",
    "batch_norm.evaluation": "tensor tensor? tensor? tensor tensor float float -> tensor",
    "copy.broadcast": "tensor tensor -> tensor",
    "dropout.hash": "tensor float int -> tensor",
    "integer.size": "tensor int -> int",
    "integer.add": "int int -> int",
    "integer.sub": "int int -> int",
    "integer.mul": "int int -> int",
    "integer.floordiv": "int int -> int",
}


@dataclass(frozen=True)
class Signature:
    """The argument types of one operator in order, and the types of its results."""

    arguments: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def gives_list(self) -> bool:
        return self.results == ("tensors",)


def _parse(text: str) -> Signature:
    arguments, _, results = text.partition("->")
    return Signature(tuple(arguments.split()), tuple(results.split()))


SIGNATURES: Final = {name: _parse(text) for name, text in (ATEN | OWN).items()}
"""The allow-list."""

DTYPES: Final = {"float32": 4, "int64": 8, "int32": 4, "uint8": 1, "bool": 1}
"""The element types of the language, and the bytes of one element."""

MEMORY_FORMATS: Final = ("contiguous_format", "preserve_format")

WORDS: Final = {"none|tanh", "same|valid", "constant|reflect|replicate|circular"}
