"""The clause of hearings: each ruling of the job's referee follows from what both sides signed.

Signatures, times and silence need nothing but the transcript. With the job's document every question is asked again,
and the operation that decided is computed again where its values are published, being short. Where they are not, the
whole task is traced on this machine, if it is of the sides' class: the side that gave the same answer cannot have been
wrong.

Each hearing is a leaf of the job's log from its beginning on, and so is the number of its answers at its end: a hidden
one is found there, where its sides looked that up (`wallet verify`), and by the signed receipts that they have. A
service that gave no receipt may call an answer silence.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import permutations, product
from math import inf

from gradmarket.auditor import OpenMachine
from gradmarket.compute.executor import Executor
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.errors import MarketError, RunnerFailed
from gradmarket.market.features.disputes.questions import HEARING_S, MOST_VALUES
from gradmarket.market.features.disputes.receipts import KeptReceipt, ReceiptScope, judge_receipt, list_answer_counts
from gradmarket.market.features.disputes.transcript import (
    NO_RULING,
    count_answers,
    find_ruling_fault,
    find_transcript_faults,
    list_silent,
    terms_of,
)
from gradmarket.market.features.log.job_log import SKEW_S, encode_answers, encode_hearing, list_restores
from gradmarket.market.features.log.merkle import hash_leaf
from gradmarket.market.job import Publication
from gradmarket.market.messages import Offer
from gradmarket.market.rules.classes import list_checked_classes
from gradmarket.market.terms import TASK_DECIDED, Address, Hash, TaskState
from gradmarket.market.wire.evidence import PublishedEvidence
from gradmarket.market.wire.hearing_messages import PublishedHearing
from gradmarket.market.wire.poll import digest_of
from gradmarket.public_audit.audit_report import describe_count
from gradmarket.public_audit.job_proof import Clause, ClauseFinding, ClauseResult, JobRecord
from gradmarket.runner.features.disputes.traced_course import TracedCourse
from gradmarket.runner.features.disputes.tracing_runner import TracingRunner

MOST_REOPENED = 32
"""How often an audit is opened again at most, as far as hidden hearings are looked for."""
Trace = Callable[[Offer], AbstractContextManager[TracedCourse]]
"""Opens a task on this machine. Raises MarketError, RunnerFailed where it cannot be computed here."""


def trace_on(mine: OpenMachine, fetcher: Fetcher, publication: Publication) -> Trace:
    """Returns a function that opens a task on this machine, in a child of its own."""

    @contextmanager
    def trace(offer: Offer) -> Iterator[TracedCourse]:
        with TracingRunner(mine.runner.settings) as runner:
            yield TracedCourse(runner, Executor(runner, fetcher, mine.limits).inputs_of(publication, offer))

    return trace


@dataclass
class _Seen:
    faults: list[ClauseFinding] = field(default_factory=list)
    silent: int = 0
    undecided: int = 0
    unheard: int = 0
    under_way: int = 0
    """Counts rulings by silence, rulings that were not computed again, split votes of failed tasks that nobody heard,
    and hearings that nothing followed from yet."""
    unplayed: dict[str, int] = field(default_factory=dict)
    """Counts of hearings that were not replayed, by reason."""
    receipts: Counter[str] = field(default_factory=Counter)
    """Counts of receipts that show nothing, by reason."""
    referee: str = ""
    """The referee, where its address is the market's word."""

    def list_unseen(self) -> Iterator[str]:
        if self.silent:
            who = "1 side was" if self.silent == 1 else f"{self.silent} sides were"
            yield f"whether {who} silent, as the service says and no receipt contradicts"
        if self.undecided:
            yield f"{describe_count(self.undecided, 'rulings')} on operations whose values are not published"
        played = ((describe_count(count, "hearings"), why) for why, count in self.unplayed.items())
        yield from (f"the operations of {heard}: {why}" for heard, why in played)
        if self.unheard:
            votes = describe_count(self.unheard, "split votes")
            yield f"why nobody heard {votes} of failed tasks: the log has no hearing of them"
        if self.under_way:
            yield f"{describe_count(self.under_way, 'hearings')} still under way"
        yield from (f"{describe_count(count, 'receipts')} {why}" for why, count in self.receipts.items())
        if self.referee:
            yield f"whether {self.referee} is the job's referee: the market's own node says so (--rpc)"


