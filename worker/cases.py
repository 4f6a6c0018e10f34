"""Accusations from a wallet's side: those against it, and those that it decides as a validator. The chain tells."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from eth_keys.datatypes import PrivateKey

from gradmarket.contracts import calls, events, stakes
from gradmarket.contracts.ledger import Ledger
from gradmarket.contracts.stakes import Stage
from gradmarket.contracts.transactions import execute, mined
from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.messages import Ruling
from gradmarket.market.signing import address_of, digest, recover, sign
from gradmarket.market.terms import Address, Hash
from gradmarket.worker.money import get_gas
from gradmarket.worker.stake import Offered


@dataclass(frozen=True)
class Told:
    """`amount` in the token's smallest unit; `until` is when the stage's window ends, in Unix seconds."""

    chain_id: int
    chain_job: int
    case: str
    event_digest: str
    amount: str
    stage: str
    until: int


def against(ledger: Ledger, worker: Address) -> Iterator[Told]:
    """Every accusation of the worker, the first one first."""
    for each in events.accused(ledger, worker):
        now = stakes.case(ledger, each.case)
        names = ("0x" + each.case.hex(), "0x" + each.event.hex(), str(each.amount))
        yield Told(ledger.deployment.chain_id, each.job, *names, now.stage.name.lower(), now.until)


def contest(ledger: Ledger, key: PrivateKey, case: str | None) -> list[str]:
    """Contests that case, or every one that is open; their names. Raises NotFound where there is no such case."""
    open_ones = [told.case for told in against(ledger, address_of(key)) if told.stage == Stage.OPEN.name.lower()]
    if case is not None and case not in open_ones:
        raise NotFound(f"no case {case} against {address_of(key)} is open")
    chosen = open_ones if case is None else [case]
    get_gas(ledger, address_of(key))
    for name in chosen:
        mined(execute(ledger.web3, key, calls.contest(ledger.deployment.contract, _hash(name))))
    return chosen


@dataclass(frozen=True)
class Ruled:
    """The wallet's own ruling, for the other validators; `decided` where it closed the case."""

    ruling: str
    decided: bool


def rule(ledger: Ledger, key: PrivateKey, job: Offered, name: str, guilty: bool, others: Iterable[str]) -> Ruled:
    """Signs a ruling as one of the job's validators, and sends it where `others` make up the threshold with it.

    Raises Refused where the wallet is no validator, the case is not contested, or another's ruling says otherwise.
    """
    me, terms, case = address_of(key), job.terms, stakes.case(ledger, _hash(name))
    if me not in terms.validators:
        raise Refused(f"{me} is none of the job's validators, {', '.join(terms.validators)}")
    if case.stage != Stage.CONTESTED or case.job != job.chain_job:
        raise Refused(f"case {name} of job {case.job} is {case.stage.name.lower()}: only contested ones are decided")
    ruling = Ruling(_hash(name), case.amount, guilty)
    own = sign(key, digest(ledger.domain(), ruling))
    by = {recover(digest(ledger.domain(), ruling), _bytes(other)): _bytes(other) for other in others} | {me: own}
    if strangers := by.keys() - set(terms.validators):
        raise Refused(f"signed by {', '.join(strangers)}, or about something else: not a validator's ruling")
    if len(by) < terms.threshold:
        return Ruled("0x" + own.hex(), decided=False)
    signed = [by[validator] for validator in terms.validators if validator in by]
    market = ledger.deployment.contract
    get_gas(ledger, me)
    decision = calls.decide(market, _hash(name), guilty, terms.validators, terms.threshold, signed)
    mined(execute(ledger.web3, key, decision))
    return Ruled("0x" + own.hex(), decided=True)


def _hash(text: str) -> Hash:
    found = _bytes(text)
    if len(found) != 32:
        raise Refused(f"{text[:80]} names no case: 0x and 64 hex digits do")
    return Hash(found)


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError as error:
        raise Refused(f"{text[:80]} is not hexadecimal") from error
