"""Why a job makes no progress, and who decides about its answers: texts that name the remedy."""

from collections import Counter
from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import Final

from sqlalchemy import bindparam, exists, func, select

from contracts.gas_price import WAITS
from gradmarket.market.features.audits import class_checks
from gradmarket.market.features.explanations import describe_shortage, in_words
from gradmarket.market.job import JobSpec
from gradmarket.market.rules import assignment, newcomers
from gradmarket.market.rules.assignment import Candidate, Idle, Opening, Reason
from gradmarket.market.rules.lifecycle import IN_FLIGHT
from gradmarket.market.rules.replication import BEST
from gradmarket.market.terms import JobId, JobState, TaskState, Units
from requester.feature import features_of
from requester.features.audits import audited_classes
from requester.features.proven import seats
from requester.store import ballots, jobs, tasks, workers
from requester.store.among import is_in_bound_list
from requester.store.answer_kind import answer_kind_of
from requester.store.earned_rows import WAITING
from requester.store.jobs import ROUNDS_UNDER_WAY
from requester.store.progress import CHAIN, LOOKED_AT, admit_returners, candidates_of, opening_for
from requester.store.review import review_of
from requester.store.tables import Account, Earned, Job, Replica, Task, Trouble, Worker
from requester.store.work import RowReader

UNCHECKED: Final = "no auditor could check an answer of the workers here: run one of class {} (gradmarket auditor run)"
VOTED: Final = "; in {:.0f} s a plain majority of {} decides"
"""The further wait of an unaudited class."""
FAILING: Final = (
    "auditors of class {} left an audit of the job unanswered {} times, and {} of {} proven workers are here to vote "
    "instead: run one with more memory or time (gradmarket auditor run)"
)
UNHEARD: Final = "No auditor is there yet: accepted tasks that the audit draws wait for one (gradmarket auditor run)."
WAITING_PAY: Final = (
    "The pay for {} gradients of {} waits until audits score enough of their operators' answers: it is promised to "
    "those that the scores clear, and dropped where they convict."
)
FIRST: Final = itemgetter(0)
IDLE_S: Final = 30.0
"""Seconds without a lease or commitment after which a task that nobody asks for, with all workers idle, is reported."""


def chain_trouble(reader: RowReader) -> str:
    """Returns why nothing is reserved or settled just now; empty where it is."""
    row = reader.get(Trouble, CHAIN)
    if row is None or not row.said or row.said.startswith(WAITS):
        return "" if row is None else row.said
    return f"the chain cannot be used, and the job goes on once it can: {row.said}"


def list_running_jobs(reader: RowReader) -> Sequence[Job]:
    return reader.session.scalars(select(Job).where(Job.state == JobState.RUNNING)).all()


def count_held_up_jobs(reader: RowReader) -> tuple[int, int]:
    """Returns how many jobs are paused, and how many have no deposit yet."""
    held = (JobState.PAUSED, JobState.AWAITING_FUNDS)
    states = reader.session.scalars(select(Job.state).where(Job.state.in_(held))).all()
    return states.count(held[0]), states.count(held[1])


def why_waiting(reader: RowReader, job: Job, now: float) -> str:
    """Returns why the job waits; empty while it makes progress (or has ended without a reason)."""
    if job.state in (JobState.RUNNING, JobState.AWAITING_FUNDS) and (trouble := chain_trouble(reader)):
        return trouble
    if job.state != JobState.RUNNING:
        return job.reason
    if trouble := review_of(reader).describe_disagreement(reader, job) or _describe_bounded_vote(reader, job, now):
        return trouble
    open_task = reader.session.scalar(select(Task).where(Task.job_id == job.id, Task.state == TaskState.OPEN).limit(1))
    if open_task is None:
        referred_s = IDLE_S if has_open_round(reader, job.id) else None
        waits = review_of(reader).describe_waits(reader, job.id, now, referred_s)
        feature_waits = (feature.describe_wait(reader, job) for feature in features_of(reader))
        return job.reason or next(filter(None, feature_waits), waits)
    mixable = ballots.list_mixable_classes(reader, job, now)
    if lack := describe_lack(reader, job, open_task, mixable, now):
        return lack
    replicas = tasks.replicas_of(reader, [open_task])[open_task.id]
    busy = answer_kind_of(reader, job).list_unavailable_by_round(reader, job, [open_task])[open_task.round]
    opening = admit_returners(reader, job, opening_for(job, open_task, replicas, mixable, busy), replicas, now, busy)
    alive = workers.list_live_workers(reader, now, LOOKED_AT)
    present = candidates_of(reader, job, alive, now)
    candidates = [candidate for candidate in present if candidate.takes_part] or present
    reasons = [assignment.why_not(candidate, opening) for candidate in candidates]
    texts = [in_words(candidate, opening) or "" for candidate in candidates]
    if None in reasons:
        return job.reason
    if Reason.AT_CAPACITY in reasons:
        at_work = any_in_flight(reader, [worker.address for worker in alive])
        # when a worker last took or answered one of the task's attempts, or when the first attempt was made
        attempts = {"job": open_task.job_id, "round": open_task.round, "index": open_task.index}
        made, taken = reader.session.execute(_LAST_ANSWER, attempts).one()
        idle = now - float(max(made, taken or 0.0)) > IDLE_S and not at_work
        asking = [
            Idle.ASKS_NOTHING if reason is Reason.AT_CAPACITY else text
            for reason, text in zip(reasons, texts, strict=True)
        ]
        return job.reason or (_describe_commonest_reason(asking) if idle else "")
    commonest = _describe_commonest_reason(texts)
    locked = describe_locked_money(reader, job, alive)
    return f"{commonest}; {locked}" if locked and Reason.NO_RESERVATION in reasons else commonest


