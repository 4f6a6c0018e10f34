"""A job without a microbatch gets one by the memory of workers' devices: in its publication, so in every offer."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from gradmarket.market.job import Publication
from gradmarket.market.terms import JobState
from requester.features.ready_jobs import find_common_memory, list_reported_memory
from requester.stages import publish
from requester.store.tables import Job, Worker
from tests.lanes import FULL


def draft_ready_job(market: Any, name: str, **step: Any) -> tuple[Publication, int]:
    """Publishes a ready model on digits; returns it, and the bytes that a task takes."""
    spec = market._spec(model={"architecture": "mlp"}, data={"ready": "digits"}, step={"rows": 256, **step})
    ended = {"reason": "", "unit": "1", "price": 10, "budget": 10**9, "token": "requester", "secret": bytes(32)}
    with market.context.begin() as work:
        work.add(Job(id=name, state=JobState.DRAFT, spec=spec, created_at=0.0, compute_seconds=0.0, **ended))
    publish.run(market.context, name)
    with market.context.reading() as reader:
        job = reader.get_one(Job, name)
        assert job.state == JobState.AWAITING_FUNDS, job.reason
        publication = Publication.model_validate(job.publication)
        assert (job.spec_digest, job.spec) == (publication.digest, publication.spec.model_dump(mode="json"))
        return publication, job.facts["peak_bytes"]


def put_workers(market: Any, *memories: int, accepted_at: float | None = None) -> None:
    now = market.context.clock()
    with market.context.begin() as work:
        for number, memory in enumerate(memories):
            name = f"{number}-{accepted_at}"
            whose = {"address": name, "payout": name, "operator": name, "accepted_at": accepted_at}
            work.add(Worker(**whose, memory=memory, seen_at=now, joined_at=now))


def list_memory(market: Any) -> list[int]:
    with market.context.reading() as reader:
        return sorted(list_reported_memory(reader, market.context.clock()))


@FULL
def test_the_publication_has_the_microbatch_that_half_of_the_workers_hold(new_market: Callable[..., Any]) -> None:
    market = new_market()
    whole, most = draft_ready_job(market, "00000000000000b1")
    assert whole.spec.step.microbatch is None
    put_workers(market, most - 1, 2**40, 2**20, 0)
    chosen, taken = draft_ready_job(market, "00000000000000b2")
    assert chosen.spec.step.microbatch == 128
    assert taken < most
    named, _ = draft_ready_job(market, "00000000000000b3", microbatch=256)
    assert named.spec.step.microbatch == 256


def test_newcomers_choose_nothing_beside_workers_whose_work_was_accepted(new_market: Callable[..., Any]) -> None:
    market = new_market()
    put_workers(market, 1, 2, 0)
    assert list_memory(market) == [1, 2]
    put_workers(market, 7, 0, accepted_at=1.0)
    assert list_memory(market) == [7]


@given(some.lists(some.integers(0, 9), max_size=12))
def test_half_of_the_workers_with_known_memory_have_the_common_one(told: list[int]) -> None:
    found, known = find_common_memory(told), [size for size in told if size]
    if not known:
        assert found is None
        return
    assert found is not None
    assert 2 * sum(size >= found for size in known) >= len(known)
    assert 2 * sum(size > found for size in known) < len(known)
