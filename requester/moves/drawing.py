"""Draws workers for a job's open tasks among those that ask for work, replayably by chance, and leases to them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from gradmarket.market.rules import assignment
from gradmarket.market.terms import ReplicaState, TaskState, domain_hash
from requester.context import Context
from requester.feature import choose_pool, lateness_in
from requester.moves.candidates import CandidatePool, Deal, OpenPlaces, is_asking, settle_class
from requester.notifier import worker_topic
from requester.store import ballots, jobs, newcomers, progress, tasks, workers
from requester.store.answer_kind import answer_kind_of
from requester.store.locks import locked_workers
from requester.store.tables import Job, Replica, Task
from requester.store.tasks import list_diverged_replicas, replicas_of
from requester.store.work import RowReader, Work

TASKS_AT_ONCE = 64
DRAW = "draw"
"""The lock that all draws take, since all jobs draw from the same workers."""


def draw_workers(context: Context, work: Work, job: Job, now: float) -> float | None:
    """Leases open tasks of a running job; returns the seconds until the next try, None if a worker got a lease.

    Requests another draw where some tasks stay open then, and workers free. The caller has locked the draw and the job.
    """
    mixable = ballots.list_mixable_classes(work, job, now)
    before = job.determinism_class
    asking, others = workers.list_asking_workers(work, job, mixable, now)
    if not settle_class(work, job, mixable, now, asking):
        return context.settings.sweep_s
    if not asking:
        return _short_of_money(context, work, job, now)
    if job.determinism_class != before:
        others = workers.idle_elsewhere(work, job, mixable, now)
    kind = choose_pool(work, job, now)
    pool = kind(work, job, workers.build_candidates(work, job, asking, now), mixable, now)
    free, wait = sum(c.capacity for c in pool.candidates.values()), context.settings.sweep_s
    for most in (min(2 * free, TASKS_AT_ONCE), TASKS_AT_ONCE):
        waiting = tasks.open_ones(work, job.id, most)
        deals, wait = _deal_tasks(context, work, job, waiting, pool, others, now)
        if deals:
            some_left = _hand_out(work, job, deals, now) < len(waiting) or len(waiting) == most
            if some_left and any(candidate.capacity > 0 for candidate in pool.candidates.values()):
                work.notify("assign")
            return None
        if wait < context.settings.sweep_s:
            return wait
    return _short_of_money(context, work, job, now)


def _short_of_money(context: Context, work: Work, job: Job, now: float) -> float:
    """Notifies the `settle` stage if some worker is due for a reservation; returns the seconds until the next try.

    Called when no worker with a reservation in the job can fill its open places.
    """
    if newcomers.next_covered(work, job, now):
        work.notify("settle")
    return context.settings.sweep_s


def _deal_tasks(
    context: Context,
    reader: RowReader,
    job: Job,
    tasks: Sequence[Task],
    pool: CandidatePool,
    others: int,
    now: float,
) -> tuple[list[Deal], float]:
    """Draws workers for one task after the other; returns the deals and the seconds that the other tasks wait."""
    deals, wait = [], context.settings.sweep_s
    tried = replicas_of(reader, tasks)
    busy = answer_kind_of(reader, job).list_unavailable_by_round(reader, job, tasks)
    for task in tasks:
        free = sum(candidate.capacity > 0 for candidate in pool.candidates.values())
        if not free:
            break
        replicas = tried[task.id]
        opening = progress.opening_for(job, task, replicas, pool.mixable, busy[task.round])
        if task.attempt and (diverged := list_diverged_replicas(reader, job.id, task.round)).get(task.index):
            opening = replace(opening, diverged=tuple(map(workers.build_party, chain(*diverged.values()))))
        if not any(assignment.why_not(candidate, opening) is None for candidate in pool.candidates.values()):
            opening = progress.admit_returners(reader, job, opening, replicas, now, busy[task.round])
        fresh = task.wave == 0 and not any(row.state in progress.HOLDS_A_PLACE for row in replicas)
        plan = pool.choose_plan(task) if fresh else None
        count = plan.first_wave if plan else progress.count_open_places(task, replicas)
        seed = domain_hash("draw", task.secret, task.wave.to_bytes(8, "big"), len(replicas).to_bytes(8, "big"))
        able = pool.list_able_candidates(seed, opening, count)
        if count > 0 and not able:
            continue
        if count > 0 and len(able) < free + others:  # it waits until each asks that is idle, or its window is over
            task.window_opened = now if task.window_opened is None else task.window_opened
            if (left := task.window_opened + assignment.window_s(free + others) - now) > 0:
                wait = min(wait, left)
                continue
        if deal := pool.draw(OpenPlaces(task, replicas, opening, count, seed, fresh, plan), able):
            deals.append(deal)
            for candidate in deal.drawn:
                pool.lease(candidate, task)
    return deals, wait


def _hand_out(work: Work, job: Job, deals: Sequence[Deal], now: float) -> int:
    """Gives leases to the drawn workers that still ask, after locking their rows; returns the number of full tasks."""
    full = 0
    expect = lateness_in(work).expect_seconds(work, job)
    addresses = {candidate.party.worker for deal in deals for candidate in deal.drawn}
    workers_by_address = {worker.address: worker for worker in locked_workers(work, addresses)}
    for deal in deals:
        task, lease_s = deal.task, jobs.load_spec(job).deadlines.lease_s
        drawn = [(workers_by_address[candidate.party.worker], candidate.determinism_class) for candidate in deal.drawn]
        takers = [worker for worker, name in drawn if is_asking(worker, now) and workers.get_class(worker, job) == name]
        for worker in takers:
            expected = expect(worker) if deal.patience_s is None else deal.patience_s
            worker.capacity -= 1
            worker.fence += 1
            work.add(
                Replica(
                    id=f"{task.id}-{worker.fence}-{worker.address[2:10].lower()}",
                    task_id=task.id,
                    job_id=task.job_id,
                    worker=worker.address,
                    payout=worker.payout,
                    operator=worker.operator,
                    network=worker.network,
                    state=ReplicaState.LEASED,
                    wave=task.wave,
                    fence=worker.fence,
                    leased_at=now,
                    lease_until=now + lease_s,
                    expected_at=None if expected is None else now + expected,
                    determinism_class=workers.get_class(worker, job),
                )
            )
            work.notify(worker_topic(worker.address))
        changes: dict[str, Any] = {"patience_until": now + lease_s + task.offer.wave_seconds} if takers else {}
        if takers and (task.determinism_class is None or deal.plan is not None):
            changes["determinism_class"] = workers.get_class(takers[0], job)
        if takers and deal.plan is not None:
            changes |= {"plan": deal.plan, "wave_size": deal.plan.first_wave}
        if len(takers) >= deal.places:
            work.move(task, TaskState.COMMITTING, window_opened=None, **changes)
            full += 1
        else:
            for name, value in changes.items():
                setattr(task, name, value)
    return full