def prove_disputes(
    record: JobRecord,
    trace: Trace | None,
    receipts: Collection[KeptReceipt] = (),
    now: float = inf,
    own_node: bool = True,
) -> list[ClauseResult]:
    """Returns the result of the clause; none for a job of which a referee heard nothing, and hid nothing.

    `receipts`: of sides that tell this auditor what they answered. `now`, in Unix seconds: a restore that the log
    admits for a later time is none. `own_node`: whether the contract is read by a node that the market does not name.
    """
    seen, count, leaves = _Seen(), 0, frozenset(record.log.leaves if record.publication.spec.refereed else ())
    for task, shown in record.evidence.items():
        hidden = [ClauseFinding(Clause.DISPUTES, f"task {task}", why) for why in _find_hidden(leaves, shown)]
        seen.faults += hidden
        # the task failed with answers that differ, and no hearing is shown
        differ = len({one.root for one in shown.committed if one.salt is not None}) > 1
        failed = record.publication.spec.refereed and shown.state is TaskState.FAILED
        seen.unheard += not hidden and failed and differ and not shown.hearings
        for number, hearing in enumerate(shown.hearings or ()):
            count += 1
            about = f"hearing {number} of task {task}"
            faults = [*_find_faults(record, shown, hearing, trace, seen)]
            seen.faults += (ClauseFinding(Clause.DISPUTES, about, why) for why in faults)
    if receipts:
        by_offer, log = {shown.offer_digest: shown for shown in record.evidence.values()}, record.log
        past = [one for one in (() if log.head is None else log.head.restarts) if one.at <= now + SKEW_S]
        restores = list(list_restores(record.opened.job, log.leaves, past, log.carried))
        scope = ReceiptScope(record.domain, record.opened.signer, record.opened.job, log.leaves, restores)
        for kept in receipts:
            judged = judge_receipt(scope, kept, by_offer.get(kept.offer))
            if judged.fault:
                seen.faults.append(ClauseFinding(Clause.DISPUTES, f"task {kept.task}", judged.fault))
            elif judged.note:
                seen.receipts[judged.note] += 1
    if not own_node and (count or receipts):
        seen.referee = record.opened.signer
    played = count - seen.undecided - seen.under_way - sum(seen.unplayed.values())
    unseen = tuple(seen.list_unseen())
    if not count and not seen.faults and not unseen:
        return []
    return [ClauseResult(Clause.DISPUTES, played, "hearings", tuple(seen.faults), unseen)]


def _find_hidden(leaves: Collection[Hash], shown: PublishedEvidence) -> Iterator[str]:
    """Finds hearings of the task's workers or auditors that the log has and the evidence does not show."""
    heard = {(each.sides, each.run) for each in shown.hearings or ()}
    for sides, run in _list_possible_hearings(shown) if leaves else ():
        leaf = Hash(hash_leaf(encode_hearing(shown.offer_digest, *sides, run)))
        if (sides, run) not in heard and leaf in leaves:
            yield f"the log has a hearing of {' and '.join(sides)}, which is hidden"
    for each in shown.hearings or () if leaves else ():
        own = encode_answers(shown.offer_digest, *each.sides, each.run, *count_answers(each))
        more = list_answer_counts(shown.offer_digest, each.sides, each.run, count_answers(each))
        if any(data != own and Hash(hash_leaf(data)) in leaves for data in more):
            yield f"the log has more answers in the hearing of {' and '.join(each.sides)} than are shown"


