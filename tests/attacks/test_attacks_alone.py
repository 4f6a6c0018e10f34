"""Attacks that bear no other beside them; a process of their own plays them while the others go on."""

import pytest

from tests.attacks.conftest import StagedFor
from tests.attacks.families import ATTACKS
from tests.attacks.registry import Attack, played
from tests.lanes import FULL


@FULL
@pytest.mark.parametrize("made", [pytest.param(made, id=made.name) for made in ATTACKS if made.alone])
def test_the_attack_alone_ends_as_expected(staged_for: StagedFor, made: Attack) -> None:
    result = played(made, staged_for(made))
    assert result.observed == result.expected
