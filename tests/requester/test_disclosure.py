"""No answer is published that a further attempt at its task could use: all routes, all roles, at every state."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import httpx
import pytest

from contracts.ledger import Ledger
from gradmarket.market.terms import JobState, ReplicaState, TaskState, blob_digest
from gradmarket.market.wire.poll import OfferFields
from requester.app import create_app
from requester.chain import settlement_batches
from requester.chain.chain_context import ChainPolicy
from requester.store import identities
from requester.store.tables import Task
from tests.api.declared import describe_once
from tests.kit.behaviour import HONEST, scaled
from tests.lanes import FULL
from tests.requester.market_auditor import SimAuditor
from tests.requester.market_fixture import CLASS, PRICE, MarketFixture
from tests.requester.market_workers import SimWorker, key_of

NewMarket = Callable[..., MarketFixture]
AT_ONCE = ChainPolicy(settle_every_s=0.0, settle_gradients=1)
LIE = scaled(-1.0)
LOOPBACK = ("127.0.0.1", 50_000)
"""An address without limits."""
OPEN = (TaskState.OPEN, TaskState.COMMITTING, TaskState.REVEALING, TaskState.UPLOADING)


@pytest.fixture
def market_ledger(ledger: Ledger) -> Ledger:
    """A chain, which the route of a job's ledger reads."""
    return ledger


class Reader:
    """Reads every GET route as everybody, and records each honest root with the tasks open at its first sight."""

    def __init__(self, market: MarketFixture) -> None:
        self.market = market
        self.app = create_app(market.context, nullcontext)
        describe_once(self.app)
        self.computer = SimWorker(market, key_of("reader"), HONEST, CLASS)
        self.callers: list[dict[str, str]] = [{}, self._caller("admin"), self._caller("worker")]
        """The headers of each."""
        self.seen: dict[str, frozenset[str]] = {}
        """Root -> the ids of the tasks that had been judged when it was first seen."""
        self._roots: dict[str, str] = {}
        self._last: object = None

    def _caller(self, role: str) -> dict[str, str]:
        with self.market.context.begin() as work:
            address = self.computer.address
            identities.sign_in(work, address, address, None, self.market.clock())
            token = identities.issue_token(work, role, address, None, self.market.clock())
        return {"Authorization": f"Bearer {token}"}

    def root(self, task: Task) -> str:
        """The honest one, in hexadecimal; computed while the task's parameters are kept."""
        if task.id not in self._roots:
            payload = self.computer.compute(OfferFields.of(task.offer))
            self._roots[task.id] = blob_digest(payload).removeprefix("blake3:")
        return self._roots[task.id]

    def look(self) -> None:
        tasks = self.market.tasks()
        state = [(task.id, task.state, task.wave) for task in tasks], [each.state for each in self.market.replicas()]
        if state == self._last:
            return
        self._last = state
        told = b"".join([*asyncio.run(self._answers(tasks)), *self._batch()])
        for task in tasks:
            digest = self.root(task)
            if digest.encode() in told or bytes.fromhex(digest) in told:
                self.seen.setdefault(digest, frozenset(each.id for each in tasks if each.state not in OPEN))

    async def _answers(self, tasks: list[Task]) -> list[bytes]:
        transport = httpx.ASGITransport(self.app, client=LOOPBACK)
        async with httpx.AsyncClient(transport=transport, base_url=self.market.context.public_url) as client:
            return [
                await self._answer(client, place, caller) for place in self._places(tasks) for caller in self.callers
            ]

    async def _answer(self, client: httpx.AsyncClient, place: str, caller: dict[str, str]) -> bytes:
        proof = {"about": place, "old": "0", "size": "1000"}
        parameters = {"follow": "false"} if place.endswith("events") else proof if "/log/" in place else None
        parameters = {"signer": "0x" + "11" * 20} if place.endswith("/audits/hearings") else parameters
        answer = await client.get(place, params=parameters, headers=caller)
        early = 409 if place.endswith("/claims") else 404  # rounds are claimed once their job has ended
        short = 422 if place.endswith("/log/consistency") else early  # no log is as long as the requested one
        assert answer.status_code in (200, 307, 401, 403, 404, 503, short), (place, answer.text)
        return answer.content

    def _places(self, tasks: list[Task]) -> Iterator[str]:
        for path, methods in self.app.openapi()["paths"].items():
            for task in (tasks if "{task_id}" in path else [None]) if "get" in methods else ():
                place = path.replace("{job_id}", self.market.job).replace("{task_id}", task.id if task else "")
                place = (
                    place.replace("{kind}", "reveal")
                    .replace("{name}", "nobody")
                    .replace("{address}", self.computer.address)
                    .replace("{digest}", "blake3:" + "0" * 64)
                )
                numbered = {place.replace("{number}", str(number)) for number in (0, 1)}
                held = (
                    [(one.id, str(one.fence)) for one in self.market.replicas()] if "{replica}" in path else [("", "")]
                )
                yield from {
                    each.replace("{replica}", replica).replace("{fence}", fence)
                    for each in numbered
                    for replica, fence in held
                }

    def _batch(self) -> Iterator[bytes]:
        """Yields the batch that settlement would put on-chain now."""
        with self.market.reading() as reader:
            job = self.market.the_job()
            draft = settlement_batches._find_due_batch(reader, job, AT_ONCE, self.market.clock())
            yield from (row.digest for row in draft.rows) if draft is not None else ()

    def played(self, done: Callable[[], object], *workers: SimWorker) -> None:
        for _ in range(60):
            if done():
                return
            for worker in workers or self.market.workers:
                worker.turn()
                self.look()
            self.market.clock.now += 1.0
            self.market.drive()
            self.look()
        raise AssertionError("it never came")

    def copied(self) -> set[str]:
        """Returns the tasks that could still be answered when their answer was published."""
        return {
            task.id
            for task in self.market.tasks()
            if (seen := self.seen.get(self.root(task))) is not None and task.id not in seen
        }


