"""One audit from start to end: reads the record, proves it, computes again, and returns the report."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eth_keys.datatypes import PrivateKey

from gradmarket.archives.archive_index import INDEX, PublicRecords
from gradmarket.archives.mirrors import NOWHERE, MirrorSet, describe_trouble, open_mirror
from gradmarket.auditor import Machine, OpenMachine, open_machine
from gradmarket.client.client_errors import ServiceUnreachable
from gradmarket.client.transport import keep_trying_for
from gradmarket.compute.cache import Cache
from gradmarket.compute.fetch import Fetcher
from gradmarket.compute.own_machine import AUTO, choose_named_threads
from gradmarket.market.errors import Refused
from gradmarket.market.features.disputes.receipts import KeptReceipt
from gradmarket.market.terms import Digest, JobId, blob_digest
from gradmarket.market.views.job_views import ListedJob
from gradmarket.market.wire.audit_messages import KeptSeal
from gradmarket.market.wire.sign_in import ChainFacts
from gradmarket.public_audit.archive import write_archive
from gradmarket.public_audit.audit_report import AuditReport
from gradmarket.public_audit.features.disputes import prove_disputes, trace_on
from gradmarket.public_audit.job_proof import JobRecord, prove_record
from gradmarket.public_audit.job_records import JobSource, Progress
from gradmarket.public_audit.log_proof import prove_log
from gradmarket.public_audit.panel_proof import prove_panels
from gradmarket.public_audit.recomputation import Recomputation, find_obstacle, find_replayed_state
from gradmarket.public_audit.round_claiming import RoundClaimClient, claim_round
from gradmarket.public_audit.start_proof import prove_start
from worker.money.chain_view import choose_rpc, connect_to_deployment
from worker.protocol.client import COMMAND_WAIT_S, Credentials, MarketClient
from worker.wallet import Wallet, load_or_create

SAMPLE: Final = 4
ROOM: Final = 2**34
"""Bytes that downloads may take, as an auditor's."""


@dataclass(frozen=True)
class AuditPlan:
    """Which job is audited, and how far.

    `market`: its service's address, or the place of an archive.json, a path or an address. `rpc`: the auditor's own
    node of the chain; where none is given, a local market's. `sample`: merged tasks to compute again; with `whole` all
    are, and every round is merged again. `folder` keeps the records and results. `mirrors`: places of archives; they
    serve the blobs that the market does not, and the record where it does not answer.
    """

    market: str
    job: str
    folder: Path
    rpc: str | None = None
    sample: int = SAMPLE
    whole: bool = False
    device: str = AUTO
    threads: int | None = None
    mirrors: Sequence[str] = ()
    claims: int | None = None
    """The round that is claimed, in place of a sample."""
    receipts: Sequence[KeptReceipt] = ()
    """Of sides of its hearings: each must be shown to have answered."""
    seals: Sequence[KeptSeal] = ()
    """Of auditors of its panels: each must be shown and logged."""


@dataclass(frozen=True)
class OpenedJob:
    """A job whose record was read: from where, by which node, and into which folder."""

    place: str
    node: str
    facts: ChainFacts
    listed: ListedJob
    record: JobRecord
    folder: Path
    fetcher: Fetcher
    market: PublicRecords
    """Where the record is from."""
    troubles: Sequence[str]
    """Blobs that mirrors failed to serve, or served wrongly, and others served."""


def audit_job(plan: AuditPlan, progress: Progress) -> AuditReport:
    """Raises NotFound for a job that is not there; ServiceProblem, Untrusted and ChainError as a worker does."""
    began = time.monotonic()
    with open_job(plan, progress) as job:
        record = job.record
        others = sorted({kept.job for kept in plan.receipts} | {kept.job for kept in plan.seals})
        if others and record.opened.job not in others:
            named = ", ".join(map(str, others[:3]))
            raise Refused(
                f"the receipts are of job {named} of their chain, and this is job {record.opened.job}",
                f"name the file of a side's `receipts` folder that ends with -{record.opened.job}.jsonl",
            )
        claimed = None if plan.claims is None else _find_claimable_market(job, plan.claims)
        earlier, replayed = record.earlier, None
        if not isinstance(earlier, str) and earlier.closed:
            # an audit of the job that this one continues, of the same market and folder, may have merged it again
            folder = _name_folder(plan, plan.market.rstrip("/"), earlier.publication.job)
            replayed = find_replayed_state(folder, earlier)
        results = [*prove_record(record), prove_log(record), *prove_start(record, replayed)]
        results += prove_panels(record, plan.seals)
        if plan.whole or (plan.sample and plan.claims is None):
            with _open_own_machine(job, plan) as mine:
                again = _build_recomputation(job, mine, progress)
                if obstacle := find_obstacle(record.publication.spec):
                    results += again.skip(obstacle)
                else:
                    results += again.replay_rounds() if plan.whole else (again.compute_sample(plan.sample),)
                trace = trace_on(mine, job.fetcher, record.publication)
                results += prove_disputes(record, trace, plan.receipts, time.time(), plan.rpc is not None)
        else:
            results += prove_disputes(record, None, plan.receipts, time.time(), plan.rpc is not None)
        if plan.claims is not None and claimed is not None:
            key = load_or_create(plan.folder / "auditor", None)
            with _open_own_machine(job, plan) as mine:
                again = _build_recomputation(job, mine, progress)
                results.append(claim_round(RoundClaimClient(claimed), job.listed.id, again, plan.claims, key.key))
        return AuditReport(
            market=job.place,
            job=job.listed.id,
            name=job.listed.name,
            state=job.listed.state,
            node=job.node,
            chain=f"chain {job.facts.chain_id}, contract {job.facts.contract}, token {job.facts.token}",
            whole=plan.whole,
            own_node=plan.rpc is not None,
            results=results,
            troubles=job.troubles,
            seconds=time.monotonic() - began,
        )


