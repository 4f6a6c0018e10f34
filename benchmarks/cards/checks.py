"""Properties that must hold on a card, each check with its reason where it does not."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import torch

from benchmarks.cards.hosts import check_hosts, check_loads, check_slots
from benchmarks.cards.lines import MEMORY, SEED, Line, measure_distance
from benchmarks.cards.paths import (
    check_arena,
    check_codecs,
    check_graphs,
    check_local_steps,
    check_optimizers,
    check_payload,
    check_taken_memory,
    check_tf32,
)
from benchmarks.cards.workloads import Arrays, Workload, list_workloads
from graphdoc.document.interpret import explain_error
from graphdoc.errors import GraphdocError, OutOfMemory
from graphdoc.operators.cuda import is_documented_as_throwing
from graphdoc.runner import DocumentRunner, RunnerSettings
from graphdoc.runner.cards import list_cards, start_confined
from graphdoc.runner.settings import build_child_environment

ROOT: Final = Path(__file__).resolve().parents[2]
TOLERANCE: Final = 5e-3
"""The most that `tolerance` may allow, of the largest element: docs/verifiers.md."""


def run_checks(device: str, deadline: float) -> Iterator[Line]:
    """Yields a line a check; a check that the time does not allow fails."""
    checks: dict[str, Callable[[str], Iterator[Line]]] = {
        "start": check_start,
        "probes": check_probes,
        "number": check_number,
        "memory": check_memory_words,
        "hosts": check_hosts,
        "slots": check_slots,
        "loads": check_loads,
        "operators": check_operators,
        "optimizers": check_optimizers,
        "codecs": check_codecs,
        "payload": check_payload,
        "tf32": check_tf32,
        "local_steps": check_local_steps,
        "graphs": check_graphs,
        "taken_memory": check_taken_memory,
        "arena": check_arena,
        "bits": check_bits,
    }
    for name, check in checks.items():
        if time.monotonic() > deadline:
            yield Line(name, False, "no time was left")
            continue
        try:
            yield from check(device)
        except (GraphdocError, RuntimeError, OSError, ValueError, subprocess.TimeoutExpired) as error:
            yield Line(name, False, f"{type(error).__name__}: {error}"[:500])


def check_start(device: str) -> Iterator[Line]:
    """The driver's start in the confinement, and the computing child's: class, measures, seconds."""
    if device != "cpu":
        found, refused = start_confined()
        described = found.fault or f"driver {found.driver}: {found.cards}"
        yield Line("start.confined", not found.fault, f"{described}; refused was: {refused}")
    begun = time.monotonic()
    with DocumentRunner(RunnerSettings(device=device, memory_bytes=MEMORY)) as runner:
        name, missing = runner.determinism_class(), runner.missing()
        yield Line("start.child", not missing, f"{name}; lacks {missing}", time.monotonic() - begun, "s")
    with DocumentRunner(RunnerSettings(device=device, memory_bytes=MEMORY)) as runner:
        yield Line("start.same_class", runner.determinism_class() == name, runner.determinism_class())


def check_probes(device: str) -> Iterator[Line]:
    """Hostile attempts while kernels run."""
    environment = build_child_environment(RunnerSettings(device=device)) | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "benchmarks.cards.probes", device]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False, timeout=120)
    if done.returncode:
        yield Line("probes", False, done.stderr.strip()[-500:])
        return
    found = json.loads(done.stdout)
    whole = {"network", "files", "calls"} <= set(found["held"])
    yield Line("probes", whole and not found["done"], f"measures {found['held']}; not refused: {found['done']}")


def check_number(device: str) -> Iterator[Line]:
    """A card of no such number is refused, and each card's child starts."""
    if device == "cpu":
        return
    try:
        with DocumentRunner(RunnerSettings(device="cuda:99")) as runner:
            yield Line("number.99", False, f"it was taken: {runner.determinism_class()}")
    except GraphdocError as error:
        yield Line("number.99", True, error.detail)
    for card in list_cards().cards[1:]:
        with DocumentRunner(RunnerSettings(device=f"cuda:{card.number}")) as runner:
            yield Line(f"number.{card.number}", True, f"{card.name}: {runner.determinism_class()}")


