"""`fixed(R)`: R replicas at once, more only where they disagree, at most R_max commitments; the same for every worker.

Workers that act as one pass when they hold the quorum, and votes never show it (trust.collusion computes how often).
"""

from typing import Final

from gradmarket.market.rules import replication
from gradmarket.market.rules.replication import STRANGER, Lead
from gradmarket.market.terms import Plan

ALONE: Final = False


class Settings(replication.Votes):
    pass


def quorum(replicas: int) -> int:
    """Returns floor(R/2) + 1 agreeing ballots, however many are cast."""
    return replicas // 2 + 1


def plan(settings: replication.Votes, _lead: Lead = STRANGER) -> Plan:
    return Plan(settings.replicas, quorum(settings.replicas), settings.max_replicas)
