"""Explanations: why a job makes no progress, which parties decide about its answers, why a worker gets no lease."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import bindparam, exists, func, select

from contracts.gas_price import WAITS
from gradmarket.market.features.audits import class_checks
from gradmarket.market.features.explanations import describe_shortage, in_words
from gradmarket.market.features.proven import seat_rules
from gradmarket.market.features.proven.seat_rules import Newcomer
from gradmarket.market.rules import assignment, newcomers
from gradmarket.market.rules.assignment import Candidate, Idle, Mixable, Opening, Reason
from gradmarket.market.rules.lifecycle import IN_FLIGHT
from gradmarket.market.rules.replication import BEST, proven
from gradmarket.market.terms import Address, JobId, JobState, TaskState, Units
from requester.feature import Feature, choose_pool, features_of
from requester.features.audits import audited_classes
from requester.features.proven import joining, newcomers_money, seats
from requester.moves.candidates import OpenPlaces
from requester.store import ballots, jobs, progress, tasks, workers
from requester.store.among import is_in_bound_list
from requester.store.answer_kind import Explanation, answer_kind_of
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
UNFILLED: Final = (
    "auditors of class {} did not fill a panel of {} separate operators, and {} of {} proven workers are here to vote "
    "instead: run further ones, each with a token of its own (gradmarket auditor run --token)"
)
UNHEARD: Final = "No auditor is there yet: accepted tasks that the audit draws wait for one (gradmarket auditor run)."
PLAIN_UNTIL: Final = "until then a plain majority of {} decides"
WAITING_PAY: Final = (
    "The pay for {} gradients of {} waits until audits score enough of their operators' answers: it is promised to "
    "those that the scores clear, and dropped where they convict."
)
IDLE_S: Final = 30.0
"""Seconds without a lease or commitment after which a task that nobody asks for, with all workers idle, is reported."""
MOST_JOBS: Final = 16
"""Most running jobs that are looked at; with more, the answer would take longer and name one of them all the same."""
MOST_TASKS: Final = 8
OWN_PAY_WAITS: Final = "; its pay for {:.0f} gradients waits until audits score enough of its operator's answers"
OF_ITS_OWN: Final = (Reason.NO_HOLDER, Reason.OTHER_JOB, Reason.HIGHER_PRICE, Reason.OTHER_CLASS)
"""Reasons that are news only where no other job has a better one: the worker chose not to serve this job."""


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
    alive = workers.list_live_workers(reader, now, LOOKED_AT)
    if all(worker.capacity < 1 for worker in alive) and (held := _describe_held_workers(reader, job, alive, now)):
        return held
    mixable = ballots.list_mixable_classes(reader, job, now)
    if lack := describe_lack(reader, job, open_task, mixable, now):
        return lack
    replicas = tasks.replicas_of(reader, [open_task])[open_task.id]
    busy = answer_kind_of(reader, job).list_unavailable_by_round(reader, job, [open_task])[open_task.round]
    opening = admit_returners(reader, job, opening_for(job, open_task, replicas, mixable, busy), replicas, now, busy)
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
    if Reason.NO_RESERVATION not in reasons:
        return commonest
    locked = describe_locked_money(reader, job, alive) or _describe_kept_money(reader, job, now)
    return f"{commonest}; {locked}" if locked else commonest


def _describe_held_workers(reader: RowReader, job: Job, alive: Sequence[Worker], now: float) -> str:
    """Returns which other job keeps the workers: their answers to it wait, and they risk no further unpaid one.

    Empty where no answer of theirs waits elsewhere for longer than IDLE_S.
    """
    held = {"workers": [worker.address for worker in alive], "job": job.id}
    for other in reader.session.scalars(_HOLDING, held):
        if waits := review_of(reader).describe_waits(reader, other.id, now, IDLE_S):
            name = jobs.load_spec(other).name
            return f"the workers here hold unpaid answers of {name}, and take no more until they are paid: {waits}"
    return ""


_HOLDING: Final = select(Job).where(
    Job.state == JobState.RUNNING,
    Job.id != bindparam("job"),
    exists().where(Replica.job_id == Job.id, is_in_bound_list(Replica.worker, "workers"), Replica.state.in_(IN_FLIGHT)),
)


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
    plain = spec.unaudited_plan
    if unserved and job.determinism_class is None:
        lack = audited_classes.describe_lack(reader, job, now)
        wait_s = audited_classes.compute_wait_for_audited(reader, job, servable or frozenset())
        left_s = task.created_at + wait_s - now
        if plain is None or left_s > 0:
            unchecked = lack or UNCHECKED.format(Counter(names).most_common(1)[0][0])
            return unchecked if plain is None else unchecked + VOTED.format(left_s, plain.first_wave)
    # how many separate workers a task begins with; in a job that settled on a class, at least
    least = spec.plan().first_wave
    if unserved and plain is not None:
        least = plain.first_wave
    elif job.determinism_class is not None:
        least = min(least, spec.plan(BEST).first_wave)
    if have < least and (absence := answer_kind_of(reader, job).describe_absence(reader, job)):
        return absence
    if have < least:
        kinds = "one determinism class" + (", or of calibrated ones" if spec.verifier.sketched else "")
        here = candidates_of(reader, job, workers.list_live_workers(reader, now, LOOKED_AT), now)
        commonest = Counter(one.determinism_class for one in here if one.determinism_class).most_common(1)
        lead = leading[0] if leading else commonest[0][0] if commonest else ""
        nobody = Opening(JobId(job.id), frozenset(), (), lead, task.offer.price, spec.separation, (), mixable)
        return "; ".join(
            filter(
                None,
                (f"needs {least} separate workers of {kinds}, has {have}", describe_shortage(here, nobody, mixable)),
            )
        )
    return ""


def _describe_bounded_vote(reader: RowReader, job: Job, now: float) -> str:
    """Returns a text where too few proven workers are there to vote for auditors that fail; empty elsewhere."""
    spec = jobs.load_spec(job)
    plain = spec.unaudited_plan
    if plain is None or not audited_classes.is_lately_unable(reader, job, now):
        return ""
    votes = plain.first_wave
    have = seats.count_proven(reader, job, ballots.list_mixable_classes(reader, job, now), now, votes)
    if have >= votes:
        return ""
    if spec.panel is not None:
        return UNFILLED.format(job.determinism_class, spec.panel.count, have, votes)
    return FAILING.format(job.determinism_class, class_checks.ATTEMPTS, have, votes)


def describe_checks(reader: RowReader, job: Job, now: float) -> str:
    """Describes which parties decide about the job's answers, where that depends on an auditor, and pay that waits."""
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
    if lack := audited_classes.describe_lack(reader, job, now):
        until = "accepted tasks that the audit draws wait" if plain is None else PLAIN_UNTIL.format(plain.first_wave)
        return f"No panel can check it: {lack}; {until}."
    if plain is None:
        return UNHEARD if spec.audited and not audited_classes.list_heard_classes(reader, job, now) else ""
    there = audited_classes.list_servable_classes(reader, job, now) or frozenset()
    name = job.determinism_class
    if name is None:
        here = ", ".join(sorted(there))
        if there and spec.panel is not None:
            return f"{spec.panel.count} auditors of separate operators check it; one at least of class {here} is there."
        return f"An auditor of class {here} is there." if there else "No auditor is there yet."
    if name in there:
        auditor = "An auditor" if spec.panel is None else f"One at least of the {spec.panel.count} auditors"
        return f"{auditor} of its class, {name}, is there: newcomers work alone, proven workers vote."
    return (
        f"No auditor of its class, {name}, is there: a plain majority of {plain.first_wave} decides until one is "
        "(gradmarket auditor run)."
    )


