"""The proof of a whole job from what is public about it. Pure.

The clauses, in the order in which each rests on those before; every finding cites its clause:

1. TERMS     The contract opened the job for this publication; its signer signs offers, waves, verdicts and vouchers.
2. VERDICTS  Every verdict follows from signed offers, sealed ballots, opened waves, votes and draws (rules.task_proof).
3. ROUNDS    Rounds are merged in order, and start from the parameters that the job's overlap names (rules.overlap);
             what is merged was offered for that start.
4. ANSWERS   A round merges one accepted answer of a task, and as many as the job asks for.
5. PAYMENTS  Each accepted answer is one payment at its offer's price; no other payment exists.
6. BATCHES   Each batch's root in the contract is of exactly the payments that the market names for it.
7. CREDITS   The contract credits each worker with the sum of its batches.

A recomputation (public_audit.recomputation) adds:

8. GRADIENTS Tasks that are computed again have the accepted roots.
9. UPDATES   Rounds that are merged again give the published parameters, from the publication's on.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from contracts.event_types import JobOpened
from contracts.packing import PackedGroup, group_by_worker
from contracts.proofs import batch_root
from gradmarket.market.job import Publication
from gradmarket.market.messages import Offer
from gradmarket.market.rules import overlap
from gradmarket.market.rules.lifecycle import PAID
from gradmarket.market.rules.task_proof import DECIDED, OVER, VerdictCase, list_case_faults
from gradmarket.market.signing import Domain
from gradmarket.market.terms import Address, Digest, Hash, RoundState, TaskState, Units
from gradmarket.market.wire.evidence import PublishedEvidence, PublishedPayment, PublishedRound, PublishedTask
from gradmarket.market.wire.poll import NO_ROOT, hash_of


class Clause(StrEnum):
    """A clause of the proof, in words."""

    TERMS = "the contract opened the job for this publication"
    VERDICTS = "verdicts follow from offers, sealed ballots, waves, votes and draws"
    ROUNDS = "rounds start from the parameters that the rounds before ended with"
    ANSWERS = "each round merges one accepted answer a task"
    PAYMENTS = "accepted answers and payments are the same"
    BATCHES = "the contract's batches hold exactly these payments"
    CREDITS = "the contract credits each worker with its batches"
    GRADIENTS = "gradients computed again have the accepted roots"
    UPDATES = "rounds merged again give the published parameters"


MERGED: Final = frozenset({TaskState.ACCEPTED, TaskState.FINAL})
ON_CHAIN: Final = frozenset({Clause.TERMS, Clause.BATCHES, Clause.CREDITS})
"""Rules that compare with the chain, and are worth what the node is that tells of it."""


@dataclass(frozen=True, slots=True)
class ClauseFinding:
    """A rule that does not hold, and for what: a round, a task, a payment, a batch, a worker."""

    rule: Clause
    about: str
    detail: str

    def __str__(self) -> str:
        return f"{self.about}: {self.detail}"


@dataclass(frozen=True, slots=True)
class BatchOnChain:
    """A batch as the contract has it: its root, and the credits of its events; none where only the root was sent."""

    root: Hash
    groups: tuple[PackedGroup, ...]


@dataclass(frozen=True)
class JobRecord:
    """All that is public about a job; `settled`: units that batches credited each worker with, by the contract."""

    domain: Domain
    opened: JobOpened
    publication: Publication
    rounds: Sequence[PublishedRound]
    tasks: Sequence[PublishedTask]
    evidence: Mapping[str, PublishedEvidence]
    """By the task's id; of the tasks that show any."""
    payments: Sequence[PublishedPayment]
    batches: Mapping[int, BatchOnChain]
    settled: Mapping[Address, Units]

    @property
    def closed(self) -> list[PublishedRound]:
        """The merged rounds, in order."""
        merged = [one for one in self.rounds if one.state is RoundState.CLOSED]
        return sorted(merged, key=lambda one: one.number)

    def find_merged_tasks(self, number: int) -> list[PublishedTask]:
        """Returns the tasks whose answers the round merged."""
        return [one for one in self.tasks if one.used and one.merge_round == number]

    def find_class(self) -> str:
        """Returns the determinism class of most merged answers; empty where none is shown."""
        roots = {task.id: task.root for task in self.tasks if task.used}
        shown = Counter(
            ballot.determinism_class or ""
            for task, root in roots.items()
            if task in self.evidence
            for ballot in self.evidence[task].committed
            if ballot.root == root
        )
        return shown.most_common(1)[0][0] if shown else ""

    def get_offer(self, task: PublishedTask) -> Offer:
        return self.evidence[task.id].offer.struct()


