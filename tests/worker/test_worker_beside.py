"""A worker that computes in a thread: its other replicas go on meanwhile, under the same rules."""

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from fastapi import HTTPException

from gradmarket.compute.executor import Executor
from gradmarket.market.terms import ReplicaId, ReplicaState
from gradmarket.market.wire.poll import PollRequest
from gradmarket.network import DownloadFailed
from tests.lanes import leave_to_full
from tests.patience import PATIENCE_S, wait_until
from tests.worker.fake_market import FakeMarket
from worker.markets import leasing
from worker.markets.loop import Loop
from worker.markets.worker_context import CardLanes, WorkerContext
from worker.protocol.in_flight import InFlight, InFlightFolder, seal_payload
from worker.signals import LeaveSoon

MakeContext = Callable[..., WorkerContext]


class Gate:
    """Between the worker and its executor: a step begins once the gate passes it."""

    def __init__(
        self, context: WorkerContext, monkeypatch: pytest.MonkeyPatch, free: int, executor: Executor | None = None
    ) -> None:
        executor = executor or context.executor
        self._work, self.begun = executor.work, 0
        self.passes = threading.Semaphore(free)
        monkeypatch.setattr(executor, "work", self.work)

    def work(self, *task: object) -> tuple[bytes, float]:
        self.begun += 1
        assert self.passes.acquire(timeout=PATIENCE_S)
        return self._work(*task)  # type: ignore[arg-type]


def loop_of(context: WorkerContext, leases: int = 2) -> Loop:
    more = replace(context, limits=replace(context.limits, leases=leases, unpaid=leases))
    return Loop(more, InFlightFolder(context.settings.data / "held"), beside=True)


def until(loop: Loop, done: Callable[[], object], turn: Callable[[], object] | None = None) -> None:
    wait_until(done, meanwhile=turn or loop.turn)


def states(fake_market: FakeMarket) -> list[ReplicaState]:
    return [row.state for row in fake_market.rows.values()]


@pytest.mark.parametrize("leases", [1, 2, 4])
def test_all_that_it_takes_ends_and_is_vouchered_once(
    fake_market: FakeMarket, make_context: MakeContext, leases: int
) -> None:
    context = make_context(fake_market)
    loop = loop_of(context, leases)
    until(loop, lambda: len(fake_market.rows) == 3 and all(row.heard for row in fake_market.rows.values()))
    (account,) = context.account_store.accounts
    assert (account.accepted, account.earned, account.vouchered) == (3, 21, 21)
    assert all(row.uploads == 1 for row in fake_market.rows.values())
    assert context.account_store.dealings(context.signer).grievances == ()
    assert not loop.busy


