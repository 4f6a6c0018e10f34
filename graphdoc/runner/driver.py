"""A card's driver without torch: whether CUDA starts, and each card, by libcuda and the management library (NVML).

https://docs.nvidia.com/cuda/cuda-driver-api and https://docs.nvidia.com/deploy/nvml-api. Facts known to the management
library alone, such as free memory, are None where it is missing (WSL, some containers).
"""

import ctypes
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from graphdoc.errors import Refused

LIBRARY: Final = "libcuda.so.1"
MANAGEMENT: Final = "libnvidia-ml.so.1"
_MAJOR, _MINOR = 75, 76
_NAME_BYTES: Final = 96
REMEDIES: Final = {
    100: "name a card that is there in CUDA_VISIBLE_DEVICES, and give the container its nodes (docker run --gpus all)",
    101: "name a card that is there in CUDA_VISIBLE_DEVICES",
    304: "something refuses the driver a call or a file: `gradmarket doctor` names it",
    802: "start nvidia-fabricmanager: the cards' links are not up yet",
    803: "load the kernel module of the installed driver: restart the machine",
    999: "load the kernel module nvidia_uvm (nvidia-modprobe -u -c 0)",
}
"""The remedy for a code of cuInit."""
NO_DRIVER: Final = "install NVIDIA's driver; in a container let its runtime mount it (docker run --gpus all)"


@dataclass(frozen=True)
class Card:
    """One card by its number in PCI order, as CUDA sees it. Memory in bytes."""

    number: int
    name: str
    uuid: str
    architecture: str
    memory: int
    free: int | None = None


@dataclass(frozen=True)
class Cards:
    """The driver's version, empty where unknown, and the cards; `fault`: why it has none, `remedy`: the remedy."""

    driver: str = ""
    cards: tuple[Card, ...] = ()
    fault: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class CardLoad:
    """The present load of a card; None where the management library does not report it. Memory in bytes."""

    name: str
    percent: int | None = None
    watts: float | None = None
    celsius: int | None = None
    free: int | None = None


class Driver:
    """The loaded library; `start` must come first. Raises Refused with the library's own words."""

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._cuda: Any = ctypes.CDLL(library)
        except OSError as error:
            raise Refused(f"no driver: {error}", NO_DRIVER) from None

    def start(self) -> None:
        code = self._cuda.cuInit(0)
        if code:
            code_name = f"cuInit says {self._read_text('cuGetErrorName', code)} ({code})"
            code_text = self._read_text("cuGetErrorString", code)
            raise Refused(
                f"{code_name}: {code_text}", REMEDIES.get(code, "look at the card's driver: nvidia-smi, dmesg")
            )

    def list_cards(self) -> Iterator[Card]:
        """Yields the cards of CUDA_VISIBLE_DEVICES, without their free memory."""
        for number in range(self._ask("cuDeviceGetCount", ctypes.c_int).value):
            device = self._ask("cuDeviceGet", ctypes.c_int, number).value
            name, uuid = ctypes.create_string_buffer(_NAME_BYTES), (ctypes.c_ubyte * 16)()
            self._call("cuDeviceGetName", name, _NAME_BYTES, device)
            self._call("cuDeviceGetUuid_v2", uuid, device)
            levels = [
                self._ask("cuDeviceGetAttribute", ctypes.c_int, which, device).value for which in (_MAJOR, _MINOR)
            ]
            memory = self._ask("cuDeviceTotalMem_v2", ctypes.c_size_t, device).value
            ends = itertools.pairwise((0, 8, 12, 16, 20, 32))
            written = "-".join(bytes(uuid).hex()[start:end] for start, end in ends)
            yield Card(number, name.value.decode(), f"GPU-{written}", f"sm_{levels[0]}{levels[1]}", memory)

    def _ask(self, function: str, kind: Any, *arguments: int) -> Any:
        answer = kind()
        self._call(function, ctypes.byref(answer), *arguments)
        return answer

    def _call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._cuda, function)(*arguments)
        if code:
            raise Refused(f"{function} says {self._read_text('cuGetErrorName', code)} ({code})")

    def _read_text(self, function: str, code: int) -> str:
        text = ctypes.c_char_p()
        found = getattr(self._cuda, function)(code, ctypes.byref(text)) == 0
        return text.value.decode() if found and text.value else "an error without a name"


class Management:
    """NVIDIA's management library; every method returns None where it is missing or does not know."""

    def __init__(self, library: str = MANAGEMENT) -> None:
        try:
            self._nvml: Any = ctypes.CDLL(library)
        except OSError:
            self._nvml = None
        if self._nvml is not None and self._nvml.nvmlInit_v2():
            self._nvml = None

    def read_driver_version(self) -> str | None:
        text = ctypes.create_string_buffer(_NAME_BYTES)
        if self._nvml is None or self._nvml.nvmlSystemGetDriverVersion(text, _NAME_BYTES):
            return None
        return text.value.decode()

    def read_load(self, uuid: str) -> CardLoad | None:
        """Returns the present load of one card; None where it is unknown."""
        handle = self._find_card(uuid)
        if handle is None:
            return None
        name, rates = ctypes.create_string_buffer(_NAME_BYTES), (ctypes.c_uint * 2)()
        memory, power, heat = (ctypes.c_ulonglong * 3)(), ctypes.c_uint(), ctypes.c_uint()
        named = self._nvml.nvmlDeviceGetName(handle, name, _NAME_BYTES) == 0
        works = self._nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)) == 0
        draws = self._nvml.nvmlDeviceGetPowerUsage(handle, ctypes.byref(power)) == 0
        warm = self._nvml.nvmlDeviceGetTemperature(handle, 0, ctypes.byref(heat)) == 0
        holds = self._nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
        return CardLoad(
            name=name.value.decode() if named else uuid,
            percent=rates[0] if works else None,
            watts=power.value / 1000 if draws else None,
            celsius=heat.value if warm else None,
            free=memory[1] if holds else None,
        )

    def read_free_bytes(self, uuid: str) -> int | None:
        load = self.read_load(uuid)
        return None if load is None else load.free

    def _find_card(self, uuid: str) -> ctypes.c_void_p | None:
        """Returns the library's handle of a card, or of an instance of one (MIG), whose uuid the driver has too."""
        handle = ctypes.c_void_p()
        if self._nvml is None:
            return None
        for known in (uuid, uuid.replace("GPU-", "MIG-", 1)):
            if self._nvml.nvmlDeviceGetHandleByUUID(known.encode(), ctypes.byref(handle)) == 0:
                return handle
        return None
