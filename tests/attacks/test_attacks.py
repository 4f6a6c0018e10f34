"""Every line of the list has an attack; `make test-all` plays them."""

import pytest

from tests.attacks.conftest import StagedFor
from tests.attacks.families import ATTACKS
from tests.attacks.lines import LINES
from tests.attacks.registry import Attack, played
from tests.lanes import FULL


def test_every_line_of_the_list_has_an_attack() -> None:
    assert {made.line for made in ATTACKS} == set(LINES)


def test_attacks_have_names_of_their_own() -> None:
    assert len({made.name for made in ATTACKS}) == len(ATTACKS)


@FULL
@pytest.mark.parametrize("made", [pytest.param(made, id=made.name) for made in ATTACKS if not made.alone])
def test_the_attack_ends_as_expected(staged_for: StagedFor, made: Attack) -> None:
    result = played(made, staged_for(made))
    assert result.observed == result.expected
