"""A failing merge is the job's reason; a blob of two jobs is deleted for neither."""

import errno
import os
from functools import partial
from threading import Event
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from gradmarket.market.terms import Digest, JobState, RoundState
from requester.engine import run_once
from requester.moves import blob_cleanup, next_round
from requester.stages import aggregate
from tests.databases import BOTH
from tests.lanes import FULL
from tests.patience import PATIENCE_S
from tests.requester.market_fixture import MarketFixture

ALONE = {"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}}


def accepted(new_market: Any, **settings: Any) -> MarketFixture:
    """A round whose only task is accepted, and not merged yet."""
    market: MarketFixture = new_market(settings=settings, **ALONE)
    market.stages = tuple(stage for stage in market.stages if stage is not aggregate)
    market.worker()
    market.until(lambda: market.task().payload)
    return market


def test_a_failing_merge_is_the_job_s_reason_until_it_succeeds(new_market) -> None:  # type: ignore[no-untyped-def]
    market = accepted(new_market)
    blobs, lost = market.context.blobs, Digest(market.task().payload)
    data = blobs.read(lost)
    blobs.drop(lost)
    for _ in range(2):
        assert run_once(market.context, aggregate, market.job) == market.settings.sweep_s
    assert market.state() == JobState.RUNNING
    assert "cannot be merged" in market.why_waiting()
    assert lost in market.why_waiting()
    assert len(market.events("merge_failed")) == 1, "told once"
    blobs.put(data)
    assert run_once(market.context, aggregate, market.job) is None
    assert market.the_job().reason == "all rounds are done"
    assert market.rounds()[0].state == RoundState.CLOSED


def test_parameters_reach_the_disk_while_their_round_is_closed_and_before_its_commit(new_market, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    market = accepted(new_market)
    order, closing = list[str](), Event()
    going_on, store, locked = (
        next_round.continue_job,
        market.context.blobs.store_blob,
        blob_cleanup.lock_and_restore_blobs,
    )

    def go_on(*arguments: Any) -> None:
        going_on(*arguments)
        order.append("closing")
        closing.set()

    def store_late(*arguments: Any) -> Digest:
        assert closing.wait(PATIENCE_S)
        order.append("stored")
        return store(*arguments)

    def lock(*arguments: Any) -> None:
        order.append("named")
        locked(*arguments)

    monkeypatch.setattr(next_round, "continue_job", go_on)
    monkeypatch.setattr(market.context.blobs, "store_blob", store_late)
    monkeypatch.setattr(blob_cleanup, "lock_and_restore_blobs", lock)
    assert run_once(market.context, aggregate, market.job) is None
    assert order[:3] == ["closing", "stored", "named"]
    assert market.rounds()[0].state == RoundState.CLOSED


@FULL
def test_a_full_disk_is_the_job_s_reason_and_the_round_is_merged_once_there_is_room(new_market, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """A state larger than the memory is worked on in files, whose bytes are reserved before any is written."""
    market = accepted(new_market, merge_memory=0)

    def no_room(_file: int, _start: int, _length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "posix_fallocate", no_room)
        assert run_once(market.context, aggregate, market.job) == market.settings.sweep_s
    assert "is full: make room on it" in market.why_waiting()
    assert run_once(market.context, aggregate, market.job) is None
    assert (market.the_job().reason, market.rounds()[0].state) == ("all rounds are done", RoundState.CLOSED)


@BOTH
def test_a_payload_dropped_since_it_was_kept_is_kept_again(new_market) -> None:  # type: ignore[no-untyped-def]
    """Another job's equal payload is forgotten between the keeping of this one and the row that names it."""
    market: MarketFixture = new_market(**ALONE)
    blobs = market.context.blobs
    with blobs.receive() as incoming:
        incoming.write(b"equal content")
        digest = blobs.store_blob(incoming)
        blob_cleanup.drop_payload_if_unneeded(market.context, digest)
        assert not blobs.has(digest)
        with market.context.begin() as work:
            blob_cleanup.lock_and_restore_blobs(market.context, work, {digest: partial(blobs.store_blob, incoming)})
    assert blobs.read(digest) == b"equal content"


@BOTH
def test_a_payload_that_a_task_names_is_not_dropped(new_market) -> None:  # type: ignore[no-untyped-def]
    market = accepted(new_market)
    digest = Digest(market.task().payload)
    blob_cleanup.drop_payload_if_unneeded(market.context, digest)
    assert market.context.blobs.has(digest)


@pytest.mark.databases("postgresql")
def test_nobody_names_a_blob_while_it_is_dropped(new_market) -> None:  # type: ignore[no-untyped-def]
    market: MarketFixture = new_market(**ALONE)
    digest = market.context.blobs.put(b"content")
    other = market.another()

    def names_it() -> None:
        with other.begin() as work:
            work.connection().exec_driver_sql("SET LOCAL lock_timeout = '100ms'")
            blob_cleanup.lock_and_restore_blobs(other, work, {digest: partial(other.blobs.put, b"content")})

    def needed(_session: Any) -> bool:
        with pytest.raises(OperationalError, match="lock timeout"):
            names_it()
        return False

    blob_cleanup.drop_blob_if_unneeded(market.context, digest, needed)
    assert not market.context.blobs.has(digest)
    names_it()
    assert market.context.blobs.has(digest)
