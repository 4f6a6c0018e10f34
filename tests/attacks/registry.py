"""An attack is a function over the scene that returns its observation; it holds where that is the expected one."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any


@dataclass(frozen=True)
class Seen:
    """The observation, and a measurement: a figure is printed, and is no part of the expectation."""

    words: str
    figures: dict[str, float]


Play = Callable[[Any], str | Seen]
"""Over a scene.Scene."""


@dataclass(frozen=True)
class Attack:
    """`line` is one of lines.LINES; `alone` where others must not run beside it."""

    name: str
    family: str
    line: str
    expected: str
    play: Play
    alone: bool


@dataclass(frozen=True)
class Result:
    attack: str
    expected: str
    observed: str
    ok: bool
    seconds: float
    """That it took, beside others."""
    figures: dict[str, float]

    @property
    def json(self) -> dict[str, Any]:
        return asdict(self)


ATTACKS: list[Attack] = []


def attack(line: str, expected: str, alone: bool = False, name: str = "") -> Callable[[Play], Play]:
    """Registers a function as an attack of this line, by its own name where none is given; its module is the family."""

    def register(play: Play) -> Play:
        plain = play.func if isinstance(play, partial) else play
        called = name or plain.__name__.replace("_", " ")
        ATTACKS.append(Attack(called, plain.__module__.rpartition(".")[2], line, expected, play, alone))
        return play

    return register


def played(made: Attack, scene: Any) -> Result:
    """An error during the attack is an observation too."""
    began = time.monotonic()
    try:
        found = made.play(scene)
    except Exception as error:  # noqa: BLE001
        found = f"{type(error).__name__}: {error}"
    seen = found if isinstance(found, Seen) else Seen(found, {})
    seconds = round(time.monotonic() - began, 1)
    return Result(made.name, made.expected, seen.words, seen.words == made.expected, seconds, seen.figures)
