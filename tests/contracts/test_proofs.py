"""A batch's root and the proofs under it: the contract's and ours are equal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import calls
from contracts.packing import PackedGroup, group_by_worker
from contracts.proofs import batch_root, build_proof, is_record_proven
from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.signing import checksum_address
from gradmarket.market.terms import Address, Hash, Units
from gradmarket.network.chain_errors import ContractRefused
from tests.kit.contract_calls import was_accepted
from tests.onchain import OpenJob

ALICE, BOB = checksum_address("0x" + "1a" * 20), checksum_address("0x" + "2b" * 20)

hashes = st.binary(min_size=32, max_size=32).map(Hash)
records = st.tuples(st.sampled_from([ALICE, BOB]), st.integers(0, 9).map(Units), hashes)


def batch(count: int) -> list[PackedGroup]:
    return group_by_worker((ALICE if at % 3 else BOB, Units(at % 2 + 1), Hash(bytes([at]) * 32)) for at in range(count))


@given(st.lists(records, min_size=1, max_size=20, unique=True), records)
def test_each_record_of_a_batch_has_a_proof_and_no_other_record_has_one(
    rows: list[tuple[Address, Units, Hash]], other: tuple[Address, Units, Hash]
) -> None:
    groups = group_by_worker(rows)
    root = batch_root(groups)
    for row in rows:
        proof = build_proof(groups, *row)
        assert is_record_proven(root, *row, proof)
        assert len(proof) <= (len(rows) - 1).bit_length()
        assert (other == row) == is_record_proven(root, *other, proof)
    if other not in rows:
        with pytest.raises(NotFound):
            build_proof(groups, *other)


@pytest.mark.parametrize("count", [1, 5, 8])
def test_the_contract_answers_for_each_gradient(open_job: OpenJob, count: int) -> None:
    job, groups = open_job(), batch(count)
    job.send(calls.settle_packed(job.market, job.id, 0, groups))
    for each in groups:
        for digest in each.digests:
            proof = build_proof(groups, each.worker, each.price, digest)
            assert was_accepted(job.ledger, job.id, 0, each.worker, each.price, digest, proof)
            assert not was_accepted(job.ledger, job.id, 0, each.worker, Units(each.price + 1), digest, proof)
            assert not was_accepted(job.ledger, job.id, 1, each.worker, each.price, digest, proof)


def test_a_rooted_batch_credits_the_sums_and_keeps_its_root_apart(open_job: OpenJob) -> None:
    job, groups = open_job(deposit=100), batch(9)
    job.reserve((ALICE, 50), (BOB, 50))
    job.send(calls.settle_rooted(job.market, job.id, 0, batch_root(groups), groups))
    for worker in (ALICE, BOB):
        earned = sum(each.price * len(each.digests) for each in groups if each.worker == worker)
        assert job.ledger.account(job.id, worker).settled == earned
    root = job.ledger.record_root(job.id, 0)
    assert (root, job.ledger.batch_root(job.id, 0)) == (batch_root(groups), bytes(32))
    record = (groups[0].worker, groups[0].price, groups[0].digests[0])
    proof = build_proof(groups, *record)
    assert is_record_proven(root, *record, proof)
    assert not was_accepted(job.ledger, job.id, 0, *record, proof), "the contract has not seen the records"


def test_both_kinds_of_batch_take_their_numbers_from_one_sequence(open_job: OpenJob) -> None:
    job, groups = open_job(), batch(2)
    job.send(calls.settle_rooted(job.market, job.id, 0, batch_root(groups), groups))
    with pytest.raises(ContractRefused, match=r"WrongBatch\(1\)"):
        job.send(calls.settle_packed(job.market, job.id, 0, groups))
    job.send(calls.settle_packed(job.market, job.id, 1, groups))


def test_an_empty_batch_has_no_root() -> None:
    with pytest.raises(Refused):
        batch_root([])