@dataclass(frozen=True)
class ClauseResult:
    """How a rule fared: for so many `checked` `things`; `unseen` names in words what could not be looked at."""

    rule: Clause
    checked: int
    things: str
    faults: tuple[ClauseFinding, ...] = ()
    unseen: tuple[str, ...] = ()


def prove_record(record: JobRecord) -> list[ClauseResult]:
    """Returns the results of rules 1 to 7."""
    return [
        ClauseResult(Clause.TERMS, 1, "publication", tuple(_find_term_faults(record))),
        _prove_verdicts(record),
        ClauseResult(Clause.ROUNDS, len(record.closed), "rounds", tuple(_find_round_faults(record))),
        ClauseResult(Clause.ANSWERS, len(record.closed), "rounds", tuple(_find_answer_faults(record))),
        _prove_payments(record),
        _prove_batches(record),
        ClauseResult(Clause.CREDITS, len(record.settled), "workers", tuple(_find_credit_faults(record))),
    ]


def _find_term_faults(record: JobRecord) -> Iterator[ClauseFinding]:
    told, opened = hash_of(record.publication.digest), record.opened.spec_digest
    if told != opened:
        yield ClauseFinding(
            Clause.TERMS, "the job", f"it is open for 0x{opened.hex()}, and 0x{told.hex()} is published"
        )


def _prove_verdicts(record: JobRecord) -> ClauseResult:
    faults, open_tasks = list[ClauseFinding](), 0
    for task, evidence in record.evidence.items():
        case = VerdictCase(record.domain, record.opened.signer, record.publication.checks, evidence)
        if evidence.state not in OVER:
            open_tasks += 1
        if evidence.committed or evidence.state in DECIDED:
            faults += (ClauseFinding(Clause.VERDICTS, f"task {task}", str(fault)) for fault in list_case_faults(case))
    unseen = [f"the draw of audits of {open_tasks} tasks that are not final"] if open_tasks else []
    hidden = sum(task.state in DECIDED and task.id not in record.evidence for task in record.tasks)
    unseen += [f"the ballots of {hidden} tasks, which are not shown yet"] if hidden else []
    return ClauseResult(Clause.VERDICTS, len(record.evidence), "tasks", tuple(faults), tuple(unseen))


def _find_round_faults(record: JobRecord) -> Iterator[ClauseFinding]:
    spec, rounds = record.publication.spec, record.closed
    numbers = [one.number for one in rounds]
    if numbers != list(range(len(numbers))):
        yield ClauseFinding(Clause.ROUNDS, "the job", f"its merged rounds are {numbers}, with a gap")
        return
    after = {overlap.BEFORE: record.publication.parameters} | {one.number: one.updated for one in rounds}
    starts = {one.number: one.parameters for one in record.rounds}
    for one in rounds:
        begins = after[overlap.starts_after(one.number, spec.overlap)]
        if one.parameters != begins:
            detail = f"it starts from {one.parameters}, and should from {begins}"
            yield ClauseFinding(Clause.ROUNDS, f"round {one.number}", detail)
        for task in record.find_merged_tasks(one.number):
            yield from _find_offer_faults(record, task, starts.get(task.round))


def _find_offer_faults(record: JobRecord, task: PublishedTask, start: Digest | None) -> Iterator[ClauseFinding]:
    """Finds what the offer of a merged task names otherwise than its round; `start` is the round's parameters."""
    if task.id not in record.evidence:
        yield ClauseFinding(Clause.ROUNDS, f"task {task.id}", "it is merged, and its evidence is not shown")
        return
    offer = record.get_offer(task)
    named = (offer.job, offer.round, offer.task, offer.attempt)
    if named != (record.opened.job, task.round, task.index, task.attempt):
        detail = f"its offer is for job, round, task and attempt {named}"
        yield ClauseFinding(Clause.ROUNDS, f"task {task.id}", detail)
    if start is None or offer.parameters != hash_of(start):
        yield ClauseFinding(
            Clause.ROUNDS, f"task {task.id}", "its offer names other parameters than its round starts from"
        )


def _find_answer_faults(record: JobRecord) -> Iterator[ClauseFinding]:
    spec = record.publication.spec
    for one in record.closed:
        merged, about = record.find_merged_tasks(one.number), f"round {one.number}"
        for task in merged:
            if task.state not in MERGED or task.root is None:
                yield ClauseFinding(Clause.ANSWERS, about, f"it merges task {task.id}, which is {task.state}")
        most = Counter((task.round, task.index) for task in merged)
        for (number, index), count in most.items():
            if count > 1:
                detail = f"it merges {count} answers to task {index} of round {number}"
                yield ClauseFinding(Clause.ANSWERS, about, detail)
        if len(merged) < spec.needed_in(one.number):
            detail = f"it merges {len(merged)} answers of {spec.needed_in(one.number)} that the job asks for"
            yield ClauseFinding(Clause.ANSWERS, about, detail)


