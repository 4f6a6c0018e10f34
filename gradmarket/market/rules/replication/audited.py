"""`audited`: one replica, and the accepted task is audited with the same probability for every worker.

Suitable where the auditor is trusted and stakes cover the exposure at this rate. Where they do not, a worker that gives
one wrong answer and leaves is caught only with this probability.
"""

from typing import Final

from pydantic import Field

from gradmarket.market.fields import Part
from gradmarket.market.rules.replication import STRANGER, Lead
from gradmarket.market.terms import Plan

ALONE: Final = True


class Settings(Part):
    """One replica, checked by audits only."""

    audit: float = Field(gt=0.0, le=1.0)
    """The probability p that an accepted task is audited."""

    @property
    def replicas(self) -> int:
        return 1

    @property
    def max_replicas(self) -> int:
        return 1

    @property
    def gain(self) -> float | None:
        return None


def plan(settings: Settings, _lead: Lead = STRANGER) -> Plan:
    return Plan(first_wave=1, quorum=1, maximum=1, audit=settings.audit)
