"""Values of a trace: their digests, and their bytes for transport.

The digest of a tensor covers its elements, and the other facts that decide a kernel's path and so the bits: strides,
whether it requires a gradient, and its memory's place within 64 bytes. That of a plain array covers elements, shape and
type.
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
SPREAD: Final = 64
"""A rebuilt scattered tensor may lie in at most this many times the memory of its elements."""
_TORCH_NAMES: Final = {dtype: name for name, dtype in TORCH_TYPES.items()}
_JSON: Final = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode
Block = tuple[int, int]
"""A block of memory: its address and its bytes."""
Blocks = MutableMapping[Block, bytes]
"""The blake3 of blocks of memory: valid only while a block is alive and unchanged."""


@dataclass(frozen=True, slots=True)
class Traced:
    """A tensor and whether it requires a gradient; a plain array; an int; or bytes."""

    data: Any
    grad: bool = False
    base: Tensor | None = None
    """The block, flat, of another tensor over which this one is spread: its digest represents it."""

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
"""None: a missing value."""


def compute_digest(value: Value, blocks: Blocks | None = None) -> bytes:
    """Returns the digest of a value; `blocks` has known digests, and gets new ones."""
    if value is None:
        return ABSENT
    block = find_block(value)
    if blocks is None or block is None:
        return digest_parts(_describe(value), digest_block(_read_block(value)))
    if block not in blocks:
        blocks[block] = digest_block(_read_block(value))
    return digest_parts(_describe(value), blocks[block])


def find_block(value: Value) -> Block | None:
    """Returns the block of memory that a dense tensor fills, or over which another is spread; None for other values."""
    flat = None if value is None else _flatten_block(value)
    return None if flat is None else (flat.data_ptr(), flat.numel() * flat.element_size())


def _flatten_block(value: Traced) -> Tensor | None:
    data = value.data
    if value.base is not None or not isinstance(data, Tensor):
        return value.base
    return data.as_strided((data.numel(),), (1,)) if is_dense(data) else None


def locate_value(value: Value, near: Sequence[Value]) -> Value:
    """Returns the value; a view spread over the block of one in `near` gets that block as its base."""
    data = None if value is None else value.data
    if value is None or not isinstance(data, Tensor) or not data.numel() or is_dense(data):
        return value
    start, extent = data.data_ptr(), _measure_extent(data.shape, data.stride())
    for other in near:
        flat = None if other is None else _flatten_block(other)
        if flat is not None and flat.dtype == data.dtype and flat.device == data.device:
            offset = (start - flat.data_ptr()) // data.element_size()
            if offset >= 0 and offset + extent <= flat.numel():
                return Traced(data, value.grad, flat)
    return value


def _measure_extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Returns the number of elements of memory from a tensor's first to its last, both counted."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def _describe(value: Traced) -> bytes:
    """Returns the header of a value, as canonical JSON."""
    data = value.data
    if isinstance(data, Tensor):
        block = data if value.base is None else value.base
        header: dict[str, Any] = {
            "kind": "tensor",
            "dtype": _TORCH_NAMES[data.dtype],
            "shape": list(data.shape),
            "strides": list(data.stride()),
            "place": block.data_ptr() % LINE if data.numel() else 0,
            "grad": value.grad,
        }
        if value.base is not None:
            offset = (data.data_ptr() - value.base.data_ptr()) // data.element_size()
            header["within"] = [value.base.numel(), offset]
    elif isinstance(data, np.ndarray):
        header = {"kind": "array", "dtype": data.dtype.name, "shape": list(data.shape)}
    elif isinstance(data, bytes):
        header = {"kind": "bytes"}
    else:
        header = {"kind": "int", "value": int(data)}
    return _JSON(header).encode()


def _read_block(value: Traced) -> Bytes:
    """Returns the elements' bytes: of a dense tensor in the order of memory, of any other in C order."""
    data = value.data
    if isinstance(data, Tensor):
        if not data.numel():
            return b""
        block = _flatten_block(value)
        flat = data.contiguous().reshape(-1) if block is None else block
        elements: np.ndarray = flat.cpu().view(torch.uint8).numpy()
        return elements.data
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8).data if data.size else b""
    return data if isinstance(data, bytes) else b""


def is_dense(tensor: Tensor) -> bool:
    """Returns whether a tensor's elements fill one block of memory, each at its own place."""
    return tensor.is_contiguous() or _fills_block(tensor.shape, tensor.stride())


def _fills_block(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(shape, strides, strict=True) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def pack_value(value: Value) -> bytes:
    """Returns a value for transport: the length of its header, the header, and its elements."""
    if value is None:
        return NOTHING
    header = _describe(value)
    return len(header).to_bytes(4, "big") + header + bytes(_read_block(value))


def unpack_value(packed: Bytes, device: str = "cpu") -> Value:
    """Returns the value, with its former strides and place in memory. Raises Refused on other bytes."""
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


def _build_value(header: dict[str, Any], block: memoryview, device: str) -> Traced:
    match header["kind"]:
        case "int":
            return Traced(int(header["value"]))
        case "bytes":
            return Traced(bytes(block))
        case "array":
            return Traced(np.frombuffer(block, np.dtype(header["dtype"])).reshape(header["shape"]).copy())
        case "tensor":
            return _build_tensor(header, block, device)
    raise ValueError("no such kind")


def _build_tensor(header: dict[str, Any], block: memoryview, device: str) -> Traced:
    """Returns the tensor in new memory that begins at the same place within a line."""
    dtype, shape, strides, place = TORCH_TYPES[header["dtype"]], header["shape"], header["strides"], header["place"]
    grad, (length, offset) = bool(header["grad"]), header.get("within", (math.prod(shape), 0))
    if len(strides) != len(shape) or min([*shape, *strides, place, offset], default=0) < 0 or place >= LINE:
        raise ValueError("its strides are none")
    if len(block) != length * dtype.itemsize or place % dtype.itemsize:
        raise ValueError("its elements are too many or too few")
    if not math.prod(shape):
        return Traced(torch.empty(0, dtype=dtype, device=device).as_strided(shape, strides), grad)
    elements, first = torch.frombuffer(bytearray(block), dtype=torch.uint8).view(dtype), place // dtype.itemsize
    extent = _measure_extent(shape, strides)
    if "within" in header or _fills_block(shape, strides):
        if offset + extent > length:
            raise ValueError("it is beyond its block")
        memory = torch.empty(first + length, dtype=dtype)
        memory[first:] = elements
        memory = memory.to(device)
        base = memory[first:] if "within" in header else None
        return Traced(memory.as_strided(shape, strides, first + offset), grad, base)
    if extent > SPREAD * (length + SPREAD):
        raise ValueError("it lies scattered in memory")
    memory = torch.zeros(first + extent, dtype=dtype)
    own = memory.view(torch.uint8).numpy().reshape(-1, dtype.itemsize)
    taken = np.lib.stride_tricks.as_strided(np.arange(extent), shape, [8 * stride for stride in strides])
    own[first + taken.reshape(-1)] = elements.view(torch.uint8).numpy().reshape(-1, dtype.itemsize)
    return Traced(memory.to(device).as_strided(shape, strides, first), grad)
