"""A token with a budget of a day posts no more than that, however it divides it; who may set and see it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from gradmarket.market.features.spending.daily_budget import DAY_S
from gradmarket.market.terms import JobState, Role
from requester.app import create_app
from requester.features.spending import limits
from requester.store import stored_times, tokens
from requester.store.tables import Job, JobEvent
from requester.tallies import collect_metrics
from tests.databases import BOTH
from tests.patience import PATIENCE_S
from tests.requester.conftest import NewFloor
from tests.requester.market_fixture import MarketFixture

JOB = {
    "name": "digits",
    "model": {"architecture": "mlp"},
    "data": {"ready": "digits"},
    "step": {"rows": 32},
    "optimizer": {"lr": 0.1},
    "rounds": 1,
    "replication": {"name": "fixed", "replicas": 1, "max_replicas": 1},
}


@dataclass
class Bank:
    market: MarketFixture
    client: TestClient

    def token(self, name: str, role: Role = Role.SUBMIT) -> dict[str, str]:
        with self.market.context.begin() as work:
            secret, _row = tokens.create_token(work, name, role, None, self.market.clock())
        return {"Authorization": f"Bearer {secret}"}

    def limit(self, who: dict[str, str], name: str, a_day: str | None) -> httpx.Response:
        return self.client.put(f"/v1/tokens/{name}/spending", json={"a_day": a_day}, headers=who)

    def spending(self, who: dict[str, str], name: str) -> dict[str, Any]:
        return dict(self.client.get(f"/v1/tokens/{name}/spending", headers=who).json())

    def post(self, who: dict[str, str], amount: int) -> httpx.Response:
        return self.client.post("/v1/jobs", json=JOB | {"price": str(amount)}, headers=who)

    def left(self, who: dict[str, str], name: str) -> int:
        return int(self.spending(who, name)["left"])


@pytest.fixture
def bank(new_floor: NewFloor) -> Bank:
    market = new_floor()
    return Bank(market, TestClient(create_app(market.context, nullcontext)))


def test_what_goes_beyond_the_budget_is_refused_in_one_sentence_until_it_is_free_again(bank: Bank) -> None:
    root, alice = bank.token("root", Role.ADMIN), bank.token("alice")
    assert bank.limit(root, "alice", "100").json() == {"token": "alice", "a_day": "100", "spent": "0", "left": "100"}
    assert bank.post(alice, 60).status_code == 201
    bank.market.clock.now += 3600
    assert bank.post(alice, 30).status_code == 201
    refused = bank.post(alice, 11)
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "budget")
    said = refused.json()["errors"][0]["detail"]
    assert "and the token alice has 0.00000000000000001 TEST left of its 0.0000000000000001 TEST a day" in said
    free = limits.format_time(bank.market.clock() - 3600 + DAY_S)
    assert said.endswith(f"so much is free again at {free}")
    assert bank.left(alice, "alice") == 10
    assert "so much is never free: lower the budget" in bank.post(alice, 101).json()["detail"]
    assert bank.post(alice, 10).status_code == 201
    assert bank.post(alice, 1).status_code == 422
    bank.market.clock.now += DAY_S - 3600
    assert bank.post(alice, 60).status_code == 201
    assert bank.post(alice, 1).status_code == 422


def test_a_budget_is_not_got_round_by_funding_or_repeating(bank: Bank) -> None:
    root, alice = bank.token("root", Role.ADMIN), bank.token("alice")
    bank.limit(root, "alice", "100")
    job = bank.post(alice | {"Idempotency-Key": "one"}, 80).json()["id"]
    assert bank.post(alice | {"Idempotency-Key": "one"}, 80).json()["id"] == job
    assert bank.left(alice, "alice") == 20, "the same request is one job"
    with bank.market.context.begin() as work:
        limits.spend(bank.market.context, work, work.get_one(Job, job), "alice", 15)
    with pytest.raises(limits.JobRefused, match="5 TEST left"), bank.market.context.begin() as work:
        limits.spend(bank.market.context, work, work.get_one(Job, job), "alice", 6)
    with bank.market.context.begin() as work:
        assert tokens.revoke_token(work, "alice", bank.market.clock())
    assert bank.post(bank.token("alice"), 6).status_code == 422, "a new token of the name has the old one's budget"
    assert bank.post(bank.token("bob"), 1000).status_code == 201, "and nobody else"


def test_what_came_back_of_a_job_that_is_over_may_be_spent_again(bank: Bank) -> None:
    root, alice = bank.token("root", Role.ADMIN), bank.token("alice")
    bank.limit(root, "alice", "100")
    job = bank.post(alice, 100).json()["id"]
    assert bank.left(alice, "alice") == 0
    with bank.market.context.begin() as work:
        row = work.get_one(Job, job)
        row.deposited = 100
        work.set_state_now(row, JobState.CANCELLED, ended_at=bank.market.clock())
    assert bank.left(alice, "alice") == 0, "until the money is back"
    with bank.market.context.begin() as work:
        work.get_one(Job, job).refunded = 70
    assert bank.left(alice, "alice") == 70


def test_an_alarm_tells_once_that_four_fifths_are_spent(bank: Bank) -> None:
    root, alice = bank.token("root", Role.ADMIN), bank.token("alice")
    bank.limit(root, "alice", "100")
    for amount in (79, 1, 20):
        assert bank.post(alice, amount).status_code == 201
    with bank.market.reading() as reader:
        (alarm,) = reader.session.scalars(select(JobEvent.body).where(JobEvent.kind == limits.ALARM))
        metrics = {family.name: family for family in collect_metrics(reader, bank.market.clock())}
    assert alarm == {"token": "alice", "spent": "80", "a_day": "100"}
    (share,) = metrics["gradmarket_spent_share"].samples
    assert (share.labels, share.value) == ({"token": "alice"}, 1.0)


def test_only_an_admin_sets_a_limit_and_each_sees_its_own(bank: Bank) -> None:
    root, alice, bob = bank.token("root", Role.ADMIN), bank.token("alice"), bank.token("bob")
    assert bank.limit(alice, "alice", None).status_code == 403
    assert "'100 EUR' is no amount" in bank.limit(root, "alice", "100 EUR").json()["detail"]
    assert bank.client.get("/v1/tokens/alice/spending", headers=bob).status_code == 403
    assert bank.client.get("/v1/tokens/alice/spending").status_code == 401
    bank.limit(root, "alice", "0.5 TEST")
    assert bank.spending(alice, "alice")["a_day"] == str(5 * 10**17)
    assert bank.limit(root, "alice", None).json()["a_day"] is None
    assert bank.post(alice, 1000).status_code == 201


@BOTH
def test_two_jobs_posted_at_once_share_one_budget(bank: Bank) -> None:
    root, alice = bank.token("root", Role.ADMIN), bank.token("alice")
    bank.limit(root, "alice", "100")
    meeting = threading.Barrier(4)

    def post(_number: int) -> int:
        meeting.wait(PATIENCE_S)
        return bank.post(alice, 60).status_code

    with ThreadPoolExecutor(4) as threads:
        answers = sorted(threads.map(post, range(4)))
    assert answers == [201, 422, 422, 422]
    assert bank.left(alice, "alice") == 40


def test_what_was_spent_before_the_clock_was_set_back_counts_for_a_day_alone(bank: Bank) -> None:
    root, alice = bank.token("root", Role.ADMIN), bank.token("alice")
    bank.limit(root, "alice", "100")
    assert bank.post(alice, 100).status_code == 201
    bank.market.clock.now -= 5 * DAY_S
    with bank.market.context.begin() as work:
        assert stored_times.bring_back(work, bank.market.clock()) > 0
    assert bank.left(alice, "alice") == 0
    bank.market.clock.now += DAY_S
    assert bank.left(alice, "alice") == 100
