"""The openings of a job's tasks: their demands on candidates, and their places that are taken."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import bindparam, func, select

from gradmarket.market.rules import assignment, faults
from gradmarket.market.rules.assignment import Candidate, Opening
from gradmarket.market.terms import Address, JobId, ReplicaState
from gradmarket.market.wire.poll import StepFault
from requester.store import jobs, strikes, workers
from requester.store.tables import Job, Replica, Task, Worker
from requester.store.work import RowReader

CHAIN: Final = "chain"
"""The name of the service's part under which the chain's trouble is stored."""
HOLDS_A_PLACE: Final = (ReplicaState.LEASED, ReplicaState.COMMITTED)
BEGUN: Final = (*HOLDS_A_PLACE, ReplicaState.REVEALED)
LOOKED_AT: Final = 200
"""Most workers whose reasons are computed: further ones would take time and not change the answer."""


def candidates_of(reader: RowReader, job: Job, live: Sequence[Worker], now: float) -> list[Candidate]:
    """Builds candidates like `workers.candidates`, for any workers; looks up which are barred or suspended."""
    barred, suspended = workers.list_barred_keys(reader, live, now), strikes.suspended_among(reader, job.id, live, now)
    return workers.build_candidates(reader, job, live, now, barred, suspended)


def opening_for(
    job: Job,
    task: Task,
    replicas: Sequence[Replica],
    mixable: assignment.Mixable,
    busy: frozenset[Address] = frozenset(),
) -> Opening:
    """Returns the opening that candidates for the task's free places are compared with; `busy` as in store.answer_kind.

    Where audits settle acceptance, a begun task is of one class.
    """
    begun = task.determinism_class is not None and any(row.state in BEGUN for row in replicas)
    apart = jobs.load_spec(job).unaudited_plan is not None
    own = task.determinism_class if begun or not apart else None
    return Opening(
        job=JobId(job.id),
        tried=busy.union(workers.build_party(replica).worker for replica in replicas),
        parties=tuple(workers.build_party(replica) for replica in replicas),
        determinism_class=own or job.determinism_class or "",
        price=task.offer.price,
        separation=jobs.load_spec(job).separation,
        at_work=tuple(replica.determinism_class for replica in replicas if replica.state in HOLDS_A_PLACE),
        mixable=frozenset() if apart and begun else mixable,
    )


def admit_returners(
    reader: RowReader,
    job: Job,
    opening: Opening,
    replicas: Sequence[Replica],
    now: float,
    busy: frozenset[Address] = frozenset(),
) -> Opening:
    """Adds to the opening the workers that may try a second time, once no other worker is left."""
    again = (
        faults.find_returners(
            [(row.worker, row.state, None if row.fault is None else StepFault(**row.fault)) for row in replicas]
        )
        - busy
    )
    if not again or not jobs.load_spec(job).repeatable:
        return opening
    alive = candidates_of(reader, job, workers.list_live_workers(reader, now, LOOKED_AT), now)
    if any(assignment.why_not(candidate, opening) in assignment.SOON for candidate in alive):
        return opening
    return replace(opening, again=again)


def count_open_places(task: Task, replicas: Sequence[Replica]) -> int:
    """Returns the number of free places of the task's wave and of its backups."""
    return task.wave_size + task.backups - sum(r.wave == task.wave and r.state in HOLDS_A_PLACE for r in replicas)


def count_replicas_by_state(reader: RowReader, job_id: str) -> dict[str, int]:
    """Counts the job's replicas by state."""
    return dict(reader.session.execute(_COUNTS, {"job": job_id}).all())


_COUNTS: Final = select(Replica.state, func.count()).where(Replica.job_id == bindparam("job")).group_by(Replica.state)
