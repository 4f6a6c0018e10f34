"""Reads a job's public record: its market's lists and evidence, and the contract by a chain node.

Evidence that nothing can change any more is kept in the audit's folder: an audit that was cut off goes on there.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from contracts import events, log_heads
from contracts.ledger import Ledger
from contracts.packing import PackedGroup
from gradmarket.archives.archive_index import PublicRecords
from gradmarket.client.client_errors import ServiceProblem
from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.job_parts import Continued, Deadlines
from gradmarket.market.terms import TASK_OVER, Address, Hash, JobId, JobState, Units, blob_digest
from gradmarket.market.wire.evidence import PublishedEvidence, PublishedPayment, PublishedRound, PublishedTask
from gradmarket.public_audit.job_proof import BatchOnChain, EarlierJob, JobLog, JobRecord
from worker import Untrusted, durable

ENDED: Final = frozenset({JobState.FINISHED, JobState.CANCELLED, JobState.FAILED})
TRIES: Final = 5
NOBODY: Final = Address("")
Progress = Callable[[str, int, int], object]
"""(the kind of thing, how many are done, of how many)"""


@dataclass(frozen=True)
class UnendedJob:
    """A job that has not ended by its service's word. `claim_until`: the end of its claims in the contract."""

    state: JobState
    deadlines: Deadlines
    claim_until: int


def describe_overdue(job: UnendedJob, rounds: Sequence[PublishedRound], now: float) -> str:
    """Returns what a job should have brought by `now`, in Unix seconds; empty where nothing is overdue.

    Once all claims are over nobody can be paid, so that a service which calls the job running withholds its end. A
    round that stands for longer than one attempt at a task may take proves no lie: workers may be missing.
    """
    if now > job.claim_until:
        return f"its claims ended at Unix time {job.claim_until}, and nobody can be paid: its service withholds the end"
    attempt_s = job.deadlines.lease_s + job.deadlines.wave_s + job.deadlines.upload_s
    newest = max(rounds, key=lambda one: one.number, default=None)
    if job.state is not JobState.RUNNING or newest is None or newest.opened_at is None:
        return ""
    stands_s = now - newest.opened_at.timestamp()
    if newest.updated is not None or stands_s <= attempt_s:
        return ""
    return (
        f"its round {newest.number} stands for {stands_s:.0f} s, and workers have {attempt_s} s for an attempt: "
        "whether workers are missing or the service withholds answers could not be seen"
    )


