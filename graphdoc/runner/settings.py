"""Settings of a runner's child: its limits, and the environment that affects the bits it computes."""

import os
from dataclasses import dataclass
from typing import Final

DEVICE: Final = r"^cpu$|^cuda(:[0-9]{1,3})?$"
"""The devices that may compute; cuda is the first card."""
UMASK: Final = 0o077
"""The umask of every child, independent of its parent's."""
CARRIED: Final = ("LD_LIBRARY_PATH", "TMPDIR", "SYSTEMROOT")
HEAP: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(2**20),
    "MALLOC_TRIM_THRESHOLD_": str(2**25),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
"""Arrays of a mebibyte or more come from the system and go back to it, in large pages where it has them: a pass then
takes the memory of its arrays, without leftovers of earlier ones."""
CARRIED_FOR_CUDA: Final = ("CUDA_HOME", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
PCI_ORDER: Final = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""Numbers cards as nvidia-smi does; CUDA's default puts the fastest first."""


@dataclass(frozen=True)
class RunnerSettings:
    """Limits of one child. `memory_bytes` is on top of an idle child's memory, and applies on the CPU only."""

    threads: int = 1
    device: str = "cpu"
    memory_bytes: int = 4 * 2**30
    seconds: float = 120.0
    """Wall time of one request."""
    start_seconds: float = 120.0
    """Wall time of the child's start, which imports torch."""
    operations: int = 10**15
    """The most floating-point operations of one pass that `bound` accepts."""
    graphs: bool = True
    """Whether passes on a card are recorded as CUDA graphs."""
    bound_bytes: int | None = None
    """The most bytes of one pass that `bound` accepts, which computes nothing; `memory_bytes` by default."""
    slots: str = ""
    """The file by which processes share a card's memory (card_slots.py); empty where this one alone takes it."""


SPINS: Final = "300"
"""The number of times that a thread of an operator polls the others before it sleeps. By default GNU's library polls
for milliseconds, and where other programs want its core, an operator takes ten times as long."""


def choose_visible(device: str, listed: str | None) -> str:
    """Returns the one card that a child sees: the owner's CUDA_VISIBLE_DEVICES (`listed`) number it from 0.

    Empty where none has that number.
    """
    number = device.partition(":")[2] or "0"
    if listed is None:
        return number
    entries = [entry.strip() for entry in listed.split(",")]
    return entries[int(number)] if int(number) < len(entries) else ""


def build_child_environment(settings: RunnerSettings) -> dict[str, str]:
    """Returns the child's whole environment, set before torch is imported; it inherits only library paths."""
    threads = str(settings.threads)
    carried = CARRIED + (() if settings.device == "cpu" else CARRIED_FOR_CUDA)
    card = {} if settings.device == "cpu" else {VISIBLE: choose_visible(settings.device, os.environ.get(VISIBLE))}
    return {
        **{name: os.environ[name] for name in carried if name in os.environ},
        **(card and PCI_ORDER | card),
        "PATH": os.defpath,
        "HOME": "/nonexistent",
        "USER": "runner",
        "LC_ALL": "C.UTF-8",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_DYNAMIC": "FALSE",
        "OMP_DYNAMIC": "FALSE",
        "GOMP_SPINCOUNT": SPINS,
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "TORCHINDUCTOR_CACHE_DIR": os.sep,
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "0",
        **HEAP,
    }
