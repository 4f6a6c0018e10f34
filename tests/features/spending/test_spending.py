"""A token with a budget of a day posts no more than that in any division; its setters and readers."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from contracts.event_types import JobOpened
from gradmarket.market.features.spending import DAY_S
from gradmarket.market.terms import Address, Amount, Hash, JobState, Role, Units
from requester.app import create_app
from requester.chain import outcomes
from requester.chain.chain_context import TransactionKind, TransactionState
from requester.feature import features_of
from requester.features import api_tokens
from requester.features.metrics.tallies import collect_metrics
from requester.features.spending import limits
from requester.features.webhooks import webhook_rows
from requester.features.webhooks.webhook_rows import Webhook, WebhookDelivery
from requester.store import identities, stored_times
from requester.store.tables import ApiToken, Job, JobEvent, Transaction
from tests.databases import BOTH
from tests.lanes import FULL
from tests.patience import PATIENCE_S
from tests.requester.conftest import NewMarket
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
            secret, _row = api_tokens.create_token(work, name, role, None, self.market.clock())
        return {"Authorization": f"Bearer {secret}"}

    def limit(self, who: dict[str, str], name: str, a_day: str | None) -> httpx.Response:
        return self.client.put(f"/v1/tokens/{name}/spending", json={"a_day": a_day}, headers=who)

    def spending(self, who: dict[str, str], name: str) -> dict[str, Any]:
        return dict(self.client.get(f"/v1/tokens/{name}/spending", headers=who).json())

    def post(self, who: dict[str, str], amount: int) -> httpx.Response:
        return self.client.post("/v1/jobs", json=JOB | {"price": str(amount)}, headers=who)

    def left(self, who: dict[str, str], name: str) -> int:
        return int(self.spending(who, name)["left"])

    def deposit(self, posted: httpx.Response) -> httpx.Response:
        """The job's deposit is mined now."""
        market = self.market
        with market.context.begin() as work:
            job = work.get_one(Job, posted.json()["id"])
            event = JobOpened(
                job=900,
                requester=Address("0x" + "1" * 40),
                deposited=Units(job.budget),
                spec_digest=Hash("0x" + "0" * 64),
                expiry=1,
                claim_until=2,
                unit=Amount(1),
                signer=Address("0x" + "2" * 40),
                slash_window=3,
                endpoint="",
                contract=Address("0x" + "3" * 40),
                block=4,
            )
            outcomes.record_escrow_opening(work, job, event, market.clock())
            job.chain_job = None  # the chain of these tests has none
        return posted

    def send(self, job_id: str, kind: TransactionKind) -> Transaction:
        """Stores a transaction for the job, with an unknown outcome."""
        with self.market.context.begin() as work:
            row = Transaction(
                sender="0x" + "3" * 40,
                nonce=len(job_id) + len(kind),
                kind=kind,
                job_id=job_id,
                to="0x",
                data=b"",
                state=TransactionState.SENT,
                created_at=self.market.clock(),
            )
            work.add(row)
        return row

    def list_alarms(self, token: str) -> list[dict[str, Any]]:
        """Returns the alarms of the token's webhooks about its spending."""
        own = select(WebhookDelivery.body).join(Webhook, Webhook.id == WebhookDelivery.webhook_id)
        with self.market.reading() as reader:
            bodies = [json.loads(body) for body in reader.session.scalars(own.where(Webhook.token == token))]
        return [body["data"] for body in bodies if body["type"] == "spending.alarm"]


@pytest.fixture
def bank(new_market: NewMarket) -> Bank:
    market = new_market()
    return Bank(market, TestClient(create_app(market.context, nullcontext)))


def test_a_job_beyond_the_budget_is_refused_in_one_sentence_until_the_budget_is_free(bank: Bank) -> None:
    root, alice = bank.token("root", Role.ADMIN), bank.token("alice")
    assert bank.limit(root, "alice", "100").json() == {"token": "alice", "a_day": "100", "spent": "0", "left": "100"}
    assert bank.deposit(bank.post(alice, 60)).status_code == 201
    bank.market.clock.now += 3600
    assert bank.deposit(bank.post(alice, 30)).status_code == 201
    refused = bank.post(alice, 11)
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "budget")
    said = refused.json()["errors"][0]["detail"]
    assert "and the token alice has 0.00000000000000001 TEST left of its 0.0000000000000001 TEST a day" in said
    free = limits.format_time(bank.market.clock() - 3600 + DAY_S)
    assert said.endswith(f"this amount is free again at {free}")
    assert bank.left(alice, "alice") == 10
    assert "this amount is never free: lower the budget" in bank.post(alice, 101).json()["detail"]
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
        assert api_tokens.revoke_token(work, "alice", bank.market.clock())
    assert bank.post(bank.token("alice"), 6).status_code == 422, "a new token of the name has the old one's budget"
    assert bank.post(bank.token("bob"), 1000).status_code == 201, "and nobody else"


def test_the_refund_of_an_ended_job_may_be_spent_again(bank: Bank) -> None:
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


