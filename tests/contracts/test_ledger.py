"""The contract's payments, from Python: the worker's honest moves and their cheating twins."""

from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey

from contracts import calls, claims, events
from contracts.ledger import AccountOnChain, Ledger
from contracts.local import fund_gas
from contracts.packing import PackedGroup
from contracts.rpc import connect_to_node
from contracts.transactions import require_receipt
from gradmarket.market.messages import Release, Voucher
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Hash, Units
from gradmarket.network.chain_errors import ContractRefused
from requester.features.ledger import chain_moves
from tests.kit.contract_calls import is_signer, release_for
from tests.lanes import FULL
from tests.onchain import ETHER, NewKey, OpenedJob, OpenJob
from worker.money.chain_view import ChainView


@pytest.fixture
def worker(ledger: Ledger, new_key: NewKey) -> PrivateKey:
    key = new_key()
    fund_gas(ledger.web3, address_of(key), ETHER)
    return key


def settle(job: OpenedJob, worker: PrivateKey, batch: int, count: int, price: int = 1) -> None:
    digests = tuple(Hash(bytes([batch, number]) * 16) for number in range(count))
    job.send(calls.settle_packed(job.market, job.id, batch, [PackedGroup(address_of(worker), Units(price), digests)]))


def test_an_opened_job_is_what_was_asked(open_job: OpenJob) -> None:
    job = open_job(deposit=500, unit=10)
    seen = job.ledger.job(job.id)
    assert (seen.requester, seen.deposited, seen.unit) == (address_of(job.requester), 500, 10)
    assert (seen.expiry, seen.claim_until, seen.batches) == (job.expiry, job.claim_until, 0)
    assert is_signer(job.ledger, job.id, address_of(job.signer))
    assert not is_signer(job.ledger, job.id, address_of(job.requester))
    found = events.find_opened(job.ledger, address_of(job.requester), job.spec_digest)
    assert found is not None
    assert found.job == job.id
    assert events.find_opened(job.ledger, address_of(job.requester), Hash(bytes(32))) is None


