"""A card's determinism class: the factors that decide the bits of its answers, and a digest of fixed kernels' results
there.

A card's market name decides nothing: an H100 and an H200 gave equal bits in all trials. The digest is of the kinds of
kernels that documents call, forward and backward, in each precision.
"""

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np
import torch
from blake3 import blake3
from torch import Tensor, nn
from torch.nn import functional

from graphdoc.document.product_precisions import compute_in_tf32
from graphdoc.errors import Refused, is_out_of_memory
from graphdoc.runner.admitted import list_mapped_files
from graphdoc.runner.driver import Driver

DIGEST_CHARACTERS: Final = 16


def describe_card(device: str) -> str:
    """Starts CUDA on the one card that this process sees and returns its class.

    Raises Refused with the driver's own words where CUDA does not start, or where the card computes other bits the
    second time.
    """
    start_cuda()
    first, again = (digest_kernels(compute_kernels(device)) for _ in range(2))
    torch.cuda.empty_cache()
    if first != again:
        raise Refused(
            "the card computes fixed kernels to other bits the second time: look at its errors (nvidia-smi -q)"
        )
    major, minor = torch.cuda.get_device_capability()
    parts = [
        "cuda",
        f"sm_{major}{minor}",
        f"cuda-{torch.version.cuda}",
        f"cublas-{read_cublas_version()}",
        f"cudnn-{torch.backends.cudnn.version()}",  # type: ignore[no-untyped-call]
        f"torch-{torch.__version__}",
        *list_flags(),
        f"kernels-{first}",
    ]
    return "/".join(parts)


def start_cuda() -> None:
    """Starts CUDA. Raises Refused."""
    if torch.version.cuda is None:
        raise Refused(f"torch {torch.__version__} is built without CUDA: install a build that has it")
    driver = Driver()
    driver.start()
    if not list(driver.list_cards()):
        raise Refused("the driver shows this process no card of that number")
    torch.cuda.init()  # type: ignore[no-untyped-call]


def list_flags() -> list[str]:
    """Returns the state of torch and the environment variables that decide bits on a card."""
    tf32 = torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32
    workspace = os.environ.get("CUBLAS_WORKSPACE_CONFIG", "none").strip(":").replace(":", "x")
    return [f"tf32-{'on' if tf32 else 'off'}", f"workspace-{workspace}"]


def read_cublas_version() -> str:
    """Returns the version that the loaded library reports, "unknown" where none is loaded."""
    for path in list_mapped_files("libcublas.so"):
        library, parts = ctypes.CDLL(path), [ctypes.c_int() for _ in range(3)]
        if not any(library.cublasGetProperty(which, ctypes.byref(part)) for which, part in enumerate(parts)):
            return ".".join(str(part.value) for part in parts)
    return "unknown"


def digest_kernels(results: Mapping[str, bytes]) -> str:
    """Returns one digest of all kernels' digests."""
    lines = "".join(f"{name} {digest.hex()}\n" for name, digest in sorted(results.items()))
    return blake3(lines.encode()).hexdigest()[:DIGEST_CHARACTERS]


def compute_kernels(device: str) -> dict[str, bytes]:
    """Returns a digest of the bits of each fixed kernel's results and gradients on this device.

    A refusal by this torch, for want of a deterministic kernel, is part of it.
    """
    digests = {}
    for name, compute in KERNELS.items():
        whole = blake3()
        try:
            for result in compute(device):
                whole.update(result.detach().to("cpu", torch.float32).contiguous().numpy().tobytes())
        except RuntimeError as error:
            if is_out_of_memory(error) or "deterministic" not in str(error):
                raise
            whole.update(b"refused")
        digests[name] = whole.digest()
    return digests


