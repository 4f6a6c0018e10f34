"""Accidents that an attacker would wait for: a service that dies, a silent or reorganised chain, at the pay."""

import os
import signal
from pathlib import Path
from tempfile import TemporaryDirectory

from contracts import deployment as deployments
from contracts.ledger import Ledger
from contracts.local import LocalChain
from contracts.rpc import call_json_rpc
from tests.attacks.payloads import uploader
from tests.attacks.registry import attack
from tests.attacks.scene import QUICK, Posted, Scene, funded
from tests.attacks.scripted_worker import ScriptedWorker
from tests.kit.behaviour import HONEST
from tests.onchain import wait_until_dumped
from tests.ops.served import Served, served
from tests.patience import dawdle, wait_until

DEEPEST = 4
"""Blocks: the batch is in one of the last."""
SILENT_S = 3.0
"""The service checks its sent transactions every second."""
NO_BATCH = QUICK | {"GRADMARKET_SETTLE_EVERY_S": "3600"}


def accepted(market: Served, ledger: Ledger, blocks: bool = True) -> tuple[Posted, list[ScriptedWorker]]:
    """A job whose only task was just accepted; without `blocks` mining stops just before that."""
    job = Scene(market, ledger).post()
    workers = job.team(HONEST, HONEST, HONEST)
    asked = uploader(job, workers)
    call_json_rpc(ledger.web3, "evm_setAutomine", blocks)
    assert asked.upload(asked.newest()).status_code == 200
    return job, workers


def again(market: Served, ledger: Ledger, job: Posted, workers: list[ScriptedWorker]) -> Posted:
    """The same job and its workers at the service's next life."""
    after = Posted(Scene(market, ledger), job.id)
    for worker in workers:
        worker.follow(after)
    wait_until(lambda: after.fetch_view()["state"] == "finished", "the job is over")
    for worker in workers:
        worker.poll()
    return after


@attack("crash between accept and pay", "all payable 10; finished; books balanced; gradients on-chain 3")
def killed_right_after_accepting(_scene: Scene) -> str:
    with funded() as (data, chain, ledger):
        with served(data, chain.url, NO_BATCH) as market:
            job, workers = accepted(market, ledger)
            market.process.kill()
        with served(data, chain.url, QUICK) as market:
            after = again(market, ledger, job, workers)
            wait_until(lambda: ledger.job(after.chain_job).batches == 1, "the batch is on-chain")
            told = after.seen(all=workers)
            return f"{told}; gradients on-chain {len(after.fetch_view('/payments')['items'])}"


@attack(
    "timeout read as failure and paid twice",
    "before the block 0 batches; all payable 10; finished; books balanced; batches 1",
)
def the_chain_is_silent_while_a_batch_is_sent(_scene: Scene) -> str:
    """No block for a while, then one: the sent transaction is found and not sent a second time."""
    with funded() as (data, chain, ledger):
        with served(data, chain.url, NO_BATCH) as market:
            job, workers = accepted(market, ledger, blocks=False)
            market.end()
        with served(data, chain.url, QUICK) as market:
            after = again(market, ledger, job, workers)
            wait_until(lambda: int(call_json_rpc(ledger.web3, "txpool_status")["pending"], 16), "the batch is sent")
            dawdle(SILENT_S)
            before = ledger.job(after.chain_job).batches
            call_json_rpc(ledger.web3, "evm_setAutomine", True)
            call_json_rpc(ledger.web3, "evm_mine")
            wait_until(lambda: ledger.job(after.chain_job).batches, "the batch is on-chain")
            told = after.seen(all=workers)
            return f"before the block {before} batches; {told}; batches {ledger.job(after.chain_job).batches}"


@attack(
    "re-org or lagging node",
    "batches 1, 0 when its block is taken back, 1 again; all payable 10; finished; books balanced",
)
def the_block_with_the_batch_is_taken_back(_scene: Scene) -> str:
    """The node drops the transactions of old blocks from chain and pool: the service notices and sends them again."""
    with funded(history=True) as (data, chain, ledger), served(data, chain.url, QUICK) as market:
        job, workers = accepted(market, ledger)
        wait_until(lambda: job.fetch_view()["state"] == "finished", "the job is over")
        for worker in workers:
            worker.poll()

        def batches() -> int:
            return ledger.job(job.chain_job).batches

        wait_until(batches, "the batch is on-chain")
        before, taken, depth = batches(), batches(), 0
        while taken and depth < DEEPEST:
            depth += 1
            call_json_rpc(ledger.web3, "anvil_reorg", depth, [])
            taken = batches()
        wait_until(batches, "the batch is on-chain again")
        return f"batches {before}, {taken} when its block is taken back, {batches()} again; {job.seen(all=workers)}"


@attack("the chain's node dies", "the chain is there again; all payable 10; finished; books balanced")
def the_service_s_own_chain_is_killed(_scene: Scene) -> str:
    """While its job runs: the service starts it again from its stored state, and the money goes on."""
    with TemporaryDirectory() as folder:
        data = Path(folder) / "market"
        with served(data, None, QUICK) as market:
            chain = LocalChain.open(data / "chain")
            try:
                job = Scene(
                    market, Ledger(chain.connect(), deployments.load_deployment(data / "deployment.json"))
                ).post()
                workers = job.team(HONEST, HONEST, HONEST)
                wait_until_dumped(data / "chain")
                os.kill(chain.pid, signal.SIGKILL)
                job.play(*workers)
                there = "there again" if LocalChain.open(data / "chain").pid != chain.pid else "as it was"
                return f"the chain is {there}; {job.seen(all=workers)}"
            finally:
                LocalChain.open(data / "chain").stop()
