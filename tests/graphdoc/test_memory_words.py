"""The sentence on missing memory: the full memory and the requested amount, and nothing of the machine."""

import pytest
import torch

from graphdoc.document.interpret import explain_error
from graphdoc.errors import OutOfMemory

CARD = (
    "CUDA out of memory. Tried to allocate 384.00 MiB. GPU 0 has a total capacity of 79.18 GiB of which 126.62 MiB is "
    "free. Process 4711 has 61.20 GiB memory in use. Process 815 has 3.00 GiB memory in use. Of the allocated memory "
    "11.90 GiB is allocated by PyTorch"
)
PROCESSOR = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (torch.OutOfMemoryError(CARD), "the card is full: an allocation of 384.00 MiB failed"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), "the card is full"),
        (
            RuntimeError(f"{PROCESSOR}allocate 1024 bytes. Error code 12 (Cannot allocate memory)"),
            "its bound or the machine's memory is used up: an allocation of 1024 bytes failed",
        ),
        (MemoryError(), "its bound or the machine's memory is used up"),
    ],
)
def test_missing_memory_is_described_without_other_processes_numbers(error: Exception, told: str) -> None:
    explained = explain_error("node 3 (linear.default)", error)
    assert isinstance(explained, OutOfMemory)
    assert explained.detail == f"node 3 (linear.default): {told}"
    for secret in ("Process", "4711", "61.20", "79.18", "126.62"):
        assert secret not in str(explained)


def test_other_errors_are_no_lack_of_memory() -> None:
    assert not isinstance(explain_error("backward", RuntimeError("an illegal address")), OutOfMemory)
