"""Calls for stakes, which workers put at risk for single jobs (IStake). Amounts are in the token's smallest unit."""

from collections.abc import Sequence

from eth_abi.abi import encode
from eth_utils.crypto import keccak

from contracts.calls.encoding import Call, to_market
from gradmarket.market.terms import Address, Amount, Hash


def stake(market: Address, amount: Amount) -> Call:
    return to_market(market, "stake", amount)


def unstake(market: Address, amount: Amount) -> Call:
    """Withdraws stake that no job exposes."""
    return to_market(market, "unstake", amount)


def join_job(market: Address, job: int, at_risk: Amount, quorum: Hash) -> Call:
    """Exposes `at_risk` of the sender's stake to the job; `quorum` is `quorum_of` the validators that rule on cases."""
    return to_market(market, "joinJob", job, at_risk, quorum)


def leave_job(market: Address, job: int) -> Call:
    return to_market(market, "leaveJob", job)


def free_exposure(market: Address, job: int, worker: Address) -> Call:
    """Frees a worker's exposure once the slash window after leaving is over and no case is open; sent by anyone."""
    return to_market(market, "freeExposure", job, worker)


def quorum_of(validators: Sequence[Address], threshold: int) -> Hash:
    """Returns the hash a worker agrees to on joining: keccak256(abi.encode(validators, threshold))."""
    return Hash(keccak(encode(["address[]", "uint256"], [list(validators), threshold])))
