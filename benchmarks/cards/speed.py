"""A card's speed on two GPTs: alone, as torch's own module, and through the confined child.

`alone` is the document on the card, its passes recorded as the child records them; `host_share` is the child's time
beyond it. In local steps alone is torch's own loop: autocast, its fused AdamW, and nothing of the market.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import nn

from benchmarks.cards.lines import SEED, Line
from benchmarks.cards.workloads import Workload, build_gpt, make_gpt
from gradmarket.market.step import GradientStep, InnerOptimizer, LocalStep
from gradmarket.runner import Runner
from graphdoc.document.captured import FIRST, CapturedPasses, record_cuda_graph
from graphdoc.document.graph import Precision
from graphdoc.document.interpret import Program
from graphdoc.document.publish import next_token
from graphdoc.document.schema import parse_document
from graphdoc.errors import GraphdocError
from graphdoc.passes import build_tensors, mean_gradient
from graphdoc.runner import DocumentRunner, RunnerSettings

RUNS: Final = 5
MEMORY: Final = 48 * 2**30
"""Bytes of a child: GPT-2's recorded passes and local steps beside its optimizer."""
LOCAL_STEPS: Final = 20
DOLLARS_AN_HOUR: Final = 2.5
"""An H100's assumed price."""


@dataclass(frozen=True)
class GptSize:
    """A GPT and its batch: rows of `length` tokens, one of `words` each."""

    name: str
    rows: int
    length: int
    words: int
    depth: int
    width: int
    heads: int

    def build_module(self) -> nn.Module:
        return build_gpt(self.length, self.words, depth=self.depth, width=self.width, heads=self.heads)

    def make_workload(self, precision: Precision) -> Workload:
        sizes = {"depth": self.depth, "width": self.width, "heads": self.heads}
        return make_gpt(self.name, self.rows, self.length, self.words, precision, **sizes)


SMALL: Final = GptSize("gpt", 4, 16, 97, depth=1, width=32, heads=2)
"""The size that the processor's twin computes."""
GPT10M: Final = GptSize("gpt10m", 64, 256, 256, depth=6, width=384, heads=6)
GPT2: Final = GptSize("gpt2", 8, 1024, 50257, depth=12, width=768, heads=12)
MEASURED: Final[tuple[tuple[GptSize, Precision, int], ...]] = (
    (GPT10M, "fp32", 60), (GPT10M, "tf32", 60), (GPT10M, "bf16", 60), (GPT2, "bf16", 180)
)  # fmt: skip
"""The measurements, and the seconds that must be left for each."""


def measure_card(device: str, deadline: float) -> Iterator[Line]:
    """Yields tokens a second and the host's share of a task; the processor takes a tiny model in each one's place."""
    for size, precision, needed in MEASURED:
        name = f"{size.name}_{precision}"
        if time.monotonic() > deadline - needed:
            yield Line(f"cuda.{name}", False, "no time was left")
            continue
        try:
            yield from _measure_workload(device, SMALL if device == "cpu" else size, precision, name)
        except (GraphdocError, RuntimeError) as error:
            yield Line(f"cuda.{name}", False, f"{type(error).__name__}: {error}"[:500])


