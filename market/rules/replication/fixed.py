"""`fixed(R)`: R replicas at once, more only where they disagree, never beyond R_max commitments; whoever works.

Workers that act as one pass when they hold the quorum, and votes never show it (rules.collusion says how often).
"""

from typing import Protocol

from gradmarket.market.rules import replication
from gradmarket.market.rules.replication import STRANGER, Lead, Plan


class Settings(replication.Votes):
    pass


class Asked(Protocol):
    """What `plan` reads of the settings."""

    @property
    def replicas(self) -> int: ...

    @property
    def max_replicas(self) -> int: ...


def first_wave(replicas: int, maximum: int) -> int:
    """How many workers the first wave wants."""
    return min(replicas, maximum)


def quorum(replicas: int) -> int:
    """floor(R/2) + 1 agreeing ballots, whatever number was cast."""
    return replicas // 2 + 1


def plan(settings: Asked, _lead: Lead = STRANGER) -> Plan:
    return Plan(first_wave(settings.replicas, settings.max_replicas), quorum(settings.replicas), settings.max_replicas)