@dataclass(frozen=True)
class JobSource:
    """The source of a job's record; `folder` keeps the records that were read."""

    market: PublicRecords
    ledger: Ledger
    job: JobId
    folder: Path
    progress: Progress

    def fetch(self) -> JobRecord:
        """Raises NotFound where the job was never opened or is of a newer version; ServiceProblem, ChainError."""
        view = self.market.job(self.job)
        if view.chain_job is None or view.publication is None:
            remedy = "audit a job that was funded; if it was, update gradmarket: the job may have newer fields"
            raise NotFound(f"job {self.job} has no publication that this version can read", remedy)
        if view.publication.job != self.job:
            raise Untrusted(f"the market shows job {view.publication.job} in place of job {self.job}")
        opened = events.opened_job(self.ledger, view.chain_job)
        if view.state not in ENDED:
            remedy = "come again when it has ended: its answers are published then"
            running = UnendedJob(view.state, view.publication.spec.deadlines, opened.claim_until)
            overdue = describe_overdue(running, list(self.market.rounds(self.job)), self.ledger.block().time)
            raise Refused("; ".join(filter(None, (f"job {self.job} is {view.state}", overdue))), remedy)
        paid = Counter[Address]()
        for one in events.all_paid(self.ledger, opened.job):
            paid[one.worker or NOBODY] += one.amount
        payments, batches, settled = self._fetch_money(opened.job, paid)
        tasks, evidence = self._fetch_tasks()
        return JobRecord(
            domain=self.ledger.domain(),
            opened=opened,
            publication=view.publication,
            rounds=list(self.market.rounds(self.job)),
            tasks=tasks,
            evidence=evidence,
            payments=payments,
            batches=batches,
            settled=settled,
            paid={worker: Units(units) for worker, units in paid.items()},
            state=view.state,
            log=self._fetch_log(self.job, opened.job),
            earlier=self._fetch_earlier(view.publication.spec.continue_from),
        )

    def _fetch_earlier(self, start: Continued | None) -> EarlierJob | str:
        """Returns the end of the job that this one continues, or why it is not seen."""
        if start is None:
            return ""
        job = JobId(start.job)
        try:
            view = self.market.job(job)
            if view.chain_job is None or view.publication is None:
                return "it has no publication that this version can read"
            opened, rounds = events.opened_job(self.ledger, view.chain_job), list(self.market.rounds(job))
            return EarlierJob(opened, view.publication, rounds, view.state, self._fetch_log(job, view.chain_job))
        except (NotFound, ServiceProblem) as error:
            return str(error)

    def _fetch_log(self, job: JobId, chain_job: int) -> JobLog:
        """Returns the leaves up to the signed head, and the heads that the batches carried before it was read."""
        carried, head = log_heads.fetch_heads(self.ledger, chain_job), self.market.log(job)
        leaves = () if head is None else tuple(self.market.leaves(job, head.size))
        return JobLog(leaves, head, carried)

    def _fetch_money(
        self, chain_job: int, paid: Collection[Address]
    ) -> tuple[list[PublishedPayment], dict[int, BatchOnChain], dict[Address, Units]]:
        """Returns payments, batches and credits of one moment: they are read again where a batch came between."""
        payments = list(self.market.fetch_payments(self.job))
        for _ in range(TRIES):
            batches, before = self._fetch_batches(chain_job), payments
            groups = (group for batch in batches.values() for group in log_heads.list_payments(batch.groups))
            workers = {group.worker for group in groups} | {item.worker for item in payments}
            settled = self._fetch_settled(chain_job, workers.union(paid))
            payments = list(self.market.fetch_payments(self.job))
            if payments == before and self.ledger.job(chain_job).batches == len(batches):
                break
        return payments, batches, settled

    def _fetch_tasks(self) -> tuple[list[PublishedTask], dict[str, PublishedEvidence]]:
        """Returns tasks and evidence of one moment: a task that an audit decided between is read again."""
        tasks, evidence = list[PublishedTask](), dict[str, PublishedEvidence]()
        for _ in range(TRIES):
            tasks = list(self.market.tasks(self.job))
            read = self._fetch_evidence([task for task in tasks if not _is_shown(task, evidence.get(task.id))])
            evidence = {task.id: read.get(task.id) or evidence[task.id] for task in tasks}
            if all(_is_shown(task, evidence[task.id]) for task in tasks):
                break
        return tasks, evidence

    def _fetch_evidence(self, tasks: Sequence[PublishedTask]) -> dict[str, PublishedEvidence]:
        """Returns the evidence of all attempts at tasks, also of those to which nobody committed."""
        found = dict[str, PublishedEvidence]()
        for done, task in enumerate(tasks, 1):
            found[task.id] = self._load_evidence(task)
            self.progress("evidence", done, len(tasks))
        return found

    def _load_evidence(self, task: PublishedTask) -> PublishedEvidence:
        kept = self.folder / "evidence" / f"{blob_digest(task.id.encode()).partition(':')[2]}.json"
        if task.state in TASK_OVER and kept.is_file():
            try:
                return PublishedEvidence.model_validate_json(kept.read_bytes())
            except ValidationError:
                kept.unlink()
        evidence = self.market.task(self.job, task.id)
        if evidence.state in TASK_OVER and evidence.audit_link is not None and evidence.committed:
            durable.write_file_atomically(kept, evidence.model_dump_json().encode(), synced=False)
        return evidence

    def _fetch_batches(self, chain_job: int) -> dict[int, BatchOnChain]:
        groups = defaultdict[int, list[PackedGroup]](list)
        for number, group in events.all_settled_groups(self.ledger, chain_job):
            groups[number].append(group)
        count = self.ledger.job(chain_job).batches
        return {
            number: BatchOnChain(self._read_root(chain_job, number), tuple(groups[number])) for number in range(count)
        }

    def _read_root(self, chain_job: int, number: int) -> Hash:
        root = self.ledger.batch_root(chain_job, number)
        return root if any(root) else self.ledger.record_root(chain_job, number)

    def _fetch_settled(self, chain_job: int, workers: Iterable[Address]) -> dict[Address, Units]:
        found = self.ledger.accounts(chain_job, sorted(workers), self.ledger.height()) if workers else {}
        return {worker: account.settled for worker, account in found.items()}


def _is_shown(task: PublishedTask, evidence: PublishedEvidence | None) -> bool:
    """Returns whether this evidence is of the task's listed state."""
    return evidence is not None and (task.root, task.state) == (evidence.root, evidence.state)
