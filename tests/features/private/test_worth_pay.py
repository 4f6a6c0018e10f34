"""Answers paid by their worth on the requester's rows, over a floor: the payments and their records."""

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gradmarket.data.pack import Cut, Packed, pack_dataset
from gradmarket.market.terms import Digest, JobState, ReplicaState, blob_digest
from graphdoc import tensors
from graphdoc.export import export_module
from graphdoc.figures import Published
from requester.features.drift import DriftWatch
from requester.features.private import holder_rows
from requester.store import earned_rows, jobs, workers
from requester.store.tables import Task
from tests.features.private.test_private_jobs import holder, listed
from tests.kit.behaviour import HONEST, SIGN_FLIP, Behaviour, scaled
from tests.lanes import FULL
from tests.requester.books import check_books
from tests.requester.market_fixture import MarketFixture

FLOOR, CEILING = 4, 1004
WORTH = {"name": "worth", "floor": str(FLOOR), "ceiling": str(CEILING), "draws": 2}


class Scaling(nn.Module):
    """Parameters and buffers of the floor's model; its loss is least where all weights are nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, -2.0, 3.0, -4.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.w


@cache
def evaluated() -> tuple[Published, Packed]:
    x = np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32)
    rows = {"x": x, "y": np.zeros((16, 4), np.float32)}
    return export_module(Scaling(), nn.functional.mse_loss, rows), pack_dataset(rows, Cut(rows=100, held_out=0.5))


def open_worth_market(new_market: Any, count: int, document: bytes = b"", **spec: Any) -> MarketFixture:
    """Returns a private job of `count` holders that is paid by worth, its evaluation a real document over real rows."""
    made, packed = evaluated()
    document = document or made.document
    blobs = [document, packed.body, *packed.files.values()]
    market: MarketFixture = new_market(
        **{
            "data": listed(count, manifest=packed.digest),
            "evaluation": {"partition": "test", "metric": "loss"},
            "price": WORTH,
            "rounds": 3,
            "tasks_per_round": count,
            "published": {"document": blob_digest(document), "manifest": packed.digest},
        }
        | spec
    )
    for blob in blobs:
        market.context.blobs.put(blob)
    return market


@FULL
def test_an_answer_that_lowers_the_loss_is_paid_more_and_others_the_floor(new_market) -> None:  # type: ignore[no-untyped-def]
    market = open_worth_market(new_market, 4, rounds=1)
    honest = [holder(market) for _ in range(2)]
    idle, flipped = holder(market, scaled(0.0)), holder(market, SIGN_FLIP)
    market.play()
    assert market.state() == JobState.FINISHED, market.the_job().reason
    earned = market.earned()
    assert earned[idle.address] == earned[flipped.address] == FLOOR
    assert all(earned[one.address] > 25 * FLOOR for one in honest)
    assert sum(earned.values()) <= 4 * (FLOOR + CEILING) // 2
    check_books(market)
    told = market.events("paid_by_worth")
    assert [one["round"] for one in told] == [0]
    assert all(set(one["amounts"]) == {worker.address for worker in honest} for one in told)


@FULL
def test_a_worker_that_sends_the_last_update_back_is_paid_the_floor(new_market) -> None:  # type: ignore[no-untyped-def]
    """From the second round on: before there is no update to send."""
    market = open_worth_market(new_market, 3, rounds=4)

    def last_update(answer: dict[str, np.ndarray], _address: str) -> dict[str, np.ndarray]:
        done = [row for row in market.rounds() if row.updated]
        if not done:
            return answer | {"w": np.zeros(4, np.float32)}
        before, after = (market_parameters(market, digest) for digest in (done[-1].parameters, done[-1].updated))
        return answer | {"w": ((before - after) / np.float32(0.125)).astype(np.float32)}

    for _ in range(2):
        holder(market)
    copier = holder(market, Behaviour(last_update))
    market.play()
    assert market.state() == JobState.FINISHED
    assert market.earned()[copier.address] <= 4 * FLOOR + 4, "rounding leaves a few units at most"
    check_books(market)


def market_parameters(market: MarketFixture, digest: str) -> np.ndarray:
    return tensors.unpack_tensors(market.context.blobs.read(Digest(digest)))["w"]


def test_a_reservation_covers_the_ceiling_and_a_promise_names_the_floor(new_market) -> None:  # type: ignore[no-untyped-def]
    market = open_worth_market(new_market, 2)
    enough, short = (market.worker(reserved=units) for units in (CEILING, CEILING - 1))
    for one in (enough, short):
        with market.context.begin() as work:
            holder_rows.record_holder(work, market.job, one.address, None, market.clock())
    market.gather()
    assert market.replicas(enough)
    assert not market.replicas(short), "the floor alone would be covered"
    assert {task.offer.price for task in market.all(Task)} == {FLOOR}
    with market.reading() as reader:
        standing = workers.list_account_standings(reader, market.the_job())[enough.address]
        assert jobs.compute_reserve_per_gradient(market.the_job()) == CEILING
    assert standing.in_flight == CEILING


def test_nobody_is_paid_beyond_its_reservation(new_market) -> None:  # type: ignore[no-untyped-def]
    market = open_worth_market(new_market, 2, rounds=1)
    both = [holder(market) for _ in range(2)]
    market.gather()
    paid = both[0].address
    with market.context.begin() as work:
        earned_rows.load_or_create_account(work, market.job, paid).reserved = FLOOR + 1
    market.play()
    assert market.state() == JobState.FINISHED
    assert market.earned()[paid] == FLOOR + 1
    assert {one.address for one in both} == set(market.earned())
    check_books(market)


def test_an_answer_of_unmeasured_worth_is_paid_the_floor_with_an_event(new_market) -> None:  # type: ignore[no-untyped-def]
    market = open_worth_market(new_market, 2, rounds=1, document=b"no document")
    both = [holder(market) for _ in range(2)]
    market.until(lambda: market.events("worth_unmeasured"))
    assert market.earned() == {one.address: FLOOR for one in both}
    assert not market.events("paid_by_worth")


def test_a_crash_between_pay_and_close_pays_once(new_market, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    market = open_worth_market(new_market, 2, rounds=1)
    both = [holder(market) for _ in range(2)]

    def killed(*_args: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(DriftWatch, "measure", killed)
        with pytest.raises(KeyboardInterrupt):
            market.play()
    first = market.earned()
    assert all(first[one.address] > FLOOR for one in both)
    market.crash()
    market.play()
    assert market.state() == JobState.FINISHED
    assert market.earned() == first
    check_books(market)


@FULL
def test_two_runs_measure_the_same(new_market) -> None:  # type: ignore[no-untyped-def]
    told = []
    for _ in range(2):
        market = open_worth_market(new_market, 3, rounds=2)
        for behaviour in (HONEST, scaled(0.5), SIGN_FLIP):
            holder(market, behaviour)
        market.play()
        assert all(replica.state == ReplicaState.PAYABLE for replica in market.replicas())
        told.append(json.dumps(market.events("paid_by_worth"), sort_keys=True))
    assert told[0] == told[1]
