"""Every line of the list has an attack; `make test` plays a share of them, `make test-all` all others."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.attacks.families import ATTACKS
from tests.attacks.lines import LINES
from tests.attacks.registry import Attack, played
from tests.attacks.scene import Scene, staged
from tests.lanes import FULL

StagedFor = Callable[[Attack], Scene]


@pytest.fixture(scope="module")
def staged_for() -> Iterator[StagedFor]:
    """Gives one scene to all that bear others beside them, and another to each family's that do not, one at a time."""
    with ExitStack() as together, ExitStack() as apart:
        scenes: dict[str, Scene] = {}

        def staged_once(made: Attack) -> Scene:
            name, stack = (made.family, apart) if made.alone else ("", together)
            if name not in scenes:
                stack.close()
                for ended in [other for other in scenes if other and made.alone]:
                    del scenes[ended]
                scenes[name] = stack.enter_context(staged())
            return scenes[name]

        yield staged_once


def test_every_line_of_the_list_has_an_attack() -> None:
    assert {made.line for made in ATTACKS} == set(LINES)


def test_attacks_have_names_of_their_own() -> None:
    assert len({made.name for made in ATTACKS}) == len(ATTACKS)


@pytest.mark.parametrize(
    "made", [pytest.param(made, id=made.name, marks=[] if made.share else FULL) for made in ATTACKS]
)
def test_the_attack_ends_as_expected(staged_for: StagedFor, made: Attack) -> None:
    result = played(made, staged_for(made))
    assert result.observed == result.expected
