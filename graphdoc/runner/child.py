"""The computing child: reads a request, computes, answers. Only it sets torch's global state; it never reads a pickle.

process.py runs it as `python -I -m graphdoc.runner.child <configuration as JSON>`, or has a warm process fork and call
`serve`. It exits when the parent closes the pipe.
"""

import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torch._inductor.config  # by use_deterministic_algorithms and every mode of dispatch: here for a fork to have it
from torch.utils import deterministic

from graphdoc.cost import (
    EVALUATION_ROWS,
    Cost,
    evaluation_cost,
    evaluation_sizes,
    gradient_cost,
    pass_count,
    pass_sizes,
)
from graphdoc.document.bound import admit_batch, compute_bound, merge_bounds
from graphdoc.document.captured import CapturedPasses, has_card_room, record_cuda_graph
from graphdoc.document.inputs import check_batch, sizes_of
from graphdoc.document.interpret import Program
from graphdoc.document.meter import Limits
from graphdoc.document.ranges import find_input_ranges
from graphdoc.document.schema import parse_document
from graphdoc.figures import Bound
from graphdoc.operators.cuda import workspace_bytes
from graphdoc.passes import build_tensors, evaluate, mean_gradient, measure, numpy_of
from graphdoc.runner import allowance, frames, serving
from graphdoc.runner.arena import Arena, decode_placements
from graphdoc.runner.card_class import describe_card
from graphdoc.runner.card_slots import WAITS, CardSlots
from graphdoc.runner.pinned import PinnedArena
from graphdoc.runner.serving import Configuration, Request

Arrays = Mapping[str, np.ndarray]
ADMITTED_KEPT: Final = 16


