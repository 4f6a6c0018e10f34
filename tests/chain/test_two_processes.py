"""Processes that share a PostgreSQL all want to do the chain work: one at a time does it, and it is done once."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from contracts.ledger import Ledger
from requester.chain.chain_worker import ChainWorker, renew_leader_lease
from requester.store.tables import Batch, Transaction
from tests.chain.chain_differences import list_chain_differences
from tests.chain.chain_fixture import ChainFixture, busy, check
from tests.databases import Postgres
from tests.lanes import FULL
from tests.onchain import NewKey
from tests.patience import PATIENCE_S


@pytest.fixture
def chain_fixture(postgres: Postgres, tmp_path: Path, ledger: Ledger, new_key: NewKey) -> Iterator[ChainFixture]:
    made: list[str] = []

    def database(_folder: Path) -> str:
        made.append(postgres.new())
        return made[-1]

    shared = ChainFixture(tmp_path, ledger, new_key, database=database)
    yield shared
    shared.close()
    for url in made:
        postgres.drop(url)


@FULL
def test_all_at_once_settle_once(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    offices = [chain_fixture.chain_worker, chain_fixture.another(), chain_fixture.another()]
    start = threading.Barrier(len(offices))

    def work(chain_worker: ChainWorker) -> int:
        start.wait(PATIENCE_S)
        steps = 0
        for _ in range(20):
            steps += chain_worker.step()
            chain_worker.leave()
        return steps

    with ThreadPoolExecutor(len(offices)) as pool:
        steps = list(pool.map(work, offices))
    assert sum(steps) > 0
    assert [chain_worker.trouble for chain_worker in offices] == ["", "", ""]
    check(chain_fixture, job_id, worker, 7)
    assert len(chain_fixture.all(Batch)) == len(chain_fixture.all(Transaction, Transaction.kind == "settle"))
    assert {row.state for row in chain_fixture.all(Transaction)} == {"mined"}
    assert list_chain_differences(chain_fixture.chain, job_id) == []


@FULL
def test_a_process_without_the_lease_touches_nothing(chain_fixture: ChainFixture, new_key: NewKey) -> None:
    job_id, worker = busy(chain_fixture, new_key)
    before = len(chain_fixture.all(Transaction))
    other = chain_fixture.another()
    assert renew_leader_lease(chain_fixture.chain)
    assert not other.step()
    assert len(chain_fixture.all(Transaction)) == before
    chain_fixture.clock.now += chain_fixture.policy.duty_s + 1
    assert other.step(), "who holds it has not been heard of for too long"
    assert not renew_leader_lease(chain_fixture.chain)
    other.leave()
    check(chain_fixture, job_id, worker, 7)