def describe_locked_money(reader: RowReader, job: Job, alive: Sequence[Worker]) -> str:
    """Describes the holders of the money that a further reservation lacks; empty where it lacks none.

    Absent workers, where the escrow has no free gradient left; or newcomers that left their places unanswered, where
    these hold all that newcomers may.
    """
    present, each = {worker.address for worker in alive}, jobs.compute_reserve_per_gradient(job)
    columns = (Account.worker, Account.reserved, Account.earned)
    accounts = reader.session.execute(select(*columns).where(Account.job_id == job.id)).all()
    left = {worker: reserved - earned for worker, reserved, earned in accounts if reserved > earned}
    gone = {worker: units for worker, units in left.items() if worker not in present}
    if gone and count_free_units(reader, job) < each:
        gradients = sum(gone.values()) // each
        return f"{gradients} gradients of the escrow are reserved for {len(gone)} workers that are gone: fund the job"
    silent = (Account.earned == 0, Account.reserved > 0, Account.stalls > 0, Worker.accepted_at.is_(None))
    held = select(func.count(), func.coalesce(func.sum(Account.reserved), 0)).where(Account.job_id == job.id, *silent)
    count, units = reader.session.execute(held.join(Worker, Worker.address == Account.worker)).one()
    if units + each <= newcomers.compute_allowance(Units(job.deposited), jobs.round_cost(reader, job)):
        return ""
    often = describe_seconds(newcomers.compute_watched_s(jobs.load_spec(job).deadlines.lease_s))
    held_by = f"{units // each} gradients of the escrow are reserved for {count} newcomers that stalled"
    return f"{held_by}: fund the job, or one more gets its own each {often}"


