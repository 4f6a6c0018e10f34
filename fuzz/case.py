"""One case: the bytes of a stranger, and the stranger's own manifest of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Protocol, cast

from graphdoc import plugins

KINDS: Final = "fuzz.kinds"
Declared = Mapping[str, tuple[tuple[int, ...], str]]
"""Shape and element type of each array by its name."""


@dataclass(frozen=True)
class Case:
    """`declared` matters to files of arrays alone."""

    data: bytes
    declared: Declared = field(default_factory=dict)


class Kind(Protocol):
    """The interface of a file of `kinds/`."""

    REFUSED: type[Exception]
    """The error by which our reader refuses."""

    def case(self, chance: Random) -> Case:
        """A case that began as an honest one."""

    def read(self, case: Case) -> Any:
        """Returns our reader's result. Raises REFUSED, and AssertionError where it took a case that it must refuse."""


def kind_of(name: str, package: str = KINDS) -> Kind:
    """The kind of that name. Raises Refused where there is none."""
    return cast(Kind, plugins.load_plugin(package, name))


def kinds(package: str = KINDS) -> tuple[str, ...]:
    """The kinds there are."""
    return plugins.list_plugin_names(package)


def seed_of(kind: str, number: int) -> str:
    """Returns a case's name, the only source of its chance."""
    return f"{kind}/{number}"


def chance_of(seed: str) -> Random:
    return Random(seed)
