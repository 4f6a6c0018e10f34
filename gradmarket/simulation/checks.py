"""Whom a simulated market trusts: by this project's rules, or by BOINC's."""

from collections.abc import Iterable
from typing import Any, Final, Protocol

from gradmarket.market.rules import exposure, replication, reputation
from gradmarket.market.rules.replication import Lead, Plan
from gradmarket.simulation.simulated_market import SimulatedOperator

BOINC: Final = "boinc"


class Checks(Protocol):
    """A rule of trust."""

    @property
    def floor(self) -> float:
        """The least audit rate that it ever gives."""

    def stranger(self) -> Plan:
        """For a task that nobody was drawn for."""

    def plan(self, lead: SimulatedOperator, now: float, lot: float) -> Plan:
        """How a task is checked; `lot` is a fresh random number in [0, 1)."""

    def voted(self, operator: SimulatedOperator, agreed: bool, replicas: int, now: float) -> None:
        """A quorum among so many ballots had its own in it, or not."""

    def audited(self, operators: Iterable[SimulatedOperator], right: bool, now: float) -> None:
        """A task that these agreed on was run again."""


class TrustPolicy:
    """A policy of market.rules.replication with reputations, stakes and audits."""

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        self._policy = replication.policy(name)
        self._settings = self._policy.Settings(**settings)
        self._gain = float(getattr(self._settings, "gain", 1.0))
        self.floor = float(getattr(self._settings, "floor", self.stranger().audit))

    def stranger(self) -> Plan:
        return self._policy.plan(self._settings)

    def plan(self, lead: SimulatedOperator, now: float, _lot: float) -> Plan:
        cover = exposure.free(lead.stake, lead.pending, self._gain)
        return self._policy.plan(self._settings, Lead(reputation.standing(lead.record, now), cover))

    def voted(self, operator: SimulatedOperator, agreed: bool, _replicas: int, now: float) -> None:
        if not agreed:
            operator.record = reputation.outvoted(operator.record, now)

    def audited(self, operators: Iterable[SimulatedOperator], right: bool, now: float) -> None:
        for operator in operators:
            if right:
                operator.record = reputation.passed(operator.record, now)
            else:
                (operator.record,) = reputation.failed([operator.record], now)


class Boinc:
    """BOINC's adaptive replication: ten valid in a row, then one job in as many is checked by a second host.

    A third decides where two differ. Results that nobody checked do not count (its wiki, "AdaptiveReplication").
    """

    TRUSTED_AFTER: Final = 10
    floor = 0.0

    def stranger(self) -> Plan:
        return Plan(first_wave=2, quorum=2, maximum=5)

    def plan(self, lead: SimulatedOperator, _now: float, lot: float) -> Plan:
        row = lead.valid_in_a_row
        trusted = row >= self.TRUSTED_AFTER and lot >= 1.0 / row
        return Plan(first_wave=1, quorum=1, maximum=1) if trusted else self.stranger()

    def voted(self, operator: SimulatedOperator, agreed: bool, replicas: int, _now: float) -> None:
        if not agreed:
            operator.valid_in_a_row = 0
        elif replicas > 1:
            operator.valid_in_a_row += 1

    def audited(self, operators: Iterable[SimulatedOperator], right: bool, now: float) -> None:
        """It has no audits."""


def checks(name: str, settings: dict[str, Any]) -> Checks:
    """BOINC's rule, or the policy of that name. Raises Refused where there is none."""
    return Boinc() if name == BOINC else TrustPolicy(name, settings)
