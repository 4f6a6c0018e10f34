"""The calls find each fault that an operator can have."""

import ctypes
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from fuzz.calls import making, taking
from fuzz.calls.damage import damaged
from fuzz.calls.elsewhere import ANSWERING, MEASURING, Elsewhere
from fuzz.calls.lines import RECIPES
from fuzz.calls.making import Finding, made
from fuzz.calls.others import OTHERS
from fuzz.calls.recipes import honest, tensor
from fuzz.case import chance_of
from gradmarket.market.errors import DocumentRefused
from graphdoc.document.calls import OPERATORS
from graphdoc.operators import ALLOWED
from tests.lanes import FULL, leave_to_full

KEY = "relu.default"
PLAIN = [tensor("i", [5])]


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    other = Elsewhere(ANSWERING)
    yield other
    other.close()


@pytest.fixture(scope="module")
def measuring() -> Iterator[Elsewhere]:
    other = Elsewhere(MEASURING)
    yield other
    other.close()


@pytest.fixture(autouse=True)
def plain_memory() -> Iterator[None]:
    yield
    making.poisoned(0)


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Another kernel in the place of one; shapes alone stay right."""

    def put(kernel: Callable[..., Any]) -> None:
        def call(given: torch.Tensor) -> torch.Tensor:
            return given.clone() if given.is_meta else kernel(given)

        monkeypatch.setitem(making.OPERATORS, KEY, replace(OPERATORS[KEY], call=call))

    return put


def beyond(given: torch.Tensor, by: int) -> torch.Tensor:
    """One element from behind the tensor."""
    address = given.data_ptr() + (given.numel() + by) * given.element_size()
    return given + ctypes.c_int64.from_address(address).value


def test_a_read_beyond_a_tensor_is_found(faulty: Callable[..., None]) -> None:
    made(KEY, PLAIN)
    faulty(lambda given: beyond(given, 3))
    with pytest.raises(Finding, match="depend on what was in memory"):
        made(KEY, PLAIN)


def test_a_write_beyond_a_tensor_is_found(faulty: Callable[..., None]) -> None:
    def write(given: torch.Tensor) -> torch.Tensor:
        ctypes.memset(given.data_ptr() - 8, 1, 8)
        return given.clone()

    faulty(write)
    with pytest.raises(Finding, match="wrote beyond"):
        made(KEY, PLAIN)


def test_a_result_of_another_shape_or_type_than_the_meta_one_is_found(faulty: Callable[..., None]) -> None:
    for kernel in (lambda given: given[1:], lambda given: given.float()):
        faulty(kernel)
        with pytest.raises(Finding, match="its shapes alone"):
            made(KEY, PLAIN)


def test_time_that_the_cost_does_not_bound_is_found(
    faulty: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty(torch.clone)
    ticks = iter(range(0, 20, 2))
    monkeypatch.setattr(making.time, "process_time", lambda: float(next(ticks)))
    with pytest.raises(Finding, match=r"it took 2\.00 s"):
        made(KEY, PLAIN)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is poisoned by the C library of Linux")
def test_memory_that_nobody_wrote_is_found(faulty: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
    faulty(lambda given: torch.empty(2**17, dtype=torch.int64)[: given.numel()].clone())
    with pytest.raises(Finding, match="depend on what was in memory"):
        made(KEY, PLAIN)


@FULL
def test_another_process_same_bits(elsewhere: Elsewhere) -> None:
    made(KEY, PLAIN, other=elsewhere.begun)


def test_an_answer_that_two_processes_do_not_share_is_found(elsewhere: Elsewhere, faulty: Callable[..., None]) -> None:
    faulty(lambda given: given + 1)
    with pytest.raises(Finding, match="depend on what was in memory"):
        made(KEY, PLAIN, other=elsewhere.begun)


def test_a_call_that_ends_the_other_process_is_found_and_the_next_one_answered() -> None:
    ending = "import sys; sys.stdin.readline(); import os; os.abort()"
    other = Elsewhere((sys.executable, "-c", ending))
    with pytest.raises(Finding, match="ended with SIGABRT"):
        made(KEY, PLAIN, other=other.begun)
    with pytest.raises(Finding, match="ended with SIGABRT"):
        made(KEY, PLAIN, other=other.begun)
    other.close()


@pytest.mark.skipif(sys.platform != "linux", reason="what is resident is told by Linux")
def test_memory_beyond_the_bound_is_found(faulty: Callable[..., None]) -> None:
    large = [tensor("i", [2**18])]
    taking.taken(KEY, large)
    faulty(lambda given: torch.ones(2**23, dtype=torch.int64)[: given.numel()].clone())
    with pytest.raises(Finding, match=r"it took [67]\d\.\d MiB beside"):
        taking.taken(KEY, large)


@FULL
def test_memory_is_measured_in_a_process_of_its_own(measuring: Elsewhere) -> None:
    assert measuring.begun("softmax.int", [tensor("f", [600, 700]), 1, None])() == ""
    with pytest.raises(DocumentRefused, match="too large"):
        measuring.begun(KEY, [tensor("f", [2**30])])()


def recurrence(kind: str, features: int, width: int, ways: int, projected: int = 0, batch_first: bool = False) -> Any:
    """One layer over a hundred places of fifty rows."""
    gates, answer = {"lstm": 4, "gru": 3, "rnn_tanh": 1}[kind] * width, projected or width
    one_way = [tensor("f", [gates, features]), tensor("f", [gates, answer]), tensor("f", [gates]), tensor("f", [gates])]
    one_way += [tensor("f", [projected, width])] if projected else []
    state, cells = tensor("f", [ways, 50, answer]), tensor("f", [ways, 50, width])
    started: Any = [state, cells] if kind == "lstm" else state
    given = tensor("f", [50, 100, features] if batch_first else [100, 50, features])
    return [given, started, ways * one_way, True, 1, 0.0, True, ways == 2, batch_first]


@pytest.mark.parametrize("ways", [1, 2])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(
    ("kind", "features", "width", "projected"),
    leave_to_full(
        [("gru", 500, 4, 0), ("rnn_tanh", 500, 4, 0), ("lstm", 200, 4, 2), ("lstm", 4, 60, 2), ("lstm", 4, 50, 12)], 2
    ),
)
def test_a_recurrence_takes_the_bounded_memory(
    measuring: Elsewhere, kind: str, features: int, width: int, projected: int, ways: int, batch_first: bool
) -> None:
    """Wide inputs are copied where rows come first, and have two gradients where there are two ways."""
    call = recurrence(kind, features, width, ways, projected, batch_first)
    assert measuring.begun(f"{kind}.input", call)() == ""


def test_a_batch_norm_s_backward_takes_the_bounded_memory(measuring: Elsewhere) -> None:
    """The kernel holds one more tensor of its input's size."""
    given, weights = tensor("f", [200, 256, 7, 7]), tensor("f", [256])
    seen = {**weights, "grad": False}
    assert measuring.begun("batch_norm.training", [given, weights, weights, seen, seen, 0.1, 0.5])() == ""


@pytest.mark.parametrize("dtype", ["int8", "int64"])
def test_the_least_integer_meets_minus_one(dtype: str) -> None:
    extreme, crossed = (
        making.Arrays(0).made({**tensor("i", [10]), "dtype": dtype, "fill": fill}) for fill in ("extreme", "crossed")
    )
    least = torch.iinfo(extreme.dtype).min
    assert ((extreme == least) & (crossed == -1)).any()
    assert ((crossed == least) & (extreme == 1)).any()


def test_every_operator_has_an_honest_call_that_is_taken() -> None:
    assert set(RECIPES) | set(OTHERS) <= set(ALLOWED)
    for key in ALLOWED:
        made(key, honest(key, chance_of(key)))


def test_a_damaged_recurrence_is_refused_or_safe() -> None:
    refused = 0
    for number in range(60):
        chance = chance_of(f"damage {number}")
        call = damaged("lstm.input", honest("lstm.input", chance), chance)
        assert len(call) == len(ALLOWED["lstm.input"].arguments)
        try:
            made("lstm.input", call)
        except DocumentRefused:
            refused += 1
    assert 12 < refused < 57
