"""The proof of a whole job from its public record. Pure.

The clauses, in the order in which each rests on those before; every finding cites its clause:

1. TERMS     The contract opened the job for this publication; its signer signs offers, waves, verdicts and vouchers.
2. VERDICTS  Every verdict follows from signed offers of the job's own tasks, sealed ballots, opened waves, votes and
             draws (features.verify).
3. ROUNDS    Rounds are merged in order, and start from the parameters that the job's overlap names (rules.overlap);
             what is merged was offered for that start.
4. ANSWERS   A round merges one accepted answer of a task, and as many as the job asks for.
5. PAYMENTS  Each accepted answer is one payment at its offer's price; the market names no other.
6. BATCHES   Each batch's root in the contract is of exactly the payments that the market names for it.
7. CREDITS   The contract credits each worker with the sum of its batches, and paid nobody more than these payments.
public_audit.log_proof adds:

8. LOG       The heads of the job's log in its batches, and the signed one, are of the listed leaves; what a batch pays
             was logged before it, with all that its verdict rests on (features.log.job_log).

public_audit.start_proof adds, for a job that continues another one:

   START     It starts from the parameters and the optimizer's state that the other ended with, after its rounds.

public_audit.features.disputes adds, for a job whose answers were heard by a referee:

   DISPUTES  Questions, answers and rulings are signed, and each ruling follows from them (features.disputes).

public_audit.panel_proof adds, for a job whose audits panels decide:

   PANELS    So many auditors as the job names sealed and signed the answer that an audit found (features.auditors).

A recomputation (public_audit.recomputation) adds:

9. GRADIENTS Tasks that are computed again have the accepted roots.
10. UPDATES  Rounds that are merged again give the published parameters, from the publication's on.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Final

from contracts.event_types import JobOpened
from contracts.log_heads import list_payments
from contracts.packing import PackedGroup, group_by_worker
from contracts.proofs import batch_root
from gradmarket.market.errors import Refused
from gradmarket.market.features.verify import VerdictCase, list_case_faults
from gradmarket.market.job import Publication
from gradmarket.market.messages import LogHead, Offer
from gradmarket.market.rules import overlap
from gradmarket.market.rules.lifecycle import PAID
from gradmarket.market.signing import Domain
from gradmarket.market.terms import (
    TASK_COUNTED,
    TASK_ENDED,
    Address,
    Hash,
    JobState,
    ReplicaId,
    RoundState,
    TaskState,
    Units,
)
from gradmarket.market.wire.evidence import (
    PublishedBallot,
    PublishedEvidence,
    PublishedPayment,
    PublishedRound,
    PublishedTask,
)
from gradmarket.market.wire.log_proofs import PublishedHead
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
    DISPUTES = "rulings follow from what both sides of each hearing signed"
    PANELS = "audits by panels follow from answers that their auditors sealed and signed"
    START = "it starts from what the job that it continues ended with"
    LOG = "the log is the one that the batches carry, and has every record"
    GRADIENTS = "gradients computed again have the accepted roots"
    UPDATES = "rounds merged again give the published parameters"
    CLAIMS = "claims of the round have its digests, which were withheld"


EXACT: Final = "exact"
REPLAY: Final = "replay"
MERGED: Final = frozenset({TaskState.ACCEPTED, TaskState.FINAL})
ON_CHAIN: Final = frozenset({Clause.TERMS, Clause.BATCHES, Clause.CREDITS, Clause.LOG, Clause.START})
"""Rules that compare with the chain, and deserve only as much trust as the node that reports it."""


@dataclass(frozen=True, slots=True)
class ClauseFinding:
    """A rule that does not hold, and its subject: a round, a task, a payment, a batch or a worker."""

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
class JobLog:
    """A job's log: the hashes of its leaves and the signed head, as the market reports them, and the batches' heads."""

    leaves: Sequence[Hash] = ()
    head: PublishedHead | None = None
    carried: Mapping[int, LogHead] = field(default_factory=dict)


@dataclass(frozen=True)
class EarlierJob:
    """The public record of the end of a job that another one continues."""

    opened: JobOpened
    publication: Publication
    rounds: Sequence[PublishedRound]
    state: JobState
    log: JobLog

    @property
    def closed(self) -> list[PublishedRound]:
        return list_closed(self.rounds)


def list_closed(rounds: Iterable[PublishedRound]) -> list[PublishedRound]:
    """Returns the merged rounds, in order."""
    return sorted((one for one in rounds if one.state is RoundState.CLOSED), key=lambda one: one.number)


@dataclass(frozen=True)
class JobRecord:
    """All that is public about a job; `settled`: units that batches credited each worker with, by the contract."""

    domain: Domain
    opened: JobOpened
    publication: Publication
    rounds: Sequence[PublishedRound]
    tasks: Sequence[PublishedTask]
    evidence: Mapping[str, PublishedEvidence]
    """By the task's id."""
    payments: Sequence[PublishedPayment]
    batches: Mapping[int, BatchOnChain]
    settled: Mapping[Address, Units]
    paid: Mapping[Address, Units]
    """Total paid out to each worker, by batches and vouchers, in units."""
    state: JobState
    """Of a job that is over."""
    log: JobLog
    earlier: EarlierJob | str = ""
    """The end of the job that this one continues, or why it is not seen."""

    @property
    def closed(self) -> list[PublishedRound]:
        return list_closed(self.rounds)

    @cached_property
    def merged(self) -> Mapping[int, Sequence[PublishedTask]]:
        """The tasks whose answers each round merged."""
        found = defaultdict[int, list[PublishedTask]](list)
        for task in self.tasks:
            if task.used:
                found[task.merge_round].append(task)
        return found

    def find_merged_tasks(self, number: int) -> Sequence[PublishedTask]:
        return self.merged.get(number, ())

    @cached_property
    def ballots(self) -> Mapping[ReplicaId, tuple[str, PublishedBallot]]:
        """By the replica's id: its task, and its ballot."""
        return {ballot.id: (task, ballot) for task, evidence in self.evidence.items() for ballot in evidence.committed}

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
    """The result of a rule: the number of `checked` `things`; `unseen` describes the things that could not be
    checked.
    """

    rule: Clause
    checked: int
    things: str
    faults: tuple[ClauseFinding, ...] = ()
    unseen: tuple[str, ...] = ()