def _make_values(device: str, *shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Returns fixed numbers from -1 to 1, the same on any machine: integers modulo 2^16, divided."""
    count = int(np.prod(shape))
    numbers = (np.arange(count, dtype=np.uint64) * 40503 + seed * 9973) * 2654435761 % 2**32 >> 16
    values = numbers.astype(np.float32) / 2**15 - 1
    return torch.from_numpy(values.reshape(shape)).to(device, dtype).requires_grad_()


def _differentiate(result: Tensor, *inputs: Tensor) -> Iterator[Tensor]:
    """Yields the result and the gradients of its sum of squares."""
    yield result
    yield from torch.autograd.grad(result.float().square().sum(), inputs)


def _multiply(dtype: torch.dtype) -> Callable[[str], Iterator[Tensor]]:
    def compute(device: str) -> Iterator[Tensor]:
        for seed, (rows, inner, columns) in enumerate(((64, 64, 64), (257, 129, 63), (512, 1024, 384), (8, 4096, 10))):
            left = _make_values(device, rows, inner, seed=seed, dtype=dtype)
            right = _make_values(device, inner, columns, seed=seed + 10, dtype=dtype)
            yield from _differentiate(left @ right, left, right)

    return compute


def _convolve(device: str) -> Iterator[Tensor]:
    for seed, (before, after, size, groups) in enumerate(((1, 8, 3, 1), (16, 32, 3, 1), (32, 32, 5, 32))):
        images = _make_values(device, 8, before, 16, 16, seed=seed)
        weights = _make_values(device, after, before // groups, size, size, seed=seed + 20)
        pooled = functional.max_pool2d(functional.conv2d(images, weights, padding=size // 2, groups=groups), 2)
        yield from _differentiate(pooled, images, weights)


def _round(compute: Callable[[str], Iterator[Tensor]]) -> Callable[[str], Iterator[Tensor]]:
    """Returns the same kernels in TF32."""

    def compute_rounded(device: str) -> Iterator[Tensor]:
        with compute_in_tf32(torch.device(device).type):
            results = list(compute(device))
        yield from results

    return compute_rounded


def _normalize(device: str) -> Iterator[Tensor]:
    images = _make_values(device, 16, 8, 6, 6, seed=31)
    yield from _differentiate(functional.batch_norm(images, None, None, training=True), images)
    yield from _differentiate(functional.group_norm(images, 4), images)
    rows = _make_values(device, 64, 384, seed=32)
    yield from _differentiate(functional.layer_norm(rows, (384,)), rows)


def _act(device: str) -> Iterator[Tensor]:
    values = _make_values(device, 64, 257, seed=41)
    for act in (torch.exp, torch.tanh, torch.sigmoid, torch.sin, functional.gelu, functional.silu, functional.softmax):
        result = act(3 * values, dim=-1) if act is functional.softmax else act(3 * values)
        yield from _differentiate(result, values)
    labels = torch.arange(64, device=device) % 257
    yield from _differentiate(functional.cross_entropy(values, labels), values)


def _attend(dtype: torch.dtype) -> Callable[[str], Iterator[Tensor]]:
    def compute(device: str) -> Iterator[Tensor]:
        query, key, value = (_make_values(device, 2, 4, 96, 64, seed=51 + at, dtype=dtype) for at in range(3))
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        yield from _differentiate(attended, query, key, value)

    return compute


def _recur(device: str) -> Iterator[Tensor]:
    for seed, kind in enumerate((nn.LSTM, nn.GRU)):
        module = kind(24, 32, batch_first=True).to(device)
        with torch.no_grad():
            for at, parameter in enumerate(module.parameters()):
                parameter.copy_(_make_values(device, *parameter.shape, seed=61 + seed * 10 + at) / 6)
        rows = _make_values(device, 4, 12, 24, seed=60 + seed)
        yield from _differentiate(module(rows)[0], rows, *module.parameters())


def _reduce(device: str) -> Iterator[Tensor]:
    values = _make_values(device, 300, 1000, seed=71)
    for result in (values.sum(0), values.sum(1), values.sum(), values.mean(1), values.var(1), values.amax(0)):
        yield from _differentiate(result, values)
    words = torch.arange(4096, device=device) * 7919 % 97
    table = _make_values(device, 97, 64, seed=72)
    yield from _differentiate(functional.embedding(words, table), table)
    yield values.sort(1).values


KERNELS: Final[Mapping[str, Callable[[str], Iterator[Tensor]]]] = {
    "multiply": _multiply(torch.float32),
    "multiply_bf16": _multiply(torch.bfloat16),
    "multiply_tf32": _round(_multiply(torch.float32)),
    "convolve": _convolve,
    "convolve_tf32": _round(_convolve),
    "normalize": _normalize,
    "act": _act,
    "attend": _attend(torch.float32),
    "attend_bf16": _attend(torch.bfloat16),
    "recur": _recur,
    "reduce": _reduce,
}
"""Kinds of kernels by name, each an iterator over results on a device."""
