"""Calldata and packed rows: as web3 encodes them, and as the contract reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import calls, events
from contracts.artifact import load_artifact
from contracts.deployment import token_at
from contracts.ledger import Ledger
from contracts.packing import PackedGroup, group_by_worker, pack_groups, pack_reservations
from contracts.proofs import batch_root
from contracts.transactions import estimate_gas_limit
from gradmarket.market.errors import Refused
from gradmarket.market.messages import Release, Voucher
from gradmarket.market.signing import address_of, checksum_address
from gradmarket.market.terms import Address, Amount, Hash, Units
from gradmarket.network.chain_errors import ContractRefused
from tests.kit.contract_calls import release_for
from tests.onchain import OpenJob

ALICE, BOB = Address("0x" + "1a" * 20), Address("0x" + "2b" * 20)
DIGEST = Hash(b"\x07" * 32)

hashes = st.binary(min_size=32, max_size=32).map(Hash)
workers = st.sampled_from([ALICE, BOB, Address("0x" + "3c" * 20)])
rows = st.lists(st.tuples(workers, st.integers(0, 9).map(Units), hashes), min_size=1, max_size=40)


def test_calls_are_encoded_as_web3_does(ledger: Ledger) -> None:
    market, token = ledger.deployment.contract, ledger.deployment.token
    terms = calls.OpenJob(Units(5), Amount(2), 10, 20, ALICE, DIGEST, 1, 2, 3, 4, Units(6), 7, DIGEST, "where")
    signature = bytes(range(65))
    ours = {
        ("openJob", ((5, 2, 10, 20, _checked(ALICE), DIGEST, 1, 2, 3, 4, 6, 7, DIGEST, "where"),)): calls.open_job(
            market, terms
        ),
        ("topUp", (1, 9)): calls.top_up(market, 1, Units(9)),
        ("setSender", (1, _checked(BOB))): calls.set_sender(market, 1, BOB),
        ("withdrawFree", (1, 9)): calls.withdraw_free(market, 1, Units(9)),
        ("refund", (1,)): calls.refund(market, 1),
        ("redeem", (1, _checked(BOB), 8, signature)): calls.redeem(market, Voucher(1, BOB, Units(8)), signature),
        ("collect", (1, _checked(BOB))): calls.collect(market, 1, BOB),
        ("release", (1, 3)): calls.release(market, 1, Units(3)),
        ("releaseFor", (1, _checked(BOB), 3, 4, signature)): release_for(
            market, Release(1, BOB, Units(3), 4), signature
        ),
        ("setPayout", (_checked(BOB),)): calls.set_payout(market, BOB),
        ("reserve", (1, bytes.fromhex("1a" * 20) + (6).to_bytes(8, "big"))): calls.reserve(
            market, 1, [(ALICE, Units(6))]
        ),
        ("settlePacked", (1, 2, bytes.fromhex("1a" * 20) + b"\0\0\0\0\0\x05" + b"\0\x01" + DIGEST)): (
            calls.settle_packed(market, 1, 2, [PackedGroup(ALICE, Units(5), (DIGEST,))])
        ),
    }
    contract = ledger.web3.eth.contract(abi=list(load_artifact("GradMarket").abi))
    for (name, arguments), call in ours.items():
        assert call.to == market
        assert "0x" + call.data.hex() == contract.encode_abi(name, list(arguments)), name
    theirs = token_at(ledger.web3, token).encode_abi("approve", [market, 3])
    assert "0x" + calls.approve(token, market, Amount(3)).data.hex() == theirs


def _checked(address: Address) -> str:
    return checksum_address(address)


@given(rows)
def test_grouping_loses_and_invents_nothing(given_rows: list[tuple[Address, Units, Hash]]) -> None:
    groups = group_by_worker(given_rows)
    again = [(each.worker, each.price, digest) for each in groups for digest in each.digests]
    assert sorted(again) == sorted(given_rows)
    assert len({(each.worker, each.price) for each in groups}) == len(groups)
    assert len(pack_groups(groups)) == 28 * len(groups) + 32 * len(given_rows)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 13])
def test_the_root_and_the_events_are_the_contract_s(open_job: OpenJob, count: int) -> None:
    job = open_job(deposit=1_000)
    digests = [Hash(bytes([number]) * 32) for number in range(count)]
    groups = group_by_worker(
        (ALICE if number % 3 else BOB, Units(number % 2 + 1), digest) for number, digest in enumerate(digests)
    )
    job.send(calls.settle_packed(job.market, job.id, 0, groups))
    assert job.ledger.batch_root(job.id, 0) == batch_root(groups)
    seen = [PackedGroup(Address(each.worker.lower()), each.price, each.digests)
            for each in events.settled_groups(job.ledger, job.id, 0)]  # fmt: skip
    assert seen == groups
    assert events.settled_groups(job.ledger, job.id, 1) == []


def test_another_digest_has_another_root() -> None:
    one, other = (PackedGroup(ALICE, Units(1), (DIGEST, Hash(bytes([last]) * 32))) for last in (1, 2))
    assert batch_root([one]) != batch_root([other])


def test_groups_and_reservations_out_of_range_are_refused() -> None:
    bad = [
        PackedGroup(ALICE, Units(2**48), (DIGEST,)),
        PackedGroup(ALICE, Units(1), ()),
        PackedGroup(ALICE, Units(1), (Hash(b"short"),)),
        PackedGroup(ALICE, Units(1), (DIGEST,) * 2**16),
    ]
    for each in bad:
        with pytest.raises(Refused):
            pack_groups([each])
    with pytest.raises(Refused):
        pack_reservations([(ALICE, Units(-1))])
    with pytest.raises(Refused):
        batch_root([])


def test_packed_rows_cut_short_are_refused_by_the_contract(open_job: OpenJob) -> None:
    job = open_job()
    whole = calls.settle_packed(job.market, job.id, 0, [PackedGroup(ALICE, Units(5), (DIGEST, DIGEST))])
    length = (28 + 64).to_bytes(32, "big")
    before, _, rows = whole.data.rpartition(length)  # a job of this number has the same word before
    cut = calls.Call(whole.to, before + (28 + 63).to_bytes(32, "big") + rows)
    with pytest.raises(ContractRefused, match="Malformed"):
        estimate_gas_limit(job.ledger.web3, address_of(job.requester), cut)