def prove_record(record: JobRecord) -> list[ClauseResult]:
    """Returns the results of clauses 1 to 7."""
    digest, opened = hash_of(record.publication.digest), record.opened.spec_digest
    other = f"it is open for 0x{opened.hex()}, and 0x{digest.hex()} is published"
    faults = () if digest == opened else (ClauseFinding(Clause.TERMS, "the job", other),)
    return [
        ClauseResult(Clause.TERMS, 1, "publication", faults),
        _prove_verdicts(record),
        _prove_rounds(record),
        _prove_answers(record),
        _prove_payments(record),
        _prove_batches(record),
        ClauseResult(Clause.CREDITS, len(record.settled), "workers", tuple(_find_credit_faults(record))),
    ]


def _prove_verdicts(record: JobRecord) -> ClauseResult:
    faults, offers, states = list[ClauseFinding](), Counter[Hash](), Counter[str]()
    listed = {task.id: task for task in record.tasks}
    for task, evidence in record.evidence.items():
        case = VerdictCase(record.domain, record.opened.signer, record.publication.checks, evidence)
        offers[evidence.offer_digest] += 1
        is_gathering = not evidence.committed and evidence.state not in TASK_COUNTED
        found = () if is_gathering else map(str, list_case_faults(case))
        found_faults = [*_find_offer_faults(record, listed[task], evidence), *found]
        if offers[evidence.offer_digest] > 1:
            found_faults.append("another task has the same offer")
        # an audit that compared bits found another root than the one that stands
        exact = record.publication.spec.verifier.name == EXACT
        audited = evidence.audit.root if evidence.audit is not None else None
        if exact and evidence.state is TaskState.FINAL and audited not in (None, evidence.root):
            found_faults.append("an audit found another root, and the answer stands")
        faults += (ClauseFinding(Clause.VERDICTS, f"task {task}", fault) for fault in found_faults)
        states["the draw of audits of {} tasks that are not final"] += evidence.state not in TASK_ENDED
        states["{} tasks to which nobody committed yet"] += is_gathering
    unseen = tuple(text.format(count) for text, count in states.items() if count)
    hidden = [task.id for task in record.tasks if task.id not in record.evidence]
    faults += (ClauseFinding(Clause.VERDICTS, f"task {task}", "it is listed, and shows nothing") for task in hidden)
    faults += _find_repeated_names(Clause.VERDICTS, "task", (task.id for task in record.tasks))
    replicas = (ballot.id for evidence in record.evidence.values() for ballot in evidence.committed)
    faults += _find_repeated_names(Clause.VERDICTS, "replica", replicas)
    faults += _find_hidden_attempts(record)
    return ClauseResult(Clause.VERDICTS, len(record.evidence), "tasks", tuple(faults), unseen)


def _find_repeated_names(rule: Clause, noun: str, names: Iterable[object]) -> Iterator[ClauseFinding]:
    """Finds names that stand for two things: the proof looks each up by its name, and would see the other alone."""
    for name, times in Counter(names).items():
        if times > 1:
            yield ClauseFinding(rule, f"{noun} {name}", f"{times} of this name are listed")


