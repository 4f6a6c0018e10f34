"""The scenes that attacks are played on."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.attacks.registry import Attack
from tests.attacks.scene import Scene, staged

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
