"""More money for a job: refusals by field, and the calls for an owner's key elsewhere to sign."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contracts import calls
from contracts import deployment as deployments
from contracts.deployment import Deployment
from contracts.ledger import Ledger
from contracts.local import LocalChain, fund_gas
from contracts.transactions import execute_call, require_receipt
from gradmarket.market.rules.payment import MAX_UNITS
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Amount, JobState
from requester.settings import RequesterSettings
from requester.store.tables import Job
from tests.api.api_service import Service, serving
from tests.onchain import NewKey

UNIT = 10**9
JOB = {
    "name": "digits",
    "model": {"architecture": "mlp"},
    "data": {"ready": "digits"},
    "step": {"rows": 32},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "rounds": 1,
    "replication": {"name": "fixed"},
    "price": str(UNIT),
}


def test_a_budget_that_the_books_cannot_hold_is_refused_by_name(
    service: Service, posted: Callable[..., dict[str, str]]
) -> None:
    job = posted()
    answer = service.requester.post(f"/v1/jobs/{job['id']}/fund", json={"amount": str(MAX_UNITS * UNIT)})
    assert answer.status_code == 422, answer.text
    assert [each["field"] for each in answer.json()["errors"]] == ["amount"]
    assert service.anyone.get(f"/v1/jobs/{job['id']}").json()["costs"] == job["costs"]


def test_an_ended_job_takes_no_money(service: Service, posted: Callable[..., dict[str, str]]) -> None:
    job = posted()
    assert service.requester.post(f"/v1/jobs/{job['id']}/cancel").status_code == 200
    refused = service.requester.post(f"/v1/jobs/{job['id']}/fund", json={"amount": "1 GRAD"})
    assert (refused.status_code, refused.json()["type"].split("#")[1], refused.json()["remedy"]) == (
        409,
        "wrong_state",
        "post it again",
    )


def test_amounts_are_posted_as_people_write_them(service: Service, posted: Callable[..., dict[str, str]]) -> None:
    job = posted(price="0.5 GRAD", budget="1e20 units")
    assert (job["costs"]["price"], job["costs"]["budget"]) == (str(5 * 10**17), str(10**20))  # type: ignore[index]
    funded = service.requester.post(f"/v1/jobs/{job['id']}/fund", json={"amount": "2 GRAD"}).json()
    assert funded["costs"]["budget"] == str(10**20 + 2 * 10**18)


@pytest.mark.parametrize("deep", [600, 900])
def test_an_amount_that_is_nested_without_end_is_refused(service: Service, deep: int) -> None:
    """And is no error of the service."""
    body = json.dumps(JOB | {"price": "@"}).replace('"@"', "[" * deep + "1" + "]" * deep)
    answer = service.requester.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422), answer.text


@pytest.mark.parametrize("written", ["0.5 DARG", "-1 GRAD", "GRAD", "1e99 GRAD", "0.5", "²", "1" * 200])
def test_a_malformed_amount_is_refused_by_its_field(
    service: Service, posted: Callable[..., dict[str, str]], written: str
) -> None:
    job = posted()
    funded = service.requester.post(f"/v1/jobs/{job['id']}/fund", json={"amount": written})
    assert (funded.status_code, [each["field"] for each in funded.json()["errors"]]) == (422, ["amount"])
    again = service.requester.post("/v1/jobs", json=JOB | {"price": written})
    assert again.status_code == 422
    assert "price" in again.text or "is no amount" in again.text


@pytest.fixture
def elsewhere(
    anvil: LocalChain, deployment: Deployment, new_key: NewKey, tmp_path: Path
) -> Iterator[tuple[Service, Callable[[calls.Call], None]]]:
    """A service that does not own its jobs' money, and its owner's signing."""
    key = new_key()
    deployments.write_deployment(deployment, tmp_path / "deployment.json")
    with serving(RequesterSettings(data=tmp_path, rpc=anvil.url, owner=address_of(key))) as service:
        web3 = service.context.ledger.web3
        fund_gas(web3, address_of(key), 10**18)
        yield service, lambda call: require_receipt(execute_call(web3, key, call)) and None


def test_a_repeated_request_lists_the_calls_still_to_sign(
    elsewhere: tuple[Service, Callable[[calls.Call], None]],
) -> None:
    service, sign = elsewhere
    job = service.requester.post("/v1/jobs", json=JOB).json()
    with service.context.begin() as work:
        row = work.get_one(Job, job["id"])
        blobs = dict.fromkeys(("document", "evaluation", "parameters", "manifest"), "blake3:" + "0" * 64)
        row.state, row.spec_digest = JobState.AWAITING_FUNDS, "blake3:" + "1" * 64
        row.publication = {"job": row.id, "spec": row.spec, **blobs}
        row.facts = {"flops": 1, "peak_bytes": 1}

    def fund() -> dict:  # type: ignore[type-arg]
        door = f"/v1/jobs/{job['id']}/fund"
        answer = service.requester.post(door, json={"amount": str(UNIT)}, headers={"Idempotency-Key": "once"})
        assert answer.status_code == 200, answer.text
        return answer.json()  # type: ignore[no-any-return]

    first = fund()
    assert [each["purpose"] for each in first["to_sign"]] == ["approve", "openJob"]
    ledger: Ledger = service.context.ledger
    place, budget = ledger.deployment, int(job["costs"]["budget"]) + UNIT
    sign(calls.approve(place.token, place.contract, Amount(budget)))
    second = fund()
    assert [each["purpose"] for each in second["to_sign"]] == ["openJob"]
    assert int(first["costs"]["budget"]) == int(second["costs"]["budget"]) == budget
