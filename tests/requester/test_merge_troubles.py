"""A merge that fails says so on the job; what two jobs have in common is dropped for neither."""

from functools import partial
from typing import Any

import pytest
from market_floor import Floor
from sqlalchemy.exc import OperationalError

from gradmarket.market.terms import Digest, JobState, RoundState
from gradmarket.requester.engine import run_once
from gradmarket.requester.stages import aggregate, forget

ALONE = {"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}}


def accepted(new_floor: Any) -> Floor:
    """A round whose only task is accepted, and not merged yet."""
    floor: Floor = new_floor(**ALONE)
    floor.stages = tuple(stage for stage in floor.stages if stage is not aggregate)
    floor.worker()
    floor.until(lambda: floor.task().payload)
    return floor


def test_a_merge_that_fails_says_why_on_the_job_until_it_succeeds(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = accepted(new_floor)
    blobs, lost = floor.context.blobs, Digest(floor.task().payload)
    data = blobs.read(lost)
    blobs.drop(lost)
    for _ in range(2):
        assert run_once(floor.context, aggregate, floor.job) == floor.settings.sweep_s
    assert floor.state() == JobState.RUNNING
    assert "cannot be merged" in floor.why_waiting()
    assert lost in floor.why_waiting()
    assert len(floor.events("merge_failed")) == 1, "told once"
    blobs.put(data)
    assert run_once(floor.context, aggregate, floor.job) is None
    assert floor.the_job().reason == ""
    assert floor.rounds()[0].state == RoundState.CLOSED


def test_a_payload_dropped_since_it_was_kept_is_kept_again(new_floor) -> None:  # type: ignore[no-untyped-def]
    """Another job's equal payload is forgotten between the keeping of this one and the row that names it."""
    floor: Floor = new_floor(**ALONE)
    blobs = floor.context.blobs
    with blobs.receive() as incoming:
        incoming.write(b"equal content")
        digest = blobs.keep(incoming)
        forget.payload(floor.context, digest)
        assert not blobs.has(digest)
        with floor.context.begin() as session:
            forget.keep_still(floor.context, session, {digest: partial(blobs.keep, incoming)})
    assert blobs.read(digest) == b"equal content"


def test_a_payload_that_a_task_names_is_not_dropped(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = accepted(new_floor)
    digest = Digest(floor.task().payload)
    forget.payload(floor.context, digest)
    assert floor.context.blobs.has(digest)


@pytest.mark.parametrize("new_database", ["postgresql"], indirect=True)
def test_nobody_names_a_blob_while_it_is_dropped(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor: Floor = new_floor(**ALONE)
    digest = floor.context.blobs.put(b"content")
    other = floor.another()

    def names_it() -> None:
        with other.begin() as session:
            session.connection().exec_driver_sql("SET LOCAL lock_timeout = '100ms'")
            forget.keep_still(other, session, {digest: partial(other.blobs.put, b"content")})

    def needed(_session: Any) -> bool:
        with pytest.raises(OperationalError, match="lock timeout"):
            names_it()
        return False

    forget.drop(floor.context, digest, needed)
    assert not floor.context.blobs.has(digest)
    names_it()
    assert floor.context.blobs.has(digest)