def describe_lack(reader: RowReader, job: Job, task: Task, mixable: assignment.Mixable, now: float) -> str:
    """Returns which workers or auditor an open task lacks, and why those here do not do; empty where it lacks none."""
    spec = jobs.load_spec(job)
    counted = workers.list_deciding_workers if job.determinism_class is None else workers.list_present_workers
    present = [(row.determinism_class, workers.build_party(row)) for row in counted(reader, job, now)]
    leading = assignment.leading_class(present, spec.separation, mixable)
    have = leading[1] if leading else 0
    names = [name for name, _ in present]
    servable = audited_classes.list_servable_classes(reader, job, now)
    unserved = servable is not None and bool(names) and servable.isdisjoint(names)
    if unserved and (unchecked := _describe_unchecked(reader, job, task, present, now)):
        return unchecked
    least = _count_least_workers(spec, unserved, job.determinism_class is not None)
    if have < least and (absence := answer_kind_of(reader, job).describe_absence(reader, job)):
        return absence
    if have < least:
        kinds = "one determinism class" + (", or of calibrated ones" if spec.verifier.sketched else "")
        here = candidates_of(reader, job, workers.list_live_workers(reader, now, LOOKED_AT), now)
        lead = leading[0] if leading else _commonest_class(here)
        nobody = Opening(JobId(job.id), frozenset(), (), lead, task.offer.price, spec.separation, (), mixable)
        return "; ".join(
            filter(
                None,
                (f"needs {least} separate workers of {kinds}, has {have}", describe_shortage(here, nobody, mixable)),
            )
        )
    return ""


def _describe_unchecked(
    reader: RowReader, job: Job, task: Task, present: Sequence[tuple[str, object]], now: float
) -> str:
    """Returns which auditor the job waits for; empty where it does not, or no longer."""
    plain, there = jobs.load_spec(job).unaudited_plan, audited_classes.list_servable_classes(reader, job, now)
    wait = task.created_at + audited_classes.compute_wait_for_audited(reader, job, there or frozenset()) - now
    if job.determinism_class is not None or (plain is not None and wait <= 0):
        return ""
    unchecked = UNCHECKED.format(Counter(map(FIRST, present)).most_common(1)[0][0])
    return unchecked if plain is None else unchecked + VOTED.format(wait, plain.first_wave)


def _describe_bounded_vote(reader: RowReader, job: Job, now: float) -> str:
    """Returns a text where too few proven workers are there to vote for auditors that fail; empty elsewhere."""
    plain = jobs.load_spec(job).unaudited_plan
    if plain is None or not audited_classes.is_lately_unable(reader, job, now):
        return ""
    votes = plain.first_wave
    have = seats.count_proven(reader, job, ballots.list_mixable_classes(reader, job, now), now, votes)
    return "" if have >= votes else FAILING.format(job.determinism_class, class_checks.ATTEMPTS, have, votes)


def _count_least_workers(spec: JobSpec, unserved: bool, settled: bool) -> int:
    """Returns how many separate workers a task begins with; in a job that `settled` on a class, at least."""
    if unserved and spec.unaudited_plan is not None:
        return spec.unaudited_plan.first_wave
    return min(spec.plan().first_wave, spec.plan(BEST).first_wave) if settled else spec.plan().first_wave


def describe_checks(reader: RowReader, job: Job, now: float) -> str:
    """Returns who decides about the job's answers just now, where that depends on an auditor, and whose pay waits."""
    spec = jobs.load_spec(job)
    if spec.verifier.scored:
        gradients, owed = count_waiting(reader, job.id)
        waiting = WAITING_PAY.format(gradients, f"{owed} worker{'s' * (owed > 1)}") if gradients else ""
        return " ".join(filter(None, (_describe_judge(reader, job, now), waiting)))
    return _describe_judge(reader, job, now)