def _measure_workload(device: str, size: GptSize, precision: Precision, name: str) -> Iterator[Line]:
    begun = time.perf_counter()
    workload = size.make_workload(precision)
    yield Line(f"cuda.publish.{name}", None, "a module of torch becomes a document", time.perf_counter() - begun, "s")
    tokens, rows = workload.batch["x"].size, len(workload.batch["y"])
    task = workload.model.parameters, workload.batch, SEED
    with DocumentRunner(RunnerSettings(device=device, memory_bytes=MEMORY)) as child:
        child.load(workload.model.document)
        served = measure_seconds(lambda: child.run(*task))
    with Runner(RunnerSettings(device=device, memory_bytes=MEMORY)) as runner:
        runner.load(workload.model.document)
        step = GradientStep(rows=rows)
        answered = measure_seconds(lambda: runner.compute_payload(*task, step, "two_bit", "the round's"))
    alone = _measure_document(device, workload)
    yield Line(f"cuda.tokens_s.{name}", None, "the document alone", tokens / alone, "tokens/s")
    yield Line(f"cuda.tokens_s_served.{name}", None, "through the confined child", tokens / served, "tokens/s")
    yield Line(f"cuda.host_share.{name}", None, "of a served gradient", 1 - alone / served)
    yield Line(f"cuda.host_share_of_task.{name}", None, "its answer in two_bit", 1 - alone / answered)
    dollars = tokens / answered * 3600 / DOLLARS_AN_HOUR
    yield Line(f"cuda.tokens_per_dollar.{name}", None, f"at ${DOLLARS_AN_HOUR} an hour, R=1", dollars, "tokens/$")
    if precision == "bf16":
        yield from _compare_with_torch(device, size, workload, name, alone)


def _compare_with_torch(device: str, size: GptSize, workload: Workload, name: str, alone: float) -> Iterator[Line]:
    """Yields how the document and served local steps compare with torch's own autocast in this run."""
    tokens = workload.batch["x"].size
    eager = _measure_eager(device, size, workload, steps=False)
    yield Line(f"cuda.tokens_s_eager.{name}", None, "torch's autocast", tokens / eager, "tokens/s")
    yield Line(f"cuda.of_eager.{name}", None, "the document's speed over autocast's", eager / alone)
    loop = _measure_eager(device, size, workload, steps=True)
    local = LocalStep(
        kind="local", rows=size.rows, steps=LOCAL_STEPS, optimizer=InnerOptimizer(name="adamw", lr=1e-4, clip=1.0)
    )
    batch = {key: np.concatenate([array] * LOCAL_STEPS) for key, array in workload.batch.items()}
    with Runner(RunnerSettings(device=device, memory_bytes=MEMORY)) as runner:
        runner.load(workload.model.document)
        task = workload.model.parameters, batch, SEED, local, "two_bit", "the round's"
        answered = measure_seconds(lambda: runner.compute_payload(*task), runs=2)
    setup = f"{LOCAL_STEPS} inner steps of AdamW, clipped, answered in two_bit"
    yield Line(f"cuda.local_tokens_s.{name}", None, setup, LOCAL_STEPS * tokens / answered, "tokens/s")
    yield Line(f"cuda.local_of_eager.{name}", None, "over autocast's passes alone", LOCAL_STEPS * eager / answered)
    yield Line(
        f"cuda.local_of_loop.{name}", None, "over autocast with fused AdamW and clip", LOCAL_STEPS * loop / answered
    )


def _measure_document(device: str, workload: Workload) -> float:
    """Returns the seconds of a gradient where the document is computed, recorded where a card records."""
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    program, rows = Program(parse_document(workload.model.document)), len(workload.batch["y"])
    program.captured = None if device == "cpu" else CapturedPasses(record_cuda_graph, lambda: True)
    inputs = build_tensors(workload.model.parameters, device)

    def compute() -> None:
        mean_gradient(program, inputs, workload.batch, SEED, (rows, rows), device)
        _wait_for_card(device)

    taken = measure_seconds(compute)
    torch.use_deterministic_algorithms(False)
    return taken


def _measure_eager(device: str, size: GptSize, workload: Workload, steps: bool) -> float:
    """Returns the seconds of a pass of torch's own module under autocast, with fused AdamW and clip where it steps."""
    module = size.build_module().to(device)
    x, y = (torch.from_numpy(workload.batch[key]).to(device) for key in "xy")
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)

    def compute() -> None:
        module.zero_grad(set_to_none=True)
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            loss, _ = next_token(module(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        if steps:
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
        _wait_for_card(device)

    return measure_seconds(compute)


def _wait_for_card(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def measure_seconds(act: Callable[[], object], runs: int = RUNS) -> float:
    """Returns the median of several runs after those that warm up and record."""
    taken = []
    for _ in range(FIRST + runs):
        begun = time.perf_counter()
        act()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken[FIRST:])
