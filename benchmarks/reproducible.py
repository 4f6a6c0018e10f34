"""The cost of reproducible arithmetic in a step of a GPT of 10.8 million parameters, beside native arithmetic; and that
of Freivalds' checks of products, exact and within a tolerance, beside computing them again.

Both steps run by turns in one child with the environment of a worker's: 8 rows of 128 tokens, loss and gradients. Of
one thread the CPU time counts, so that other programs count little; of two the wall time, since they wait for each
other. The best of each counts.
"""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

import numpy as np
import torch

from benchmarks.figure import Figure
from benchmarks.rig.freivalds import check_product
from benchmarks.rig.product_check import check_exact_product
from benchmarks.rig.rounds import GPT_10M
from benchmarks.size import SMALLEST, sized
from gradmarket.runner.architectures import gpt
from graphdoc.document.graph import Arithmetic
from graphdoc.document.interpret import Program
from graphdoc.document.publish import next_token, publish_module
from graphdoc.document.schema import parse_document, set_arithmetic
from graphdoc.passes import build_tensors, mean_gradient
from graphdoc.reproducible.exact import multiply_exactly
from graphdoc.runner.child import set_global_state
from graphdoc.runner.serving import Configuration
from graphdoc.runner.settings import RunnerSettings, build_child_environment

PREFIX = "reproducible"
CLOCKS: Final = {"CPU": time.process_time, "wall": time.perf_counter}
ROWS, TIMES = sized((8, 12), (1, 1))
ARITHMETICS: Final[tuple[Arithmetic, ...]] = ("native", "reproducible")
SIZES: Final = (128, 512, 2048)
SMALLER, CHECKS = sized((1, 7), (32, 1))


def measure() -> Iterator[Figure]:
    yield from _measure_checks()
    for threads, suffix, clock in ((1, "", "CPU"), (2, ".two_threads", "wall")):
        best = _measure_child(threads)[clock]
        ratio = best["reproducible"] / best["native"]
        note = f"{best['native']:.2f} s of {clock} time natively, {best['reproducible']:.2f} s reproducibly"
        yield Figure(f"reproducible.cost.gpt10m{suffix}", ratio, "times native", target="<= 3", note=note)


def _measure_checks() -> Iterator[Figure]:
    """Yields the cost of Freivalds' check of a square product, beside computing it again, on one thread."""
    torch.set_num_threads(1)
    for size in SIZES:
        left, right = torch.randn(2, size // SMALLER, size // SMALLER)
        product, native = multiply_exactly(left, right), left @ right
        checks: Mapping[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "exact": (
                partial(check_exact_product, left, right, product, bytes(32)),
                partial(multiply_exactly, left, right),
            ),
            "tolerance": (partial(check_product, left, right, native, bytes(32)), partial(torch.mm, left, right)),
        }
        for kind, (check, compute) in checks.items():
            checked, computed = _time_best(check), _time_best(compute)
            note = f"{1e3 * checked:.3g} ms to check, {1e3 * computed:.3g} ms to compute"
            yield Figure(f"reproducible.freivalds.{kind}.{size}", checked / computed, "of the product", note=note)


def _time_best(call: Callable[[], object]) -> float:
    """Returns the least CPU seconds of the call."""
    best = math.inf
    for _ in range(CHECKS):
        began = time.process_time()
        call()
        best = min(best, time.process_time() - began)
    return best


def _measure_child(threads: int) -> dict[str, dict[str, float]]:
    """Returns the least seconds of a step by clock and arithmetic."""
    own = build_child_environment(RunnerSettings(threads=threads))
    own |= {name: os.environ[name] for name in (SMALLEST,) if name in os.environ}
    command = [sys.executable, "-m", "benchmarks.reproducible", str(threads)]
    done = subprocess.run(command, env=own, capture_output=True, check=True, text=True)
    return dict(json.loads(done.stdout))


def time_steps(threads: int) -> Mapping[str, Mapping[Arithmetic, float]]:
    """Returns the figures of `_measure_child`, for steps in this process."""
    set_global_state(Configuration(0, False, 0, 0, 0, "cpu", threads, 2**40, 2**60, 2**40))
    torch.manual_seed(1)
    example = torch.zeros(2, *GPT_10M.shape, dtype=torch.int64)
    made = publish_module(gpt.build(GPT_10M.arguments, GPT_10M.shape, GPT_10M.classes), next_token, (example, example))
    tokens = np.random.default_rng(0).integers(0, GPT_10M.classes, (ROWS, *GPT_10M.shape))
    programs = {name: Program(parse_document(set_arithmetic(made.document, name))) for name in ARITHMETICS}
    best = {clock: dict.fromkeys(programs, float("inf")) for clock in CLOCKS}
    for _ in range(TIMES):
        for name, program in programs.items():
            inputs = build_tensors({key: made.parameters[key] for key in program.document.state}, "cpu")
            began = {clock: read() for clock, read in CLOCKS.items()}
            mean_gradient(program, inputs, {"x": tokens, "y": tokens}, bytes(32), (ROWS, ROWS), "cpu")
            for clock, read in CLOCKS.items():
                best[clock][name] = min(best[clock][name], read() - began[clock])
    return best


if __name__ == "__main__":
    print(json.dumps(time_steps(int(sys.argv[1]))))