def _describe_judge(reader: RowReader, job: Job, now: float) -> str:
    spec = jobs.load_spec(job)
    plain = spec.unaudited_plan
    if job.ended_at is not None:
        return ""
    if plain is None:
        return UNHEARD if spec.audited and not audited_classes.list_heard_classes(reader, job, now) else ""
    there = audited_classes.list_servable_classes(reader, job, now) or frozenset()
    name = job.determinism_class
    if name is None:
        here = ", ".join(sorted(there))
        return f"An auditor of class {here} is there." if there else "No auditor is there yet."
    if name in there:
        return f"An auditor of its class, {name}, is there: newcomers work alone, proven workers vote."
    return (
        f"No auditor of its class, {name}, is there: a plain majority of {plain.first_wave} decides until one is "
        "(gradmarket auditor run)."
    )


def describe_locked_money(reader: RowReader, job: Job, alive: Sequence[Worker]) -> str:
    """Returns who holds the money that a further reservation lacks; empty where it lacks none."""
    return _describe_reserved_by_absent(reader, job, {worker.address for worker in alive}) or _describe_stalled(
        reader, job
    )


def _describe_reserved_by_absent(reader: RowReader, job: Job, alive: set[str]) -> str:
    """Returns a text where the escrow has no free gradient left and absent workers hold reservations in it."""
    columns = (Account.worker, Account.reserved, Account.earned)
    accounts = reader.session.execute(select(*columns).where(Account.job_id == job.id)).all()
    left = {worker: reserved - earned for worker, reserved, earned in accounts if reserved > earned}
    gone = {worker: units for worker, units in left.items() if worker not in alive}
    if not gone or count_free_units(reader, job) >= jobs.compute_reserve_per_gradient(job):
        return ""
    gradients = sum(gone.values()) // jobs.compute_reserve_per_gradient(job)
    return f"{gradients} gradients of the escrow are reserved for {len(gone)} workers that are gone: fund the job"


def count_free_units(reader: RowReader, job: Job) -> int:
    """Returns the deposited units that are neither reserved nor earned."""
    accounts = reader.session.execute(select(Account.reserved, Account.earned).where(Account.job_id == job.id)).all()
    return job.deposited - sum(max(reserved, earned) for reserved, earned in accounts)


def _describe_stalled(reader: RowReader, job: Job) -> str:
    """Returns a text where newcomers that left their places unanswered hold all that newcomers may."""
    silent = (Account.earned == 0, Account.reserved > 0, Account.stalls > 0, Worker.accepted_at.is_(None))
    held = select(func.count(), func.coalesce(func.sum(Account.reserved), 0)).where(Account.job_id == job.id, *silent)
    count, units = reader.session.execute(held.join(Worker, Worker.address == Account.worker)).one()
    if units + jobs.compute_reserve_per_gradient(job) <= newcomers.compute_allowance(
        Units(job.deposited), jobs.round_cost(reader, job)
    ):
        return ""
    gradients = units // jobs.compute_reserve_per_gradient(job)
    return f"{gradients} gradients of the escrow are reserved for {count} newcomers that stalled: fund the job"


def _commonest_class(candidates: Sequence[Candidate]) -> str:
    classes = Counter(candidate.determinism_class for candidate in candidates if candidate.determinism_class)
    return classes.most_common(1)[0][0] if classes else ""


def _describe_commonest_reason(reasons: list[str]) -> str:
    reason = max(set(reasons), key=lambda reason: (reasons.count(reason), reason))
    return f"an open task has no worker that may take it; {reasons.count(reason)} of {len(reasons)}: {reason}"


def any_in_flight(reader: RowReader, workers: Collection[str]) -> bool:
    """Returns whether one of these workers holds a replica, of any job, that is not over."""
    return reader.session.scalar(_ANY_IN_FLIGHT, {"workers": workers}) is not None


_ANY_IN_FLIGHT: Final = (
    select(Replica.id).where(is_in_bound_list(Replica.worker, "workers"), Replica.state.in_(IN_FLIGHT)).limit(1)
)


_LAST_ANSWER: Final = (
    select(func.min(Task.created_at), func.max(func.coalesce(Replica.committed_at, Replica.leased_at)))
    .outerjoin(Replica, Replica.task_id == Task.id)
    .where(Task.job_id == bindparam("job"), Task.round == bindparam("round"), Task.index == bindparam("index"))
)


def has_open_round(reader: RowReader, job_id: str) -> bool:
    return bool(reader.session.scalar(_ANY_UNDER_WAY, {"job": job_id}))


_ANY_UNDER_WAY: Final = select(exists().where(*ROUNDS_UNDER_WAY))


def count_waiting(reader: RowReader, job_id: str) -> tuple[int, int]:
    """Returns how many gradients' pay waits in the job, and of how many workers."""
    counts = select(func.count(), func.count(Earned.worker.distinct())).where(Earned.job_id == job_id, *WAITING)
    gradients, workers = reader.session.execute(counts).one()
    return gradients, workers
