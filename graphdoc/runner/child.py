"""The computing child: reads a request, computes, answers. Only it sets torch's global state; it never reads a pickle.

process.py runs it as `python -I -m graphdoc.runner.child <configuration as JSON>`. It exits when the parent closes
the pipe.
"""

import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from pydantic import TypeAdapter
from torch.utils import deterministic

from gradmarket.market.errors import Refused
from gradmarket.market.model import compute as steps
from gradmarket.market.model.layout import check_batch, sizes_of
from gradmarket.market.model.task_cost import Cost, cost, evaluation, evaluation_cost
from gradmarket.market.step import TaskStep
from graphdoc.document.bound import admit, bound, dearest
from graphdoc.document.interpret import Program
from graphdoc.document.meter import Limits
from graphdoc.document.ranges import ranges
from graphdoc.document.schema import load
from graphdoc.figures import Bound
from graphdoc.runner import allowance, serving
from graphdoc.runner.arena import Arena, decoded
from graphdoc.runner.serving import Configuration, Request

Arrays = Mapping[str, np.ndarray]
ADMITTED_KEPT: Final = 16
_STEP: Final[TypeAdapter[TaskStep]] = TypeAdapter(TaskStep)


class RequestHandler:
    """Handles the requests, one method each."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self.arena = Arena(configuration.arena)
        self._programs: dict[str, Program] = {}
        self._admitted: dict[tuple[Any, ...], Bound] = {}
        self._idle = 0
        self.answers: dict[str, Callable[[Request], Any]] = {
            "load": self._load,
            "bound": self._bound,
            "ranges": self._ranges,
            "compute": self._compute,
            "evaluate": self._evaluate,
        }

    def settle(self) -> None:
        """Records the resident memory before the first request."""
        self._idle = allowance.idle_bytes()

    def _load(self, request: Request) -> None:
        for digest in request["forget"]:
            self._programs.pop(digest, None)
        (data,) = self.arena.read_bytes([request["length"]])
        document = load(data)
        self._programs[document.digest] = Program(document)

    def _bound(self, request: Request) -> dict[str, Any]:
        with allowance.allowed(allowance.BOUND_S):
            kind = request["training"], request["by_row"]
            bounded = bound(self._programs[request["digest"]], request["rows"], self._most, *kind)
        return asdict(replace(bounded, idle_bytes=self._idle))

    def _ranges(self, request: Request) -> dict[str, Any]:
        with allowance.allowed(allowance.BOUND_S):
            allowed_ranges = ranges(self._programs[request["digest"]], request["rows"])
        return {name: [asdict(one) for one in each] for name, each in allowed_ranges.items()}

    def _compute(self, request: Request) -> None:
        program = self._programs[request["digest"]]
        step = _STEP.validate_python(request["step"])
        state, batch = self._views(request["state"]), self._views(request["batch"])
        bounded = self._admit(program, batch, step.pass_sizes, Limits(*request["limits"]), True, step.by_row)
        settings = self._configuration
        with self._allowed(program, cost(program.document, bounded, step), step.passes):
            result = steps.compute(program, state, batch, bytes.fromhex(request["seed"]), step, settings.device)
            self.arena.write(decoded(request["result"]), result)

    def _evaluate(self, request: Request) -> dict[str, Any]:
        program = self._programs[request["digest"]]
        state, batch = self._views(request["state"]), self._views(request["batch"])
        parts = evaluation(check_batch(program.document, batch))
        bounded = self._admit(program, batch, parts.pass_sizes, Limits(*request["limits"]), False)
        whole = evaluation_cost(program.document, bounded, parts.rows)
        with self._allowed(program, whole, parts.passes):
            return asdict(steps.evaluate(program, state, batch, self._configuration.device))

    @property
    def _most(self) -> Limits:
        return Limits(self._configuration.operations, self._configuration.memory_bytes)

    def _admit(
        self,
        program: Program,
        batch: Arrays,
        rows: Sequence[int],
        limits: Limits,
        training: bool,
        by_row: bool = False,
    ) -> Bound:
        """What the dearest of these microbatches costs, at the sizes that this batch has. Raises DocumentRefused."""
        sizes = sizes_of(program.document, batch)
        key = (program.document.digest, tuple(rows), tuple(sizes.items()), limits, training, by_row)
        if key not in self._admitted:
            with allowance.allowed(allowance.BOUND_S):
                bounds = [admit(program, count, sizes, limits, training, by_row) for count in rows]
            self._admitted = dict([*self._admitted.items()][1 - ADMITTED_KEPT :])
            self._admitted[key] = dearest(bounds)
        return self._admitted[key]

    def _allowed(self, program: Program, bounded: Cost, passes: int) -> AbstractContextManager[None]:
        config = self._configuration
        seconds = allowance.seconds(bounded.operations, program.document.calls, passes, config.threads)
        return allowance.allowed(seconds, bounded.memory if config.device == "cpu" else None, config.threads)

    def _views(self, places: list[Any]) -> dict[str, np.ndarray]:
        return self.arena.views(decoded(places))


def set_global_state(configuration: Configuration) -> None:
    """Sets everything in torch that affects the bits of a result."""
    torch.set_num_threads(configuration.threads)
    torch.set_num_interop_threads(1)
    torch.set_flush_denormal(True)  # before threads are made, which inherit it: a denormal takes up to 48 times as long
    torch.use_deterministic_algorithms(True)
    deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]  # a property of the module
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


def determinism_class(configuration: Configuration) -> str:
    """Returns what must match for equal bits: device, processor vendor, versions, vector width, threads."""
    if configuration.device == "cpu":
        parts = ["cpu", _processor(), torch.backends.cpu.get_cpu_capability().lower()]
    else:
        if not torch.cuda.is_available():
            raise Refused(f"{configuration.device}: torch finds no CUDA device here")
        parts = [torch.cuda.get_device_name(), f"cuda-{torch.version.cuda}"]
    parts += [f"torch-{torch.__version__}", f"threads-{configuration.threads}"]
    return "/".join(parts).replace(" ", "-")


def _processor() -> str:
    """Returns the architecture and vendor; the matrix library chooses its kernels by the vendor."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    makers = [line.split(":")[1].strip() for line in lines if line.startswith("vendor_id")]
    return f"{platform.machine()}-{makers[0]}" if makers else platform.machine()


def main(handler: type[RequestHandler] = RequestHandler) -> None:
    """Serves requests until the parent closes the pipe."""
    settings = serving.configuration()
    child = handler(settings)

    def greeting() -> str:
        set_global_state(settings)
        child.settle()
        return determinism_class(settings)

    serving.serve(settings, greeting, child.answers)


if __name__ == "__main__":
    main()