def _list_possible_hearings(shown: PublishedEvidence) -> Iterator[tuple[tuple[Address, Address], int | None]]:
    """Yields the sides and runs of all hearings that may be held of the task: a run of its audit begins after as many
    computations as those before it, and an audit that is opened again skips one."""
    seats = (None if shown.audit is None else shown.audit.panel) or ()
    last = min(max((seat.run for seat in seats), default=-1), len(seats) + MOST_REOPENED)
    runs = range(last + len(seats) + 1 + MOST_REOPENED)
    workers = permutations(sorted({one.worker for one in shown.committed}), 2)
    auditors = permutations(sorted({seat.signer for seat in seats if seat.signer is not None}), 2)
    yield from ((sides, None) for sides in workers)
    yield from product(auditors, runs)


def _find_faults(
    record: JobRecord, shown: PublishedEvidence, hearing: PublishedHearing, trace: Trace | None, seen: _Seen
) -> Iterator[str]:
    if hearing.run is not None and record.publication.spec.panel is None:
        yield "it is of a panel's auditors, and the job has no panel"
    due = max(HEARING_S, shown.offer.lease_seconds + shown.offer.upload_seconds)
    if hearing.answer_s != due:
        yield f"its sides had {hearing.answer_s} s for an answer, and the offer gives {due} s"
    if hearing.most_values < MOST_VALUES:
        yield f"its referee held {hearing.most_values} bytes of an operation, and the rules give {MOST_VALUES}"
    classes = _list_classes(shown, hearing)
    if not hearing.across and len({classes[side] for side in hearing.sides if side in classes}) > 1:
        yield "its sides answered in two classes, whose bits differ, and it judged them by their bits"
    signed = list(find_transcript_faults(record.domain, record.opened.signer, shown.offer_digest, hearing))
    decided = shown.state in TASK_DECIDED  # the answer is chosen that its referee was to choose: the task's
    if hearing.run is not None:  # or its audit's
        decided = shown.audit is not None and shown.audit.root is not None
    if hearing.ruling is None and not decided:
        signed.remove(NO_RULING)
        seen.under_way += 1
    yield from signed
    ruling = hearing.ruling
    if signed or ruling is None:
        return
    seen.silent += len(set(ruling.wrong) & list_silent(hearing))
    if trace is None:
        seen.unplayed["no task is computed here"] = seen.unplayed.get("no task is computed here", 0) + 1
        return
    try:
        with trace(shown.offer.struct()) as course:
            yield from _play(record, shown, hearing, course, seen)
    except (MarketError, RunnerFailed) as error:
        seen.unplayed[str(error)] = seen.unplayed.get(str(error), 0) + 1


def _list_classes(shown: PublishedEvidence, hearing: PublishedHearing) -> Mapping[Address, str | None]:
    """Returns the determinism classes in which the sides answered: auditors of a panel all in that of its audit."""
    if hearing.run is not None and shown.audit is not None:
        return dict.fromkeys(hearing.sides, shown.audit.determinism_class)
    return {ballot.worker: ballot.determinism_class for ballot in shown.committed}


def _play(
    record: JobRecord, shown: PublishedEvidence, hearing: PublishedHearing, course: TracedCourse, seen: _Seen
) -> Iterator[str]:
    terms = terms_of(record.domain, shown.offer_digest, hearing)
    own = list_checked_classes(course.runner.determinism_class())
    classes = _list_classes(shown, hearing)
    alike = all(classes.get(side) in own for side in hearing.sides)
    fault, whole = find_ruling_fault(terms, course, hearing, course.redo if alike else None)
    if fault:
        yield fault
    if fault or whole:
        return
    if not alike or hearing.ruling is None:
        seen.undecided += 1
        return
    root = digest_of(Hash(course.runner.trace(course.inputs).root))
    silent = list_silent(hearing)
    for side, answered in zip(hearing.sides, hearing.roots, strict=True):
        if answered == root and side in hearing.ruling.wrong and side not in silent:
            yield f"{side} lost, and its answer is the one that the task has here"
