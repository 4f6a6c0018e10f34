"""Deposits by permit, and the early close."""

from functools import partial

import pytest
from eth_keys.datatypes import PrivateKey

from contracts import calls, claims, events
from contracts.ledger import Ledger
from contracts.local import development_key, fund_gas
from contracts.transaction_types import Receipt
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.messages import Release
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Amount, Hash, Units
from gradmarket.network.chain_errors import ContractRefused
from tests.kit.contract_calls import (
    SignedPermit,
    build_permit,
    close_job,
    open_job_with_permit,
    sign_permit,
    token_separator,
    top_up_with_permit,
)
from tests.onchain import ETHER, HOUR, NewKey, OpenJob, with_money

DEPOSIT = 500


@pytest.fixture
def requester(ledger: Ledger, new_key: NewKey) -> PrivateKey:
    """It has gas money and tokens, and has approved nothing."""
    key = with_money(ledger, new_key())
    market, token = ledger.deployment.contract, ledger.deployment.token
    require_receipt(execute_call(ledger.web3, key, calls.approve(token, market, Amount(0))))
    return key


def permit(ledger: Ledger, owner: PrivateKey, value: int, signer: PrivateKey | None = None) -> SignedPermit:
    """`signer` forges it where that is not the owner."""
    wanted = build_permit(ledger, address_of(owner), Amount(value), ledger.block().time + HOUR)
    if signer is None:
        return sign_permit(owner, token_separator(ledger), wanted)
    forged = sign_digest(signer, Hash(bytes(32)))
    return SignedPermit(wanted.deadline, forged[64], forged[:32], forged[32:64])


def opening(ledger: Ledger, requester: PrivateKey, allowed: SignedPermit) -> Receipt:
    expiry = ledger.block().time + HOUR
    terms = calls.OpenJob(
        Units(DEPOSIT), Amount(2), expiry, expiry + HOUR, address_of(requester), Hash(bytes(32)), endpoint="permitted"
    )
    call = open_job_with_permit(ledger.deployment.contract, terms, allowed)
    return require_receipt(execute_call(ledger.web3, requester, call))


def test_a_permit_stands_for_an_approval(ledger: Ledger, requester: PrivateKey) -> None:
    (opened,) = events.opened(ledger, opening(ledger, requester, permit(ledger, requester, 2 * DEPOSIT)))
    assert opened.deposited == DEPOSIT
    assert ledger.allowance(address_of(requester)) == 0
    call = partial(top_up_with_permit, ledger.deployment.contract, opened.job, Units(7))
    require_receipt(execute_call(ledger.web3, requester, call(permit(ledger, requester, 14))))
    assert ledger.job(opened.job).deposited == DEPOSIT + 7
    assert ledger.balance(address_of(requester)) == 10**24 - 2 * (DEPOSIT + 7)


@pytest.mark.parametrize("case", ["too little", "forged", "used"])
def test_a_permit_that_does_not_cover_the_deposit_opens_nothing(
    ledger: Ledger, requester: PrivateKey, new_key: NewKey, case: str
) -> None:
    allowed = permit(ledger, requester, 2 * DEPOSIT - (case == "too little"), new_key() if case == "forged" else None)
    if case == "used":
        opening(ledger, requester, allowed)
    with pytest.raises(ContractRefused, match="InsufficientAllowance"):
        opening(ledger, requester, allowed)


def test_nobody_signs_another_s_permit(ledger: Ledger, requester: PrivateKey, new_key: NewKey) -> None:
    wanted = build_permit(ledger, address_of(requester), Amount(1), 1)
    with pytest.raises(ValueError, match=address_of(requester)):
        sign_permit(new_key(), token_separator(ledger), wanted)


def test_an_early_close_applies_good_releases_and_skips_bad_ones(open_job: OpenJob, new_key: NewKey) -> None:
    job, keys = open_job(deposit=1_000), [new_key() for _ in range(3)]
    workers = [address_of(key) for key in keys]
    job.reserve(*((worker, 100) for worker in workers))
    messages = [Release(job.id, worker, Units(10), 0) for worker in workers]
    releases = [
        (message, sign_digest(key, digest_struct(job.ledger.domain(), message)))
        for message, key in zip(messages, keys, strict=True)
    ]
    releases[1] = (messages[1], releases[0][1])
    receipt = job.send(close_job(job.market, job.id, releases))
    assert [(row.worker, row.index) for row in events.skipped(job.ledger, receipt)] == [(workers[1], 1)]
    assert [job.ledger.account(job.id, worker).reserved for worker in workers] == [10, 100, 10]
    assert job.ledger.balance(address_of(job.requester)) == 10**24 - 120
    with pytest.raises(ContractRefused, match="TooLate"):
        job.reserve((workers[0], 1))
    with pytest.raises(ContractRefused, match="TooLate"):
        job.send(calls.top_up(job.market, job.id, Units(1)))
    sender = development_key(1)
    require_receipt(claims.redeem(job.ledger, sender, *job.voucher(workers[1], 100)))
    assert job.ledger.balance(workers[1]) == 100


def test_only_the_requester_closes(open_job: OpenJob, new_key: NewKey) -> None:
    job, stranger = open_job(), new_key()
    fund_gas(job.ledger.web3, address_of(stranger), ETHER)
    with pytest.raises(ContractRefused, match="NotRequester"):
        job.send(close_job(job.market, job.id, []), stranger)
