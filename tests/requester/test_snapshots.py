"""Blobs that an audit may still need are kept; unneeded ones are collected."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gradmarket.market.terms import Digest, JobState, RoundState
from requester.blobs.disk import DiskBlobs
from requester.engine import run_once
from requester.features.audits import audit_draws, rollback
from requester.moves import blob_cleanup, replay, snapshots
from requester.moves.ending import end_job
from requester.stages import aggregate, collect
from requester.store import unneeded
from requester.store.tables import Job, JobBlob, Task, UnneededBlob
from tests.kit.behaviour import scaled
from tests.lanes import FULL
from tests.requester.market_auditor import SimAuditor
from tests.requester.market_fixture import STAGES, MarketFixture

NewMarket = Callable[..., MarketFixture]
ALONE = {"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}}
AUDITED = {"audit": {"probability": 1e-9, "on_failure": "replay"}}


def stored(market: MarketFixture) -> list[int]:
    """Rounds whose optimizer state is stored."""
    return [row.number for row in market.rounds() if row.optimizer_state]


def order_audit(market: MarketFixture, number: int) -> None:
    (task,) = market.tasks(Task.round == number)
    with market.context.begin() as work:
        audit_draws.create_audit(work, task, 1.0, audit_draws.DRAWN, market.clock())


def cancel(market: MarketFixture) -> None:
    with market.context.begin() as work:
        end_job(market.context, work, work.get_one(Job, market.job), JobState.CANCELLED, "enough")


@pytest.fixture
def lied_to(new_market: NewMarket) -> MarketFixture:
    """Rounds 0 to 2 are merged from colluders' answers and round 3 is open; nothing follows from that yet."""
    market = new_market(rounds=5, **AUDITED)
    market.worker(scaled(3.0)), market.worker(scaled(3.0)), market.worker()
    market.until(lambda: len(market.rounds()) == 3)
    market.stages = tuple(stage for stage in STAGES if stage not in (rollback, collect))
    market.until(lambda: len(market.rounds()) == 4)
    return market


@FULL
def test_a_state_is_kept_while_an_audit_may_still_be_ordered_of_the_round_after_it(lied_to: MarketFixture) -> None:
    """A failed audit orders one of every accepted task of the liar, and that of the oldest round takes it back."""
    snapshots.collect_replay_blobs(lied_to.context, lied_to.job)
    order_audit(lied_to, 2)
    SimAuditor(lied_to).work()
    assert lied_to.the_job().rewind_to == 1
    lied_to.stages = STAGES
    for _ in range(3):
        lied_to.worker()
    SimAuditor(lied_to).play()
    assert (lied_to.state(), lied_to.events("merge_failed")) == (JobState.FINISHED, [])


def test_an_ended_job_is_collected_once_its_audits_are_over(lied_to: MarketFixture) -> None:
    order_audit(lied_to, 2)
    cancel(lied_to)
    snapshots.collect_replay_blobs(lied_to.context, lied_to.job)
    assert stored(lied_to)
    lied_to.stages = STAGES
    SimAuditor(lied_to).work()
    assert (stored(lied_to), lied_to.the_job().replay_from) == ([], None)


class Killed(BaseException):
    """The process ends here."""


class Mortal(DiskBlobs):
    """Its process is killed when it is about to drop a blob."""

    def drop(self, digest: Digest) -> None:
        raise Killed(digest)


def blobs_of(market: MarketFixture) -> set[str]:
    return {f"blake3:{path.name}" for path in (market.folder / "blobs").glob("??/*")}


@pytest.mark.parametrize("ends", [False, True])
def test_blobs_released_by_a_killed_process_are_deleted_later(new_market: NewMarket, ends: bool) -> None:
    """Killed after the commit that releases blobs, and before they are deleted."""
    market = new_market(rounds=9, optimizer={"name": "adamw", "lr": 0.125}, **ALONE)
    market.worker()
    market.until(lambda: len(market.rounds()) == 2)
    if ends:
        cancel(market)
    market.stages = tuple(stage for stage in STAGES if stage not in (rollback, collect))
    context, market.context = market.context, replace(market.context, blobs=Mortal(market.folder / "blobs"))
    with pytest.raises(Killed):
        run_once(market.context, collect, market.job) if ends else market.until(lambda: len(market.rounds()) == 3)
    market.context = context
    left = {row.digest for row in market.all(UnneededBlob)}
    assert left & blobs_of(market), "let go, and still there"
    market.stages = STAGES
    market.lapse(collect.LEFT_S + 1)
    market.drive()
    assert market.all(UnneededBlob) == []
    named = {row.digest for row in market.all(JobBlob)}
    kept = {digest for row in market.rounds() for digest in (row.parameters, row.updated, row.optimizer_state)}
    payloads = {task.payload for task in market.tasks()}
    assert blobs_of(market) <= named | kept | payloads | {None}
    assert not left & blobs_of(market) - kept - named


@pytest.mark.parametrize("kind", [blob_cleanup.SNAPSHOT, blob_cleanup.PARAMETERS])
def test_a_released_blob_that_another_job_names_is_not_deleted(new_market: NewMarket, kind: str) -> None:
    market = new_market(**ALONE)
    named, other = (market.context.blobs.put(content) for content in (b"of two jobs", b"of one job"))
    with market.context.begin() as work:
        unneeded.release_blobs(work, market.job, kind, [named, other], market.clock())
        work.add(JobBlob(digest=named, job_id=market.job, part="spec.parameters"))
    blob_cleanup.drop_unneeded(market.context, market.job)
    assert [market.context.blobs.has(digest) for digest in (named, other)] == [True, False]
    assert market.all(UnneededBlob) == []


@pytest.mark.parametrize("rounds", [1, 9])
def test_a_job_that_ends_while_a_round_is_merged_is_collected_after_it(
    new_market: NewMarket, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    """Its snapshot would be due at once, or later."""
    market = new_market(rounds=5, settings={"snapshot_rounds": rounds, "snapshot_s": 1e9}, **ALONE)
    monkeypatch.setattr(snapshots, "SMALL", 0)

    def store(*arguments: Any) -> Any:
        if market.state() == JobState.RUNNING:
            cancel(market)
            assert run_once(market.context, collect, market.job) is None
        return replay.store_image_beside(*arguments)

    market.worker()
    merging = SimpleNamespace(**vars(replay) | {"store_image_beside": store})
    monkeypatch.setattr(aggregate, "replay", merging)
    market.until(lambda: market.rounds()[0].state == RoundState.CLOSED)
    market.drive()
    payload = Digest(market.task().payload)
    assert (stored(market), market.the_job().replay_from) == ([], None)
    assert not market.context.blobs.has(payload)