@pytest.mark.parametrize("own", leave_to_full([True, False]))
def test_a_step_s_seconds_are_sent_unless_it_used_own_rows(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    monkeypatch.setattr(leasing, "on_own_rows", lambda *_: own)
    loop = loop_of(make_context(fake_market))
    until(loop, lambda: len(fake_market.rows) == 3 and all(row.heard for row in fake_market.rows.values()))
    polls = fake_market.asked
    told = [made for said in polls for made in (*said.commitments, *(one.commitment for one in said.answers))]
    assert len({made.replica for made in told}) == 3  # one may be sent again before it is heard of
    assert all((made.compute_seconds == 0.0) == own for made in told)


def test_a_worker_reveals_and_uploads_one_answer_while_it_computes_the_next(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = make_context(fake_market)
    gate, loop = Gate(context, monkeypatch, free=1), loop_of(context)
    until(loop, lambda: states(fake_market)[:1] == [ReplicaState.PAYABLE])
    until(loop, lambda: gate.begun >= 2)
    until(loop, lambda: len(fake_market.rows) == 3)
    assert ReplicaState.COMMITTED not in states(fake_market)[1:]
    assert loop.busy
    gate.passes.release(2)
    until(loop, lambda: states(fake_market) == [ReplicaState.PAYABLE] * 3)


def test_an_answer_is_sealed_and_stored_while_the_next_is_computed(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = make_context(fake_market)
    gate, loop = Gate(context, monkeypatch, free=0), loop_of(context)
    until(loop, lambda: gate.begun == 1 and len(fake_market.rows) == 2)

    def seal_beside(*answer: Any) -> InFlight:
        wait_until(lambda: gate.begun >= 2)
        return seal_payload(*answer)

    with monkeypatch.context() as patched:
        patched.setattr(leasing, "seal_payload", seal_beside)
        gate.passes.release()
        until(loop, lambda: ReplicaState.PAYABLE in states(fake_market))
    gate.passes.release(2)
    until(loop, lambda: states(fake_market) == [ReplicaState.PAYABLE] * 3)


def test_a_failed_task_is_given_back_and_the_others_go_on(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = make_context(fake_market)
    work, failures = context.executor.work, iter([DownloadFailed("gone")])

    def sometimes(*task: object) -> tuple[bytes, float]:
        if (failure := next(failures, None)) is not None:
            raise failure
        return work(*task)  # type: ignore[arg-type]

    monkeypatch.setattr(context.executor, "work", sometimes)
    monkeypatch.setattr("worker.markets.leasing.FIRST_REST_S", 0.0)
    loop = loop_of(context)
    until(loop, lambda: states(fake_market).count(ReplicaState.PAYABLE) == 2)
    assert states(fake_market).count(ReplicaState.ERROR) == 1


def test_a_poll_that_fails_beside_a_step_raises_and_the_step_is_kept(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = make_context(fake_market)
    gate, loop = Gate(context, monkeypatch, free=0), loop_of(context, leases=1)
    until(loop, lambda: gate.begun)
    with monkeypatch.context() as broken:
        broken.setattr(context.market, "poll", _broken)
        with pytest.raises(HTTPException):
            until(loop, lambda: False)
    gate.passes.release(3)
    until(loop, lambda: states(fake_market) == [ReplicaState.PAYABLE] * 3)
    assert gate.begun == 3


def _broken(_request: object) -> None:
    raise HTTPException(500, "broken")


def with_two_cards(context: WorkerContext, leases: int = 2) -> WorkerContext:
    """A worker whose second card is one more executor before the same child."""
    executor = context.executor
    second = Executor(executor._runner, executor._fetcher, executor._limits)
    limits = replace(context.limits, leases=leases, unpaid=leases)
    return replace(context, limits=limits, more_executors=[second])


def test_each_card_computes_a_task_of_its_own_at_once(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = with_two_cards(make_context(fake_market))
    gates = [Gate(context, monkeypatch, free=0, executor=executor) for executor in context.lanes.executors]
    loop = Loop(context, InFlightFolder(context.settings.data / "held"), beside=True)
    until(loop, lambda: [gate.begun for gate in gates] == [1, 1])
    gates[1].passes.release(3)
    until(loop, lambda: states(fake_market).count(ReplicaState.PAYABLE) == 2)
    assert gates[0].begun == 1, "the first is still at its task, and the second had the others"
    gates[0].passes.release(3)
    until(loop, lambda: states(fake_market) == [ReplicaState.PAYABLE] * 3)
    (account,) = context.account_store.accounts
    assert (account.accepted, account.earned, account.vouchered) == (3, 21, 21)


def test_between_polls_the_cards_compute_at_once_too(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = with_two_cards(make_context(fake_market))
    both = threading.Barrier(2)
    for executor in context.lanes.executors:
        monkeypatch.setattr(executor, "work", meeting(both, executor.work))
    fake_market.most = 2
    loop = Loop(context, InFlightFolder(context.settings.data / "held"))
    until(loop, lambda: len(loop._replica_files.open()) == 2, lambda: loop._poll_and_apply(False, 0.0, None))
    until(loop, lambda: states(fake_market) == [ReplicaState.PAYABLE] * 2)


def meeting(both: threading.Barrier, work: Callable[..., tuple[bytes, float]]) -> Callable[..., tuple[bytes, float]]:
    def wait_and_work(*task: object) -> tuple[bytes, float]:
        both.wait(PATIENCE_S)
        return work(*task)

    return wait_and_work


def test_a_lease_that_is_computed_frees_its_lane() -> None:
    lanes = CardLanes([object(), object()])  # type: ignore[list-item]
    first, second, third = (ReplicaId(name) for name in "abc")
    assert [lanes.choose(one) for one in (first, second, first)] == [0, 1, 0]
    lanes.retain({first})
    assert [lanes.choose(one) for one in (third, first)] == [1, 0]


def test_a_leaving_worker_polls_at_once_and_gives_back_uncomputed_tasks(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = make_context(fake_market)
    gate, loop = Gate(context, monkeypatch, free=0), loop_of(context)
    until(loop, lambda: gate.begun and len(fake_market.rows) == 2)
    context.signals.leave()
    loop.turn(leaving=True)
    assert fake_market.left
    loop.leave_now()
    assert set(states(fake_market)) == {ReplicaState.ABANDONED}
    gate.passes.release(3)


def test_an_answer_that_is_not_wanted_any_more_is_dropped(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = make_context(fake_market)
    gate, loop = Gate(context, monkeypatch, free=0), loop_of(context)
    until(loop, lambda: gate.begun)
    lost = next(iter(fake_market.rows))
    row = fake_market.rows.pop(lost)
    gone = replace(row, id=ReplicaId("gone"), state=ReplicaState.ABANDONED, heard=True)
    fake_market.rows[gone.id] = gone  # so that no other one gets its number
    until(loop, lambda: lost not in loop._replica_files.held)
    gate.passes.release(5)
    until(loop, lambda: states(fake_market).count(ReplicaState.PAYABLE) == 2)
    assert lost not in fake_market.rows


def test_a_worker_with_nothing_in_flight_leaves_a_waiting_poll(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = make_context(fake_market)
    monkeypatch.setattr(fake_market, "most", 1)
    gate, loop = Gate(context, monkeypatch, free=0), loop_of(context)
    until(loop, lambda: gate.begun)
    context.signals.leave()
    gate.passes.release()
    until(loop, lambda: not loop.busy, partial(loop.turn, leaving=True))
    with pytest.raises(LeaveSoon):
        until(loop, lambda: False)


def test_a_short_step_needs_no_poll_beside_it_and_a_long_one_has_one(
    fake_market: FakeMarket, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.markets.loop.SHORT_STEP_S", 600.0)
    context = make_context(fake_market)
    loop = loop_of(context, leases=1)
    until(loop, lambda: states(fake_market) == [ReplicaState.PAYABLE] * 3)
    assert not [said for said in fake_market.asked if not said.capacity and not said.vouchers_for and silent(said)]
    monkeypatch.setattr("worker.markets.loop.SHORT_STEP_S", 0.0)
    fake_market.most += 1
    gate = Gate(context, monkeypatch, free=0)
    until(loop, lambda: gate.begun)
    asked = len(fake_market.asked)
    loop._poll_and_apply(leaving=False, wait_s=0.0, room=None)
    assert [silent(said) for said in fake_market.asked[asked:]] == [True]
    gate.passes.release()


def silent(said: PollRequest) -> bool:
    """Returns whether the request has no message about an open replica."""
    return not (said.commitments or said.reveals or said.answers or said.payloads or said.given_up)
