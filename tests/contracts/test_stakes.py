"""Stakes and cases from Python: each way a case can end, and the accounts that may not end it."""

from dataclasses import dataclass

import pytest
from eth_keys.datatypes import PrivateKey

from contracts import calls, events, stakes
from contracts.ledger import Ledger
from contracts.rpc import call_json_rpc
from contracts.stakes import CaseStage, Exposure, Staker
from contracts.transaction_types import Receipt
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.messages import Ruling
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Address, Amount, Hash, Units
from gradmarket.network.chain_errors import ContractRefused
from tests.kit.contract_calls import to_burn
from tests.onchain import DEPLOYER, HOUR, NewKey, with_money

STAKE, AT_RISK, BOND, UNIT = 1_000, 300, 5, 2
EVENT = Hash(b"\x0e" * 32)


@dataclass(frozen=True)
class Court:
    """A job that slashes, a worker that joined it, and the validators that the worker agreed to (2 of 3)."""

    ledger: Ledger
    job: int
    requester: PrivateKey
    worker: PrivateKey
    validators: tuple[PrivateKey, ...]

    @property
    def market(self) -> Address:
        return self.ledger.deployment.contract

    @property
    def case(self) -> Hash:
        return calls.case_id(self.job, address_of(self.worker), EVENT)

    @property
    def named(self) -> list[Address]:
        return [address_of(key) for key in self.validators]

    def send(self, key: PrivateKey, call: calls.Call) -> Receipt:
        return require_receipt(execute_call(self.ledger.web3, key, call))

    def accuse(self, amount: int = 100) -> None:
        worker = address_of(self.worker)
        self.send(self.requester, calls.accuse(self.market, self.job, worker, Amount(amount), EVENT))

    def decide(self, guilty: bool, by: tuple[int, ...], signed: bool | None = None) -> None:
        """Sends a ruling of the validators `by`; `signed` is the ruling that they signed, if another."""
        ruling = Ruling(self.case, Amount(100), guilty if signed is None else signed)
        rulings = [sign_digest(self.validators[number], digest_struct(self.ledger.domain(), ruling)) for number in by]
        self.send(DEPLOYER, calls.decide(self.market, self.case, guilty, self.named, 2, rulings))

    def staker(self) -> Staker:
        return stakes.staker(self.ledger, address_of(self.worker))

    def pass_by(self, seconds: int) -> None:
        call_json_rpc(self.ledger.web3, "evm_increaseTime", hex(seconds))
        call_json_rpc(self.ledger.web3, "evm_mine")


@pytest.fixture
def court(own_ledger: Ledger, new_key: NewKey) -> Court:
    ledger, market = own_ledger, own_ledger.deployment.contract
    requester, worker = with_money(ledger, new_key()), with_money(ledger, new_key())
    expiry = ledger.block().time + HOUR
    terms = calls.OpenJob(
        Units(100), Amount(UNIT), expiry, expiry + HOUR, address_of(requester), EVENT, 600, 60, 60, BOND
    )
    receipt = require_receipt(execute_call(ledger.web3, requester, calls.open_job(market, terms)))
    made = Court(ledger, events.opened(ledger, receipt)[0].job, requester, worker, tuple(new_key() for _ in range(3)))
    made.send(worker, calls.stake(market, Amount(STAKE)))
    quorum = calls.quorum_of(made.named, 2)
    made.send(worker, calls.join_job(market, made.job, Amount(AT_RISK), quorum))
    assert stakes.exposure(ledger, made.job, address_of(worker)) == Exposure(Amount(AT_RISK), Amount(0), 0, 0, quorum)
    return made


def test_uncontested_is_slashed_and_burnt(court: Court) -> None:
    court.accuse()
    found = stakes.case(court.ledger, court.case)
    assert (found.stage, found.amount, found.bond) == (CaseStage.OPEN, 100, BOND * UNIT)
    with pytest.raises(ContractRefused, match="TooEarly"):
        court.send(DEPLOYER, calls.close_case(court.market, court.case))
    court.pass_by(61)
    court.send(DEPLOYER, calls.close_case(court.market, court.case))
    assert court.staker() == Staker(Amount(STAKE - 100), Amount(AT_RISK - 100))
    assert to_burn(court.ledger) == 100
    court.send(DEPLOYER, calls.burn(court.market))
    assert to_burn(court.ledger) == 0


def test_the_worker_s_validators_convict(court: Court) -> None:
    court.accuse()
    court.send(court.worker, calls.contest(court.market, court.case))
    court.decide(True, (0, 2))
    assert court.staker().amount == STAKE - 100
    assert stakes.staker(court.ledger, address_of(court.requester)).amount == BOND * UNIT


def test_an_acquittal_costs_the_accuser_its_bond(court: Court) -> None:
    court.accuse()
    court.send(court.worker, calls.contest(court.market, court.case))
    court.decide(False, (1, 2))
    assert court.staker() == Staker(Amount(STAKE), Amount(AT_RISK))
    assert to_burn(court.ledger) == BOND * UNIT
    assert stakes.case(court.ledger, court.case).stage == CaseStage.CLOSED


@pytest.mark.parametrize("by", [(0,), (0, 0), (2, 0)], ids=["too few", "one twice", "out of order"])
def test_less_than_the_quorum_decides_nothing(court: Court, by: tuple[int, ...]) -> None:
    court.accuse()
    court.send(court.worker, calls.contest(court.market, court.case))
    with pytest.raises(ContractRefused, match="NoQuorum"):
        court.decide(True, by)


def test_a_ruling_is_not_turned_into_its_opposite(court: Court) -> None:
    court.accuse()
    court.send(court.worker, calls.contest(court.market, court.case))
    with pytest.raises(ContractRefused, match="NoQuorum"):
        court.decide(True, (0, 1), signed=False)


def test_nobody_leaves_before_the_slash(court: Court) -> None:
    worker = address_of(court.worker)
    court.send(court.worker, calls.leave_job(court.market, court.job))
    with pytest.raises(ContractRefused, match="Overdrawn"):
        court.send(court.worker, calls.unstake(court.market, Amount(STAKE)))
    with pytest.raises(ContractRefused, match="TooEarly"):
        court.send(DEPLOYER, calls.free_exposure(court.market, court.job, worker))
    court.pass_by(601)
    court.send(DEPLOYER, calls.free_exposure(court.market, court.job, worker))
    court.send(court.worker, calls.unstake(court.market, Amount(STAKE)))
    assert court.staker() == Staker(Amount(0), Amount(0))
    assert court.ledger.balance(worker) == 10**24
