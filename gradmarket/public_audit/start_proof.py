"""The clause of a job that continues another one: it starts from that job's final state. Pure.

The other job's end follows from its contract, its publication and its log, which is compared with its signed head and
with those in its batches. The optimizer's state after its last round is in no log: the market's word is compared, and
the digest that this machine came to, where it merged that job again.
"""

from collections.abc import Iterator

from gradmarket.market.features.log import job_log
from gradmarket.market.features.log.merkle import hash_leaf
from gradmarket.market.job_parts import Continued
from gradmarket.market.terms import Digest, Hash, JobState
from gradmarket.market.wire.evidence import PublishedRound
from gradmarket.market.wire.poll import hash_of
from gradmarket.public_audit.job_proof import Clause, ClauseFinding, ClauseResult, EarlierJob, JobRecord
from gradmarket.public_audit.log_proof import describe_lost_heads, find_history_faults


def prove_start(record: JobRecord, replayed: Digest | None = None) -> list[ClauseResult]:
    """Returns the result of the clause; none for a job that continues no other.

    `replayed`: the optimizer's state after the other job's last round, as this machine merged it.
    """
    start, earlier = record.publication.spec.continue_from, record.earlier
    if start is None:
        return []
    found_faults, unseen, checked = list[str](), list[str](), 0
    begun = record.publication.parameters
    if start.parameters is None or start.optimizer_state is None:
        found_faults.append(f"it names no parameters or no optimizer's state of job {start.job}")
    elif begun != start.parameters:
        found_faults.append(f"it begins with {begun}, and names {start.parameters} as the end of {start.job}")
    if isinstance(earlier, str):
        unseen.append(f"the end of job {start.job}, which it continues: {earlier or 'nobody serves its records'}")
    elif not earlier.closed:
        found_faults.append(f"job {start.job}, which it continues, has no merged round")
    else:
        last, log, job = earlier.closed[-1], earlier.log, earlier.publication.job
        found_faults += _find_end_faults(earlier, start, last)
        forks = find_history_faults(log, record.domain, earlier.opened.signer)
        found_faults += (f"{about} of job {job}: {why}" for about, why in forks)
        unseen += (f"job {job}: {line}" for line in describe_lost_heads(log))
        if replayed is not None and replayed != start.optimizer_state:
            found_faults.append(f"job {start.job} merged again ends with the optimizer's state {replayed}")
        unseen += _list_unseen(earlier, start, last, replayed)
        checked = int(_is_logged(earlier, last))
    faults = tuple(ClauseFinding(Clause.START, "the start", why) for why in found_faults)
    return [ClauseResult(Clause.START, checked, "start", faults, tuple(unseen))]


def _find_end_faults(earlier: EarlierJob, start: Continued, last: PublishedRound) -> Iterator[str]:
    spec, done = earlier.publication.spec, last.number + 1
    digest, opened = hash_of(earlier.publication.digest), earlier.opened.spec_digest
    if earlier.publication.job != start.job or digest != opened:
        yield f"what is published as job {start.job} is not what the contract opened for it"
    if earlier.state is not JobState.FINISHED:
        yield f"job {start.job} is {earlier.state}, and not finished"
    if last.updated != start.parameters:
        yield f"it begins with {start.parameters}, and job {start.job} ended with {last.updated}"
    if last.optimizer_state and last.optimizer_state != start.optimizer_state:
        ended = f"job {start.job} ended with {last.optimizer_state}"
        yield f"it begins with the optimizer's state {start.optimizer_state}, and {ended}"
    if start.rounds != spec.rounds_before + done:
        yield f"it counts {start.rounds} rounds before its own, and there were {spec.rounds_before + done}"
    tasks = spec.tasks_before + spec.sizes.before(done)
    if not spec.leaves_tasks and start.tasks != tasks:
        yield f"it counts {start.tasks} tasks before its own, and there were {tasks}"


def _is_logged(earlier: EarlierJob, last: PublishedRound) -> bool:
    """Returns whether the log records the parameters with which the last round ended."""
    if last.updated is None or earlier.log.head is None:
        return False
    leaf = job_log.encode_round(last.number, last.parameters, last.updated)
    return Hash(hash_leaf(leaf)) in earlier.log.leaves


def _list_unseen(earlier: EarlierJob, start: Continued, last: PublishedRound, replayed: Digest | None) -> Iterator[str]:
    if not _is_logged(earlier, last):
        yield f"the parameters after job {start.job}'s last round, of which its log has no leaf"
    if not last.optimizer_state:
        yield f"the optimizer's state after job {start.job}'s last round, which is not told any more"
    if replayed is None:
        yield f"whether job {start.job} came to that end: audit it with --all and the same --folder, and this one again"
    if earlier.publication.spec.leaves_tasks:
        yield "how many tasks came before, since rounds left some to later ones"
