"""Pay that vests, from Python: its locked part, its lock's end and its burners, with the chain's time moved on."""

from dataclasses import dataclass, replace

import pytest
from eth_keys.datatypes import PrivateKey

from contracts import calls, events, stakes
from contracts.ledger import Ledger
from contracts.rpc import call_json_rpc
from contracts.stakes import CaseStage
from contracts.transaction_types import Receipt
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.messages import Ruling, Voucher
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Address, Amount, Hash, Units
from gradmarket.network.chain_errors import ContractRefused
from tests.kit.contract_calls import to_burn
from tests.onchain import DEPLOYER, HOUR, NewKey, with_money

UNIT, BOND, EARNED, VEST, WINDOW = 2, 5, 40, 16, 300
EVENT = Hash(b"\x0e" * 32)


@dataclass(frozen=True)
class Vesting:
    """A job whose last 16 units a worker vest for 300 s, with a worker that redeemed a voucher of 40."""

    ledger: Ledger
    job: int
    requester: PrivateKey
    worker: PrivateKey
    validator: PrivateKey

    @property
    def market(self) -> Address:
        return self.ledger.deployment.contract

    @property
    def me(self) -> Address:
        return address_of(self.worker)

    @property
    def case(self) -> Hash:
        return calls.vested_case_id(self.job, self.me, EVENT)

    def send(self, key: PrivateKey, call: calls.Call) -> Receipt:
        return require_receipt(execute_call(self.ledger.web3, key, call))

    def redeem(self, cumulative: int) -> None:
        voucher = Voucher(self.job, self.me, Units(cumulative))
        signature = sign_digest(self.requester, digest_struct(self.ledger.domain(), voucher))
        self.send(self.worker, calls.redeem(self.market, voucher, signature))

    def accuse(self, units: int = VEST) -> None:
        self.send(self.requester, calls.accuse_vested(self.market, self.job, self.me, Units(units), EVENT))

    def rule(self, guilty: bool, units: int = VEST) -> None:
        ruling = Ruling(self.case, Amount(units * UNIT), guilty)
        signed = sign_digest(self.validator, digest_struct(self.ledger.domain(), ruling))
        by = [address_of(self.validator)]
        self.send(DEPLOYER, calls.decide(self.market, self.case, guilty, by, 1, [signed]))

    def collect(self) -> int:
        before = self.paid
        self.send(DEPLOYER, calls.collect(self.market, self.job, self.me))
        return self.paid - before

    @property
    def paid(self) -> int:
        return self.ledger.balance(self.me) // UNIT

    def pass_by(self, seconds: int) -> None:
        call_json_rpc(self.ledger.web3, "evm_increaseTime", hex(seconds))
        call_json_rpc(self.ledger.web3, "evm_mine")


@pytest.fixture
def vesting(own_ledger: Ledger, new_key: NewKey) -> Vesting:
    ledger, market = own_ledger, own_ledger.deployment.contract
    requester, worker, validator = with_money(ledger, new_key()), with_money(ledger, new_key(), 0), new_key()
    expiry = ledger.block().time + HOUR
    signer, quorum = address_of(requester), calls.quorum_of([address_of(validator)], 1)
    plain = calls.OpenJob(Units(100), Amount(UNIT), expiry, expiry + HOUR, signer, EVENT)
    ruled = replace(plain, decision_window=60, bond=BOND, vest_quorum=quorum)
    terms = replace(ruled, vest=Units(VEST), vest_window=WINDOW)
    receipt = require_receipt(execute_call(ledger.web3, requester, calls.open_job(market, terms)))
    (opened,) = events.opened(ledger, receipt)
    assert (opened.vest, opened.vest_window, opened.vest_quorum) == (VEST, WINDOW, quorum)
    made = Vesting(ledger, opened.job, requester, worker, validator)
    made.send(requester, calls.reserve(market, made.job, [(made.me, Units(60))]))
    made.redeem(EARNED)
    return made


def test_the_last_prices_wait_until_their_window_has_passed(vesting: Vesting) -> None:
    assert (vesting.paid, vesting.ledger.due(vesting.job, vesting.me)) == (EARNED - VEST, 0)
    account = vesting.ledger.account(vesting.job, vesting.me)
    assert (account.unpaid, account.credited_at) == (VEST, vesting.ledger.block().time)
    job = vesting.ledger.job(vesting.job)
    assert (job.vest, job.vest_window) == (VEST, WINDOW)
    assert vesting.collect() == 0
    vesting.pass_by(WINDOW + 1)
    assert vesting.ledger.due(vesting.job, vesting.me) == VEST
    assert vesting.collect() == VEST


def test_neither_the_end_of_claims_nor_the_refund_takes_them(vesting: Vesting) -> None:
    vesting.pass_by(2 * HOUR + 1)
    had = vesting.ledger.balance(address_of(vesting.requester))
    vesting.send(vesting.requester, calls.refund(vesting.market, vesting.job))
    assert vesting.ledger.balance(address_of(vesting.requester)) == had + (100 - EARNED) * UNIT
    assert vesting.collect() == VEST


def test_validators_burn_them_and_the_bond_comes_back(vesting: Vesting) -> None:
    vesting.accuse()
    assert stakes.case(vesting.ledger, vesting.case).stage == CaseStage.VESTED
    with pytest.raises(ContractRefused, match="WrongStage"):
        vesting.send(vesting.worker, calls.contest(vesting.market, vesting.case))
    vesting.rule(guilty=True)
    assert to_burn(vesting.ledger) == VEST * UNIT
    assert stakes.staker(vesting.ledger, address_of(vesting.requester)).amount == BOND * UNIT
    vesting.pass_by(WINDOW + 1)
    assert vesting.collect() == 0
    with pytest.raises(ContractRefused, match="WrongStage"):
        vesting.rule(guilty=True)


def test_a_false_accusation_costs_its_bond_and_the_worker_nothing(vesting: Vesting) -> None:
    vesting.accuse()
    vesting.rule(guilty=False)
    assert to_burn(vesting.ledger) == BOND * UNIT
    vesting.pass_by(WINDOW + 1)
    assert vesting.collect() == VEST


def test_silence_costs_the_accuser_and_never_the_accused(vesting: Vesting) -> None:
    vesting.pass_by(WINDOW - 10)
    vesting.accuse()
    vesting.pass_by(30)
    assert vesting.ledger.due(vesting.job, vesting.me) == 0, "what is accused waits for the ruling"
    vesting.pass_by(40)
    vesting.send(DEPLOYER, calls.close_case(vesting.market, vesting.case))
    assert to_burn(vesting.ledger) == BOND * UNIT
    assert vesting.collect() == VEST
