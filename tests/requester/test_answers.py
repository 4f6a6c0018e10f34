"""Commitment, reveal and payload in one request where one replica decides; where several vote, none comes early."""

from dataclasses import replace

import numpy as np
import pytest

from gradmarket.market.errors import Conflict, NotFound, Refused, SignatureRefused
from gradmarket.market.terms import ReplicaState, TaskState
from gradmarket.market.wire.poll import Answer, digest_of
from graphdoc import tensors
from requester.exchange import payload_upload, poll
from requester.exchange.commitments import TooLate
from requester.store.tables import Earned, Wave
from tests.kit.behaviour import SIGN_FLIP
from tests.requester.books import check_books
from tests.requester.market_fixture import PRICE, MarketFixture
from tests.requester.market_workers import SimWorker, honest_answer, part_of, wants

ALONE = {"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}, "tasks_per_round": 2}


@pytest.fixture
def alone(new_market) -> MarketFixture:  # type: ignore[no-untyped-def]
    """One worker with a lease of a task that nobody else votes on."""
    market: MarketFixture = new_market(**ALONE)
    market.worker()
    market.gather()
    return market


def build_answer(worker: SimWorker, **changes: object) -> Answer:
    held = worker.computed(worker.newest())
    return Answer(commitment=worker.commitment(held, **changes), salt=held.salt, root=held.root)


def states(market: MarketFixture) -> tuple[TaskState, ReplicaState]:
    (replica,) = market.replicas()
    return next(task.state for task in market.tasks() if task.id == replica.task_id), replica.state


def test_one_request_commits_reveals_delivers_and_is_paid(alone: MarketFixture) -> None:
    (worker,) = alone.workers
    told = worker.answer(worker.newest(), capacity=1)
    assert states(alone) == (TaskState.ACCEPTED, ReplicaState.PAYABLE)
    assert [verdict.state for verdict in told.verdicts] == [ReplicaState.PAYABLE]
    assert [voucher.cumulative for voucher in told.vouchers] == [PRICE]
    assert (told.uploads, told.waves, told.refusals) == ((), (), ())
    assert len(alone.all(Wave)) == 1
    assert alone.earned() == {worker.address: PRICE}
    check_books(alone)


def test_an_answer_sent_again_gets_the_same_verdict(alone: MarketFixture) -> None:
    (worker,) = alone.workers
    held = worker.computed(worker.newest())
    first, again = worker.answer(held), worker.answer(held)
    assert (again.verdicts, again.vouchers) == (first.verdicts, first.vouchers)
    assert len(alone.all(Earned)) == 1
    check_books(alone)


def test_killed_at_any_step_it_pays_the_answer_once(alone: MarketFixture) -> None:
    """Killed with the bytes on disk and nothing committed, and again with all committed and nothing sent."""
    (worker,) = alone.workers
    lease, said = worker.newest().lease, build_answer(worker)
    want = wants(alone, worker, lease.replica, lease.fence, said)
    with alone.context.blobs.receive() as incoming:
        arrival = payload_upload.build_incoming_upload(want, incoming)
        arrival.take(worker.newest().payload)
        payload_upload.inspect_and_store_payload(alone.context, want, arrival)
    alone.crash()
    assert (states(alone)[1], alone.earned()) == (ReplicaState.LEASED, {})
    told = worker.answer(worker.newest())
    alone.crash()
    assert worker.answer(worker.newest()).verdicts == told.verdicts
    assert alone.earned() == {worker.address: PRICE}
    check_books(alone)


def test_other_bytes_than_the_root_pay_nothing_and_the_committed_ones_do(alone: MarketFixture) -> None:
    (worker,) = alone.workers
    held = worker.computed(worker.newest())
    with pytest.raises(Conflict, match="committed was"):
        worker.answer(held, bytes(len(held.payload)))
    assert (states(alone)[1], alone.earned()) == (ReplicaState.LEASED, {})
    worker.answer(held)
    assert alone.earned() == {worker.address: PRICE}


def test_a_forged_commitment_is_refused_before_a_byte_is_read(alone: MarketFixture) -> None:
    (worker,) = alone.workers
    lease = worker.newest().lease
    with pytest.raises(SignatureRefused):
        wants(alone, worker, lease.replica, lease.fence, build_answer(worker, signature=bytes(65)))
    assert states(alone)[1] == ReplicaState.LEASED


def test_late_or_foreign_answers_are_refused(alone: MarketFixture) -> None:
    (worker,) = alone.workers
    thief = alone.worker()
    lease, said = worker.newest().lease, build_answer(worker)
    with pytest.raises(NotFound):
        wants(alone, thief, lease.replica, lease.fence, said)
    with pytest.raises(TooLate):
        wants(alone, worker, lease.replica, lease.fence + 1, said)
    want = wants(alone, worker, lease.replica, lease.fence, said)
    alone.lapse(21)
    with pytest.raises(TooLate):
        wants(alone, worker, lease.replica, lease.fence, said)
    with pytest.raises(Refused):  # its bytes were under way
        worker.bring(want, worker.newest().payload, answers=(said,), payloads=(part_of(worker.newest()),))
    assert alone.earned() == {}


def test_a_late_payload_is_not_kept_on_disk(alone: MarketFixture) -> None:
    (worker,) = alone.workers
    lease, said = worker.newest().lease, build_answer(worker)
    want = wants(alone, worker, lease.replica, lease.fence, said)
    alone.lapse(21)
    with pytest.raises(Refused):
        worker.bring(want, worker.newest().payload, answers=(said,), payloads=(part_of(worker.newest()),))
    assert not alone.context.blobs.has(worker.newest().root)


def test_where_several_vote_an_answer_is_refused_and_nothing_of_it_is_kept(leased: MarketFixture) -> None:
    """Its reveal would stand in the requester's rows before the others have committed."""
    worker = leased.workers[0]
    said = build_answer(worker)
    with pytest.raises(TooLate, match="leased"):
        wants(leased, worker, said.replica, said.fence, said)
    (told,) = poll.handle_polls(leased.context, [worker.poll(answers=(said,))])
    assert [item.code for item in told.refusals] == ["refused"]
    replica = leased.replica(worker)
    assert (replica.state, replica.sealed, replica.root) == (ReplicaState.LEASED, None, None)


def test_an_answer_without_its_payload_is_asked_for_it(alone: MarketFixture) -> None:
    (worker,) = alone.workers
    (told,) = poll.handle_polls(alone.context, [worker.poll(answers=(build_answer(worker),))])
    assert [wanted.replica for wanted in told.uploads] == [worker.newest().lease.replica]
    assert states(alone) == (TaskState.UPLOADING, ReplicaState.AGREE)
    worker.receive_answer()
    worker.upload(worker.newest())
    assert alone.earned() == {worker.address: PRICE}


@pytest.mark.parametrize("together", [True, False])
def test_no_other_payload_than_the_revealed_one_is_accepted(alone: MarketFixture, together: bool) -> None:
    """Two answers for one replica: the first stands, and the payload was granted for the second.

    together: in one request; else the first comes by itself while the payload is under way.
    """
    (worker,) = alone.workers
    honest = worker.computed(worker.newest())
    said = build_answer(worker)
    poison = replace(honest, payload=worker.encode(poisoned(worker), honest.lease.offer.seed))
    lie = Answer(commitment=worker.commitment(poison), salt=poison.salt, root=poison.root)
    want = wants(alone, worker, honest.lease.replica, honest.lease.fence, lie)
    if not together:
        poll.handle_polls(alone.context, [worker.poll(answers=(said,))])
    with pytest.raises(Refused):
        worker.bring(want, poison.payload, answers=(said, lie) if together else (lie,), payloads=(part_of(honest),))
    assert alone.earned() == {}
    assert all(task.payload is None for task in alone.tasks())
    assert not alone.context.blobs.has(poison.root)


def poisoned(worker: SimWorker) -> dict[str, np.ndarray]:
    blob = worker.market.context.blobs.read(digest_of(worker.newest().lease.offer.parameters))
    return SIGN_FLIP.spoil(
        honest_answer(tensors.unpack_tensors(blob), worker.newest().lease.offer.seed), worker.address
    )


def test_the_signature_of_one_answer_does_not_stand_for_another(alone: MarketFixture) -> None:
    """The first of the two would be a commitment that nobody can hold against its worker."""
    (worker,) = alone.workers
    held, said = worker.computed(worker.newest()), build_answer(worker)
    forged = said.model_copy(update={"commitment": said.commitment.model_copy(update={"signature": bytes(65)})})
    want = wants(alone, worker, held.lease.replica, held.lease.fence, said)
    with pytest.raises(Refused):
        worker.bring(want, held.payload, answers=(forged, said), payloads=(part_of(held),))
    assert [replica.signature for replica in alone.replicas()] == [said.commitment.signature]
