"""Where nobody else votes, a worker brings commitment, reveal and payload in one request, and risks one gradient."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from gradmarket.client.client_errors import ServiceProblem
from gradmarket.market.job import Publication
from gradmarket.market.rules.lifecycle import is_final_state
from gradmarket.market.terms import Digest, ReplicaState
from gradmarket.market.wire.poll import PollRequest
from tests.lanes import FULL
from tests.worker.breakers import Breaker
from tests.worker.conftest import SPEC, MakeContext, published_as
from tests.worker.fake_market import FakeMarket
from worker.markets.loop import Loop
from worker.markets.worker_context import WorkerContext
from worker.protocol.in_flight import InFlightFolder

ALONE = {"name": "fixed", "replicas": 1, "max_replicas": 1}


@pytest.fixture
def publication(blobs: dict[Digest, bytes], request: pytest.FixtureRequest) -> Publication:
    return published_as(blobs, **(SPEC | {"replication": ALONE} | getattr(request, "param", {})))


def folder(context: WorkerContext) -> InFlightFolder:
    return InFlightFolder(context.settings.data / "held" / "it")


def work(context: WorkerContext, turns: int = 9, unpaid: int = 1) -> Loop:
    context.limits = replace(context.limits, unpaid=unpaid)
    loop = Loop(context, folder(context))
    vars(context.signals)["pause"] = lambda _seconds: None
    for _ in range(turns):
        with suppress(ServiceProblem):
            loop.turn(wait_s=0.0)
    return loop


def owed(context: WorkerContext, loop: Loop) -> int:
    return context.account_store.unpaid(context.signer) + loop._replica_files.handed_over()


def test_one_request_a_task_brings_all_and_the_next_lease(fake_market: FakeMarket, make_context: MakeContext) -> None:
    context = make_context(fake_market)
    loop = work(context)
    brought = [said for said in fake_market.asked if said.payloads]
    assert [(len(said.answers), len(said.payloads), len(said.commitments)) for said in brought] == [(1, 1, 0)] * 3
    assert {row.state for row in fake_market.rows.values()} == {ReplicaState.PAYABLE}
    assert (fake_market.earned, owed(context, loop)) == (21, 0)
    between = fake_market.asked[fake_market.asked.index(brought[0]) : fake_market.asked.index(brought[-1]) + 1]
    assert between == brought  # a lease came with each verdict


@pytest.mark.parametrize("publication", [{"min_tasks": 1}], indirect=True)
def test_an_answer_that_may_be_overtaken_sends_its_payload_after_a_promise(
    fake_market: FakeMarket, make_context: MakeContext
) -> None:
    context = make_context(fake_market)
    loop = work(context, turns=15)
    assert (fake_market.earned, owed(context, loop)) == (21, 0)
    assert not [said for said in fake_market.asked if said.payloads and said.answers]
    assert not [said for said in fake_market.asked if said.commitments]


def test_an_answer_and_its_sending_are_on_disk_before_any_byte_arrives(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, seen, take = make_context(fake_market), list[Any](), fake_market.take

    def look(replica: Any, data: bytes) -> Any:
        seen.extend((held.sent, held.prepared is not None) for held in folder(context).open())
        return take(replica, data)

    monkeypatch.setattr(fake_market, "take", look)
    work(context)
    assert seen == [(True, True)] * 3


@pytest.mark.parametrize("end", [ReplicaState.TOO_LATE, ReplicaState.NOT_NEEDED])
def test_a_payload_taken_with_its_commitment_and_not_paid_counts_for_good(
    fake_market: FakeMarket, make_context: MakeContext, end: ReplicaState
) -> None:
    """Nothing was promised for it."""
    market = Breaker(fake_market.job, fake_market.publication, fake_market.blobs, end=end, reply=500)
    context = make_context(market)
    loop = work(context)
    lines = context.account_store.dealings(context.signer).grievances
    assert [line.split()[0] for line in lines] == ["taken_unpaid"]
    assert (len(market.rows), market.earned, owed(context, loop)) == (1, 0, 1)
    assert "Stopped: 1 gradients are not paid" in (context.settings.data / "journal").read_text()


def test_a_response_that_was_lost_is_asked_for_again_and_nothing_is_owed(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The market takes and pays the payload, and its answer does not arrive."""
    context, answer, lost = make_context(fake_market), fake_market.answer, list[PollRequest]()

    def lose(worker: Any, said: PollRequest) -> Any:
        if said.payloads and len(lost) < 2:
            lost.append(said)
            raise OSError("gone")
        return answer(worker, said)

    monkeypatch.setattr(fake_market, "answer", lose)
    loop = work(context, turns=15)
    assert (fake_market.earned, owed(context, loop)) == (21, 0)
    assert all(is_final_state(row.state) for row in fake_market.rows.values())


@FULL
def test_a_second_payload_leaves_only_once_the_first_is_paid(
    fake_market: FakeMarket, make_context: MakeContext
) -> None:
    context = make_context(fake_market)
    context.limits = replace(context.limits, leases=2)
    work(context, turns=15)
    assert fake_market.earned == 21
    assert max(len(said.payloads) for said in fake_market.asked) == 1
