"""Which workers a simulated market trusts: by this project's rules, or by BOINC's."""

from collections.abc import Iterable
from typing import Any, Final, Protocol

from gradmarket.market.features.reputation import (
    apply_failed_audit,
    apply_outvoted_ballot,
    apply_passed_audit,
    compute_record_standing,
)
from gradmarket.market.rules import replication
from gradmarket.market.rules.replication import Lead, adaptive
from gradmarket.market.terms import Plan
from gradmarket.simulation.simulated_market import SimulatedOperator

BOINC: Final = "boinc"


class Checks(Protocol):
    """A trust rule."""

    @property
    def floor(self) -> float:
        """The lowest audit rate that it ever gives."""

    def stranger(self) -> Plan:
        """Returns the plan for a task without a lead."""

    def plan(self, lead: SimulatedOperator, now: float, lot: float) -> Plan:
        """Returns how a task is checked; `lot` is a fresh random number in [0, 1)."""

    def voted(self, operator: SimulatedOperator, agreed: bool, replicas: int, now: float) -> None:
        """Records whether the operator was in the quorum of a vote among `replicas` ballots."""

    def audited(self, operators: Iterable[SimulatedOperator], right: bool, now: float) -> None:
        """Records the result of an audit for the operators that agreed on the task."""


class TrustPolicy:
    """A policy of market.rules.replication with reputations, stakes and audits."""

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        self._policy = replication.load_policy(name)
        self._settings = self._policy.Settings(**settings)
        self._gain = 1.0 if self._settings.gain is None else self._settings.gain
        self.floor = float(getattr(self._settings, "floor", self.stranger().audit))

    def stranger(self) -> Plan:
        return self._policy.plan(self._settings)

    def plan(self, lead: SimulatedOperator, now: float, _lot: float) -> Plan:
        cover = adaptive.compute_unused_stake(lead.stake, lead.pending, self._gain)
        return self._policy.plan(self._settings, Lead(compute_record_standing(lead.record, now), cover))

    def voted(self, operator: SimulatedOperator, agreed: bool, _replicas: int, now: float) -> None:
        if not agreed:
            operator.record = apply_outvoted_ballot(operator.record, now)

    def audited(self, operators: Iterable[SimulatedOperator], right: bool, now: float) -> None:
        for operator in operators:
            if right:
                operator.record = apply_passed_audit(operator.record, now)
            else:
                (operator.record,) = apply_failed_audit([operator.record], now)


class Boinc:
    """BOINC's adaptive replication: after n >= 10 valid results in a row, one job in n is checked by a second host.

    If two hosts differ, a third decides. Unchecked results do not count (BOINC wiki, "AdaptiveReplication").
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
        """BOINC has no audits."""


def build_checks(name: str, settings: dict[str, Any]) -> Checks:
    """Returns BOINC's rule, or the policy of that name. Raises Refused if there is none."""
    return Boinc() if name == BOINC else TrustPolicy(name, settings)
