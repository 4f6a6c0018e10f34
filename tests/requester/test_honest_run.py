"""Everybody is honest: three rounds, every gradient accepted, paid and used."""

from typing import Any

import numpy as np
import pytest
from books import check_books
from market_floor import PRICE, first_parameters
from market_workers import honest_answer

from gradmarket.market.gradient.merge import Answer, merge
from gradmarket.market.model import tensors
from gradmarket.market.terms import Digest, JobState, RoundState, TaskState
from gradmarket.requester.stages.aggregate import recipe
from gradmarket.requester.store import jobs


def test_three_rounds(new_floor) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(rounds=3, tasks_per_round=2)
    workers = [floor.worker() for _ in range(6)]
    floor.play()
    assert floor.state() == JobState.FINISHED
    assert [row.state for row in floor.rounds()] == [RoundState.CLOSED] * 3
    assert [task.state for task in floor.tasks()] == [TaskState.FINAL] * 6
    assert sum(floor.earned().values()) == 6 * 3 * PRICE
    for worker in workers:
        told = 0 if worker.voucher is None else worker.voucher.cumulative
        assert told == floor.account(worker).earned == floor.earned().get(worker.address, 0)
    check_books(floor)
    before = first_parameters()
    for number, row in enumerate(floor.rounds()):
        after = tensors.unpack(floor.context.blobs.read(Digest(row.updated)))
        assert after["n"] == number + 1
        assert (after["w"] != before["w"]).all()
        before = after


@pytest.mark.parametrize("aggregator", [{"name": "trimmed_mean", "trim": 1}, {"name": "krum", "hostile": 0}])
def test_a_robust_merge_of_the_rounds_answers(new_floor, aggregator: dict[str, Any]) -> None:  # type: ignore[no-untyped-def]
    floor = new_floor(rounds=1, tasks_per_round=3, aggregator=aggregator)
    worker, *_ = [floor.worker() for _ in range(3)]
    floor.play()
    assert floor.state() == JobState.FINISHED
    job = floor.the_job()
    seeds = [bytes.fromhex(task.offer["seed"][2:]) for task in floor.tasks()]
    answers = [Answer(worker.encode(honest_answer(first_parameters(), seed), seed), seed) for seed in seeds]
    merged = merge(recipe(jobs.spec(job), job), answers[::-1])["w"]
    after = tensors.unpack(floor.context.blobs.read(Digest(floor.rounds()[0].updated)))["w"]
    rate = jobs.spec(job).optimizer.lr
    assert (after == first_parameters()["w"] - merged * np.float32(rate)).all()
