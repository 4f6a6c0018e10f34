"""How simulated workers behave. A strategy knows the rules, its own standing, and its ring's members on the task."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gradmarket.market.features.audits import auditing
from gradmarket.market.terms import Plan


@dataclass(frozen=True, slots=True)
class View:
    """The knowledge of a worker that decides whether to compute.

    The plan assumes that it is the lead itself: the worst case.
    """

    plan: Plan
    floor: float
    """The lowest audit rate that anybody can reach."""
    friends: int
    """Workers of its ring on this task, itself included."""
    at_risk: float
    benefit: float


@dataclass(frozen=True, slots=True)
class Strategy:
    """`ring`: its workers all give the same wrong answer. `eager`: how much faster it asks for work again.

    A liar takes as long as the work would have, because a fast answer would give it away.
    """

    lies: Callable[[View], bool]
    ring: bool = False
    eager: float = 1.0
    stalls: bool = False
    declines: bool = False
    """Gives a lease back unless its ring has the quorum."""
    hasty: bool = False
    """Answers a lie at once, to get many accepted before one is audited."""
    returns: bool = False
    """Returns under a new identity, with a new stake, after it was caught or suspended."""


def _never_lies(_view: View) -> bool:
    return False


def _always_lies(_view: View) -> bool:
    return True


def _once_trusted(view: View) -> bool:
    """Lies once its checks are at the lowest level that anybody reaches."""
    return view.plan.first_wave == 1 and view.plan.audit <= view.floor


def _where_it_pays(view: View) -> bool:
    return view.plan.first_wave == 1 and view.plan.audit <= auditing.compute_deterring_rate(
        1.0, view.benefit, view.at_risk
    )


def _with_the_quorum(view: View) -> bool:
    """Lies in votes that its ring decides; avoids tasks that are audited anyway."""
    return view.plan.first_wave > 1 and view.plan.decides(view.plan.first_wave, view.friends)


STRATEGIES: Final = {
    "honest": Strategy(_never_lies),
    "lone": Strategy(_always_lies),
    "rational": Strategy(_where_it_pays),
    "sleeper": Strategy(_once_trusted),
    "burster": Strategy(_once_trusted, hasty=True),
    "colluder": Strategy(_with_the_quorum, ring=True),
    "sybil": Strategy(_always_lies, returns=True),
    "poller": Strategy(_never_lies, ring=True, eager=10.0),
    "staller": Strategy(_never_lies, stalls=True),
    "decliner": Strategy(_with_the_quorum, ring=True, declines=True),
}
"""Strategies by their name in a scenario's mix."""
