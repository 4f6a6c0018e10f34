"""Results of another order of summation are within the bound; an element beyond it is found, or not judged."""

import pytest
import torch
from torch import Tensor, nn

from benchmarks.rig.freivalds import check_product, draw_signs
from graphdoc.document.interpret import Program
from graphdoc.document.publish import compute_classification_loss, publish_module
from graphdoc.document.schema import parse_document
from graphdoc.tracing.passes import CallStep
from graphdoc.tracing.rounding import judge_rounding
from graphdoc.tracing.values import Traced, Value
from tests.graphdoc.test_tracing import SEED, TracedPass
from tests.kit.torch_tests import TRACING
from tests.lanes import FULL

pytestmark = TRACING


def traced() -> TracedPass:
    torch.manual_seed(3)
    module = nn.Sequential(nn.Flatten(), nn.Linear(300, 40), nn.Tanh(), nn.Linear(40, 3))
    data = {"x": torch.randn(50, 300), "y": torch.arange(50) % 3}
    published = publish_module(module, compute_classification_loss, (data["x"], data["y"]))
    state = {name: torch.tensor(array) for name, array in published.parameters.items()}
    return TracedPass(Program(parse_document(published.document)), state, data)


def other_order(left: Tensor, right: Tensor) -> Tensor:
    """A product of float32 whose terms are added one after another from the last on."""
    total = torch.zeros(left.shape[0], right.shape[1])
    for place in reversed(range(left.shape[1])):
        total = total + left[:, place : place + 1] * right[place : place + 1]
    return total


def moved(value: Value, by: float) -> Value:
    assert value is not None
    tensor = value.data.clone()
    tensor.reshape(-1)[-1] += by
    return Traced(tensor, value.grad)


def judged(here: TracedPass, way: str, name: str) -> tuple[CallStep, list[Value], list[Value]]:
    pairs = enumerate(here.order.steps, 1)
    number, step = next((n, s) for n, s in pairs if s.way == way and s.call.step.name == name)
    return step, [here.resolve(read) for read in step.reads], here.results[number]


def test_a_product_in_another_order_is_within_the_bound_and_a_wrong_element_is_not() -> None:
    step, values, _ = judged(traced(), "forward", "linear.default")
    data, weight, bias = (value.data for value in values if value is not None)
    honest = other_order(data, weight.t()) + bias
    assert not torch.equal(honest, torch.nn.functional.linear(data, weight, bias))
    found = judge_rounding(step, values, [Traced(honest, True)], SEED)
    assert found is not None
    assert found.within
    assert 0 < found.worst < 0.2
    wrong = judge_rounding(step, values, [moved(Traced(honest, True), 1e-2)], SEED)
    assert wrong is not None
    assert not wrong.within
    missing = judge_rounding(step, values, [moved(Traced(honest, True), float("nan"))], SEED)
    assert missing is not None
    assert not missing.within


def test_backward_of_a_product_is_judged_too() -> None:
    step, values, results = judged(traced(), "backward", "linear.default")
    honest = judge_rounding(step, values, results, SEED)
    assert honest is not None
    assert honest.within
    for place, result in enumerate(results):
        if result is not None:
            lie = [moved(each, 1e-2) if number == place else each for number, each in enumerate(results)]
            found = judge_rounding(step, values, lie, SEED)
            assert found is not None
            assert not found.within
    gone = judge_rounding(step, values, [None] * len(results), SEED)
    assert gone is not None
    assert not gone.within


@pytest.mark.parametrize("name", ["tanh.default", "cross_entropy_loss.default"])
def test_an_operator_without_a_bound_has_no_rounding_judgement(name: str) -> None:
    for way in ("forward", "backward"):
        assert judge_rounding(*judged(traced(), way, name), SEED) is None


def test_an_operator_that_moves_elements_allows_no_rounding() -> None:
    step, values, results = judged(traced(), "forward", "flatten.using_ints")
    same = judge_rounding(step, values, results, SEED)
    assert same is not None
    assert same.within
    other = judge_rounding(step, values, [moved(results[0], 1e-5)], SEED)
    assert other is not None
    assert not other.within


@pytest.mark.parametrize("shape", [(30, 200, 25), (1, 500, 1), (64, 3, 64)])
def test_freivalds_accepts_every_honest_product_and_finds_what_is_beyond_its_bound(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(1)
    m, k, n = shape
    left, right = torch.randn(m, k), torch.randn(k, n)
    product = left @ right
    for number in range(50):
        seed = number.to_bytes(32, "big")
        assert check_product(left, right, product, seed)
        assert check_product(left, right, other_order(left, right), seed)
        limit = float((k + 1) * 2.0**-24 * (left.abs() @ right.abs()).sum(1).max())
        wrong = product.clone()
        wrong[number % m, number % n] += 3 * limit
        assert not check_product(left, right, wrong, seed)


@FULL
def test_one_round_accepts_the_worst_lie_half_of_the_time_and_twenty_never() -> None:
    """Two elements of one row whose errors cancel unless their signs differ: the bound of 1/2 a round is reached."""
    torch.manual_seed(2)
    left, right = torch.randn(8, 20), torch.randn(20, 16)
    wrong = left @ right
    wrong[3, 4] += 1.0
    wrong[3, 9] -= 1.0
    seeds = [number.to_bytes(32, "big") for number in range(2000)]
    accepted = sum(check_product(left, right, wrong, seed, 1) for seed in seeds)
    assert 0.46 < accepted / len(seeds) < 0.54
    assert not any(check_product(left, right, wrong, seed) for seed in seeds[:500])


def test_signs_are_fair_and_follow_from_the_seed() -> None:
    signs = draw_signs(1001, 20, bytes(32))
    assert signs.shape == (1001, 20)
    assert set(signs.flatten().tolist()) == {-1.0, 1.0}
    assert abs(float(signs.mean())) < 0.03
    assert torch.equal(signs, draw_signs(1001, 20, bytes(32)))
    assert not torch.equal(signs, draw_signs(1001, 20, b"\1" * 32))
