"""Processes that share a PostgreSQL all want to do the chain work: one at a time does it, and it is done once."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from databases import Postgres
from onchain import NewKey
from till import Till, busy, check

from gradmarket.contracts.ledger import Ledger
from gradmarket.requester.chain import duty, reconcile
from gradmarket.requester.chain.office import Office
from gradmarket.requester.store.tables import Batch, Transaction


@pytest.fixture
def till(postgres: Postgres, tmp_path: Path, ledger: Ledger, new_key: NewKey) -> Iterator[Till]:
    made: list[str] = []

    def database(_folder: Path) -> str:
        made.append(postgres.new())
        return made[-1]

    shared = Till(tmp_path, ledger, new_key, database=database)
    yield shared
    shared.close()
    for url in made:
        postgres.drop(url)


def test_all_at_once_settle_once(till: Till, new_key: NewKey) -> None:
    job_id, worker = busy(till, new_key)
    offices = [till.office, till.another(), till.another()]
    start = threading.Barrier(len(offices))

    def work(office: Office) -> int:
        start.wait(10)
        steps = 0
        for _ in range(20):
            steps += office.step()
            office.leave()
        return steps

    with ThreadPoolExecutor(len(offices)) as pool:
        steps = list(pool.map(work, offices))
    assert sum(steps) > 0
    assert [office.trouble for office in offices] == ["", "", ""]
    check(till, job_id, worker, 7)
    assert len(till.all(Batch)) == len(till.all(Transaction, Transaction.kind == "settle"))
    assert {row.state for row in till.all(Transaction)} == {"mined"}
    assert reconcile.differences(till.desk, job_id) == []


def test_who_has_not_the_duty_touches_nothing(till: Till, new_key: NewKey) -> None:
    job_id, worker = busy(till, new_key)
    before = len(till.all(Transaction))
    other = till.another()
    assert duty.hold(till.desk)
    assert not other.step()
    assert len(till.all(Transaction)) == before
    till.clock.now += till.policy.duty_s + 1
    assert other.step(), "who holds it has not been heard of for too long"
    assert not duty.hold(till.desk)
    other.leave()
    check(till, job_id, worker, 7)
