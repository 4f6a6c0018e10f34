"""Every line of the list has an attack; a share of the attacks is played in every run of the tests."""

from collections.abc import Iterator

import pytest

from tests.attacks.families import ATTACKS
from tests.attacks.lines import LINES
from tests.attacks.registry import Attack, played
from tests.attacks.scene import Scene, staged


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with staged() as made:
        yield made


def test_every_line_of_the_list_has_an_attack() -> None:
    assert {made.line for made in ATTACKS} == set(LINES)


def test_attacks_have_names_of_their_own() -> None:
    assert len({made.name for made in ATTACKS}) == len(ATTACKS)


@pytest.mark.parametrize("made", [made for made in ATTACKS if made.share], ids=lambda made: made.name)
def test_the_attack_ends_as_expected(scene: Scene, made: Attack) -> None:
    result = played(made, scene)
    assert result.observed == result.expected
