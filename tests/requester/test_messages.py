"""Copied, late, repeated, forged: each message that must change nothing, beside the one that counts."""

from dataclasses import replace

import pytest
from eth_utils.crypto import keccak

from gradmarket.market import signing
from gradmarket.market.errors import Conflict, MarketError, NotFound
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload_layout import payload_bytes
from gradmarket.market.terms import JobState, ReplicaState, TaskState
from requester.exchange.commitments import TooLate
from requester.store.tables import Wave
from tests.kit.behaviour import NOISE, WITHHOLDER, scaled
from tests.requester.books import check_books
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.market_workers import SimWorker, wants

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


@pytest.fixture
def uploading(leased: MarketFixture) -> MarketFixture:
    """All three have agreed and one is asked for the payload."""
    leased.commit()
    leased.reveal()
    for worker in leased.workers:
        worker.receive_answer()
    assert leased.task().state == TaskState.UPLOADING
    return leased


def find_uploader(market: MarketFixture) -> SimWorker:
    return next(worker for worker in market.workers if worker.newest().wanted)


def others(market: MarketFixture) -> list[SimWorker]:
    return [worker for worker in market.workers if not worker.newest().wanted]


def refused(worker: SimWorker, code: str, **items: object) -> str:
    (refusal,) = worker.send_poll(**items)  # type: ignore[arg-type]
    assert refusal.code == code, refusal
    return refusal.detail


# commitments


def test_a_commitment_again_is_no_error_and_another_one_is_a_conflict(leased: MarketFixture) -> None:
    worker = leased.workers[0]
    first = worker.commitment(worker.newest())
    assert worker.send_poll(commitments=[first]) == ()
    before = leased.replica(worker)
    assert worker.send_poll(commitments=[first]) == ()
    other = worker.commitment(replace(worker.newest(), salt=keccak(text="another")))
    refused(worker, "conflict", commitments=[other])
    after = leased.replica(worker)
    assert (after.sealed, after.committed_at) == (before.sealed, before.committed_at)


def test_one_refused_item_leaves_the_others_standing(leased: MarketFixture) -> None:
    first, second, _ = leased.workers
    stranger = first.commitment(first.newest(), replica=second.newest().lease.replica)
    (refusal,) = first.send_poll(commitments=[stranger, first.commitment(first.newest())])
    assert refusal.code == "not_found"
    assert leased.replica(first).state == ReplicaState.COMMITTED
    assert leased.replica(second).state == ReplicaState.LEASED


def test_a_lease_is_over_the_instant_after_its_deadline(leased: MarketFixture) -> None:
    prompt, late, _ = leased.workers
    leased.clock.now = leased.replica(prompt).lease_until
    assert prompt.send_poll(commitments=[prompt.commitment(prompt.newest())]) == ()
    leased.clock.now += 0.001
    assert "lease is over" in refused(late, "too_late", commitments=[late.commitment(late.newest())])
    assert leased.replica(late).state == ReplicaState.LEASED


def test_another_fence_is_refused(leased: MarketFixture) -> None:
    worker = leased.workers[0]
    held = worker.newest()
    refused(worker, "too_late", commitments=[worker.commitment(held, fence=held.lease.fence + 1)])
    refused(worker, "too_late", given_up=[worker.give_up(held).model_copy(update={"fence": held.lease.fence - 1})])
    assert leased.replica(worker).state == ReplicaState.LEASED


def test_a_replica_of_another_worker_is_not_found(leased: MarketFixture) -> None:
    thief, victim, _ = leased.workers
    refused(thief, "not_found", commitments=[victim.commitment(victim.newest())])
    refused(thief, "not_found", given_up=[victim.give_up(victim.newest())])
    assert leased.replica(victim).state == ReplicaState.LEASED


def test_a_forged_signature_is_refused_and_the_right_one_is_then_taken(leased: MarketFixture) -> None:
    worker, other, _ = leased.workers
    good = worker.commitment(worker.newest())
    forged = other.commitment(replace(other.newest(), lease=worker.newest().lease)).signature
    for signature in (forged, bytes(65), malleable(good.signature), good.signature[:64] + b"\x00"):
        refused(worker, "refused", commitments=[good.model_copy(update={"signature": signature})])
    assert leased.replica(worker).state == ReplicaState.LEASED
    assert worker.send_poll(commitments=[good]) == ()


def malleable(signature: bytes) -> bytes:
    """The other signature of the same key and message: s in the upper half."""
    s = ORDER - int.from_bytes(signature[32:64], "big")
    return signature[:32] + s.to_bytes(32, "big") + bytes([55 - signature[64]])


def test_a_short_signature_does_not_come_through_the_door(leased: MarketFixture) -> None:
    worker = leased.workers[0]
    short = worker.commitment(worker.newest()).model_copy(update={"signature": bytes(64)})
    with pytest.raises(ValueError, match="at least 65"):
        worker.send_poll(commitments=[short])


