"""One audit from start to end: reads the record, proves it, computes again, and returns the report."""

import os
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eth_keys.datatypes import PrivateKey

from gradmarket.auditor import Machine, OpenMachine, open_machine
from gradmarket.compute.own_machine import AUTO
from gradmarket.market.digests import blob_digest
from gradmarket.market.rules.shortage import find_thread_count
from gradmarket.market.terms import JobId
from gradmarket.public_audit.audit_report import AuditReport
from gradmarket.public_audit.job_proof import ClauseResult, JobRecord, prove_record
from gradmarket.public_audit.job_records import JobSource, Progress
from gradmarket.public_audit.recomputation import Recomputation, find_obstacle
from worker.money.chain_view import choose_rpc, connect_to_deployment
from worker.protocol.client import COMMAND_WAIT_S, MarketClient
from worker.protocol.signin import Credentials
from worker.wallet import Wallet

SAMPLE: Final = 4


@dataclass(frozen=True)
class AuditPlan:
    """Which job is audited, and how far.

    `rpc`: the auditor's own node of the chain; where none is given, a local market's. `sample`: merged tasks to compute
    again; with `whole` all are, and every round is merged again. `folder` keeps what was read and computed.
    """

    market: str
    job: str
    folder: Path
    rpc: str | None = None
    sample: int = SAMPLE
    whole: bool = False
    device: str = AUTO
    threads: int | None = None


def audit_job(plan: AuditPlan, progress: Progress) -> AuditReport:
    """Audits the job, with a key that is made for this and forgotten: who reads rows must have signed in.

    Raises NotFound for a job that is not there, ServiceProblem, Untrusted and ChainError as the worker's clients do.
    """
    began, market = time.monotonic(), plan.market.rstrip("/")
    folder = plan.folder / blob_digest(f"{market} {plan.job}".encode()).partition(":")[2][:16]
    with closing(MarketClient(market, lambda seconds: seconds < COMMAND_WAIT_S)) as client:
        facts = client.facts()
        node = plan.rpc or choose_rpc(None, facts, market)
        ledger = connect_to_deployment(node, facts)
        listed = client.job(JobId(plan.job))
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        me = Wallet(PrivateKey(os.urandom(32)), folder)
        client.identify(Credentials(me, me.address, facts.chain_id))
        record = JobSource(client, ledger, listed.id, folder, progress).fetch()
        results = prove_record(record)
        if plan.whole or plan.sample:
            machine = Machine(folder, plan.device, plan.threads or find_thread_count(record.find_class()))
            with open_machine(client.origin, client.bearer, machine) as computing:
                results += _recompute(record, computing, folder, plan, progress)
    return AuditReport(
        market=market,
        job=listed.id,
        name=listed.name,
        state=listed.state,
        node=node,
        own_node=plan.rpc is not None,
        results=results,
        seconds=time.monotonic() - began,
    )


def _recompute(
    record: JobRecord, computing: OpenMachine, folder: Path, plan: AuditPlan, progress: Progress
) -> Sequence[ClauseResult]:
    again = Recomputation(record, computing.runner, computing.build_executor(), computing.fetcher, folder, progress)
    if obstacle := find_obstacle(record.publication.spec):
        return again.skip(obstacle)
    return again.replay_rounds() if plan.whole else (again.compute_sample(plan.sample),)
