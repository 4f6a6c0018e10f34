"""Accepted documents run on tiny inputs: bounded or refused, computed or refused, and the child that does it stays."""

import math
import time
from typing import Final

import numpy as np

from fuzz.case import chance_of, kind_of, seed_of
from fuzz.child import Outcome
from gradmarket.market.errors import OutOfMemory, Refused
from gradmarket.market.step import GradientStep
from gradmarket.runner import Runner, RunnerSettings
from graphdoc.document.graph import WEIGHT, Document, Expected

ROWS: Final = 2
OPERATIONS: Final = 10**9
MEMORY: Final = 2**30
SECONDS: Final = 5.0
SEED: Final = bytes(range(32))


def settings() -> RunnerSettings:
    return RunnerSettings(memory_bytes=MEMORY, seconds=SECONDS, operations=OPERATIONS)


def run(runner: Runner, numbers: list[int]) -> Outcome:
    """The documents of these numbers: accepted means computed."""
    outcome = Outcome()
    runner.start()
    for number in numbers:
        seed = seed_of("documents", number)
        case = kind_of("documents").case(chance_of(seed))
        start = time.perf_counter()
        try:
            outcome.accepted += _computed(runner, case.data)
        except (Refused, OutOfMemory):
            outcome.refused += 1
        except Exception as error:  # noqa: BLE001  # any other error is a finding
            outcome.failures.append((seed, f"{type(error).__name__}: {error}"))
        milliseconds = (time.perf_counter() - start) * 1000
        outcome.cases += 1
        if milliseconds > outcome.slowest_ms:
            outcome.slowest_ms, outcome.slowest = milliseconds, seed
    return outcome


def _computed(runner: Runner, data: bytes) -> bool:
    document = runner.load(data)
    bound = runner.bound(ROWS)
    state, batch = document.state, document.batch(ROWS)
    if bound.peak_bytes > MEMORY // 4:
        raise Refused("its inputs are too large to be made here")
    answer = runner.compute(_filled(state), _filled(batch), SEED, GradientStep(rows=ROWS))
    assert {name: array.shape for name, array in answer.items()} == _shapes(document), "another answer"
    return True


def _filled(wanted: Expected) -> dict[str, np.ndarray]:
    """Small numbers for every array."""
    return {name: _array(shape, dtype) for name, (shape, dtype) in wanted.items()}


def _array(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    numbers = np.arange(math.prod(shape)) % 3
    return (numbers / 2 if dtype == "float32" else numbers % 2).astype(dtype).reshape(shape)


def _shapes(document: Document) -> dict[str, tuple[int, ...]]:
    gradients = {entry.name: entry.shape for entry in document.trainable}
    weight: dict[str, tuple[int, ...]] = {WEIGHT: ()} if document.weight is not None else {}
    return {"loss": ()} | gradients | {name: document.state[name][0] for name in document.updates} | weight