def _find_hidden_attempts(record: JobRecord) -> Iterator[ClauseFinding]:
    """Finds attempts that are not listed although a later one is: they are numbered from 0 on."""
    attempts = defaultdict[tuple[int, int], set[int]](set)
    for task in record.tasks:
        attempts[task.round, task.index].add(task.attempt)
    for (number, index), listed in attempts.items():
        if len(listed) <= max(listed):
            detail = f"of task {index}, attempts {sorted(listed)} are listed, and none of those between or before"
            yield ClauseFinding(Clause.VERDICTS, f"round {number}", detail)


def _find_offer_faults(record: JobRecord, task: PublishedTask, evidence: PublishedEvidence) -> Iterator[str]:
    """Finds faults by which an offer is not the job's, or the listed task differs from its evidence."""
    offer, spec = evidence.offer.struct(), record.publication.spec
    named = (offer.job, offer.round, offer.task, offer.attempt)
    if named != (record.opened.job, task.round, task.index, task.attempt):
        yield f"its offer is for job, round, task and attempt {named}"
    elif not spec.has_task(offer.round, offer.task):
        yield "the job has no such task"
    elif offer.seed != spec.seed_of(offer.round, offer.task):
        yield "its offer has another seed than the job's"
    if offer.price * record.opened.unit > spec.price.most:
        yield f"its price is {offer.price * record.opened.unit}, and the job's highest {spec.price.most}"
    if (task.root, task.state) != (evidence.root, evidence.state):
        yield "the list of tasks has another root or state than its evidence"


def _prove_rounds(record: JobRecord) -> ClauseResult:
    spec, rounds, closed = record.publication.spec, record.closed, len(record.closed)
    faults, unseen = list[ClauseFinding](), tuple[str, ...]()
    faults += _find_repeated_names(Clause.ROUNDS, "round", (one.number for one in record.rounds))
    if (numbers := [one.number for one in rounds]) != list(range(closed)):
        faults.append(ClauseFinding(Clause.ROUNDS, "the job", f"its merged rounds are {numbers}, with a gap"))
        rounds = []
    after = {overlap.BEFORE: record.publication.parameters} | {one.number: one.updated for one in rounds}
    starts = {one.number: one.parameters for one in record.rounds}
    for one in rounds:
        begins = after[overlap.starts_after(one.number, spec.overlap)]
        if one.parameters != begins:
            detail = f"it starts from {one.parameters}, and should from {begins}"
            faults.append(ClauseFinding(Clause.ROUNDS, f"round {one.number}", detail))
        for task in record.find_merged_tasks(one.number):
            start, shown = starts.get(task.round), record.evidence.get(task.id)
            if shown is None or start is None or shown.offer.parameters != hash_of(start):
                detail = "it is merged, and its offer names other parameters than its round starts from"
                faults.append(ClauseFinding(Clause.ROUNDS, f"task {task.id}", detail))
    if record.state is JobState.FINISHED and closed < spec.rounds:
        ending = spec.ending
        early = bool(ending.rules or spec.deadlines.end or ending.budgets)
        why = f"it is finished after {closed} rounds of {spec.rounds}"
        if early:
            unseen = (f"whether the rule that ended it after {closed} rounds of {spec.rounds} was met",)
        else:
            faults.append(ClauseFinding(Clause.ROUNDS, "the job", f"{why}, and no rule of it ends it sooner"))
    if closed > spec.rounds:
        faults.append(ClauseFinding(Clause.ROUNDS, "the job", f"it has {closed} rounds, and promised {spec.rounds}"))
    return ClauseResult(Clause.ROUNDS, closed, "rounds", tuple(faults), unseen)


def _prove_answers(record: JobRecord) -> ClauseResult:
    spec, faults, revoked = record.publication.spec, list[ClauseFinding](), 0
    kept = record.state is not JobState.FINISHED or (spec.audit is not None and spec.audit.on_failure != REPLAY)
    for one in record.closed:
        merged, about = record.find_merged_tasks(one.number), f"round {one.number}"
        for task in merged:
            if task.state is TaskState.REVOKED and kept:
                revoked += 1
            elif task.state not in MERGED or task.root is None:
                faults.append(ClauseFinding(Clause.ANSWERS, about, f"it merges task {task.id}, which is {task.state}"))
        for (number, index), count in Counter((task.round, task.index) for task in merged).items():
            if count > 1:
                detail = f"it merges {count} answers to task {index} of round {number}"
                faults.append(ClauseFinding(Clause.ANSWERS, about, detail))
        least, most = spec.needed_in(one.number), spec.sizes.of(one.number)
        if not least <= len(merged) <= most:
            asked = f"{least}" if least == most else f"{least} to {most}"
            detail = f"it merges {len(merged)} answers, and the job asks for {asked}"
            faults.append(ClauseFinding(Clause.ANSWERS, about, detail))
    unseen = (f"{revoked} merged answers were revoked afterwards, and no round was done again",) if revoked else ()
    return ClauseResult(Clause.ANSWERS, len(record.closed), "rounds", tuple(faults), unseen)


