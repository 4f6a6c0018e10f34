"""Reasons why a model cannot be published: the operator, its place in the module, and a replacement."""

from typing import Final

import torch
from torch import fx

from graphdoc.errors import DocumentRefused

COMPLEX: Final = "use real and imaginary parts in two tensors; of a Fourier transform, a product with its matrix"
CTC: Final = "its gradient is not the same twice on a GPU: write its forward recursion as a loop of torch.logaddexp"
SUGGESTIONS: Final = {
    "empty": "use torch.zeros",
    "new_empty": "use new_zeros",
    "empty_like": "use torch.zeros_like",
    "as_strided": "use view, unfold or slices",
    "nonzero": "its shape depends on the data: use torch.where(mask, x, 0) or multiply by a mask",
    "masked_select": "its shape depends on the data: use torch.where(mask, x, 0)",
    "unique": "its shape depends on the data",
    "item": "a number from data cannot decide what is computed: keep it a tensor",
    "_local_scalar_dense": "a number from data cannot decide what is computed: keep it a tensor",
    "randint": "use torch.rand_like and a comparison",
    "randperm": "use torch.rand_like and argsort",
    "uniform_": "use torch.rand_like",
    "normal_": "use torch.randn_like",
    "bernoulli_": "use torch.bernoulli or dropout",
    "multinomial": "use torch.rand_like and a comparison with running sums",
    "feature_alpha_dropout": "use nn.AlphaDropout or nn.Dropout2d",
    "instance_norm": "use track_running_stats=False",
    "embedding": "use sparse=False",
    "where": "its shape depends on the data: use torch.where(mask, x, 0) or multiply by a mask",
    "index": "a mask as an index gives a shape that depends on the data: use torch.where(mask, x, 0)",
    "sym_numel": "of nn.EmbeddingBag, use nn.Embedding and .mean(1) or .sum(1)",
    "_embedding_bag": "use nn.Embedding and .mean(1) or .sum(1)",
    "histc": "use nn.functional.one_hot(x, bins).sum(0); in transformers experts_implementation='batched_mm'",
    "_grouped_mm": "use one product for each group; in transformers experts_implementation='batched_mm'",
    "linalg_matrix_exp": "write the parametrization in products of matrices",
    "matrix_exp": "write the parametrization in products of matrices",
    "linalg_householder_product": "write the parametrization in products of matrices",
    "linalg_solve": "write the parametrization in products of matrices",
    **dict.fromkeys(
        ("tril_indices", "triu_indices"),
        "keep them in a buffer: self.register_buffer('pairs', torch.tril_indices(n, n))",
    ),
    "complex": "use real and imaginary parts in two tensors",
    "view_as_complex": "use real and imaginary parts in two tensors",
    **dict.fromkeys(
        (
            *(
                "_fft_r2c",
                "_fft_c2r",
                "_fft_c2c",
                "fft_fft",
                "fft_ifft",
                "fft_rfft",
                "fft_irfft",
                "fft_hfft",
                "fft_fftn",
            ),
            *("fft_fft2", "fft_ifft2", "fft_rfft2", "fft_irfft2", "fft_rfftn", "fft_irfftn", "fft_ifftn", "stft"),
        ),
        "use a matrix product with the transform's matrix, or a convolution",
    ),
    "linalg_inv_ex": "use a parametrization that needs no inverse",
    **dict.fromkeys(("ctc_loss", "_ctc_loss"), CTC),
    "_transformer_encoder_layer_fwd": "publish in training mode, with parameters that require gradients",
}
"""By the name before the dot."""
OTHERWISE: Final = "rewrite it in the operators of docs/document.md"


def build_document_refusal(node: fx.Node, reason: str, name: str | None = None) -> DocumentRefused:
    """Returns the error for a traced node; a reason may name its own replacement behind a semicolon."""
    operator = name or operator_name(node)
    if "; " in reason:
        return DocumentRefused(f"{module_path(node)}: {operator} {reason}")
    suggestion = SUGGESTIONS.get(operator.partition(".")[0], OTHERWISE)
    return DocumentRefused(f"{module_path(node)}: {operator} {reason}; {suggestion}")


def without_elements(reader: fx.Node) -> DocumentRefused:
    """Returns the error for a tensor of the module that has no elements and is read here."""
    reason = "reads a tensor without elements; leave it out (use_cache=False in transformers)"
    return DocumentRefused(f"{module_path(reader)} {reason}")


def operator_name(node: fx.Node) -> str:
    """Returns `name.overload` of an ATen operator; the own name of anything else."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload) and target.namespace == "aten":
        return f"{target._schema.name.removeprefix('aten::')}.{target._schema.overload_name or 'default'}"
    return getattr(target, "__name__", str(target))


def module_path(node: fx.Node) -> str:
    """Returns the innermost module of a node, by its owner's name for it."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values() if path]
    return (paths[-1] if paths else "the model").removeprefix("model.").removeprefix("L['self'].")