def check_memory_words(device: str) -> Iterator[Line]:
    """A full card is reported without other processes' numbers."""
    if device == "cpu":
        return
    try:
        torch.empty(2**50, dtype=torch.uint8, device=device)
    except RuntimeError as error:
        explained = explain_error("node 1", error)
        right = (
            isinstance(explained, OutOfMemory)
            and "the card is full" in explained.detail
            and "rocess" not in explained.detail
        )
        yield Line("memory.words", right, f"{explained.detail} (torch: {str(error)[:200]})")


def check_operators(device: str) -> Iterator[Line]:
    """Operators on which torch's documentation and experience differ: whether this torch raises."""
    cubes, rows = torch.rand(2, 3, 8, 8, 8), torch.rand(64, 1001) + 0.5
    expected: dict[str, tuple[bool, Callable[[], torch.Tensor]]] = {
        "cumsum": (False, lambda: rows.to(device).requires_grad_().cumsum(1)),
        "cumprod": (False, lambda: rows.to(device).requires_grad_().cumprod(1)),
        "max_pool3d": (
            is_documented_as_throwing("torch.nn.MaxPool3d"),
            lambda: torch.nn.functional.max_pool3d(cubes.to(device).requires_grad_(), 2),
        ),
        "gru_eval": (True, lambda: _recur(torch.nn.GRU, device)),
        "rnn_eval": (True, lambda: _recur(torch.nn.RNN, device)),
        "lstm_eval": (True, lambda: _recur(torch.nn.LSTM, device)),
    }
    torch.use_deterministic_algorithms(True)
    try:
        for name, (throws, compute) in expected.items():
            answers = [_try_operator(compute) for _ in range(3)]
            wanted = throws and device != "cpu"
            held = answers[0].startswith("raises") == wanted and len(set(answers)) == 1
            yield Line(f"operators.{name}", held, f"torch {torch.__version__}: {answers[0][:200]}")
    finally:
        torch.use_deterministic_algorithms(False)


def _recur(kind: type[torch.nn.GRU | torch.nn.RNN | torch.nn.LSTM], device: str) -> torch.Tensor:
    torch.manual_seed(1)
    module = kind(12, 24, batch_first=True).to(device).eval()
    outputs: torch.Tensor = module(torch.ones(4, 6, 12, device=device).requires_grad_())[0]
    return outputs


def _try_operator(compute: Callable[[], torch.Tensor]) -> str:
    try:
        result = compute()
        result.square().sum().backward()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        return f"raises {str(error).splitlines()[0]}"
    return f"computes {float(result.detach().double().sum()).hex()}"


def check_bits(device: str) -> Iterator[Line]:
    """Each model's answer is the same again, in another child and under load; how far the processor's is from it."""
    settings = RunnerSettings(device=device, memory_bytes=MEMORY)
    with (
        DocumentRunner(settings) as first,
        DocumentRunner(settings) as second,
        DocumentRunner(RunnerSettings(memory_bytes=MEMORY)) as processor,
    ):
        for workload in list_workloads():
            answers = [_answer(first, workload), _answer(first, workload), _answer(second, workload)]
            bits = {tuple((name, array.tobytes()) for name, array in sorted(one.items())) for one in answers}
            far = measure_distance(answers[0], _answer(processor, workload))
            note = "" if far <= TOLERANCE else f"farther than {TOLERANCE}: such jobs need one class"
            yield Line(f"bits.{workload.name}", len(bits) == 1, note, far, "of the largest element, from the CPU's")


def _answer(runner: DocumentRunner, workload: Workload) -> Arrays:
    runner.load(workload.model.document)
    rows = len(workload.batch["y"])
    return runner.run(workload.model.parameters, workload.batch, SEED, pass_rows=rows // 2)
