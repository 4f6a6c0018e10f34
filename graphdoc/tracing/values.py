"""Values of a trace: their digests, and their bytes as they travel.

The digest of a tensor covers its elements, and what else decides a kernel's path and so the bits: strides, whether a
gradient is asked of it, and its memory's place within 64 bytes. That of a plain array covers elements, shape and type.
"""

import json
import math
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from graphdoc.document.calls import TORCH_TYPES
from graphdoc.encoding import Bytes
from graphdoc.errors import Refused
from graphdoc.tracing.packed import ABSENT, NOTHING, digest_block, digest_parts, split_packed

LINE: Final = 64
"""Bytes to which torch aligns memory of its own."""
_TORCH_NAMES: Final = {dtype: name for name, dtype in TORCH_TYPES.items()}
Block = tuple[int, int]
"""A block of memory: its address and its bytes."""
Blocks = MutableMapping[Block, bytes]
"""The blake3 of blocks of memory: only while what lies there is alive and unchanged."""


@dataclass(frozen=True, slots=True)
class Traced:
    """A tensor and whether a gradient is asked of it; a plain array; an int; or bytes."""

    data: Any
    grad: bool = False

    def tensor(self, device: str) -> Tensor:
        """Returns the tensor, or a copy of the plain array in C order in torch's own memory."""
        if isinstance(self.data, Tensor):
            return self.data
        return torch.tensor(np.asarray(self.data, order="C"), device=device)

    def array(self) -> np.ndarray:
        """Returns the plain array, or a copy of the tensor in C order."""
        if isinstance(self.data, Tensor):
            return np.array(self.data.cpu().numpy(), order="C")
        return np.asarray(self.data)


Value = Traced | None
"""None: no value."""


def compute_digest(value: Value, blocks: Blocks | None = None) -> bytes:
    """Returns the digest of a value; `blocks` are known, and are added to."""
    if value is None:
        return ABSENT
    return digest_parts(_describe(value), _digest_block(value, blocks))


def _digest_block(value: Traced, blocks: Blocks | None) -> bytes:
    block = find_block(value)
    if blocks is None or block is None:
        return digest_block(_read_block(value))
    if block not in blocks:
        blocks[block] = digest_block(_read_block(value))
    return blocks[block]


def find_block(value: Value) -> Block | None:
    """Returns the block of memory that a dense tensor fills; of another value None."""
    if value is None or not isinstance(value.data, Tensor) or not is_dense(value.data):
        return None
    return value.data.data_ptr(), value.data.numel() * value.data.element_size()


def _describe(value: Traced) -> bytes:
    """Returns what is said of a value beside its elements, as canonical JSON."""
    data = value.data
    if isinstance(data, Tensor):
        said: dict[str, Any] = {
            "kind": "tensor",
            "dtype": _TORCH_NAMES[data.dtype],
            "shape": list(data.shape),
            "strides": list(data.stride()),
            "place": data.data_ptr() % LINE if data.numel() else 0,
            "grad": value.grad,
        }
    elif isinstance(data, np.ndarray):
        said = {"kind": "array", "dtype": data.dtype.name, "shape": list(data.shape)}
    elif isinstance(data, bytes):
        said = {"kind": "bytes"}
    else:
        said = {"kind": "int", "value": int(data)}
    return json.dumps(said, separators=(",", ":"), sort_keys=True).encode()


def _read_block(value: Traced) -> Bytes:
    """Returns the elements' bytes: of a dense tensor in the order of memory, of any other in C order."""
    data = value.data
    if isinstance(data, Tensor):
        if not data.numel():
            return b""
        flat = data.as_strided((data.numel(),), (1,)) if is_dense(data) else data.contiguous().reshape(-1)
        elements: np.ndarray = flat.cpu().view(torch.uint8).numpy()
        return elements.data
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8).data if data.size else b""
    return data if isinstance(data, bytes) else b""


def is_dense(tensor: Tensor) -> bool:
    """Whether a tensor's elements fill one block of memory, each at its own place."""
    return tensor.is_contiguous() or _fills_block(tensor.shape, tensor.stride())


def _fills_block(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(shape, strides, strict=True) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def pack_value(value: Value) -> bytes:
    """Returns a value as it travels: the length of what is said of it, that, and its elements."""
    if value is None:
        return NOTHING
    header = _describe(value)
    return len(header).to_bytes(4, "big") + header + bytes(_read_block(value))


def unpack_value(packed: Bytes, device: str = "cpu") -> Value:
    """Returns the value, with the strides and the place in memory that it had. Raises Refused on other bytes."""
    parts = split_packed(packed)
    if parts is None:
        return None
    try:
        value = _build_value(json.loads(parts[0]), parts[1], device)
        whole = pack_value(value) == bytes(packed)
    except (ValueError, TypeError, KeyError, RuntimeError, OverflowError, RecursionError) as error:
        raise Refused(f"these are not the bytes of a value: {str(error)[:100]}") from None
    if not whole:
        raise Refused("these are not the bytes of a value as it is written")
    return value


def _build_value(said: dict[str, Any], block: memoryview, device: str) -> Traced:
    match said["kind"]:
        case "int":
            return Traced(int(said["value"]))
        case "bytes":
            return Traced(bytes(block))
        case "array":
            return Traced(np.frombuffer(block, np.dtype(said["dtype"])).reshape(said["shape"]).copy())
        case "tensor":
            return Traced(_build_tensor(said, block, device), bool(said["grad"]))
    raise ValueError("no such kind")


def _build_tensor(said: dict[str, Any], block: memoryview, device: str) -> Tensor:
    """Returns the tensor in new memory that begins at the same place within a line."""
    dtype, shape, strides, place = TORCH_TYPES[said["dtype"]], said["shape"], said["strides"], said["place"]
    count, dense = math.prod(shape), _fills_block(shape, strides)
    if len(strides) != len(shape) or min([*shape, *strides, place], default=0) < 0 or place >= LINE:
        raise ValueError("its strides are none")
    if len(block) != count * dtype.itemsize or place % dtype.itemsize:
        raise ValueError("its elements are too many or too few")
    if not count:
        return torch.empty(0, dtype=dtype, device=device).as_strided(shape, strides)
    extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if not dense and extent > 64 * (count + 64):
        raise ValueError("it lies scattered in memory")
    elements = torch.frombuffer(bytearray(block), dtype=torch.uint8).view(dtype)
    first = place // dtype.itemsize
    memory = torch.zeros(first + extent, dtype=dtype)
    if dense:
        memory[first : first + count] = elements
    else:
        own = memory.view(torch.uint8).numpy().reshape(-1, dtype.itemsize)
        places = np.arange(extent)
        taken = np.lib.stride_tricks.as_strided(places, shape, [8 * stride for stride in strides])
        own[first + taken.reshape(-1)] = elements.view(torch.uint8).numpy().reshape(-1, dtype.itemsize)
    return memory.to(device).as_strided(shape, strides, first)