def _prove_payments(record: JobRecord) -> ClauseResult:
    """Compares payments with accepted ballots. What a holder is paid by worth has no price to compare with."""
    unit, by_worth = record.opened.unit, record.publication.spec.by_worth is not None
    owed = {
        ballot.id: (task, ballot, evidence.offer.price)
        for task, evidence in record.evidence.items()
        for ballot in evidence.committed
        if ballot.state in PAID
    }
    faults, paid = list[ClauseFinding](), Counter(item.replica for item in record.payments)
    for item in record.payments:
        found = owed.get(item.replica)
        if found is None:
            if item.task in record.evidence:
                faults.append(ClauseFinding(Clause.PAYMENTS, f"payment {item.id}", "no accepted answer stands for it"))
            continue
        _, ballot, price = found
        if item.worker != ballot.worker:
            detail = f"it goes to {item.worker}, and the answer is of {ballot.worker}"
            faults.append(ClauseFinding(Clause.PAYMENTS, f"payment {item.id}", detail))
        if item.payload_root is not None and ballot.root is not None and item.payload_root != hash_of(ballot.root):
            faults.append(
                ClauseFinding(Clause.PAYMENTS, f"payment {item.id}", "it names another root than the answer's")
            )
        if not by_worth and item.amount != price * unit:
            detail = f"it is {item.amount}, and the offer's price {price * unit}"
            faults.append(ClauseFinding(Clause.PAYMENTS, f"payment {item.id}", detail))
    for replica, (task, ballot, _) in owed.items():
        if paid[replica] == 0 and not by_worth:
            detail = f"the accepted answer of {ballot.worker} has no payment"
            faults.append(ClauseFinding(Clause.PAYMENTS, f"task {task}", detail))
        if paid[replica] > 1 and not by_worth:
            detail = f"the answer of {ballot.worker} has {paid[replica]} payments"
            faults.append(ClauseFinding(Clause.PAYMENTS, f"task {task}", detail))
    unseen = ("the amounts, which follow a measure of worth",) if by_worth else ()
    return ClauseResult(Clause.PAYMENTS, len(record.payments), "payments", tuple(faults), unseen)


def _prove_batches(record: JobRecord) -> ClauseResult:
    faults, unseen = list[ClauseFinding](), list[str]()
    told = {number: [item for item in record.payments if item.batch == number] for number in record.batches}
    for number, batch in record.batches.items():
        about, rows = f"batch {number}", _list_credits(record, told[number])
        groups = batch.groups or tuple(group_by_worker(rows))
        if any(digest is NO_ROOT for _, _, digest in rows):
            unseen.append(f"the roots of {about}, whose answers are not shown yet")
        elif not groups or batch_root(groups) != batch.root:
            faults.append(ClauseFinding(Clause.BATCHES, about, "the root in the contract is not of what it holds"))
        elif Counter(rows) != Counter(_unpack_groups(batch.groups or groups)):
            faults.append(ClauseFinding(Clause.BATCHES, about, "the contract credited others than the market names"))
    for item in record.payments:
        if item.batch is not None and item.batch not in record.batches and item.batch_state == "settled":
            faults.append(
                ClauseFinding(Clause.BATCHES, f"payment {item.id}", f"the contract has no batch {item.batch}")
            )
    waiting = sum(item.batch is None or item.batch not in record.batches for item in record.payments)
    unseen += [f"{waiting} payments that are in no settled batch"] if waiting else []
    return ClauseResult(Clause.BATCHES, len(record.batches), "batches", tuple(faults), tuple(unseen))


def _list_credits(record: JobRecord, items: Iterable[PublishedPayment]) -> list[tuple[Address, Units, Hash]]:
    """Returns (worker, units, root) of each payment, in the order of the batch's rows."""
    ordered = sorted(items, key=lambda item: item.id)
    return [(item.worker, Units(item.amount // record.opened.unit), item.payload_root or NO_ROOT) for item in ordered]


def _unpack_groups(groups: Iterable[PackedGroup]) -> Iterator[tuple[Address, Units, Hash]]:
    return ((group.worker, group.price, digest) for group in groups for digest in group.digests)


def _find_credit_faults(record: JobRecord) -> Iterator[ClauseFinding]:
    sums = Counter[Address]()
    for number, batch in record.batches.items():
        rows = list(_unpack_groups(batch.groups))
        for worker, units, _ in rows or _list_credits(record, (p for p in record.payments if p.batch == number)):
            sums[worker] += units
    for worker, units in record.settled.items():
        if units != sums[worker]:
            detail = f"the contract has {units} units of batches for it, and they sum to {sums[worker]}"
            yield ClauseFinding(Clause.CREDITS, f"worker {worker}", detail)
