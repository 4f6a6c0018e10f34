"""The clause of hearings: each ruling of the job's referee follows from what both sides signed.

Signatures, times and silence need nothing but the transcript. With the job's document every question is asked again,
and the operation that decided is computed again where its values are published, being short. Where they are not, the
whole task is traced on this machine, if it is of the sides' class: the side that gave the same answer cannot have been
wrong.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from gradmarket.auditor import OpenMachine
from gradmarket.compute.executor import Executor
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.errors import MarketError, RunnerFailed
from gradmarket.market.features.disputes.transcript import (
    find_ruling_fault,
    find_transcript_faults,
    list_silent,
    terms_of,
)
from gradmarket.market.job import Publication
from gradmarket.market.messages import Offer
from gradmarket.market.rules.classes import list_checked_classes
from gradmarket.market.terms import Hash
from gradmarket.market.wire.evidence import PublishedEvidence
from gradmarket.market.wire.hearing_messages import PublishedHearing
from gradmarket.market.wire.poll import digest_of
from gradmarket.public_audit.audit_report import count_things
from gradmarket.public_audit.job_proof import Clause, ClauseFinding, ClauseResult, JobRecord
from gradmarket.runner.features.disputes.traced_course import TracedCourse
from gradmarket.runner.features.disputes.tracing_runner import TracingRunner

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
    unplayed: dict[str, int] = field(default_factory=dict)
    """Counts of hearings that were not replayed, by reason."""

    def list_unseen(self) -> Iterator[str]:
        if self.silent:
            who = "1 side was" if self.silent == 1 else f"{self.silent} sides were"
            yield f"whether {who} silent, as the service says"
        if self.undecided:
            yield f"{count_things(self.undecided, 'rulings')} on operations whose values are not published"
        played = ((count_things(count, "hearings"), why) for why, count in self.unplayed.items())
        yield from (f"the operations of {heard}: {why}" for heard, why in played)


def prove_disputes(record: JobRecord, trace: Trace | None) -> list[ClauseResult]:
    """Returns the result of the clause; none for a job of which a referee heard nothing."""
    heard = {task: shown for task, shown in record.evidence.items() if shown.hearings}
    if not heard:
        return []
    seen, count = _Seen(), 0
    for task, shown in heard.items():
        for number, hearing in enumerate(shown.hearings or ()):
            count += 1
            about = f"hearing {number} of task {task}"
            said = [*_find_faults(record, shown, hearing, trace, seen)]
            seen.faults += (ClauseFinding(Clause.DISPUTES, about, why) for why in said)
    played = count - seen.undecided - sum(seen.unplayed.values())
    return [ClauseResult(Clause.DISPUTES, played, "hearings", tuple(seen.faults), tuple(seen.list_unseen()))]


def _find_faults(
    record: JobRecord, shown: PublishedEvidence, hearing: PublishedHearing, trace: Trace | None, seen: _Seen
) -> Iterator[str]:
    if hearing.run is not None and record.publication.spec.panel is None:
        yield "it is of a panel's auditors, and the job has no panel"
    signed = list(find_transcript_faults(record.domain, record.opened.signer, shown.offer_digest, hearing))
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


def _play(
    record: JobRecord, shown: PublishedEvidence, hearing: PublishedHearing, course: TracedCourse, seen: _Seen
) -> Iterator[str]:
    terms = terms_of(record.domain, shown.offer_digest, hearing)
    own = list_checked_classes(course.runner.determinism_class())
    classes = {ballot.worker: ballot.determinism_class for ballot in shown.committed}
    if hearing.run is not None and shown.audit is not None:  # whose panel's auditors are all of its class
        classes = dict.fromkeys(hearing.sides, shown.audit.determinism_class)
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
