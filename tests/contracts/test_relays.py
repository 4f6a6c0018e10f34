"""Messages that a worker signs and anybody sends: vouchers in bulk, and payout addresses."""

import pytest

from contracts import claims, events
from contracts.ledger import Ledger
from contracts.transactions import require_receipt
from gradmarket.market.messages import Payout
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Units
from gradmarket.network.chain_errors import ContractRefused
from tests.onchain import DEPLOYER, NewKey, OpenJob


def test_a_relay_redeems_for_many_workers_of_many_jobs(open_job: OpenJob, new_key: NewKey) -> None:
    jobs, workers = [open_job(), open_job()], [address_of(new_key()) for _ in range(3)]
    for job in jobs:
        job.reserve(*((worker, 100) for worker in workers))
    rows = [job.voucher(worker, 40 + number) for number, worker in enumerate(workers) for job in jobs]
    ledger = jobs[0].ledger
    receipt = require_receipt(claims.redeem_batch(ledger, DEPLOYER, rows))
    assert events.skipped(ledger, receipt) == []
    assert [ledger.balance(worker) for worker in workers] == [80, 82, 84]
    assert len(events.paid(ledger, receipt)) == 6


def test_a_bad_voucher_stops_no_other_and_is_named(open_job: OpenJob, new_key: NewKey) -> None:
    job, mallory, honest = open_job(), address_of(new_key()), address_of(new_key())
    job.reserve((mallory, 100), (honest, 100))
    stolen, signature = job.voucher(honest, 40)
    rows = [(type(stolen)(job.id, mallory, Units(99)), signature), (stolen, signature)]
    receipt = require_receipt(claims.redeem_batch(job.ledger, DEPLOYER, rows))
    (skipped,) = events.skipped(job.ledger, receipt)
    assert (skipped.worker, skipped.index, skipped.reason) == (mallory, 0, "BadSignature")
    assert (job.ledger.balance(mallory), job.ledger.balance(honest)) == (0, 40)


def test_a_worker_without_gas_names_its_payout_address(open_job: OpenJob, new_key: NewKey) -> None:
    job, key, cold = open_job(), new_key(), address_of(new_key())
    worker = address_of(key)
    message = Payout(worker, cold, job.ledger.payout_nonce(worker))
    signature = sign_digest(key, digest_struct(job.ledger.domain(), message))
    require_receipt(claims.set_payout_for(job.ledger, DEPLOYER, message, signature))
    assert job.ledger.payout_of(worker) == cold
    job.reserve((worker, 10))
    require_receipt(claims.redeem(job.ledger, DEPLOYER, *job.voucher(worker, 10)))
    assert (job.ledger.balance(worker), job.ledger.balance(cold)) == (0, 10)
    with pytest.raises(ContractRefused, match="BadSignature"):
        claims.set_payout_for(job.ledger, DEPLOYER, message, signature)


def test_a_payout_needs_its_worker_s_signature(ledger: Ledger, new_key: NewKey) -> None:
    worker, thief = address_of(new_key()), new_key()
    message = Payout(worker, address_of(thief), 0)
    with pytest.raises(ContractRefused, match="BadSignature"):
        claims.set_payout_for(ledger, DEPLOYER, message, sign_digest(thief, digest_struct(ledger.domain(), message)))
    assert ledger.payout_of(worker) == worker
