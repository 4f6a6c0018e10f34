"""Clause 8 of the proof of a job: its log is the one that its batches carry, and records all that they pay for.
Pure.
"""

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping

from gradmarket.market.features.disputes.transcript import count_answers
from gradmarket.market.features.log import job_log
from gradmarket.market.features.log.merkle import hash_leaf
from gradmarket.market.messages import Outcome
from gradmarket.market.rules.proof import is_signed_by
from gradmarket.market.signing import Domain
from gradmarket.market.terms import TASK_COUNTED, TASK_ENDED, Address, Hash, ReplicaId, Units
from gradmarket.market.wire.evidence import PublishedBallot, PublishedEvidence
from gradmarket.market.wire.log_proofs import PublishedRestart
from gradmarket.market.wire.poll import NO_ROOT
from gradmarket.public_audit.audit_report import describe_count
from gradmarket.public_audit.job_proof import Clause, ClauseFinding, ClauseResult, JobLog, JobRecord

Records = Iterator[tuple[str, bytes, int | None]]
"""Of each record: its name, its leaf, and how long the log is, at most, by which it must be there; None: any time."""


def prove_log(record: JobRecord) -> ClauseResult:
    """Compares heads with leaves, and looks up every public record among the leaves."""
    log, faults = record.log, list[ClauseFinding]()
    if log.head is None and not log.carried:
        return ClauseResult(Clause.LOG, 0, "leaves", unseen=("the log: neither the market nor a batch has one",))
    lost, signer = find_lost_heads(log), record.opened.signer
    faults += (ClauseFinding(Clause.LOG, about, why) for about, why in find_history_faults(log, record.domain, signer))
    places, found, missing = {leaf: number for number, leaf in enumerate(log.leaves)}, set[bytes](), 0
    for about, data, size in _list_records(record, lost):
        leaf = Hash(hash_leaf(data))
        found.add(leaf)
        if size is not None and places.get(leaf, size) >= size:
            whole = log.head is not None and size == log.head.size
            ends = "its signer ended the job with" if whole else "the batch of its pay carries"
            faults.append(ClauseFinding(Clause.LOG, about, f"it is not in the log of {size} leaves that {ends}"))
        missing += size is None and leaf not in places
    faults += _find_other_attempts(record, places)
    restored = [*describe_lost_heads(log)]
    copies = [] if log.head is None else list(job_log.list_restores(record.opened.job, log.leaves, log.head.restarts))
    restored += [
        f"what the service told after leaf {one.number} of its log before Unix time {one.at}: it was restored then, "
        "from a copy that ends there"
        for one in copies
    ]
    found |= {log.leaves[one.number] for one in (*lost.values(), *copies)}
    carried = max((head.size for head in log.carried.values()), default=0)
    counts = {
        "records that are not in the log": missing,
        "leaves after the last batch, for which the market's signature stands": len(log.leaves) - carried,
        "leaves of records that are not public any more": len(places.keys() - found),
    }
    unseen = (*restored, *(f"{count} {noun}" for noun, count in counts.items() if count > 0))
    return ClauseResult(Clause.LOG, len(log.leaves), "leaves", tuple(faults), unseen)


def find_lost_heads(log: JobLog) -> dict[int, PublishedRestart]:
    """Returns, by batch, the restarts that admit the loss of its head: the log does not lead to it, and a leaf under
    the signed head records that."""
    return {
        restart.batch: restart
        for restart in (() if log.head is None else log.head.restarts)
        if restart.batch in log.carried
        and job_log.is_restart(log.leaves, restart.number, restart.batch, log.carried[restart.batch], restart.at)
    }


def describe_lost_heads(log: JobLog) -> Iterator[str]:
    for batch, restart in find_lost_heads(log).items():
        yield (
            f"the log of {log.carried[batch].size} leaves that batch {batch} carries: its leaf {restart.number} says "
            f"that the service was restored without them, at Unix time {restart.at}"
        )


def find_history_faults(log: JobLog, domain: Domain, signer: Address) -> Iterator[tuple[str, str]]:
    """Yields each head, of the batches or signed, to which the leaves do not lead, and the reason; and a wrong
    signature."""
    lost = find_lost_heads(log)
    heads = [(f"batch {number}", head) for number, head in log.carried.items() if number not in lost]
    heads += [] if log.head is None else [("the signed head", log.head.struct())]
    for about, head in heads:
        yield from ((about, why) for why in job_log.find_head_faults(log.leaves, [head]))
    if log.head is not None and not is_signed_by(domain, log.head.struct(), log.head.signature, signer):
        yield "the log", "its head is not signed by the job's signer"


