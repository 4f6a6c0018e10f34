"""The compiled steps: the bits of the optimizers' own, whatever the values, also in place and cut anywhere."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.errors import PayloadRefused
from gradmarket.market.gradient.arrays import Vector
from gradmarket.market.gradient.optimizers import find_fused_step, load_optimizer

CASES = [
    ("adamw", {"weight_decay": 0.1}),
    ("adamw", {"beta1": 0.0, "beta2": 0.0, "epsilon": 1e-30}),
    ("nesterov", {"weight_decay": 0.01, "groups": [{"pattern": "w*", "weight_decay": 0.5}]}),
    ("nesterov", {}),
]
NUMBERS = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1e-45, -1e-38, 3.4e38, -3.4e38]),
)


def vector(count: int) -> st.SearchStrategy[Vector]:
    return st.lists(NUMBERS, min_size=count, max_size=count).map(lambda values: np.array(values, np.float32))


@pytest.mark.parametrize(("name", "chosen"), CASES)
@given(data=st.data(), lr=st.floats(0.0, 10.0), cut=st.integers(0, 9), in_place=st.booleans())
def test_fused_steps_have_the_bits_of_the_optimizers(
    name: str, chosen: dict[str, Any], data: st.DataObject, lr: float, cut: int, in_place: bool
) -> None:
    rule = load_optimizer(name)
    picked, loop = rule.Settings(**chosen), find_fused_step(rule)
    assert loop is not None
    parameter = data.draw(vector(9))
    after = parameter.copy() if in_place else np.empty_like(parameter)
    expected, ours = {"w": parameter.copy()}, after if in_place else parameter
    memory = rule.start({"w": parameter}, picked)
    own = {key: np.array(array) for key, array in memory.items()}
    with np.errstate(all="ignore"):
        for _ in range(3):
            gradient = data.draw(vector(9))
            expected, memory = rule.step(expected, {"w": gradient}, memory, lr, picked)
            common: Any = {}
            for part in (slice(0, cut), slice(cut, 9)):
                held = {key: array[part] if array.shape else array for key, array in own.items()}
                common = loop("w", ours[part], gradient[part], held, lr, picked, after[part])
            own |= common
            ours = after = after if in_place else after.copy()
            assert after.tobytes() == expected["w"].tobytes()
            assert {key: array.tobytes() for key, array in own.items()} == {
                key: array.tobytes() for key, array in memory.items()
            }


@pytest.mark.parametrize("name", ["adamw", "nesterov"])
def test_a_memory_that_lacks_an_array_is_refused(name: str) -> None:
    rule = load_optimizer(name)
    loop = find_fused_step(rule)
    assert loop is not None
    zeros = np.zeros(3, np.float32)
    with pytest.raises(PayloadRefused):
        loop("w", zeros, zeros, {"steps": np.zeros((), np.int64)}, 0.1, rule.Settings(), zeros)


def test_an_optimizer_of_few_operations_has_no_loop() -> None:
    assert find_fused_step(load_optimizer("sgd")) is None
    assert find_fused_step(load_optimizer("lamb")) is None
