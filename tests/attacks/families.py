"""Plays attacks side by side on one scene."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Final

from registry import ATTACKS, Attack, Result, played
from scene import Scene

FAMILIES: Final = (
    "commitments",
    "seats",
    "gradients",
    "payloads",
    "vouchers",
    "escrow",
    "requesters",
    "links",
    "api",
    "audits",
    "patience",
    "nearness",
    "accidents",
)
ABREAST: Final = 3

for family in FAMILIES:
    import_module(family)


def all_played(scene: Scene, attacks: Sequence[Attack] = ATTACKS) -> Iterator[tuple[Attack, Result]]:
    """Those that need the scene for themselves come last, one by one."""
    together = [made for made in attacks if not made.alone]
    with ThreadPoolExecutor(ABREAST) as pool:
        yield from zip(together, pool.map(lambda made: played(made, scene), together), strict=True)
    for made in attacks:
        if made.alone:
            yield made, played(made, scene)
