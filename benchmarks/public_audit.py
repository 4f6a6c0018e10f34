"""Tasks a second that a stranger's audit proves without recomputing."""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

from fastapi.testclient import TestClient
from pydantic import BaseModel

from benchmarks.figure import Figure
from benchmarks.size import sized
from contracts.event_types import JobOpened
from gradmarket.market.job import Publication
from gradmarket.market.terms import Address, Amount, JobState, Units
from gradmarket.market.wire.evidence import PublishedEvidence, PublishedPayment, PublishedRound, PublishedTask
from gradmarket.market.wire.log_proofs import LeafHashes, PublishedHead
from gradmarket.market.wire.poll import hash_of
from gradmarket.public_audit.job_proof import JobLog, JobRecord, prove_record
from gradmarket.public_audit.log_proof import prove_log
from requester.app import create_app
from requester.features.log.leaf_rows import append_leaves
from requester.store import jobs
from requester.store.tables import Job
from tests.databases import new_sqlite
from tests.kit.unchained import unchained
from tests.requester.market_fixture import MarketFixture

PREFIX = "audit."
ROUNDS: Final = sized(40, 2)
VOTERS: Final = 3
RUNS: Final = 5
"""Times that the record is proven, of which the fastest counts: other processes share the machine."""
Item = TypeVar("Item", bound=BaseModel)


def measure() -> Iterator[Figure]:
    with TemporaryDirectory() as folder:
        market = MarketFixture(Path(folder), unchained(), new_sqlite, rounds=ROUNDS)
        try:
            voters = [market.worker() for _ in range(VOTERS)]
            for number in range(1, ROUNDS):
                market.until(partial(_has_round, market, number), *voters)
            market.until(lambda: market.state() is JobState.FINISHED, *voters)
            record = _read_record(market)
        finally:
            market.close()
    seconds = min(_prove(record) for _ in range(RUNS))
    note = f"{len(record.tasks)} tasks of {VOTERS} voters; one thread"
    yield Figure("audit.tasks_per_s", len(record.tasks) / seconds, "tasks/s", target=">= 200", note=note)


def _has_round(market: MarketFixture, number: int) -> bool:
    return len(market.rounds()) > number


def _prove(record: JobRecord) -> float:
    began = time.perf_counter()
    results = [*prove_record(record), prove_log(record)]
    seconds = time.perf_counter() - began
    faults = [str(fault) for result in results for fault in result.faults]
    if faults:
        raise AssertionError(f"an honest job has {len(faults)} faults: {faults[0]}")
    return seconds


def _read_record(market: MarketFixture) -> JobRecord:
    """Returns the API's answers about a finished job; nothing of it is on a chain."""
    with market.context.begin() as work:
        job = work.get_one(Job, market.job)
        append_leaves(work, job)
        publication, chain_job = jobs.find_publication(job), job.chain_job or 0
    assert publication is not None
    signer = market.context.signer_address
    digest, unit = hash_of(publication.digest), Amount(1)
    opened = JobOpened(chain_job, signer, Units(0), digest, 0, 0, unit, signer, 0, "", signer, 0)
    with TestClient(create_app(market.context, nullcontext)) as api:
        tasks = _list_items(api, market.job, "tasks", PublishedTask)
        return JobRecord(
            domain=market.context.domain,
            opened=opened,
            publication=Publication.model_validate(publication.model_dump()),
            rounds=_list_items(api, market.job, "rounds", PublishedRound),
            tasks=tasks,
            evidence={
                task.id: _get(api, f"/v1/jobs/{market.job}/tasks/{task.id}", PublishedEvidence) for task in tasks
            },
            payments=_list_items(api, market.job, "payments", PublishedPayment),
            batches={},
            settled={},
            paid=dict[Address, Units](),
            state=JobState.FINISHED,
            log=_read_log(api, market.job),
        )


def _read_log(api: TestClient, job: str) -> JobLog:
    leaves = _get(api, f"/v1/jobs/{job}/log/leaves", LeafHashes).hashes
    return JobLog(leaves, _get(api, f"/v1/jobs/{job}/log", PublishedHead))


def _list_items(api: TestClient, job: str, collection: str, kind: type[Item]) -> list[Item]:
    items, cursor = list[Any](), None
    while True:
        page = api.get(f"/v1/jobs/{job}/{collection}", params={"cursor": cursor} if cursor else {}).json()
        items += page["items"]
        cursor = page["next"]
        if cursor is None:
            return [kind.model_validate(item) for item in items]


def _get(api: TestClient, path: str, kind: type[Item]) -> Item:
    return kind.model_validate(api.get(path).json())
