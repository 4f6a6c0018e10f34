"""Everybody is honest: three rounds, every gradient accepted, paid and used."""

from typing import Any

import numpy as np
import pytest

from gradmarket.market.gradient.round_merge import MergedAnswer
from gradmarket.market.terms import Digest, JobState, RoundState, TaskState
from graphdoc import tensors
from requester.moves.replay import build_recipe
from requester.store import jobs
from tests.databases import BOTH
from tests.kit.whole_merge import merge_answers
from tests.lanes import leave_to_full
from tests.requester.books import check_books
from tests.requester.market_fixture import PRICE, first_parameters
from tests.requester.market_workers import honest_answer


@BOTH
def test_three_rounds(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=3, tasks_per_round=2)
    workers = [market.worker() for _ in range(6)]
    market.play()
    assert market.state() == JobState.FINISHED
    assert [row.state for row in market.rounds()] == [RoundState.CLOSED] * 3
    assert [task.state for task in market.tasks()] == [TaskState.FINAL] * 6
    assert sum(market.earned().values()) == 6 * 3 * PRICE
    for worker in workers:
        told = 0 if worker.voucher is None else worker.voucher.cumulative
        assert told == market.account(worker).earned == market.earned().get(worker.address, 0)
    check_books(market)
    before = first_parameters()
    for number, row in enumerate(market.rounds()):
        after = tensors.unpack_tensors(market.context.blobs.read(Digest(row.updated)))
        assert after["n"] == number + 1
        assert (after["w"] != before["w"]).all()
        before = after


@pytest.mark.parametrize(
    "aggregator", leave_to_full([{"name": "trimmed_mean", "trim": 1}, {"name": "krum", "hostile": 0}])
)
def test_a_robust_merge_of_the_rounds_answers(new_market, aggregator: dict[str, Any]) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=1, tasks_per_round=3, aggregator=aggregator)
    worker, *_ = [market.worker() for _ in range(3)]
    market.play()
    assert market.state() == JobState.FINISHED
    job = market.the_job()
    seeds = [task.offer.seed for task in market.tasks()]
    answers = [MergedAnswer(worker.encode(honest_answer(first_parameters(), seed), seed), seed) for seed in seeds]
    merged = merge_answers(build_recipe(jobs.load_spec(job), job), answers[::-1])["w"]
    after = tensors.unpack_tensors(market.context.blobs.read(Digest(market.rounds()[0].updated)))["w"]
    rate = jobs.load_spec(job).optimizer.lr
    assert (after == first_parameters()["w"] - merged * np.float32(rate)).all()