class RequestHandler:
    """Handles the requests, one method each. An extension adds to `answers`, and calls `admit` and `allowed` too."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        on_card = configuration.device != "cpu"
        self.arena = PinnedArena(configuration.arena) if on_card else Arena(configuration.arena)
        self.programs: dict[str, Program] = {}
        self._admitted: dict[tuple[Any, ...], Bound] = {}
        self._idle = 0
        self._slots: CardSlots | None = None
        self.answers: dict[str, Callable[[Request], Any]] = {
            "load": self._load_document,
            "bound": self._compute_bound,
            "ranges": self._compute_ranges,
            "run": self._run,
            "evaluate": self._evaluate_document,
            "measure": self._measure,
            "release": self._release_memory,
        }

    def settle(self) -> None:
        """Records the resident memory before the first request."""
        self._idle = allowance.idle_bytes(self.configuration.warm_bytes)

    def _load_document(self, request: Request) -> None:
        for digest in request["forget"]:
            self.programs.pop(digest, None)
        (data,) = self.arena.read_bytes([request["length"]])
        document = parse_document(data)
        program = self.programs[document.digest] = Program(document)
        if self.configuration.device != "cpu" and self.configuration.graphs:
            has_room = partial(has_card_room, self.configuration.memory_bytes)
            program.captured = CapturedPasses(record_cuda_graph, has_room)

    def _compute_bound(self, request: Request) -> dict[str, Any]:
        with allowance.limit_request(allowance.BOUND_S):
            kind = request["training"], request["by_row"]
            bounded = compute_bound(self.programs[request["digest"]], request["rows"], self._most, *kind)
        if self.configuration.device != "cpu":
            nodes = self.programs[request["digest"]].document.written
            taken = workspace_bytes(node.op for node in nodes)
            bounded = replace(bounded, peak_bytes=bounded.peak_bytes + taken)
        return asdict(replace(bounded, idle_bytes=self._idle))

    def _release_memory(self, _request: Request) -> None:
        """Frees states, and the memory that torch keeps of the card for the next step: idle children hold none."""
        for program in self.programs.values():
            program.held = "", {}
        if self.configuration.device != "cpu":
            for program in self.programs.values():
                if program.captured is not None:
                    program.captured.clear()
            torch.cuda.empty_cache()
        if self._slots is not None:
            self._slots.give_back()

    def _compute_ranges(self, request: Request) -> dict[str, Any]:
        with allowance.limit_request(allowance.BOUND_S):
            allowed_ranges = find_input_ranges(self.programs[request["digest"]], request["rows"])
        return {name: [asdict(one) for one in each] for name, each in allowed_ranges.items()}

    def _run(self, request: Request) -> None:
        program = self.programs[request["digest"]]
        state, batch = self.views(request["state"]), self.views(request["batch"])
        rows = check_batch(program.document, batch)
        most = request["pass_rows"] or rows
        bounded = self.admit(program, batch, pass_sizes(rows, most), Limits(*request["limits"]), True)
        whole = gradient_cost(program.document, bounded, rows, most)
        with self.allowed(program, whole, pass_count(rows, most)):
            inputs = build_tensors(state, self.configuration.device)
            seed, device = bytes.fromhex(request["seed"]), self.configuration.device
            answer, buffers = mean_gradient(program, inputs, batch, seed, (rows, min(rows, most)), device)
            numpy_of(answer | buffers, self.views(request["result"]))

    def _evaluate_document(self, request: Request) -> dict[str, Any]:
        program = self.programs[request["digest"]]
        state, batch = self.views(request["state"]), self.views(request["batch"])
        rows = check_batch(program.document, batch)
        bounded = self.admit(program, batch, evaluation_sizes(rows), Limits(*request["limits"]), False)
        whole = evaluation_cost(program.document, bounded, rows)
        with self.allowed(program, whole, pass_count(rows, EVALUATION_ROWS)):
            return asdict(evaluate(program, state, batch, self.configuration.device))

    def _measure(self, request: Request) -> dict[str, float]:
        program = self.programs[request["digest"]]
        state, batch = self.views(request["state"]), self.views(request["batch"])
        rows = check_batch(program.document, batch)
        bounded = self.admit(program, batch, (rows,), Limits(*request["limits"]), False)
        with self.allowed(program, evaluation_cost(program.document, bounded, rows, rows), 1):
            return measure(program, state, batch, self.configuration.device)

    @property
    def _most(self) -> Limits:
        return Limits(self.configuration.operations, self.configuration.bound_bytes)

    def admit(
        self,
        program: Program,
        batch: Arrays,
        rows: Sequence[int],
        limits: Limits,
        training: bool,
        by_row: bool = False,
    ) -> Bound:
        """Returns the cost of the dearest of these microbatches, at the sizes of this batch. Raises DocumentRefused."""
        sizes = sizes_of(program.document, batch)
        key = (program.document.digest, tuple(rows), tuple(sizes.items()), limits, training, by_row)
        if key not in self._admitted:
            with allowance.limit_request(allowance.BOUND_S):
                bounds = [admit_batch(program, count, sizes, limits, training, by_row) for count in rows]
            self._admitted = dict([*self._admitted.items()][1 - ADMITTED_KEPT :])
            self._admitted[key] = merge_bounds(bounds)
        return self._admitted[key]

    def allowed(self, program: Program, bounded: Cost, passes: int) -> AbstractContextManager[None]:
        """Limits this process to the time and memory that these passes of a program may take."""
        config = self.configuration
        if config.device != "cpu":
            whole = limit_card_memory(config.device, config.memory_bytes)
            self._take_slots(whole, bounded.memory)
        seconds = allowance.compute_allowed_seconds(bounded.operations, program.document.calls, passes, config.threads)
        return allowance.limit_request(seconds, bounded.memory if config.device == "cpu" else None, config.threads)

    def _take_slots(self, card_bytes: int, memory: int) -> None:
        """Waits for the memory of a step and of its recording, where other processes share the card.

        Nothing of this process stays there while it waits.
        """
        if self.configuration.slots is None:
            return
        if self._slots is None:
            self._slots = CardSlots(self.configuration.slots, card_bytes)
        needed = min(self.configuration.memory_bytes, memory * (2 if self.configuration.graphs else 1))
        if self._slots.is_awaited() or not self._slots.holds(needed):
            self._release_memory({})
        self._slots.take(needed, lambda: frames.send_frame(self.configuration.answers, WAITS))

    def views(self, places: list[Any]) -> dict[str, np.ndarray]:
        """Returns the arrays at these places of the arena."""
        return self.arena.views(decode_placements(places))


def limit_card_memory(device: str, memory_bytes: int) -> int:
    """Makes allocations of this process on the card fail beyond `memory_bytes`: other processes keep their memory.

    Returns the card's bytes.
    """
    number = torch.device(device).index or 0  # `cuda` is the first card; torch takes no name without a number here
    whole: int = torch.cuda.get_device_properties(number).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, memory_bytes / whole), number)
    return whole


def set_global_state(configuration: Configuration) -> None:
    """Sets everything in torch that affects the bits of a result."""
    torch.set_num_threads(configuration.threads)
    torch.set_num_interop_threads(1)
    torch.set_flush_denormal(True)  # before threads are made, which inherit it: a denormal takes up to 48 times as long
    torch.use_deterministic_algorithms(True)
    # No operator reads memory that it did not write. Filling it nevertheless took a card a twelfth of GPT-2's time, in
    # hundreds of kernels; its driver clears another process's data.
    deterministic.fill_uninitialized_memory = configuration.device == "cpu"  # type: ignore[attr-defined]
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


def determinism_class(configuration: Configuration) -> str:
    """Returns the facts that must match for equal bits: of a processor its vendor, versions, vector width and threads.

    Of a card see card_class.py, which starts CUDA. Raises Refused where it does not start.
    """
    if configuration.device != "cpu":
        return describe_card(configuration.device)
    # the architecture and vendor; the matrix library chooses its kernels by the vendor
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    makers = [line.split(":")[1].strip() for line in lines if line.startswith("vendor_id")]
    parts = [
        "cpu",
        f"{platform.machine()}-{makers[0]}" if makers else platform.machine(),
        torch.backends.cpu.get_cpu_capability().lower(),
    ]
    parts += [f"torch-{torch.__version__}", f"threads-{configuration.threads}"]
    return "/".join(parts).replace(" ", "-")


def serve_by(handler: type[RequestHandler]) -> None:
    """Serves requests until the parent closes the pipe."""
    settings = serving.parse_configuration()
    child = handler(settings)

    def greeting() -> str:
        set_global_state(settings)
        child.settle()
        return determinism_class(settings)

    serving.serve_requests(settings, greeting, child.answers)


def serve() -> None:
    """Serves documents alone."""
    serve_by(RequestHandler)


if __name__ == "__main__":
    serve()
