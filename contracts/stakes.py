"""What the contract says now of stakes and cases. Amounts are in the token's smallest unit, times Unix seconds.

Every function raises ChainUnreachable where the node does not answer.
"""

from dataclasses import dataclass
from enum import IntEnum

from gradmarket.contracts.ledger import Ledger
from gradmarket.contracts.rpc import node_errors
from gradmarket.market.terms import Address, Amount, Hash


class CaseStage(IntEnum):
    NONE = 0
    OPEN = 1
    CONTESTED = 2
    CLOSED = 3


@dataclass(frozen=True, slots=True)
class Staker:
    """`exposed` is the sum over the jobs; the rest can be taken out."""

    amount: Amount
    exposed: Amount


@dataclass(frozen=True, slots=True)
class Exposure:
    """`at_risk` of zero: not in the job. `locked_until` is zero until the worker leaves."""

    at_risk: Amount
    accused: Amount
    locked_until: int
    open_cases: int
    quorum: Hash


@dataclass(frozen=True, slots=True)
class OnChainCase:
    """`until` is the end of its stage's window; both amounts of NONE are zero."""

    job: int
    worker: Address
    until: int
    stage: CaseStage
    amount: Amount
    bond: Amount


def staker(ledger: Ledger, worker: Address) -> Staker:
    with node_errors():
        return Staker(*ledger.market.functions.staker(worker).call())


def exposure(ledger: Ledger, job: int, worker: Address) -> Exposure:
    with node_errors():
        at_risk, accused, until, cases, quorum = ledger.market.functions.exposure(job, worker).call()
    return Exposure(at_risk, accused, until, cases, Hash(bytes(quorum)))


def case(ledger: Ledger, case_id: Hash) -> OnChainCase:
    with node_errors():
        job, worker, until, stage, amount, bond = ledger.market.functions.caseOf(case_id).call()
    return OnChainCase(job, Address(worker), until, CaseStage(stage), amount, bond)


def to_burn(ledger: Ledger) -> Amount:
    """Slashed or forfeited, and not sent away yet."""
    with node_errors():
        return Amount(ledger.market.functions.toBurn().call())
