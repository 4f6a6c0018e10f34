"""The child: reads a request, computes, answers. It alone sets torch's global state, and it never sees a pickle.

Run by process.py as `python -I -m gradmarket.runner.child <configuration as JSON>`. It ends with its parent's pipe.
"""

import gc
import json
import os
import platform
import select
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import deterministic

from gradmarket.market.errors import MarketError, OutOfMemory
from gradmarket.market.job import GradientStep
from gradmarket.market.model import compute as steps
from gradmarket.market.model.document.bound import Limits, bound
from gradmarket.market.model.document.interpret import Program
from gradmarket.market.model.document.schema import load
from gradmarket.market.model.tensors import pack
from gradmarket.runner import frames
from gradmarket.runner.arena import Arena, decoded
from gradmarket.runner.confine import confine
from gradmarket.runner.publication import publish_ready

Request = dict[str, Any]


@dataclass(frozen=True)
class Configuration:
    """What the parent says once, at the start: its process, the pipes' and the arena's descriptors, the limits."""

    parent: int
    follow_parent: bool
    requests: int
    answers: int
    arena: int
    device: str
    threads: int
    memory_bytes: int
    operations: int


class Child:
    """The requests, one method each."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._arena = Arena(configuration.arena)
        self._programs: dict[str, Program] = {}
        self._answers: dict[str, Callable[[Request], Any]] = {
            "load": self._load,
            "bound": self._bound,
            "compute": self._compute,
            "evaluate": self._evaluate,
            "publish": self._publish,
        }

    def answer(self, request: Request) -> dict[str, Any]:
        """The answer to one request, or the error that it ended with."""
        try:
            return {"ok": self._answers[request["do"]](request)}
        except MarketError as error:
            return _encoded(error)
        except MemoryError:
            return _encoded(OutOfMemory())

    def _load(self, request: Request) -> None:
        for digest in request["forget"]:
            self._programs.pop(digest, None)
        (data,) = self._arena.read_bytes([request["length"]])
        document = load(data)
        self._programs[document.digest] = Program(document)

    def _bound(self, request: Request) -> dict[str, int]:
        limits = Limits(self._configuration.operations, self._configuration.memory_bytes)
        return asdict(bound(self._programs[request["digest"]], request["rows"], limits))

    def _compute(self, request: Request) -> None:
        program = self._programs[request["digest"]]
        step = GradientStep.model_validate(request["step"])
        state, batch = self._views(request["state"]), self._views(request["batch"])
        result = steps.compute(program, state, batch, bytes.fromhex(request["seed"]), step, self._configuration.device)
        self._arena.write(decoded(request["result"]), result)

    def _evaluate(self, request: Request) -> dict[str, Any]:
        program = self._programs[request["digest"]]
        state, batch = self._views(request["state"]), self._views(request["batch"])
        return asdict(steps.evaluate(program, state, batch, self._configuration.device))

    def _publish(self, request: Request) -> list[int]:
        shape, classes = tuple(request["input_shape"]), request["classes"]
        published = publish_ready(request["architecture"], request["arguments"], shape, classes, request["seed"])
        parts = (published.document, published.evaluation, pack(published.parameters))
        self._arena.write_bytes(parts)
        return [len(part) for part in parts]

    def _views(self, places: list[Any]) -> dict[str, np.ndarray]:
        return self._arena.views(decoded(places))


def _encoded(error: MarketError) -> dict[str, Any]:
    return {"error": type(error).__name__, "detail": error.detail, "field": getattr(error, "field", "")}


def set_global_state(configuration: Configuration) -> None:
    """Everything in torch that decides which bits come out."""
    torch.set_num_threads(configuration.threads)
    torch.set_num_interop_threads(1)
    torch.set_flush_denormal(False)
    torch.use_deterministic_algorithms(True)
    deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # a property of the module
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


def determinism_class(configuration: Configuration) -> str:
    """What must be the same for the same bits: device, maker of the processor, versions, vector width, threads."""
    if configuration.device == "cpu":
        parts = ["cpu", _processor(), torch.backends.cpu.get_cpu_capability().lower()]
    else:
        parts = [torch.cuda.get_device_name(), f"cuda-{torch.version.cuda}"]
    parts += [f"torch-{torch.__version__}", "fp32", f"threads-{configuration.threads}"]
    return "/".join(parts).replace(" ", "-")


def _processor() -> str:
    """The maker, which the matrix library chooses its kernels by."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    makers = [line.split(":")[1].strip() for line in lines if line.startswith("vendor_id")]
    return f"{platform.machine()}-{makers[0]}" if makers else platform.machine()


def _end_with(requests: int) -> None:
    """Ends this process as soon as nobody can write requests any more, whatever it is computing."""
    poll = select.poll()
    poll.register(requests, 0)
    poll.poll()
    os._exit(0)


def main() -> None:
    """Answers requests until the parent closes the pipe."""
    configuration = Configuration(**json.loads(sys.argv[1]))
    confined = confine(
        configuration.parent, configuration.follow_parent, configuration.device, configuration.memory_bytes
    )
    threading.Thread(target=_end_with, args=(configuration.requests,), daemon=True).start()
    set_global_state(configuration)
    child = Child(configuration)
    gc.freeze()
    greeting = {"determinism_class": determinism_class(configuration), "confined": confined}
    frames.send(configuration.answers, {"ok": greeting})
    while True:
        frames.send(configuration.answers, child.answer(frames.receive(configuration.requests)))


if __name__ == "__main__":
    main()
