"""Reads stakes and cases from the contract. Amounts are in the token's smallest unit, times are Unix seconds.

Every function raises ChainUnreachable if the node does not answer.
"""

from dataclasses import dataclass
from enum import IntEnum

from contracts.ledger import Ledger
from contracts.rpc import node_errors
from gradmarket.market.terms import Address, Amount, Hash


class CaseStage(IntEnum):
    NONE = 0
    OPEN = 1
    CONTESTED = 2
    CLOSED = 3
    VESTED = 4
    """A case about locked pay: validators decide it, and an undecided one ends as an acquittal."""


@dataclass(frozen=True, slots=True)
class Staker:
    """A worker's stake; `exposed` is the sum over its jobs, and the rest can be withdrawn."""

    amount: Amount
    exposed: Amount


@dataclass(frozen=True, slots=True)
class Exposure:
    """A worker's exposure in a job: `at_risk` is zero if it is not in it, `locked_until` zero until it leaves."""

    at_risk: Amount
    accused: Amount
    locked_until: int
    open_cases: int
    quorum: Hash


@dataclass(frozen=True, slots=True)
class OnChainCase:
    """A case; `until` is the end of its stage's window. In the stage NONE both amounts are zero."""

    job: int
    worker: Address
    until: int
    stage: CaseStage
    amount: Amount
    bond: Amount


def staker(ledger: Ledger, worker: Address) -> Staker:
    with node_errors():
        return Staker(*ledger.market.functions.staker(worker).call())


@node_errors()
def exposure(ledger: Ledger, job: int, worker: Address) -> Exposure:
    with node_errors():
        at_risk, accused, until, cases, quorum = ledger.market.functions.exposure(job, worker).call()
    return Exposure(at_risk, accused, until, cases, Hash(bytes(quorum)))


@node_errors()
def case(ledger: Ledger, case_id: Hash) -> OnChainCase:
    with node_errors():
        job, worker, until, stage, amount, bond = ledger.market.functions.caseOf(case_id).call()
    return OnChainCase(job, Address(worker), until, CaseStage(stage), amount, bond)
