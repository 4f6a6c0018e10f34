"""An evaluation that cannot be done here is refused before the job's money moves, or pauses the job; nothing waits."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradmarket.data.pack import Cut, pack_dataset
from gradmarket.market.job import Publication
from gradmarket.market.release import PROTOCOL
from gradmarket.market.terms import JobState, RoundState
from graphdoc import tensors
from requester.engine import run_once
from requester.stages import aggregate, publish
from requester.store.schema import check_unfinished
from requester.store.tables import Job
from tests.handmade import Raw, encoded, linear, node, value, with_nodes

ALONE = {"replication": {"name": "fixed", "replicas": 1, "max_replicas": 1}}
NEW = "00000000000000cc"


def large(width: int, times: int) -> Raw:
    """Linear regression after products of square matrices."""
    square = node("creation.full", [[width, width], 0.5, "float32"], 3)
    chain = [node("matmul.default", [value(3 + number), value(3)], 4 + number) for number in range(times)]
    return with_nodes(square, *chain)


def drafted(market: Any, evaluation: Raw) -> None:
    """A job of a linear regression whose eight rows are half held out."""
    blobs = market.context.blobs
    packed = pack_dataset(
        {"x": np.ones((8, 3), np.float32), "y": np.ones((8, 1), np.float32)}, Cut(rows=4, held_out=0.5)
    )
    for data in (*packed.files.values(), packed.body):
        blobs.put(data)
    model = {
        "document": blobs.put(encoded(linear())),
        "evaluation": blobs.put(encoded(evaluation)),
        "parameters": blobs.put(tensors.pack_tensors({"w": np.ones((1, 3), "f4")})),
    }
    data = {"manifest": packed.digest}
    spec = market._spec(model=model, data=data, step={"rows": 4}, evaluation={"partition": "test"})
    ended = {"reason": "", "unit": "1", "price": 10, "budget": 10**9, "token": "requester", "secret": bytes(32)}
    with market.context.begin() as work:
        work.add(Job(id=NEW, state=JobState.DRAFT, spec=spec, created_at=0.0, compute_seconds=0.0, **ended))


@pytest.mark.parametrize(
    ("evaluation", "why"),
    [(large(2**16, 1), "bytes"), (large(20_000, 2), "bytes"), (large(8_000, 100), "operations are too many")],
)
def test_an_evaluation_of_gigabytes_or_minutes_is_refused_before_any_money(
    new_market: Callable[..., Any], evaluation: Raw, why: str
) -> None:
    market = new_market()
    drafted(market, evaluation)
    publish.run(market.context, NEW)
    (job,) = market.all(Job, Job.id == NEW)
    assert job.state == JobState.FAILED
    assert why in job.reason


def test_an_honest_evaluation_is_published(new_market: Callable[..., Any]) -> None:
    market = new_market()
    drafted(market, linear())
    publish.run(market.context, NEW)
    assert market.all(Job, Job.id == NEW)[0].state == JobState.AWAITING_FUNDS


def test_a_draft_of_another_release_is_published_under_the_rules_of_this_one(new_market: Callable[..., Any]) -> None:
    market = new_market()
    drafted(market, linear())
    with market.context.begin() as work:
        work.get_one(Job, NEW).protocol = 0
    publish.run(market.context, NEW)
    (job,) = market.all(Job, Job.id == NEW)
    assert (job.state, job.protocol) == (JobState.AWAITING_FUNDS, PROTOCOL)
    check_unfinished(market.context.sessions.kw["bind"])


def test_a_round_that_cannot_be_evaluated_closes_and_its_job_pauses(new_market: Callable[..., Any]) -> None:
    """The evaluation reads other parameters: nobody's gradient is lost, and no sweep tries for ever."""
    market = new_market(**ALONE, evaluation={"partition": "test"})
    market.stages = tuple(stage for stage in market.stages if stage is not aggregate)
    drafted(market, linear())
    publish.run(market.context, NEW)
    market.worker()
    market.until(lambda: market.task().payload)
    with market.context.begin() as work:
        model = {name: work.get_one(Job, NEW).publication[name] for name in ("evaluation", "manifest")}
        job = work.get_one(Job, market.job)
        job.publication = {**job.publication, **model}
        job.spec_digest = Publication.model_validate(job.publication).digest
    assert run_once(market.context, aggregate, market.job) is None
    assert market.rounds()[0].state == RoundState.CLOSED
    assert market.state() == JobState.PAUSED
    assert "round 0 cannot be evaluated: " in market.the_job().reason
    assert "w is float32[4], not float32[1, 3]" in market.the_job().reason
