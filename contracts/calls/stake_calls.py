"""Stake: what a worker puts at risk, job by job (IStake). Amounts are in the token's smallest unit."""

from collections.abc import Sequence

from eth_abi.abi import encode
from eth_utils.crypto import keccak

from gradmarket.contracts.calls.encoding import Call, to_market
from gradmarket.market.terms import Address, Amount, Hash


def stake(market: Address, amount: Amount) -> Call:
    return to_market(market, "stake", amount)


def unstake(market: Address, amount: Amount) -> Call:
    """Takes out what no job exposes."""
    return to_market(market, "unstake", amount)


def join_job(market: Address, job: int, at_risk: Amount, quorum: Hash) -> Call:
    """Exposes `at_risk` of the sender's stake; `quorum` is `quorum_of` who decides about it."""
    return to_market(market, "joinJob", job, at_risk, quorum)


def leave_job(market: Address, job: int) -> Call:
    return to_market(market, "leaveJob", job)


def free_exposure(market: Address, job: int, worker: Address) -> Call:
    """Once the slash window after leaving has passed and no case is open; by anyone."""
    return to_market(market, "freeExposure", job, worker)


def quorum_of(validators: Sequence[Address], threshold: int) -> Hash:
    """What a worker agrees to on joining: keccak256(abi.encode(validators, threshold))."""
    return Hash(keccak(encode(["address[]", "uint256"], [list(validators), threshold])))