def _describe_kept_money(reader: RowReader, job: Job, now: float) -> str:
    """Describes how the job goes on where newcomers, or those without a deposit, hold all that they may; else empty."""
    if not joining.has_queue(reader, job, now):
        return ""
    money = newcomers_money.load_newcomers_money(reader, job, now)
    if not money.left:
        sooner = f", one at once after gradmarket job fund {job.id} {money.missing * int(job.unit)}"
    elif money.without > 0:
        return ""
    else:
        sooner = "" if jobs.load_spec(job).stake is None else f", one with a stake at once ({_name_deposit(job)})"
    return f"{_describe_held_money(money)}: another one gets its own in {describe_seconds(money.next_s)}{sooner}"


def _describe_held_money(money: newcomers_money.NewcomersMoney) -> str:
    total = money.held.total() + money.left
    if not money.left:
        return f"newcomers hold all {total} reservations for newcomers"
    return f"newcomers without a deposit hold {money.unbacked} of {total} reservations for newcomers"


def _name_deposit(job: Job) -> str:
    """Returns the command of a deposit that has money and turns of its own."""
    return f"gradmarket wallet stake {job.id} {proven.PROOF * job.price * int(job.unit)}"


def count_free_units(reader: RowReader, job: Job) -> int:
    """Returns the deposited units that are neither reserved nor earned."""
    accounts = reader.session.execute(select(Account.reserved, Account.earned).where(Account.job_id == job.id)).all()
    return job.deposited - sum(max(reserved, earned) for reserved, earned in accounts)


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


@dataclass(frozen=True, slots=True)
class LeaseReason:
    """`words` start with the job's name, where the reason is one of a job."""

    kind: Reason | Idle
    words: str


@dataclass(frozen=True, slots=True)
class Chance:
    """An open task that the worker might get."""

    task: Task
    replicas: Sequence[Replica]
    opening: Opening


def find_lease_reason(reader: RowReader, address: str, now: float) -> LeaseReason:
    """Returns why the worker gets no lease: of the jobs with an open task, the first that it would serve decides."""
    worker, found = reader.get_one(Worker, address), None
    running = list_running_jobs(reader)
    for job in running[:MOST_JOBS]:
        reason = _find_reason_in_job(reader, job, worker, now)
        if reason is not None and reason.kind not in OF_ITS_OWN:
            return reason
        found = found or reason
    if found is not None:
        return found
    for job in running[:MOST_JOBS]:
        if waits := why_waiting(reader, job, now):
            return LeaseReason(Idle.WAITS, f"{jobs.load_spec(job).name}: {waits}")
    if running:
        return LeaseReason(Idle.NO_TASK, Idle.NO_TASK)
    paused, unfunded = count_held_up_jobs(reader)
    if not paused + unfunded:
        return LeaseReason(Idle.NO_JOB, Idle.NO_JOB)
    return LeaseReason(Idle.HELD_UP, Idle.HELD_UP.format(paused, unfunded))


