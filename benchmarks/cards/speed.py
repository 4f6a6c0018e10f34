"""How fast a card computes a GPT of 10.8M parameters: alone, as a document, and through the confined child."""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Final, get_args

import torch

from benchmarks.cards.lines import MEMORY, SEED, Line
from benchmarks.cards.workloads import Workload, make_gpt
from gradmarket.market.step import GradientStep
from gradmarket.runner import Runner
from graphdoc.document.graph import Precision
from graphdoc.document.interpret import Program
from graphdoc.document.schema import parse_document
from graphdoc.errors import GraphdocError
from graphdoc.passes import build_tensors, mean_gradient
from graphdoc.runner import DocumentRunner, RunnerSettings

SIZES: Final = {"depth": 6, "width": 384, "heads": 6}
SMALL: Final = {"depth": 1, "width": 32, "heads": 2}
RUNS: Final = 5
DOLLARS_AN_HOUR: Final = 2.5
"""An H100's assumed price."""


def measure_card(device: str, deadline: float) -> Iterator[Line]:
    """Yields tokens a second and the host's share of a task; the processor takes a tiny model in its place."""
    precisions: tuple[Precision, ...] = get_args(Precision)
    for precision in precisions:
        if time.monotonic() > deadline - 120:
            yield Line(f"cuda.{precision}", False, "no time was left")
            continue
        try:
            yield from _measure_workload(device, _choose_workload(device, precision), precision)
        except (GraphdocError, RuntimeError) as error:
            yield Line(f"cuda.{precision}", False, f"{type(error).__name__}: {error}"[:500])


def _choose_workload(device: str, precision: Precision) -> Workload:
    if device == "cpu":
        return make_gpt("gpt", 4, 16, 97, precision, **SMALL)
    return make_gpt("gpt10m", 64, 256, 256, precision, **SIZES)


def _measure_workload(device: str, workload: Workload, precision: str) -> Iterator[Line]:
    tokens = workload.batch["x"].size
    with DocumentRunner(RunnerSettings(device=device, memory_bytes=MEMORY)) as runner:
        runner.load(workload.model.document)
        served = measure_seconds(lambda: runner.run(workload.model.parameters, workload.batch, SEED))
    task = workload.model.parameters, workload.batch, SEED, GradientStep(rows=len(workload.batch["y"]))
    with Runner(RunnerSettings(device=device, memory_bytes=MEMORY)) as runner:
        runner.load(workload.model.document)
        answered = measure_seconds(lambda: runner.compute_payload(*task, "two_bit", "the round's"))
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    program, rows = Program(parse_document(workload.model.document)), len(workload.batch["y"])
    inputs = build_tensors(workload.model.parameters, device)

    def compute() -> None:
        mean_gradient(program, inputs, workload.batch, SEED, (rows, rows), device)
        if device != "cpu":
            torch.cuda.synchronize()

    alone = measure_seconds(compute)
    torch.use_deterministic_algorithms(False)
    name = f"cuda.{{}}.{workload.name}_{precision}"
    yield Line(name.format("tokens_s"), None, "the document alone", tokens / alone, "tokens/s")
    yield Line(name.format("tokens_s_served"), None, "through the confined child", tokens / served, "tokens/s")
    yield Line(name.format("host_share"), None, "of a served gradient", 1 - alone / served, "")
    yield Line(name.format("host_share_of_task"), None, "its answer in two_bit", 1 - alone / answered, "")
    dollars = tokens / served * 3600 / DOLLARS_AN_HOUR
    yield Line(name.format("tokens_per_dollar"), None, f"at ${DOLLARS_AN_HOUR} an hour, R=1", dollars, "tokens/$")


def measure_seconds(act: Callable[[], object]) -> float:
    """Returns the median of several runs after one that warms up."""
    taken = []
    for _ in range(RUNS + 1):
        begun = time.perf_counter()
        act()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken[1:])