def archive_job(plan: AuditPlan, to: Path, progress: Progress) -> tuple[OpenedJob, Digest]:
    """Writes the job's archive into the folder `to`; returns the job and the digest of the archive's index."""
    with open_job(plan, progress) as job:
        return job, write_archive(job.record, job.place, job.facts, job.listed, job.fetcher, to)


@contextmanager
def open_job(plan: AuditPlan, progress: Progress) -> Iterator[OpenedJob]:
    """Reads the record. The client signs in with a key that it makes for this audit and then discards: only a signed-in
    client may read rows. Raises ServiceUnreachable, with the way on, where the market goes away meanwhile.
    """
    place = plan.market.rstrip("/")
    folder = _name_folder(plan, place, plan.job)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _add_resume_remedy(), ExitStack() as stack:
        cache = Cache(folder / "cache", ROOM)
        mirrors = MirrorSet([open_mirror(one, cache, stack) for one in plan.mirrors])
        if place.endswith(INDEX):
            mirrors.mirrors = [open_mirror(place, cache, stack), *mirrors.mirrors]
            place, records, fetcher = _open_mirrors(mirrors, JobId(plan.job), cache, stack)
        else:
            try:
                records, fetcher = _open_market(place, folder, cache, stack)
                _borrow_blobs(mirrors, JobId(plan.job), fetcher)
            except ServiceUnreachable:
                if not plan.mirrors:
                    raise
                place, records, fetcher = _open_mirrors(mirrors, JobId(plan.job), cache, stack)
        facts = records.facts()
        node = plan.rpc or choose_rpc(None, facts, place)
        ledger = connect_to_deployment(node, facts)
        listed = records.job(JobId(plan.job))
        of_place = _name_folder(plan, place, plan.job)  # the evidence of a mirror is none of its market
        record = JobSource(records, ledger, JobId(plan.job), of_place, progress).fetch()
        yield OpenedJob(place, node, facts, listed, record, folder, fetcher, records, tuple(mirrors.troubles))


@contextmanager
def _add_resume_remedy() -> Iterator[None]:
    try:
        yield
    except ServiceUnreachable as error:
        error.remedy = error.remedy or "run this command again once it answers: it continues from what was read"
        raise


def _name_folder(plan: AuditPlan, place: str, job: str) -> Path:
    return plan.folder / blob_digest(f"{place} {job}".encode()).partition(":")[2][:16]


def _open_market(place: str, folder: Path, cache: Cache, stack: ExitStack) -> tuple[PublicRecords, Fetcher]:
    client = MarketClient(place, keep_trying_for(COMMAND_WAIT_S))
    stack.callback(client.close)
    me = Wallet(PrivateKey(os.urandom(32)), folder)
    client.identify(Credentials(me, me.address, client.facts().chain_id))
    fetcher = Fetcher(cache, client.origin, cache.limit, bearer=client.bearer)
    stack.callback(fetcher.close)
    return client, fetcher


def _borrow_blobs(mirrors: MirrorSet, job: JobId, fetcher: Fetcher) -> None:
    """Fills the cache from mirrors for a job whose market answers: the market keeps no parameters of old rounds.

    Raises Refused where none of them has an archive of the job.
    """
    if not mirrors.mirrors:
        return
    try:
        _, records = mirrors.read_record(job)
    except Refused as error:
        raise Refused(
            f"no mirror has an archive of job {job}: {describe_trouble(error)}", "name another one, or leave --mirror"
        ) from error
    for digest in records.index.blobs:
        with suppress(Refused):
            mirrors.fill(fetcher, [digest])


def _open_mirrors(mirrors: MirrorSet, job: JobId, cache: Cache, stack: ExitStack) -> tuple[str, PublicRecords, Fetcher]:
    """Returns the place of the record, the record, and the fetcher of its blobs, which fills the cache."""
    place, records = mirrors.read_record(job)
    fetcher = Fetcher(cache, NOWHERE, cache.limit, seconds=0.0)
    stack.callback(fetcher.close)
    mirrors.fill(fetcher, records.index.blobs)
    return place, records, fetcher


def _open_own_machine(job: OpenedJob, plan: AuditPlan) -> AbstractContextManager[OpenMachine]:
    threads = plan.threads or choose_named_threads([job.record.find_class()])
    return open_machine(Machine(job.folder, plan.device, threads))


def _build_recomputation(job: OpenedJob, mine: OpenMachine, progress: Progress) -> Recomputation:
    executor = mine.build_executor(job.fetcher)
    return Recomputation(job.record, mine.runner, executor, job.fetcher, job.folder, progress)


def _find_claimable_market(job: OpenedJob, number: int) -> MarketClient:
    """Returns the market that takes claims of the round. Raises Refused for a record of an archive, as a market alone
    has the withheld digests, and for a round that has no claims."""
    if not isinstance(job.market, MarketClient):
        raise Refused("an archive has no withheld digests", "claim a round of a market that answers, or leave --round")
    if number not in {one.number for one in job.record.closed}:
        last = max((one.number for one in job.record.closed), default=-1)
        fix = f"name one from 0 to {last}" if last >= 0 else "audit it without --round"
        raise Refused(f"the job has no merged round {number}", fix)
    audit = job.record.publication.spec.audit
    if audit is None or not audit.claims:
        raise Refused("the job's rounds have no claims (audit.claims)", "audit it without --round")
    return job.market