def _find_reason_in_job(reader: RowReader, job: Job, worker: Worker, now: float) -> LeaseReason | None:
    """Returns the reason in one job; None where no task of it is open."""
    mixable = ballots.list_mixable_classes(reader, job, now)
    (candidate,) = candidates_of(reader, job, [worker], now)
    # the open task that the worker is closest to
    opened = list_open(reader, job.id, MOST_TASKS)
    replicas, busy = (
        tasks.replicas_of(reader, opened),
        answer_kind_of(reader, job).list_unavailable_by_round(reader, job, opened),
    )
    chances = list[Chance]()
    for task in opened:
        theirs, away = replicas[task.id], busy[task.round]
        opening = opening_for(job, task, theirs, mixable if job.determinism_class else assignment.ALL, away)
        chances.append(Chance(task, theirs, admit_returners(reader, job, opening, theirs, now, away)))
    chance = min(
        chances, default=None, key=lambda one: assignment.why_not(candidate, one.opening) not in assignment.SOON
    )
    if chance is None:
        return None
    kind, words = _explain_chance(reader, job, candidate, chance, mixable, now)
    account = reader.get(Account, (job.id, worker.address))
    if account is not None and account.waiting:
        words += OWN_PAY_WAITS.format(account.waiting / job.price)
    return LeaseReason(kind, words if kind is Idle.CHAIN else f"{jobs.load_spec(job).name}: {words}")


def _explain_chance(
    reader: RowReader, job: Job, candidate: Candidate, chance: Chance, mixable: Mixable, now: float
) -> tuple[Reason | Idle, str]:
    """Returns the obstacle between worker and task; else the job's lack, and last the workers that come first."""
    reason, worker = assignment.why_not(candidate, chance.opening), candidate.party.worker
    if reason is Reason.AT_CAPACITY and not any_in_flight(reader, [worker]):
        return Idle.ASKS_NOTHING, Idle.ASKS_NOTHING
    if reason not in (None, Reason.NO_RESERVATION):
        return reason, in_words(candidate, chance.opening) or reason
    if reason is not None and (trouble := chain_trouble(reader)):
        return Idle.CHAIN, trouble
    if queued := _describe_newcomer(reader, job, worker, mixable, now):
        return Idle.QUEUED, queued
    unsettled = job.determinism_class is None
    lack = why_waiting(reader, job, now) if unsettled else describe_lack(reader, job, chance.task, mixable, now)
    if lack:
        return Idle.WAITS, lack
    if reason is not None:
        if locked := describe_locked_money(reader, job, workers.list_live_workers(reader, now)):
            return Idle.SPENT, f"{reason}: {locked}"
        if count_free_units(reader, job) < jobs.compute_reserve_per_gradient(job):
            return Idle.SPENT, Idle.SPENT
        if joining.has_queue(reader, job, now) and newcomers_money.has_holder_beside(reader, job, candidate.party):
            return Idle.OPERATOR_HOLDS, Idle.OPERATOR_HOLDS
        return reason, reason
    # why others are drawn where the worker could be
    count = progress.count_open_places(chance.task, chance.replicas)
    pool = choose_pool(reader, job, now)(reader, job, [candidate], mixable, now)
    places = OpenPlaces(chance.task, chance.replicas, chance.opening, count, chance.task.secret)
    before = pool.explain_no_place(candidate, places)
    before = before or (Idle.OTHERS_DRAWN if chance.opening.parties else Idle.TOO_FEW)
    return before, before