def over(market: MarketFixture) -> Callable[[], bool]:
    return lambda: market.state() != JobState.RUNNING


def outvoted(new_market: NewMarket, **spec: Any) -> MarketFixture:
    """Returns a market with two liars that outvote an honest worker, in a job whose every task is audited."""
    market = new_market(audit={"probability": 1.0}, **spec)
    market.worker(LIE), market.worker(LIE), market.worker()
    return market


def judged(market: MarketFixture, state: TaskState) -> Callable[[], bool]:
    return lambda: market.tasks()[0].state == state


@FULL
@pytest.mark.parametrize("rounds", [1, 2])
def test_a_task_done_again_after_a_failed_audit_has_an_unpublished_answer(new_market: NewMarket, rounds: int) -> None:
    """The round is open where the task is one of two, merged and taken back where it is the only one."""
    market = outvoted(new_market, rounds=rounds, tasks_per_round=3 - rounds)
    reader = Reader(market)
    reader.played(judged(market, TaskState.ACCEPTED))
    others = [market.worker(), market.worker()]
    SimAuditor(market).work()
    assert TaskState.REVOKED in {task.state for task in market.tasks()}
    honest = market.workers[2]
    assert market.replicas(honest)[0].state == ReplicaState.PAYABLE
    assert market.earned()[honest.address] == PRICE  # vindicated
    reader.look()
    while not over(market)():
        for worker in [honest, *others]:
            worker.turn()
            reader.look()
        market.clock.now += 1.0
        SimAuditor(market).work()
        market.drive()
        reader.look()
    assert market.state() == JobState.FINISHED
    assert max(task.attempt for task in market.tasks()) == 1
    assert reader.copied() == set()
    told = {reader.root(task) for task in market.tasks() if task.state == TaskState.FINAL}
    assert told <= reader.seen.keys()  # and at the end everybody may look


@FULL
def test_a_diverged_answer_is_not_published_before_it_is_asked_for_again(new_market: NewMarket) -> None:
    market = new_market(norm_bound=1e-6)
    for _ in range(3):
        market.worker()
    reader = Reader(market)
    reader.played(over(market))
    assert market.state() == JobState.PAUSED
    market.resume()
    reader.look()
    assert [task.state for task in market.tasks()] == [TaskState.FINAL, TaskState.OPEN]
    assert reader.copied() == set()


def revealed(new_market: NewMarket) -> tuple[MarketFixture, SimWorker]:
    """Returns a market with a task whose payload is requested, and the outvoted worker."""
    market = new_market()
    market.worker(), market.worker()
    liar = market.worker(LIE)
    market.gather()
    for worker in market.workers:
        worker.computed(worker.newest())
    market.commit()
    market.reveal()
    assert market.tasks()[0].state == TaskState.UPLOADING
    assert market.replicas(liar)[0].state == ReplicaState.REJECTED
    return market, liar


def list_verdicts(worker: SimWorker) -> list[tuple[ReplicaState, str | None]]:
    worker.receive_answer()
    return [(held.told.state, held.told.root) for held in worker.held.values() if held.told is not None]


def test_an_outvoted_worker_gets_its_verdict_once_the_payload_has_come(new_market: NewMarket) -> None:
    market, liar = revealed(new_market)
    assert list_verdicts(liar) == []
    market.until(judged(market, TaskState.FINAL), *market.workers[:2])
    assert list_verdicts(liar) == [(ReplicaState.REJECTED, market.tasks()[0].root)]


def test_a_worker_outvoted_by_withholders_never_gets_the_next_attempt_s_root(new_market: NewMarket) -> None:
    market, liar = revealed(new_market)
    for _ in range(2):
        market.lapse(11)
    first, second = market.tasks()
    assert (first.state, second.attempt) == (TaskState.FAILED, 1)
    assert list_verdicts(liar) == [(ReplicaState.INCONCLUSIVE, None)]
