"""The chain's node dies: the service's own is started again; another's is the job's reason until it is back."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from contracts.deployment import deploy_market
from contracts.ledger import Ledger
from contracts.local import LocalChain
from contracts.processes import has_process_ended
from gradmarket.market.terms import ReplicaState
from requester.chain.chain_worker import ChainWorker
from requester.features import explanations
from requester.store.tables import Job, Task
from tests.chain.chain_differences import list_chain_differences
from tests.chain.chain_fixture import PRICE, ChainFixture
from tests.lanes import FULL
from tests.onchain import DEPLOYER, NewKey


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LocalChain]:
    """A chain with a folder of its own."""
    chain = LocalChain.start(tmp_path / "chain")
    yield chain
    running = LocalChain.find_running_chain(tmp_path / "chain")
    if running is not None:
        running.stop()


@pytest.fixture
def chain_fixture(own: LocalChain, tmp_path: Path, new_key: NewKey) -> Iterator[ChainFixture]:
    web3 = own.connect()
    made = ChainFixture(tmp_path, Ledger(web3, deploy_market(web3, DEPLOYER)), new_key)
    yield made
    made.close()


def kill(chain: LocalChain) -> None:
    os.kill(chain.pid, signal.SIGKILL)
    while not has_process_ended(chain.pid):
        pass


def find_reason(chain_fixture: ChainFixture, job_id: str) -> str:
    with chain_fixture.chain.reading() as reader:
        return explanations.why_waiting(reader, reader.get_one(Job, job_id), chain_fixture.clock())


def wait_for_the_state(chain: LocalChain) -> None:
    """Anvil writes it down every second: stopped and started, it has all."""
    chain.stop()
    chain.revive()


def test_our_own_chain_is_started_again_and_the_money_goes_on(
    chain_fixture: ChainFixture, own: LocalChain, new_key: NewKey
) -> None:
    chain_fixture.chain = replace(chain_fixture.chain, revive=own.revive)
    chain_fixture.chain_worker = ChainWorker(chain_fixture.chain)
    job_id = chain_fixture.running_job()
    worker = chain_fixture.joins(job_id, new_key())
    chain_fixture.settle_down()
    wait_for_the_state(own)
    running = LocalChain.find_running_chain(own.directory or Path())
    assert running is not None
    assert running.url == own.url, "workers and the service know it by its port"
    kill(running)
    chain_fixture.earns(job_id, worker)
    chain_fixture.clock.now += chain_fixture.policy.settle_every_s
    assert chain_fixture.chain_worker.step(), "it is up again"
    chain_fixture.settle_down()
    assert chain_fixture.chain_worker.trouble == ""
    assert find_reason(chain_fixture, job_id) == ""
    chain = chain_fixture.ledger.account(chain_fixture.job(job_id).chain_job or 0, worker)
    assert chain.settled == PRICE
    assert list_chain_differences(chain_fixture.chain, job_id) == []


def test_a_service_that_was_asked_to_end_does_not_start_its_chain_again(
    chain_fixture: ChainFixture, own: LocalChain
) -> None:
    chain_fixture.chain = replace(chain_fixture.chain, revive=own.revive)
    chain_fixture.chain_worker = ChainWorker(chain_fixture.chain)
    chain_fixture.settle_down()
    chain_fixture.chain_worker.retire()
    kill(own)
    assert not chain_fixture.chain_worker.step()
    assert LocalChain.find_running_chain(own.directory or Path()) is None


@FULL
def test_a_job_names_its_lost_chain_until_the_chain_is_back(chain_fixture: ChainFixture, own: LocalChain) -> None:
    job_id = chain_fixture.running_job()
    wait_for_the_state(own)
    running = LocalChain.find_running_chain(own.directory or Path())
    assert running is not None
    kill(running)
    assert not chain_fixture.chain_worker.step()
    assert "does not answer" in find_reason(chain_fixture, job_id)
    assert chain_fixture.another().trouble == ""
    assert not chain_fixture.another().step()
    assert "does not answer" in find_reason(chain_fixture, job_id), "who does not do the chain work says nothing of it"
    assert own.revive()
    chain_fixture.settle_down()
    assert find_reason(chain_fixture, job_id) == ""


@FULL
def test_a_task_declined_while_the_chain_was_gone_is_offered_again_at_once(
    chain_fixture: ChainFixture, own: LocalChain, new_key: NewKey
) -> None:
    job_id = chain_fixture.running_job()
    worker = chain_fixture.joins(job_id, new_key())
    chain_fixture.settle_down()
    wait_for_the_state(own)
    running = LocalChain.find_running_chain(own.directory or Path())
    assert running is not None
    kill(running)
    assert not chain_fixture.chain_worker.step()
    later = chain_fixture.clock() + 150
    declined = chain_fixture.open_task(job_id, worker, ReplicaState.ABANDONED, later)
    untouched = chain_fixture.open_task(job_id, worker, ReplicaState.EXPIRED, later)
    assert own.revive()
    chain_fixture.settle_down()
    with chain_fixture.chain.reading() as reader:
        waits = [reader.get_one(Task, name).patience_until for name in (declined, untouched)]
    assert waits == [pytest.approx(chain_fixture.clock(), abs=140), later], "other silence costs its time"
    assert (waits[0] or later) < later


def test_a_running_chain_or_one_without_a_folder_is_not_started_again(own: LocalChain) -> None:
    assert not own.revive()
    assert not replace(own, directory=None).revive()
