"""Ledgers are made one at a time, and for strangers not all the time; requests to the chain are counted."""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from contracts import deployment as deployments
from contracts.rpc import BATCH
from gradmarket.market.terms import Address
from requester.api.paging import encode_cursor
from requester.features.ledger import statement
from requester.settings import RequesterSettings
from requester.store import earned_rows, identities
from requester.store.tables import Job
from tests.api.api_service import serving
from tests.api.test_authorisation import JOB
from tests.lanes import FULL
from tests.onchain import OpenJob

ACCOUNTS = 230


@contextmanager
def counted(ledger: Any) -> Iterator[list[str]]:
    """The HTTP requests to the node meanwhile, by their method; a batch is one."""
    provider, asked = ledger.web3.provider, list[str]()
    single, batch = provider.make_request, provider.make_batch_request

    def note(method: Any, params: Any) -> Any:
        asked.append(str(method))
        return single(method, params)

    def note_batch(requests: Any) -> Any:
        asked.append(f"batch of {len(requests)}")
        return batch(requests)

    provider.make_request, provider.make_batch_request = note, note_batch
    try:
        yield asked
    finally:
        del provider.make_request, provider.make_batch_request


def crowded(service: Any, chain_job: int) -> str:
    """Returns a job on-chain with a crowd of accounts."""
    job = service.requester.post("/v1/jobs", json=JOB).json()["id"]
    with service.context.begin() as work:
        work.get_one(Job, job).chain_job = chain_job
        for number in range(ACCOUNTS):
            address = Address(f"0x{number + 1:040x}")
            identities.sign_in(work, address, address, "", service.context.clock())
            work.flush()
            earned_rows.load_or_create_account(work, job, address)
    return str(job)


@FULL
def test_hundreds_of_accounts_are_some_batches(service: Any, open_job: OpenJob) -> None:
    opened = open_job(deposit=100)
    opened.reserve((Address(f"0x{1:040x}"), 7))
    job = crowded(service, opened.id)
    with service.context.reading() as reader:
        promised = statement.load_promises(reader, reader.get_one(Job, job))
    with counted(service.context.ledger) as asked:
        figures = statement.fetch_figures(service.context.ledger, promised)
    assert len(asked) <= 3 + math.ceil(ACCOUNTS / BATCH), asked
    assert len(figures.accounts) == ACCOUNTS
    for worker in promised.workers[:3]:
        assert figures.accounts[worker] == service.context.ledger.account(opened.id, worker)
    assert figures.accounts[promised.workers[0]].reserved == 7


@FULL
def test_the_chain_is_asked_once_for_many_strangers(anvil, deployment, tmp_path, open_job) -> None:  # type: ignore[no-untyped-def]
    deployments.write_deployment(deployment, tmp_path / "deployment.json")
    settings = RequesterSettings(
        data=tmp_path, rpc=anvil.url, unlimited=frozenset(), stranger_burst=1000, refused_s=0.0
    )
    with serving(settings) as service:
        job = crowded(service, open_job(deposit=100).id)
        with counted(service.context.ledger) as asked, ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(lambda _: service.anyone.get(f"/v1/jobs/{job}/ledger"), range(60)))
        assert {answer.status_code for answer in answers} == {200}
        ledgers = [each for each in asked if each == f"batch of {ACCOUNTS % BATCH}"]
        assert 1 <= len(ledgers) <= 3, "and not one for each of sixty"
        assert all(answer.json()["books"]["balanced"] for answer in answers)


def test_strangers_page_through_what_is_kept_and_nothing_else(anvil, deployment, tmp_path) -> None:  # type: ignore[no-untyped-def]
    deployments.write_deployment(deployment, tmp_path / "deployment.json")
    with serving(RequesterSettings(data=tmp_path, rpc=anvil.url, unlimited=frozenset(), refused_s=0.0)) as service:
        job = service.requester.post("/v1/jobs", json=JOB).json()["id"]
        place = f"/v1/jobs/{job}/ledger"
        made_up = {"cursor": encode_cursor([0, service.context.ledger.height(), 0])}
        assert service.anyone.get(place, params=made_up).status_code == 422
        assert service.requester.get(place, params=made_up).status_code == 200