def test_a_signature_for_another_chain_is_refused(leased: MarketFixture) -> None:
    worker = leased.workers[0]
    held, domain = worker.newest(), leased.context.domain
    good = worker.commitment(held)
    offer = signing.digest_struct(domain, held.lease.offer.struct())
    elsewhere = replace(domain, instance=keccak(text="the chain started anew"))
    replayed = signing.sign_digest(worker.key, signing.digest_struct(elsewhere, good.struct(offer, worker.address)))
    refused(worker, "refused", commitments=[good.model_copy(update={"signature": replayed})])


# copies


def test_a_copied_seal_cannot_be_opened(leased: MarketFixture) -> None:
    copier, victim, third = leased.workers
    seal = victim.commitment(victim.newest()).sealed
    copier.send_poll(commitments=[copier.commitment(copier.newest(), sealed=seal)])
    leased.commit(victim, third)
    for worker in leased.workers:
        worker.receive_answer()
    stolen = victim.newest()
    copier.send_poll(reveals=[copier.revelation(copier.newest(), salt=stolen.salt, root=stolen.root)])
    leased.reveal(victim, third)
    assert leased.replica(copier).state == ReplicaState.REJECTED
    assert "do not open" in leased.replica(copier).reason
    leased.play(victim, third)
    assert leased.earned() == {victim.address: PRICE, third.address: PRICE}
    check_books(leased)


def test_the_copied_signature_of_another_is_refused(leased: MarketFixture) -> None:
    copier, victim, _ = leased.workers
    signed = victim.commitment(victim.newest())
    copied = copier.commitment(copier.newest(), sealed=signed.sealed, signature=signed.signature)
    assert "signed by" in refused(copier, "refused", commitments=[copied])


def test_a_commitment_after_the_first_reveal_is_too_late(leased: MarketFixture) -> None:
    copier, *honest = leased.workers
    leased.commit(*honest)
    leased.lapse(10)
    assert leased.task().state == TaskState.REVEALING
    leased.reveal(honest[0])
    copied = copier.commitment(copier.newest())
    assert "too_late" in refused(copier, "too_late", commitments=[copied])
    leased.reveal(*honest)
    leased.play(*honest)
    assert leased.earned() == {worker.address: PRICE for worker in honest}
    copier.receive_answer()
    assert copier.newest().state == ReplicaState.TOO_LATE


def test_a_root_may_not_be_changed_for_another_at_the_reveal(leased: MarketFixture) -> None:
    turncoat, *honest = leased.workers
    turncoat.behaviour = NOISE
    own = turncoat._put(turncoat.newest(), payload=turncoat.compute(turncoat.newest().lease.offer))
    turncoat.send_poll(commitments=[turncoat.commitment(own)])
    leased.commit(*honest)
    turncoat.receive_answer()
    turncoat.send_poll(reveals=[turncoat.revelation(turncoat.newest(), root=honest[0].newest().root)])
    assert leased.replica(turncoat).state == ReplicaState.REJECTED


