"""Calls for stakes, which workers put at risk for single jobs, for accusations and for rulings (IStake).

Amounts are in the token's smallest unit.
"""

from collections.abc import Sequence

from eth_abi.abi import encode
from eth_utils.crypto import keccak

from contracts.calls.encoding import Call, to_market
from gradmarket.market.terms import Address, Amount, Hash, Units


def accuse(market: Address, job: int, worker: Address, amount: Amount, event_digest: Hash) -> Call:
    """Opens a case, identified by `case_id`; sent by the requester, which pays the job's bond."""
    return to_market(market, "accuse", job, worker, amount, event_digest)


def accuse_vested(market: Address, job: int, worker: Address, units: Units, event_digest: Hash) -> Call:
    """Opens a case about locked pay, identified by `vested_case_id`; validators alone decide it, by `decide`."""
    return to_market(market, "accuseVested", job, worker, units, event_digest)


def contest(market: Address, case: Hash) -> Call:
    return to_market(market, "contest", case)


def contest_for(market: Address, case: Hash, mandate: bytes) -> Call:
    """Contests for the accused; sent by the watcher that its `mandate` names.

    The mandate is the accused worker's signature over messages.WatchMandate.
    """
    return to_market(market, "contestFor", case, mandate)


def decide(
    market: Address, case: Hash, guilty: bool, validators: Sequence[Address], threshold: int, rulings: Sequence[bytes]
) -> Call:
    """Decides a contested case; sent by anyone.

    `rulings` are signatures over messages.Ruling, in the order of `validators`.
    """
    return to_market(market, "decide", case, guilty, list(validators), threshold, list(rulings))


def close_case(market: Address, case: Hash) -> Call:
    """Closes a case after its window: slashes an uncontested one, dismisses an undecided one; sent by anyone."""
    return to_market(market, "close", case)


def burn(market: Address) -> Call:
    return to_market(market, "burn")


def case_id(job: int, worker: Address, event_digest: Hash) -> Hash:
    return Hash(keccak(encode(["uint256", "address", "bytes32"], [job, worker, event_digest])))


def vested_case_id(job: int, worker: Address, event_digest: Hash) -> Hash:
    """Returns the id of a case about locked pay: an event may cost a stake and locked pay, each once."""
    return case_id(job, worker, Hash(bytes(byte ^ 0xFF for byte in event_digest)))


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