@FULL
def test_no_request_for_events_asks_for_more_blocks_than_a_public_node_answers(
    open_job: OpenJob, worker: PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every reader of events finds the same in spans of three blocks as in one request."""
    job, me = open_job(deposit=500), address_of(worker)
    job.reserve((me, 60))
    settle(job, worker, 0, 2)
    require_receipt(claims.redeem(job.ledger, worker, *job.voucher(me, 45)))
    provider, spans = job.ledger.web3.provider, list[int]()
    make = type(provider).make_request
    end = job.ledger.block().number

    def read_all() -> list[object]:
        return [
            events.opened_job(ledger, job.id),
            ChainView(ledger, me).opened(job.id),
            events.find_opened(ledger, address_of(job.requester), job.spec_digest),
            sorted(events.accounts_touched(ledger, 0, end)),
            list(events.fetch_announced_jobs(ledger.web3, 0, end)),
            chain_moves.list_moves(ledger, job.id, end),
            events.batches_crediting(ledger, job.id, me),
        ]

    def note(self: Any, method: Any, about: Any) -> Any:
        if method == "eth_getLogs":
            spans.append(int(about[0]["toBlock"], 16) - int(about[0]["fromBlock"], 16) + 1)
        return make(self, method, about)

    monkeypatch.setattr(type(provider), "make_request", note)
    ledger = Ledger(connect_to_node(provider.endpoint_uri), job.ledger.deployment)  # type: ignore[attr-defined]
    whole = read_all()
    spans.clear()
    monkeypatch.setattr(ledger.web3.provider, "log_span", 3, raising=False)
    assert read_all() == whole
    assert all(whole)
    assert len(spans) > len(whole)
    assert max(spans) == 3


def test_no_such_job(ledger: Ledger) -> None:
    with pytest.raises(ContractRefused, match="NoSuchJob"):
        ledger.job(10**9)


def test_a_voucher_pays_its_worker_to_the_unit(open_job: OpenJob, worker: PrivateKey) -> None:
    job, me = open_job(deposit=100, unit=7), address_of(worker)
    job.reserve((me, 60))
    receipt = require_receipt(claims.redeem(job.ledger, worker, *job.voucher(me, 45)))
    assert [(paid.worker, paid.amount) for paid in events.paid(job.ledger, receipt)] == [(me, 45)]
    assert job.ledger.balance(me) == 45 * 7
    now = job.ledger.block().time
    assert job.ledger.account(job.id, me) == AccountOnChain(Units(60), Units(0), Units(45), Units(45), now)


def test_the_same_voucher_twice_pays_once(open_job: OpenJob, worker: PrivateKey) -> None:
    job, me = open_job(), address_of(worker)
    job.reserve((me, 60))
    for _ in range(2):
        require_receipt(claims.redeem(job.ledger, worker, *job.voucher(me, 45)))
    assert job.ledger.balance(me) == 45
    assert sum(paid.amount for paid in events.all_paid(job.ledger, job.id)) == 45


@pytest.mark.parametrize("voucher_first", [True, False])
def test_batch_and_voucher_count_the_same_earnings(open_job: OpenJob, worker: PrivateKey, voucher_first: bool) -> None:
    job, me = open_job(), address_of(worker)
    job.reserve((me, 60))
    if not voucher_first:
        settle(job, worker, 0, 9, price=5)
    require_receipt(claims.redeem(job.ledger, worker, *job.voucher(me, 45)))
    if voucher_first:
        settle(job, worker, 0, 9, price=5)
    assert job.ledger.account(job.id, me).unpaid == 0
    assert job.ledger.balance(me) == 45


def test_a_batch_s_credit_is_collected_without_a_voucher(open_job: OpenJob, worker: PrivateKey) -> None:
    job, me = open_job(), address_of(worker)
    job.reserve((me, 60))
    settle(job, worker, 0, 3, price=5)
    assert job.ledger.account(job.id, me).unpaid == 15
    require_receipt(claims.collect(job.ledger, worker, job.id, me))
    assert job.ledger.balance(me) == 15


def test_beyond_the_reservation_nothing_is_due_until_it_grows(open_job: OpenJob, worker: PrivateKey) -> None:
    job, me = open_job(), address_of(worker)
    job.reserve((me, 10))
    require_receipt(claims.redeem(job.ledger, worker, *job.voucher(me, 25)))
    assert job.ledger.balance(me) == 10
    job.reserve((me, 90))
    assert job.ledger.account(job.id, me).unpaid == 15
    assert job.ledger.account(job.id, me).credited == 25


def test_a_voucher_of_another_key_job_or_instance_is_refused(open_job: OpenJob, worker: PrivateKey) -> None:
    job, other, me = open_job(), open_job(), address_of(worker)
    job.reserve((me, 60))
    voucher, _ = job.voucher(me, 45)
    domain = job.ledger.domain()
    forged = [
        sign_digest(job.requester, digest_struct(domain, voucher)),
        other.voucher(me, 45)[1],
        sign_digest(
            job.signer, digest_struct(type(domain)(domain.chain_id, domain.contract, Hash(bytes(32))), voucher)
        ),
        job.voucher(me, 46)[1],
        b"",
    ]
    for signature in forged:
        with pytest.raises(ContractRefused, match="BadSignature"):
            claims.redeem(job.ledger, worker, voucher, signature)
    assert job.ledger.balance(me) == 0


def test_anybody_may_send_a_voucher_and_its_worker_is_paid(open_job: OpenJob, new_key: NewKey) -> None:
    job, poor = open_job(), new_key()
    job.reserve((address_of(poor), 5))
    require_receipt(claims.redeem(job.ledger, job.requester, *job.voucher(address_of(poor), 5)))
    assert job.ledger.balance(address_of(poor)) == 5


def test_a_payout_address_gets_the_money(open_job: OpenJob, worker: PrivateKey, new_key: NewKey) -> None:
    job, me, cold = open_job(), address_of(worker), address_of(new_key())
    job.reserve((me, 5))
    require_receipt(claims.set_payout(job.ledger, worker, cold))
    assert job.ledger.payout_of(me) == cold
    require_receipt(claims.redeem(job.ledger, worker, *job.voucher(me, 5)))
    assert (job.ledger.balance(me), job.ledger.balance(cold)) == (0, 5)


def test_a_release_gives_back_what_was_not_earned(open_job: OpenJob, worker: PrivateKey) -> None:
    job, me = open_job(deposit=100), address_of(worker)
    job.reserve((me, 60))
    require_receipt(claims.redeem(job.ledger, worker, *job.voucher(me, 20)))
    require_receipt(claims.release(job.ledger, worker, job.id, Units(0)))
    assert job.ledger.account(job.id, me).reserved == 20
    assert job.ledger.free(job.id) == 80


def test_a_signed_release_is_sent_by_another_once(open_job: OpenJob, worker: PrivateKey) -> None:
    job, me = open_job(deposit=100), address_of(worker)
    job.reserve((me, 60))
    message = Release(job.id, me, Units(10), 0)
    signature = sign_digest(worker, digest_struct(job.ledger.domain(), message))
    job.send(release_for(job.market, message, signature))
    assert job.ledger.free(job.id) == 90
    with pytest.raises(ContractRefused, match="BadSignature"):
        job.send(release_for(job.market, message, signature))


def test_the_requester_cannot_take_or_give_twice_what_is_reserved(open_job: OpenJob, worker: PrivateKey) -> None:
    job, me = open_job(deposit=100), address_of(worker)
    job.reserve((me, 60))
    before = job.ledger.account(job.id, me)
    for call, name in (
        (calls.withdraw_free(job.market, job.id, Units(41)), "Overdrawn"),
        (calls.reserve(job.market, job.id, [(address_of(job.signer), Units(41))]), "Overdrawn"),
        (calls.refund(job.market, job.id), "TooEarly"),
    ):
        with pytest.raises(ContractRefused, match=name):
            job.send(call)
    job.send(calls.release(job.market, job.id, Units(0)))
    assert job.ledger.account(job.id, me) == before


def test_nobody_else_settles_or_withdraws(open_job: OpenJob, worker: PrivateKey) -> None:
    job = open_job()
    batch = calls.settle_packed(job.market, job.id, 0, [PackedGroup(address_of(worker), Units(1), (Hash(bytes(32)),))])
    with pytest.raises(ContractRefused, match="NotSender"):
        job.send(batch, worker)
    with pytest.raises(ContractRefused, match="NotRequester"):
        job.send(calls.withdraw_free(job.market, job.id, Units(1)), worker)
    job.send(calls.set_sender(job.market, job.id, address_of(worker)))
    job.send(batch, worker)
    with pytest.raises(ContractRefused) as caught:
        job.send(batch, worker)
    assert (caught.value.name, caught.value.arguments) == ("WrongBatch", (1,))


def test_receipts_have_the_events_of_deposits_and_refunds(open_job: OpenJob) -> None:
    job = open_job(deposit=10)
    added = job.send(calls.top_up(job.market, job.id, Units(5)))
    assert [event.amount for event in events.deposited(job.ledger, added)] == [5]
    taken = job.send(calls.withdraw_free(job.market, job.id, Units(12)))
    assert [event.amount for event in events.refunded(job.ledger, taken)] == [12]
    assert job.ledger.free(job.id) == 3
    given = job.send(calls.reserve(job.market, job.id, [(address_of(job.signer), Units(3))]))
    assert [(event.added, event.reserved) for event in events.reserved(job.ledger, given)] == [(3, 3)]


def test_facts_of_the_chain(open_job: OpenJob, new_key: NewKey) -> None:
    job = open_job()
    assert (job.ledger.decimals(), job.ledger.symbol(), job.ledger.min_window()) == (18, "GRAD", 60)
    assert job.ledger.allowance(address_of(job.requester)) == 10**24 - 1_000
    assert job.ledger.gas_money(address_of(new_key())) == 0
    assert job.ledger.block().number > 0


def test_a_voucher_is_as_the_wire_has_it(open_job: OpenJob) -> None:
    job = open_job()
    voucher, signature = job.voucher(address_of(job.requester), 1)
    assert isinstance(voucher, Voucher)
    assert len(signature) == 65
