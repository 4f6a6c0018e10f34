"""Every line of the list has an attack; `make test` plays a share of them, `make test-all` all others."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.attacks.families import ATTACKS
from tests.attacks.lines import LINES
from tests.attacks.registry import Attack, played
from tests.attacks.scene import Scene, staged
from tests.lanes import FULL


@pytest.fixture(scope="module")
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """One of those that bear others beside them, and one for each family's that do not."""
    with staged() as made:
        yield made


def test_every_line_of_the_list_has_an_attack() -> None:
    assert {made.line for made in ATTACKS} == set(LINES)


def test_attacks_have_names_of_their_own() -> None:
    assert len({made.name for made in ATTACKS}) == len(ATTACKS)


def case(made: Attack) -> Any:
    marks = [] if made.share else [FULL]
    return pytest.param(made.family if made.alone else "together", made, id=made.name, marks=marks)


@pytest.mark.parametrize(("scene", "made"), [case(made) for made in ATTACKS], indirect=["scene"])
def test_the_attack_ends_as_expected(scene: Scene, made: Attack) -> None:
    result = played(made, scene)
    assert result.observed == result.expected