def test_a_later_wave_has_a_secret_of_its_own_and_the_first_wave_takes_no_more(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    first = [market.worker(scaled(2.0)), market.worker(scaled(3.0))]
    laggard = market.worker()
    market.gather()
    market.commit(*first)
    market.lapse(10)
    market.reveal(*first)
    assert market.task().wave == 1
    refused(laggard, "too_late", commitments=[laggard.commitment(laggard.computed(laggard.newest()))])
    assert market.replica(laggard).state == ReplicaState.TOO_LATE
    fresh = [market.worker(), market.worker(), market.worker()]
    market.play(*(worker for worker in market.workers if worker is not laggard))
    assert market.state() == JobState.FINISHED
    secrets = {worker.newest().wave.secret for worker in (*first, *fresh) if worker.held and worker.newest().wave}
    assert len(secrets) > 1
    assert secrets == {wave.secret for wave in market.all(Wave)}
    assert laggard.address not in market.earned()
    check_books(market)


# reveals


def test_a_reveal_before_the_wave_is_closed_is_too_early(leased: MarketFixture) -> None:
    worker = leased.workers[0]
    worker.send_poll(commitments=[worker.commitment(worker.newest())])
    refused(worker, "too_early", reveals=[worker.revelation(worker.newest())])
    assert leased.replica(worker).state == ReplicaState.COMMITTED


def test_a_reveal_without_a_commitment_is_too_late(leased: MarketFixture) -> None:
    worker = leased.workers[0]
    refused(worker, "too_late", reveals=[worker.revelation(worker.newest())])


def test_a_reveal_again_is_no_error_and_another_one_is_a_conflict(leased: MarketFixture) -> None:
    leased.commit()
    first, *rest = leased.workers
    first.receive_answer()
    said = first.revelation(first.newest())
    assert first.send_poll(reveals=[said]) == ()
    assert first.send_poll(reveals=[said]) == ()
    refused(first, "conflict", reveals=[said.model_copy(update={"salt": keccak(text="another")})])
    leased.reveal(*rest)
    assert first.send_poll(reveals=[said]) == ()
    leased.play()
    assert leased.earned() == {worker.address: PRICE for worker in leased.workers}


def test_a_reveal_that_does_not_open_is_kept_unchanged(leased: MarketFixture) -> None:
    leased.commit()
    worker = leased.workers[0]
    worker.receive_answer()
    wrong = worker.revelation(worker.newest(), salt=keccak(text="wrong"))
    assert worker.send_poll(reveals=[wrong]) == ()
    assert worker.send_poll(reveals=[wrong]) == ()
    row = leased.replica(worker)
    assert (row.state, row.salt, row.root) == (ReplicaState.REJECTED, wrong.salt, wrong.root)
    refused(worker, "conflict", reveals=[worker.revelation(worker.newest())])


# uploads


def test_the_same_payload_again_changes_nothing_and_pays_once(uploading: MarketFixture) -> None:
    worker = find_uploader(uploading)
    worker.upload(worker.newest())
    worker.upload(worker.newest())
    assert uploading.earned() == {worker.address: PRICE for worker in uploading.workers}
    uploading.drive()
    worker.upload(worker.newest())
    with pytest.raises(Conflict):
        worker.upload(worker.newest(), bytes(len(worker.newest().payload)))
    assert uploading.earned() == {worker.address: PRICE for worker in uploading.workers}
    assert uploading.state() == JobState.FINISHED
    check_books(uploading)


def test_a_payload_that_came_again_after_the_merge_is_not_kept(uploading: MarketFixture) -> None:
    worker = find_uploader(uploading)
    worker.upload(worker.newest())
    uploading.drive()
    blob = uploading.task().payload
    assert not uploading.context.blobs.has(blob)
    worker.upload(worker.newest())
    assert not uploading.context.blobs.has(blob)


def test_only_the_worker_that_is_asked_may_upload(uploading: MarketFixture) -> None:
    for worker in others(uploading):
        assert not worker.newest().wanted
        with pytest.raises(Conflict, match="another replica was asked"):
            worker.upload(worker.newest())
    assert uploading.earned() == {}


def test_the_length_of_a_payload_is_known_before_it_is_read(uploading: MarketFixture) -> None:
    worker = find_uploader(uploading)
    lease = worker.newest().lease
    want = wants(uploading, worker, lease.replica, lease.fence)
    assert want.length == payload_bytes(want.layout, load_codec("fp32")) == len(worker.newest().payload) == 4 * 7


def test_uploads_of_workers_that_were_not_asked_are_refused(uploading: MarketFixture) -> None:
    worker, other = find_uploader(uploading), others(uploading)[0]
    lease = worker.newest().lease
    with pytest.raises(NotFound):
        wants(uploading, other, lease.replica, lease.fence)
    with pytest.raises(TooLate):
        wants(uploading, worker, lease.replica, lease.fence + 1)


def test_a_payload_of_a_rejected_replica_is_refused(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    cheater, *_ = market.worker(NOISE), market.worker(WITHHOLDER), market.worker(WITHHOLDER)
    market.until(lambda: market.task().state == TaskState.UPLOADING)
    with pytest.raises(MarketError, match="rejected"):
        cheater.upload(cheater.newest())


def test_an_upload_after_the_next_worker_was_asked_is_refused_and_pays_nobody_twice(uploading: MarketFixture) -> None:
    late = find_uploader(uploading)
    lease = late.newest().lease
    want = wants(uploading, late, lease.replica, lease.fence)
    uploading.lapse(11)
    with pytest.raises(MarketError):
        late.bring(want, late.newest().payload)
    late.behaviour = WITHHOLDER
    uploading.play()
    assert late.address not in uploading.earned()
    assert len(uploading.earned()) == 2
    check_books(uploading)


# answers to polls


def test_unconfirmed_verdicts_and_vouchers_are_sent_again(uploading: MarketFixture) -> None:
    worker = find_uploader(uploading)
    worker.upload(worker.newest())
    for forgetful in uploading.workers:
        forgetful.held.clear()
        forgetful.send_poll()
        answer = forgetful.load_answer()
        assert [verdict.state for verdict in answer.verdicts] == [ReplicaState.PAYABLE]
        assert [voucher.cumulative for voucher in answer.vouchers] == [PRICE]


def test_confirmed_verdicts_and_vouchers_are_not_sent_again(uploading: MarketFixture) -> None:
    worker = find_uploader(uploading)
    worker.upload(worker.newest())
    worker.receive_answer()
    worker.send_poll()
    answer = worker.load_answer()
    assert (answer.verdicts, answer.vouchers) == ((), ())
    worker.send_poll(vouchers_for=[uploading.job])
    assert [voucher.cumulative for voucher in worker.load_answer().vouchers] == [PRICE]


def test_a_poll_that_is_repeated_brings_no_second_lease(new_market) -> None:  # type: ignore[no-untyped-def]
    """The answer was lost: the worker asks again for one lease, and knows of none."""
    market = new_market(tasks_per_round=4)
    workers = [market.worker() for _ in range(3)]
    for _ in range(3):
        for worker in workers:
            worker.send_poll()
            market.drive()
    assert {worker.address: len(market.replicas(worker)) for worker in workers} == {w.address: 1 for w in workers}
