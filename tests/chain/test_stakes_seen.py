"""Stakes as the service knows them: by the chain alone, and only as far as the job's own validators may slash them."""

import pytest
from eth_keys.datatypes import PrivateKey

from contracts import calls, stakes
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.signing import address_of
from gradmarket.market.stakes import Stakes
from gradmarket.market.terms import Address, Amount, Hash
from requester.features.stakes import compute_quorum_hash
from requester.store import identities
from requester.store.tables import Account
from tests.chain.chain_fixture import PRICE, ChainFixture
from tests.lanes import FULL
from tests.onchain import HOUR, NewKey, with_money

TERMS = {"validators": ["0x" + "11" * 20, "0x" + "22" * 20], "threshold": 2, "bond": "5", "slash_s": HOUR}
STAKE, AT_RISK = 1_000, 300


def slashing_job(chain_fixture: ChainFixture) -> str:
    job_id = chain_fixture.new_job(audit={"probability": 0.5}, stake=TERMS)
    chain_fixture.settle_down()
    return job_id


def send(chain_fixture: ChainFixture, key: PrivateKey, *sent: calls.Call) -> None:
    for call in sent:
        require_receipt(execute_call(chain_fixture.ledger.web3, key, call))


def joins_with_stake(chain_fixture: ChainFixture, job_id: str, key: PrivateKey, quorum: Hash | None = None) -> Address:
    """The worker asks for work, and has AT_RISK of its STAKE at risk in the job."""
    market, chain_job = chain_fixture.chain.market, chain_fixture.job(job_id).chain_job or 0
    named = quorum or compute_quorum_hash(Stakes.model_validate(TERMS))
    send(chain_fixture, with_money(chain_fixture.ledger, key), calls.stake(market, Amount(STAKE)))
    send(chain_fixture, key, calls.join_job(market, chain_job, Amount(AT_RISK), named))
    return chain_fixture.joins(job_id, key)


def test_a_job_is_opened_with_its_slash_terms(chain_fixture: ChainFixture) -> None:
    opened = chain_fixture.ledger.job(chain_fixture.job(slashing_job(chain_fixture)).chain_job or 0)
    least = chain_fixture.ledger.min_window()
    assert (opened.bond, opened.slash_window) == (5, HOUR)
    assert min(opened.contest_window, opened.decision_window) >= max(least, 86_400)


def test_a_stake_counts_from_the_chains_word_until_its_worker_leaves(
    chain_fixture: ChainFixture, new_key: NewKey
) -> None:
    job_id, key = slashing_job(chain_fixture), new_key()
    worker = joins_with_stake(chain_fixture, job_id, key)
    chain_fixture.settle_down()
    assert chain_fixture.account(job_id, worker).at_risk == AT_RISK
    send(chain_fixture, key, calls.leave_job(chain_fixture.chain.market, chain_fixture.job(job_id).chain_job or 0))
    chain_fixture.settle_down()
    assert chain_fixture.account(job_id, worker).at_risk == 0
    assert stakes.exposure(chain_fixture.ledger, chain_fixture.job(job_id).chain_job or 0, worker).at_risk == AT_RISK


@FULL
def test_a_stake_that_is_put_down_while_it_works_is_seen(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, key = slashing_job(chain_fixture), new_key()
    worker = chain_fixture.joins(job_id, key)
    chain_fixture.settle_down()
    assert chain_fixture.account(job_id, worker).at_risk == 0
    joins_with_stake(chain_fixture, job_id, key)
    chain_fixture.settle_down()
    assert chain_fixture.account(job_id, worker).at_risk == AT_RISK


@pytest.mark.parametrize(
    ("signed_in", "restarted", "at_risk"),
    [(True, False, AT_RISK), (False, False, AT_RISK), (False, True, AT_RISK), (True, False, PRICE - 1)],
)
def test_a_stake_of_a_price_opens_the_account_of_a_worker_for_which_nothing_is_reserved(
    chain_fixture: ChainFixture, new_key: NewKey, signed_in: bool, restarted: bool, at_risk: int
) -> None:
    """A newcomer beside a flood has no account until money is reserved for it, for which its deposit has to count.

    That of a worker which signs in later, also after a restart, counts in the next step.
    """
    job_id, key = slashing_job(chain_fixture), new_key()
    chain_job, address = chain_fixture.job(job_id).chain_job or 0, address_of(key)
    named = compute_quorum_hash(Stakes.model_validate(TERMS))
    if signed_in:
        sign_in(chain_fixture, address)
    market = chain_fixture.chain.market
    send(chain_fixture, with_money(chain_fixture.ledger, key), calls.stake(market, Amount(STAKE)))
    send(chain_fixture, key, calls.join_job(market, chain_job, Amount(at_risk), named))
    chain_fixture.settle_down()
    if restarted:
        chain_fixture.restart()
        chain_fixture.settle_down()
    if not signed_in:
        sign_in(chain_fixture, address)
        chain_fixture.settle_down()
    with chain_fixture.chain.reading() as reader:
        row = reader.get(Account, (job_id, address))
    assert (row and row.at_risk) == (AT_RISK if at_risk >= PRICE else None)


def sign_in(chain_fixture: ChainFixture, address: Address) -> None:
    with chain_fixture.chain.begin() as work:
        identities.sign_in(work, address, address, None, chain_fixture.clock(), None)


def test_a_stake_that_the_workers_friends_would_judge_counts_for_nothing(
    chain_fixture: ChainFixture, new_key: NewKey
) -> None:
    job_id, friend = slashing_job(chain_fixture), address_of(new_key())
    worker = joins_with_stake(chain_fixture, job_id, new_key(), calls.quorum_of([friend], 1))
    chain_fixture.settle_down()
    assert chain_fixture.account(job_id, worker).at_risk == 0