def _describe_newcomer(reader: RowReader, job: Job, worker: Address, mixable: Mixable, now: float) -> str:
    """Returns a newcomer's place in the job's queue and when it has a seat; empty where it is in none."""
    queue = joining.list_queue(reader, job, mixable, now)
    place = next((place for place, one in enumerate(queue, 1) if one.party.worker == worker), None)
    if place is None:
        return ""
    own, spec = queue[place - 1], jobs.load_spec(job)
    held_up, is_spent, votes, left = "", False, spec.replication.replicas, None
    if own.is_unknown and seats.count_proven(reader, job, mixable, now, votes) >= votes:
        left = seat_rules.find_pausing_place(own.party, seats.list_watched_places(reader, job, now))
    if left is not None:
        subject = "it" if left.operator == own.party.operator else "a newcomer of its network"
        rest = describe_seconds(left.at + newcomers.compute_watched_s(spec.deadlines.lease_s) - now)
        held_up = f"{subject} left a place of this job: without a deposit it gets the next one in {rest}"
    elif not own.covered:
        held_up, is_spent = _describe_newcomers_money(reader, job, own, now)
    if held_up:
        deposit = f"; a deposit, which comes back, has its own: {_name_deposit(job)}"
        remedy = "" if spec.stake is None or is_spent else deposit
        return f"{held_up}, and it is at place {place} of {len(queue)} newcomers{remedy}"
    row, share = jobs.latest_round(reader, job.id), joining.load_share(reader, job, mixable, now)
    tasks_now = spec.sizes.of(row.number if row else 0)
    rounds = seat_rules.count_rounds_until_seat(queue, worker, tasks_now, share)
    took = (now - job.created_at) / row.number if row and row.number else None
    time = f", {describe_seconds(rounds * took)} as rounds go" if took else ""
    return (
        f"newcomers get one task in {share}, in turn, until {spec.proof} answers of theirs passed an audit, counted "
        f"by what they cost beside this job's: it is at place {place} of {len(queue)}, and its pay may be expected "
        f"within {rounds} round{'s' * (rounds > 1)}{time}"
    )


def _describe_newcomers_money(reader: RowReader, job: Job, own: Newcomer, now: float) -> tuple[str, bool]:
    """Returns why the newcomer gets no money, empty where it does, and whether no deposit of its own would help."""
    money = newcomers_money.load_newcomers_money(reader, job, now)
    if seat_rules.choose_funded([own], money.held, money.left, money.without):
        return "", False
    held, rest = _describe_held_money(money), describe_seconds(money.stands_in_s if own.deposit else money.next_s)
    if not money.left:
        return f"{held}: it gets one as others are paid or the job is funded, or in {rest}", True
    if money.without <= 0:
        return f"{held}: it gets one of those left as others are paid or rounds pass, or in {rest}", False
    owner = "network" if own.party.network else "payout address"
    count = money.held[own.party.network or own.party.payout]
    return (
        f"newcomers of its {owner} hold {count} reservations, and no more are left for others: it gets one as these "
        "are paid or rounds pass",
        False,
    )


def describe_seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def list_open(reader: RowReader, job_id: str, most: int) -> Sequence[Task]:
    """Returns up to `most` open tasks, the latest waves first."""
    found = select(Task).where(Task.job_id == job_id, Task.state == TaskState.OPEN)
    return reader.session.scalars(found.order_by(Task.wave.desc(), Task.round, Task.index).limit(most)).all()


class NamedRemedies(Explanation):
    def explain_no_lease(self, reader: RowReader, worker: str, now: float) -> str:
        return find_lease_reason(reader, worker, now).words

    def explain_wait(self, reader: RowReader, job: Job, now: float) -> str:
        return why_waiting(reader, job, now)

    def describe_checks(self, reader: RowReader, job: Job, now: float) -> str:
        return describe_checks(reader, job, now)


class ExplanationsFeature(Feature):
    name = "explanations"
    needs = ("audits", "proven")
    explanation = NamedRemedies()