def test_a_deposit_in_flight_of_a_cancelled_job_counts_until_it_is_refunded(bank: Bank) -> None:
    """The cheating move: cancel between the sending and the mining of a deposit, and post the next job."""
    root, alice = bank.token("root", Role.ADMIN), bank.token("alice")
    bank.limit(root, "alice", "100")
    job = bank.post(alice, 100).json()["id"]
    row = bank.send(job, TransactionKind.OPEN)
    assert bank.client.post(f"/v1/jobs/{job}/cancel", headers=alice).status_code == 200
    assert (bank.left(alice, "alice"), bank.post(alice, 1).status_code) == (0, 422)
    bank.market.clock.now += DAY_S + 1
    assert (bank.left(alice, "alice"), bank.post(alice, 1).status_code) == (0, 422), "however long it takes"
    with bank.market.context.begin() as work:
        work.get_one(Transaction, row.id).state = TransactionState.REVERTED
    assert bank.left(alice, "alice") == 100


def test_a_job_that_waits_for_its_deposit_counts_until_a_day_after_it(bank: Bank) -> None:
    """The cheating move: jobs that wait for an earlier one's end are posted day by day, and all deposit at once."""
    root, alice = bank.token("root", Role.ADMIN), bank.token("alice")
    bank.limit(root, "alice", "100")
    waits = bank.post(alice, 60)
    bank.market.clock.now += 3 * DAY_S
    refused = bank.post(alice, 41)
    assert (refused.status_code, bank.left(alice, "alice")) == (422, 40)
    assert "a day after the deposits of jobs that wait for them; cancel one" in refused.json()["detail"]
    assert bank.post(alice, 40).status_code == 201
    assert bank.spending(alice, "alice")["spent"] == "100", "what waits is not forgotten either"
    bank.deposit(waits)
    bank.market.clock.now += DAY_S - 1
    assert bank.left(alice, "alice") == 0
    bank.market.clock.now += 2
    assert bank.left(alice, "alice") == 60


@FULL
def test_an_added_budget_counts_until_a_day_after_its_deposit(bank: Bank) -> None:
    """The cheating move: deposit a budget that waited for days beside a funded job, and spend the day's budget too."""
    root, alice = bank.token("root", Role.ADMIN), bank.token("alice")
    bank.limit(root, "alice", "100")
    job = bank.deposit(bank.post(alice, 10)).json()["id"]
    bank.market.clock.now += 2 * DAY_S
    assert bank.client.post(f"/v1/jobs/{job}/fund", json={"amount": "90"}, headers=alice).status_code == 200
    bank.market.clock.now += 3 * DAY_S
    with bank.market.context.begin() as work:
        row = work.get_one(Job, job)
        row.deposited = row.budget
        for feature in features_of(work):
            feature.topped_up(work, row, Units(90), bank.market.clock())
    assert bank.left(alice, "alice") == 10
    bank.market.clock.now += DAY_S + 1
    assert bank.left(alice, "alice") == 100


def test_an_alarm_reaches_the_spending_token_and_the_admin_once(bank: Bank) -> None:
    root, alice = bank.token("root", Role.ADMIN), bank.token("alice")
    bank.token("bob")
    bank.limit(root, "alice", "100")
    with bank.market.context.begin() as work:
        for row in work.session.scalars(
            identities.select_tokens().where(ApiToken.subject.in_(["root", "alice", "bob"]))
        ):
            told = f"https://{row.subject}.example/", ["spending.alarm"]
            webhook_rows.create_webhook(work, row, *told, bank.market.clock())
    jobs = []
    for amount in (79, 1, 20):
        posted = bank.post(alice, amount)
        assert posted.status_code == 201
        jobs.append(posted.json()["id"])
    (alarm,) = bank.list_alarms("alice")
    assert alarm == {
        "job": jobs[1],
        "name": "digits",
        "state": "draft",
        "token": "alice",
        "spent": "80",
        "a_day": "100",
    }
    assert (bank.list_alarms("root"), bank.list_alarms("bob")) == ([alarm], [])
    with bank.market.reading() as reader:
        events = reader.session.scalars(select(JobEvent).where(JobEvent.job_id.in_(jobs))).all()
        metrics = {family.name: family for family in collect_metrics(reader, bank.market.clock())}
    assert [event.kind for event in events if "spen" in event.kind or "token" in event.body] == []
    (share,) = metrics["gradmarket_spent_share"].samples
    assert (share.labels, share.value) == ({"token": "alice"}, 1.0)


def test_a_limit_is_of_a_token_that_there_is(bank: Bank) -> None:
    root = bank.token("root", Role.ADMIN)
    for answer in (bank.limit(root, "alcie", "1"), bank.client.get("/v1/tokens/alcie/spending", headers=root)):
        assert (answer.status_code, answer.json()["detail"]) == (
            404,
            "There is no such thing: no token alcie: gradmarket token list has them",
        )


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


@FULL
def test_spending_from_before_a_clock_step_counts_for_one_day(bank: Bank) -> None:
    root, alice = bank.token("root", Role.ADMIN), bank.token("alice")
    bank.limit(root, "alice", "100")
    assert bank.deposit(bank.post(alice, 100)).status_code == 201
    bank.market.clock.now -= 5 * DAY_S
    with bank.market.context.begin() as work:
        assert stored_times.bring_back(work, bank.market.clock()) > 0
    assert bank.left(alice, "alice") == 0
    bank.market.clock.now += DAY_S
    assert bank.left(alice, "alice") == 100
