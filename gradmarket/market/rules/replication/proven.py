"""`proven`: newcomers work alone, each answer audited before it is paid; proven ones vote, and only unanimity decides.

Splits are settled by an audit, so the job needs an auditor of its class. The rules are those of rules.identities.
"""

from typing import Final

from pydantic import Field

from gradmarket.market.fields import Part
from gradmarket.market.rules import identities
from gradmarket.market.rules.replication import STRANGER, Lead
from gradmarket.market.task_plan import Plan

ALONE: Final = False


class Settings(Part):
    """Newcomers work alone and are audited; proven ones vote, and an audit settles what they disagree on."""

    replicas: int = Field(default=3, ge=2, le=15)
    """The votes of a task, which have to be equal."""
    audit: float | None = Field(default=None, gt=0.0, le=1.0)
    """The share of unanimous tasks that is audited. Left out: 0.2 with three replicas and 0.3 with two, and more in a
    job of fewer than 50 rounds (rules.identities.compute_audit_rate)."""
    proof: int = Field(default=identities.PROOF, ge=1, le=1000)
    """Audited right answers of an operator, in its determinism class, until it votes."""

    @property
    def max_replicas(self) -> int:
        return self.replicas

    @property
    def gain(self) -> float | None:
        return None


def plan(settings: Settings, lead: Lead = STRANGER) -> Plan:
    if not identities.is_proven(lead.standing, settings.proof):
        return Plan(first_wave=1, quorum=1, maximum=1, audit=1.0, referred=True)
    votes = settings.replicas
    audit = identities.compute_audit_rate(votes) if settings.audit is None else settings.audit
    return Plan(first_wave=votes, quorum=votes, maximum=votes, audit=audit, referred=True)


def relieve_auditor(votes: int, hidden: bool) -> Plan:
    """Returns how proven ones vote where auditing outgrows the auditor: it looks at splits alone.

    `hidden`: with one seat more in place of an audit.
    """
    seats = votes + hidden
    return Plan(first_wave=seats, quorum=seats, maximum=seats, referred=True)


def hide_seat(votes: int) -> Plan:
    """Returns how proven ones vote where no auditor exists, in as many tasks as it would audit.

    One seat more has to agree, and a split is voted on by further ones, within the waves that the offer's secret has.
    """
    return Plan(first_wave=votes + 1, quorum=votes + 1, maximum=2 * votes)
