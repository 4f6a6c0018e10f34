"""The split of examples/holders.py is uneven, and its ten holders learn more together than any could alone."""

from typing import Any

import numpy as np
import pytest

from tests.kit.late_module import LateModule
from tests.lanes import FULL

private: Any = LateModule("benchmarks.private")


@pytest.fixture(scope="module")
def holders() -> Any:
    return private.Holders(0)


def test_holders_lack_digits_and_differ_in_size(holders: Any) -> None:
    sizes = [len(y) for _, y in holders.theirs]
    assert len(sizes) == 10
    assert max(sizes) > 2 * min(sizes)
    shares = [np.bincount(y, minlength=10) / len(y) for _, y in holders.theirs]
    assert max(share.max() for share in shares) > 0.3, "a tenth of each digit would be even"
    assert sum(sizes) + len(holders.own["y"]) == 1797


@FULL
def test_ten_holders_reach_an_accuracy_that_noise_lowers(holders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.private.ROUNDS", 6)
    plain = holders.accuracy()
    assert plain > 0.8
    assert holders.accuracy(multiplier=20.0, bound=1.0) < plain - 0.1
