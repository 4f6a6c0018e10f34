"""Plays attacks side by side: on one scene, and on one for each family with attacks that others must not feel."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Final

from tests.attacks.registry import ATTACKS, Attack, Result, played
from tests.attacks.scene import Scene, staged

FAMILIES: Final = (
    "commitments",
    "seats",
    "askers",
    "gradients",
    "payloads",
    "half_uploads",
    "vouchers",
    "escrow",
    "requesters",
    "promises",
    "stakes",
    "vesting",
    "cases",
    "links",
    "api",
    "audits",
    "windows",
    "disclosed",
    "disputes",
    "heard",
    "forks",
    "mirrors",
    "patience",
    "identities",
    "rings",
    "nearness",
    "accidents",
    "documents",
    "crowds",
    "jobfaults",
    "bounds",
    "private",
    "doors",
)
ABREAST: Final = 3

for family in FAMILIES:
    import_module(f"tests.attacks.{family}")


def all_played(scene: Scene, attacks: Sequence[Attack] = ATTACKS) -> Iterator[tuple[Attack, Result]]:
    """Those of a family that need a scene for themselves take turns on one of their own, beside all others."""
    together = [made for made in attacks if not made.alone]
    alone = [[made for made in attacks if made.alone and made.family == family] for family in FAMILIES]
    with ThreadPoolExecutor(ABREAST) as pool:
        apart = [pool.submit(_on_a_scene_of_their_own, family) for family in alone if family]
        yield from zip(together, pool.map(lambda made: played(made, scene), together), strict=True)
        for family in apart:
            yield from family.result()


def _on_a_scene_of_their_own(family: Sequence[Attack]) -> list[tuple[Attack, Result]]:
    with staged() as scene:
        return [(made, played(made, scene)) for made in family]
