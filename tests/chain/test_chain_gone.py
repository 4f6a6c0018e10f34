"""The chain's node dies: one of the service's own is started again; of another's the job says so, and then goes on."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from onchain import DEPLOYER, NewKey
from till import PRICE, Till

from gradmarket.contracts.deployment import deploy
from gradmarket.contracts.ledger import Ledger
from gradmarket.contracts.local import LocalChain
from gradmarket.contracts.processes import gone
from gradmarket.requester.chain import reconcile
from gradmarket.requester.chain.office import Office
from gradmarket.requester.store import progress
from gradmarket.requester.store.tables import Job


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LocalChain]:
    """A chain with a folder of its own."""
    chain = LocalChain.start(tmp_path / "chain")
    yield chain
    running = LocalChain.reattach(tmp_path / "chain")
    if running is not None:
        running.stop()


@pytest.fixture
def till(own: LocalChain, tmp_path: Path, new_key: NewKey) -> Iterator[Till]:
    web3 = own.connect()
    made = Till(tmp_path, Ledger(web3, deploy(web3, DEPLOYER)), new_key)
    yield made
    made.close()


def kill(chain: LocalChain) -> None:
    os.kill(chain.pid, signal.SIGKILL)
    while not gone(chain.pid):
        pass


def why(till: Till, job_id: str) -> str:
    with till.desk.reading() as session:
        return progress.why_waiting(session, session.get_one(Job, job_id), till.clock())


def wait_for_the_state(chain: LocalChain) -> None:
    """Anvil writes it down every second: stopped and started, it has all."""
    chain.stop()
    chain.revive()


def test_our_own_chain_is_started_again_and_the_money_goes_on(till: Till, own: LocalChain, new_key: NewKey) -> None:
    till.desk = replace(till.desk, revive=own.revive)
    till.office = Office(till.desk)
    job_id = till.running_job()
    worker = till.joins(job_id, new_key())
    till.settle_down()
    wait_for_the_state(own)
    running = LocalChain.reattach(own.directory or Path())
    assert running is not None
    assert running.url == own.url, "workers and the service know it by its port"
    kill(running)
    till.earns(job_id, worker)
    till.clock.now += till.policy.settle_every_s
    assert till.office.step(), "it is up again"
    till.settle_down()
    assert till.office.trouble == ""
    assert why(till, job_id) == ""
    chain = till.ledger.account(till.job(job_id).chain_job or 0, worker)
    assert chain.settled == PRICE
    assert reconcile.differences(till.desk, job_id) == []


def test_a_chain_elsewhere_that_is_gone_is_told_in_the_job_until_it_is_back(till: Till, own: LocalChain) -> None:
    job_id = till.running_job()
    wait_for_the_state(own)
    running = LocalChain.reattach(own.directory or Path())
    assert running is not None
    kill(running)
    assert not till.office.step()
    assert "does not answer" in why(till, job_id)
    assert till.another().trouble == ""
    assert not till.another().step()
    assert "does not answer" in why(till, job_id), "who does not do the chain work says nothing of it"
    assert own.revive()
    till.settle_down()
    assert why(till, job_id) == ""


def test_what_runs_or_has_no_folder_is_not_started_again(own: LocalChain) -> None:
    assert not own.revive()
    assert not replace(own, directory=None).revive()
