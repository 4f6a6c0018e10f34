"""Accusations against this wallet, and those that it decides as a validator, as the chain states them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from eth_keys.datatypes import PrivateKey

from contracts import calls, events, stakes
from contracts.ledger import Ledger
from contracts.stakes import CaseStage
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.errors import MarketError, NotFound, Refused
from gradmarket.market.messages import Ruling
from gradmarket.market.signing import address_of, digest_struct, recover_signer, sign_digest
from gradmarket.market.terms import Address, Hash
from worker.features.stakes.stake import Offered
from worker.money import known_chains
from worker.money.chain_view import ledger_of
from worker.money.redeemer import get_gas
from worker.settings import WorkerSettings


@dataclass(frozen=True)
class WalletCase:
    """A case against this wallet.

    `amount` in the token's smallest unit; `until`, the stage's deadline, in Unix seconds.
    """

    chain_id: int
    chain_job: int
    case: str
    amount: str
    stage: str
    until: int

    def text(self) -> str:
        until = f"{datetime.fromtimestamp(self.until, UTC):%Y-%m-%d %H:%M} UTC"
        head = f"ACCUSED: {self.amount} of the smallest unit in job {self.chain_job}, case {self.case}"
        fix = "; contest with `gradmarket wallet case contest`, or it is slashed" if self.stage == "open" else ""
        about = "of its locked pay: validators rule" if self.stage == CaseStage.VESTED.name.lower() else self.stage
        return f"{head}, {about} until {until}{fix}"


def list_cases_against(ledger: Ledger, worker: Address) -> Iterator[WalletCase]:
    """Yields every accusation against the worker, the oldest first."""
    for accusation in events.accused(ledger, worker):
        yield fetch_case(ledger, accusation.case)


def list_open_accusations(settings: WorkerSettings, me: Address, warn: Callable[[str], None]) -> Iterator[WalletCase]:
    """Yields the accusations of this wallet that are not closed; `warn` gets the chains that do not answer."""
    for facts in known_chains.list_known_chains(settings.data):
        try:
            yield from [
                case for case in list_cases_against(ledger_of(settings.node, facts), me) if case.stage != "closed"
            ]
        except MarketError as error:
            warn(f"accusations on chain {facts.chain_id} are not known: {error}")


def fetch_case(ledger: Ledger, case: Hash) -> WalletCase:
    """Returns the case's present state on the chain."""
    now = stakes.case(ledger, case)
    stage = now.stage.name.lower()
    return WalletCase(ledger.deployment.chain_id, now.job, "0x" + case.hex(), str(now.amount), stage, now.until)


def contest_cases(ledger: Ledger, key: PrivateKey, case: str | None) -> list[str]:
    """Contests one case, or all open ones if `case` is None; returns their names.

    Raises NotFound if the case is not open.
    """
    stages = {one.case: one.stage for one in list_cases_against(ledger, address_of(key))}
    open_ones = [name for name, stage in stages.items() if stage == CaseStage.OPEN.name.lower()]
    if case is not None and stages.get(case) == CaseStage.VESTED.name.lower():
        why = "validators rule on it, and what they leave undecided is paid"
        raise NotFound(f"case {case} is about locked pay: there is nothing to contest", why)
    if case is not None and case not in open_ones:
        raise NotFound(f"no case {case} against {address_of(key)} is open")
    chosen = open_ones if case is None else [case]
    for name in chosen:
        contest_one(ledger, key, name)
    return chosen


def contest_one(ledger: Ledger, key: PrivateKey, name: str) -> None:
    """Contests a case. Raises ChainError if it is not open, or if the transaction is not mined in time."""
    get_gas(ledger, address_of(key))
    require_receipt(execute_call(ledger.web3, key, calls.contest(ledger.deployment.contract, parse_case_name(name))))


def contest_for(ledger: Ledger, key: PrivateKey, name: str, mandate: bytes) -> None:
    """Contests a case against the worker that signed the mandate, which names the key. Raises like `contest_one`."""
    get_gas(ledger, address_of(key))
    call = calls.contest_for(ledger.deployment.contract, parse_case_name(name), mandate)
    require_receipt(execute_call(ledger.web3, key, call))


@dataclass(frozen=True)
class RuledCase:
    """The wallet's own ruling, for the other validators; `decided` if it closed the case."""

    ruling: str
    decided: bool


def sign_and_send_ruling(
    ledger: Ledger, key: PrivateKey, job: Offered, name: str, guilty: bool, others: Iterable[str]
) -> RuledCase:
    """Signs a ruling as one of the job's validators, and sends it once it reaches the threshold with `others`.

    Raises Refused if the wallet is no validator, if the case is not contested, or if another validator's ruling
    differs.
    """
    me, terms, case = address_of(key), job.terms, stakes.case(ledger, parse_case_name(name))
    if me not in terms.validators:
        raise Refused(f"{me} is not one of the job's validators, {', '.join(terms.validators)}")
    if case.stage not in (CaseStage.CONTESTED, CaseStage.VESTED) or case.job != job.chain_job:
        raise Refused(f"case {name} of job {case.job} is {case.stage.name.lower()}: only contested ones are decided")
    ruling = Ruling(parse_case_name(name), case.amount, guilty)
    own = sign_digest(key, digest_struct(ledger.domain(), ruling))
    by = {
        recover_signer(digest_struct(ledger.domain(), ruling), _parse_hex(other)): _parse_hex(other) for other in others
    } | {me: own}
    if strangers := by.keys() - set(terms.validators):
        raise Refused(f"signed by {', '.join(strangers)}, or about something else: not a validator's ruling")
    if len(by) < terms.threshold:
        return RuledCase("0x" + own.hex(), decided=False)
    signed = [by[validator] for validator in terms.validators if validator in by]
    market = ledger.deployment.contract
    get_gas(ledger, me)
    decision = calls.decide(market, parse_case_name(name), guilty, terms.validators, terms.threshold, signed)
    require_receipt(execute_call(ledger.web3, key, decision))
    return RuledCase("0x" + own.hex(), decided=True)


def parse_case_name(text: str) -> Hash:
    """Parses a case's name. Raises Refused if the text is not 32 bytes in hexadecimal."""
    case = _parse_hex(text)
    if len(case) != 32:
        raise Refused(f"{text[:80]} names no case: 0x and 64 hex digits do")
    return Hash(case)


def _parse_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError as error:
        raise Refused(f"{text[:80]} is not hexadecimal") from error