def _prove_payments(record: JobRecord) -> ClauseResult:
    """Compares payments with accepted ballots. A holder's pay by worth has no price to compare with."""
    unit, by_worth = record.opened.unit, record.publication.spec.by_worth is not None
    faults, paid = list[ClauseFinding](), Counter(item.replica for item in record.payments)
    for item in record.payments:
        task, ballot = record.ballots.get(item.replica, ("", None))
        if ballot is None or ballot.state not in PAID:
            faults.append(ClauseFinding(Clause.PAYMENTS, f"payment {item.id}", "no accepted answer stands for it"))
            continue
        price = record.evidence[task].offer.price
        published = {
            f"it names task {item.task}, and the answer is to task {task}": item.task != task,
            f"it goes to {item.worker}, and the answer is of {ballot.worker}": item.worker != ballot.worker,
            "it names another root than the answer's": (
                ballot.root is not None and item.payload_root != hash_of(ballot.root)
            ),
            f"it is {item.amount}, and the offer's price {price * unit}": not by_worth and item.amount != price * unit,
        }
        faults += (
            ClauseFinding(Clause.PAYMENTS, f"payment {item.id}", why) for why, wrong in published.items() if wrong
        )
    for replica, (task, ballot) in record.ballots.items():
        if ballot.state in PAID and paid[replica] != 1 and not by_worth:
            detail = f"the accepted answer of {ballot.worker} has {paid[replica] or 'no'} payments"
            faults.append(ClauseFinding(Clause.PAYMENTS, f"task {task}", detail))
    unseen = ("the amounts, which follow a measure of worth",) if by_worth else ()
    return ClauseResult(Clause.PAYMENTS, len(record.payments), "payments", tuple(faults), unseen)


def _prove_batches(record: JobRecord) -> ClauseResult:
    faults, unseen, rooted = list[ClauseFinding](), list[str](), 0
    published = defaultdict[int | None, list[PublishedPayment]](list)
    for item in record.payments:
        published[item.batch].append(item)
    for number, batch in record.batches.items():
        about, ordered = f"batch {number}", sorted(published[number], key=lambda item: item.id)
        rows = [  # in the order of the batch's own
            (item.worker, Units(item.amount // record.opened.unit), item.payload_root or NO_ROOT) for item in ordered
        ]
        try:
            groups = batch.groups or tuple(group_by_worker(rows))
            proven = bool(groups) and batch_root(groups) == batch.root
            groups = tuple(list_payments(groups))
        except Refused as error:
            faults.append(ClauseFinding(Clause.BATCHES, about, f"its payments are none of a batch: {error.detail}"))
            continue
        rooted += not batch.groups
        if not proven:
            faults.append(ClauseFinding(Clause.BATCHES, about, "the root in the contract is not of what it holds"))
        elif Counter(rows) != Counter(_unpack_groups(groups)):
            faults.append(ClauseFinding(Clause.BATCHES, about, "the contract credited others than the market names"))
    waiting = 0
    for item in record.payments:
        if item.batch in record.batches:
            continue
        waiting += 1
        if item.batch_state == "settled":
            faults.append(
                ClauseFinding(Clause.BATCHES, f"payment {item.id}", f"the contract has no batch {item.batch}")
            )
    unseen += [f"{waiting} payments that are in no settled batch"] if waiting else []
    unseen += [f"the sums of {rooted} batches, of which the contract has the root alone"] if rooted else []
    return ClauseResult(Clause.BATCHES, len(record.batches), "batches", tuple(faults), tuple(unseen))


def _unpack_groups(groups: Iterable[PackedGroup]) -> Iterator[tuple[Address, Units, Hash]]:
    return ((group.worker, group.price, digest) for group in groups for digest in group.digests)


def _find_credit_faults(record: JobRecord) -> Iterator[ClauseFinding]:
    """Compares the contract's credits and payouts of each worker with the payments that the market names."""
    sums, named = Counter[Address](), Counter[Address]()
    for item in record.payments:
        named[item.worker] += item.amount // record.opened.unit
        if item.batch is not None and item.batch in record.batches and not record.batches[item.batch].groups:
            sums[item.worker] += item.amount // record.opened.unit
    for batch in record.batches.values():
        for worker, units, _ in _unpack_groups(list_payments(batch.groups)):
            sums[worker] += units
    for worker, units in record.settled.items():
        if units != sums[worker]:
            detail = f"the contract has {units} units of batches for it, and they sum to {sums[worker]}"
            yield ClauseFinding(Clause.CREDITS, f"worker {worker}", detail)
    for worker, units in record.paid.items():
        if units > named[worker]:
            detail = f"the contract paid it {units} units, and the market names {named[worker]}"
            yield ClauseFinding(Clause.CREDITS, f"worker {worker}", detail)
