"""A job with as many workers and rounds as a large one has, written as rows."""

import random
import time
from typing import Any, Final

from sqlalchemy import insert

from benchmarks.rig.service import Service
from benchmarks.size import sized
from gradmarket.market.signing import checksum_address
from gradmarket.market.terms import ReplicaState, RoundState, TaskState
from requester.store.session import open_engine, sessions_of
from requester.store.tables import Account, Earned, JobEvent, Replica, Round, Task, Worker
from requester.store.work import Work, begin_work

WORKERS: Final = sized(10_000, 30)
ROUNDS: Final = sized(1_000, 10)
REPLICAS: Final = 20
"""Of a round."""
ROUND_S: Final = 3.0


def crowd(here: Service, job: str) -> None:
    """Writes WORKERS accounts and ROUNDS closed rounds, each with REPLICAS paid or rejected replicas, into the job."""
    database, now, chance = open_engine(here.address), time.time(), random.Random(1)
    names = [checksum_address(f"0x{number:040x}") for number in range(1, WORKERS + 1)]
    with begin_work(sessions_of(database)) as work:
        session = work.session
        mould = session.query(Task).filter(Task.job_id == job).first()
        opened = session.query(Round).filter(Round.job_id == job).first()
        assert mould is not None
        assert opened is not None
        session.execute(insert(Worker), [_worker(name, now) for name in names])
        session.execute(insert(Account), [_account(job, name) for name in names])
        numbers = range(1, ROUNDS)
        session.execute(insert(Round), [_round(opened, number, now) for number in numbers])
        session.execute(insert(Task), [_task(mould, number, now) for number in numbers])
        for number in numbers:
            _replicas(work, job, number, chance.sample(names, REPLICAS), now)
        kinds = [
            {"job_id": job, "kind": "round_closed", "body": {"round": n, "loss": 1 / n}, "at": now} for n in numbers
        ]
        session.execute(insert(JobEvent), kinds)
    database.dispose()


def _worker(name: str, now: float) -> dict[str, Any]:
    return {
        "address": name,
        "payout": name,
        "operator": name,
        "determinism_class": "bench",
        "capacity": 0,
        "seen_at": now,
        "joined_at": now,
        "fence": 0,
        "jobs": [],
        "least_price": 0,
        "least_prices": {},
        "asking_until": 0.0,
    }


def _account(job: str, name: str) -> dict[str, Any]:
    zeros = dict.fromkeys(("earned", "reserved", "settled", "withdrawn", "at_risk", "stalls"), 0)
    return {"job_id": job, "worker": name, "leaving": False, "rests_until": 0.0, **zeros}


def _columns(row: Any) -> dict[str, Any]:
    return {column.key: getattr(row, column.key) for column in row.__mapper__.column_attrs}


def _round(opened: Round, number: int, now: float) -> dict[str, Any]:
    at = now - (ROUNDS - number) * ROUND_S
    fields = {
        "number": number,
        "state": RoundState.CLOSED,
        "loss": 2.0 / number,
        "metrics": {"accuracy": number / ROUNDS},
    }
    return _columns(opened) | fields | {"opened_at": at, "closed_at": at + ROUND_S, "updated": opened.parameters}


def _task(mould: Task, number: int, now: float) -> dict[str, Any]:
    name = f"{mould.job_id}-{number}-0-0"
    fields = {"id": name, "round": number, "state": TaskState.FINAL, "offer_digest": number.to_bytes(32, "big")}
    return _columns(mould) | fields | {"ended_at": now, "used": True, "due_at": None}


def _replicas(work: Work, job: str, number: int, names: list[str], now: float) -> None:
    task, at = f"{job}-{number}-0-0", now - (ROUNDS - number) * ROUND_S
    rows, paid = [], []
    for place, name in enumerate(names):
        state = ReplicaState.REJECTED if place % 5 == 4 else ReplicaState.PAYABLE
        row: dict[str, Any] = {
            "id": f"{task}-{place}",
            "task_id": task,
            "job_id": job,
            "worker": name,
            "payout": name,
            "operator": name,
        }
        row |= {"state": state, "wave": 0, "fence": 1, "leased_at": at, "lease_until": at, "reason": "", "heard": True}
        rows.append(row | {"determinism_class": "bench"})
        if state is ReplicaState.PAYABLE:
            earned = {"job_id": job, "task_id": task, "replica_id": row["id"], "worker": name, "units": 1}
            paid.append(earned | {"digest": bytes(32), "revoked": False, "at": at + ROUND_S})
    work.session.execute(insert(Replica), rows)
    work.session.execute(insert(Earned), paid)