def _list_records(record: JobRecord, lost: Container[int]) -> Records:
    """Yields the records that precede a batch's payment: offer, waves, the rejected answers, and the paid one."""
    by_replica = dict[ReplicaId, int]()
    by_task = dict[str, int]()
    for item in record.payments:
        head = None if item.batch is None or item.batch in lost else record.log.carried.get(item.batch)
        units, root = Units(item.amount // record.opened.unit), item.payload_root or NO_ROOT
        data = job_log.encode_payment(item.replica, item.worker, units, root)
        yield f"payment {item.id}", data, None if head is None else head.size
        if head is not None:
            by_replica[item.replica] = min(head.size, by_replica.get(item.replica, head.size))
            by_task[item.task] = min(head.size, by_task.get(item.task, head.size))
    whole = None if record.log.head is None else record.log.head.size
    for task, shown in record.evidence.items():
        yield from _list_task_records(task, shown, by_task.get(task), by_replica, whole)
    for one in record.closed:
        if one.updated is not None:
            yield f"round {one.number}", job_log.encode_round(one.number, one.parameters, one.updated), whole


def _list_task_records(
    task: str, shown: PublishedEvidence, paid: int | None, by_replica: Mapping[ReplicaId, int], whole: int | None
) -> Records:
    """`paid`: the size of the log that the batch of its pay carries; `whole`, that the signer of the ended job has."""
    offer, end = shown.offer_digest, whole if shown.state in TASK_ENDED else None
    size = end if paid is None else paid
    yield f"the offer of task {task}", job_log.encode_offer(offer, shown.offer_signature), size
    if shown.state in TASK_COUNTED:
        one = shown.offer
        data = job_log.encode_attempt(one.round, one.task, one.attempt, len(shown.committed))
        yield f"the attempt of task {task}", data, size
    for wave in shown.waves:
        if wave.secret is not None and wave.signature is not None:
            data = job_log.encode_wave(offer, wave.number, wave.secret, wave.commitments, wave.signature)
            yield f"wave {wave.number} of task {task}", data, size
    for heard in shown.hearings or ():
        sides, named = " and ".join(heard.sides), (offer, *heard.sides, heard.run)
        due = size if heard.run is None else end  # pay does not wait for an audit, nor for its panel's hearings
        due = due if heard.ruling is not None else None
        yield f"the hearing of {sides} in task {task}", job_log.encode_hearing(*named), due
        if heard.ruling is not None:
            data = job_log.encode_ruling(*named, heard.ruling.signature)
            yield f"the ruling on {sides} in task {task}", data, due
            data = job_log.encode_answers(*named, *count_answers(heard))
            yield f"the number of answers of {sides} in task {task}", data, due
    for seat in (None if shown.audit is None else shown.audit.panel) or ():
        if seat.signer is not None and seat.sealed is not None and seat.signature is not None:
            data = job_log.encode_seal(offer, seat.signer, seat.run, seat.sealed, seat.signature)
            yield f"the seal of {seat.signer} in run {seat.run} of the audit of task {task}", data, end
    for ballot in shown.committed:
        due = size if ballot.outcome == Outcome.REJECTED else by_replica.get(ballot.id, end)
        yield from _list_ballot_records(task, offer, ballot, due, end)


def _find_other_attempts(record: JobRecord, leaves: Container[Hash]) -> Iterator[ClauseFinding]:
    """Finds attempts of which the log has more commitments than are shown, or that are not listed at all: the next one
    of each task, and the first ones of tasks close to the listed ones, in their rounds and those that may follow."""
    counts = range(record.publication.spec.replication.max_replicas + 1)
    shown = {
        (task.round, task.index, task.attempt): len(record.evidence[task.id].committed)
        for task in record.tasks
        if task.id in record.evidence
    }
    for attempt in dict.fromkeys((*shown, *_list_next_attempts(record))):
        others = (count for count in counts if count != shown.get(attempt))
        logged = next((n for n in others if Hash(hash_leaf(job_log.encode_attempt(*attempt, n))) in leaves), None)
        if logged is not None:
            number, task, again = attempt
            what = "and none is listed" if attempt not in shown else f"and {shown[attempt]} are shown"
            detail = f"the log has it with {describe_count(logged, 'commitments')}, {what}"
            yield ClauseFinding(Clause.LOG, f"attempt {again} at task {task} of round {number}", detail)


def _list_next_attempts(record: JobRecord) -> Iterator[tuple[int, int, int]]:
    spec, last, near = record.publication.spec, dict[tuple[int, int], int](), defaultdict[int, set[int]](set)
    for task in record.tasks:
        last[task.round, task.index] = max(task.attempt, last.get((task.round, task.index), -1))
        for number in (task.round, task.round + 1):
            near[number].add(task.index)
    following = max(near, default=0)
    rounds = {0, *near, *range(following, following + spec.overlap + 1)}
    for number in sorted(rounds.intersection(range(spec.rounds))):
        indices = near[number]
        first, end = min(indices, default=0) - spec.sizes.most, max(indices, default=0) + spec.sizes.most + 1
        for index in range(max(0, first), min(end, spec.tasks_of(number).stop)):
            yield number, index, last.get((number, index), -1) + 1


def _list_ballot_records(task: str, offer: Hash, ballot: PublishedBallot, size: int | None, end: int | None) -> Records:
    who, about = ballot.worker, f"{ballot.worker} in task {task}"
    if ballot.sealed is not None and ballot.commitment_signature is not None:
        data = job_log.encode_commitment(offer, who, ballot.sealed, ballot.commitment_signature)
        yield f"the commitment of {about}", data, size
    if ballot.outcome is None or ballot.verdict_signature is None:
        return
    if ballot.salt is not None and ballot.root is not None:
        yield f"the answer of {about}", job_log.encode_reveal(offer, who, ballot.salt, ballot.root), size
    due = end if ballot.outcome == Outcome.DIVERGED else size  # it was accepted when a batch paid it
    yield f"the verdict on {about}", job_log.encode_verdict(offer, who, ballot.outcome, ballot.verdict_signature), due
