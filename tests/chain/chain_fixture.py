"""A chain fixture: a chain worker over a real chain and its own database, with rows that stages would write."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from eth_keys.datatypes import PrivateKey
from eth_utils.crypto import keccak
from sqlalchemy import Engine, select
from web3 import HTTPProvider, Web3
from web3.types import RPCEndpoint, RPCResponse

from contracts.ledger import Ledger
from contracts.local import local_grant
from contracts.rpc import call_json_rpc
from gradmarket.market.job import JobSpec
from gradmarket.market.messages import Outcome, Voucher
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Address, AuditState, BatchState, Digest, JobState, ReplicaState, TaskState, Units
from requester.chain.chain_context import ChainContext, ChainPolicy, TransactionState
from requester.chain.chain_worker import ChainWorker
from requester.features import FEATURES
from requester.features.audits.audit_tables import Audit
from requester.features.reconcile import ReconcileFeature
from requester.store import earned_rows
from requester.store.session import open_engine, sessions_of
from requester.store.tables import Account, Batch, Earned, Job, Replica, Task, Transaction, Worker
from requester.store.work import begin_work, open_reader
from requester.wiring import extend_log, extend_opening, measure_stake
from tests.chain.chain_differences import list_chain_differences
from tests.databases import NewDatabase, new_sqlite
from tests.kit.clock import Clock
from tests.offers import ALONE, offer
from tests.onchain import NewKey
from tests.patience import wait_until

PRICE = 10
BUDGET = 10_000
CLASS = "cpu"
POLICY = ChainPolicy(settle_every_s=5.0, settle_gradients=50, claim_window_s=3600, lifetime_s=3600)


class ChainFixture:
    """The requester's payments: a database file, market calls over it, and a chain worker that may die and restart."""

    def __init__(
        self,
        folder: Path,
        ledger: Ledger,
        new_key: Callable[[], PrivateKey],
        policy: ChainPolicy = POLICY,
        database: NewDatabase = new_sqlite,
    ) -> None:
        self.folder, self.ledger, self.policy = folder, ledger, policy
        self.key, self.signer = new_key(), new_key()
        call_json_rpc(ledger.web3, "evm_mine")  # the newest block may be of a test long ago
        self.clock = Clock(float(ledger.block().time))
        self._numbers, self._lives = count(), count()
        self._others: list[Engine] = []
        self._database = database(folder)
        self._open()

    def restart(self, ledger: Ledger | None = None) -> None:
        """All that was in memory is lost; the process that died held the lease until it lapsed."""
        self.ledger = ledger or self.ledger
        self._engine.dispose()
        self.clock.now += self.policy.duty_s + 1
        self._open()

    def _open(self) -> None:
        self._engine = open_engine(self._database)
        sessions = sessions_of(self._engine, FEATURES)
        self.chain = ChainContext(
            begin=partial(begin_work, sessions),
            reading=partial(open_reader, sessions),
            ledger=self.ledger,
            key=self.key,
            signer=address_of(self.signer),
            clock=self.clock,
            policy=self.policy,
            endpoint="http://127.0.0.1",
            grant=local_grant(self.ledger, address_of(self.key)),
            steps=tuple(step for feature in FEATURES for step in feature.chain_steps),
            extend_log=extend_log,
            extend_opening=extend_opening,
            measure_stake=measure_stake,
            correction=ReconcileFeature.correction,
            holder=f"life {next(self._lives)} of the fixture",
        )
        self.chain_worker = ChainWorker(self.chain)

    def another(self) -> ChainWorker:
        """The chain worker of another process on the same database."""
        mine = (self._engine, self.chain, self.chain_worker)
        self._open()
        self._others.append(self._engine)
        theirs = self.chain_worker
        self._engine, self.chain, self.chain_worker = mine
        return theirs

    def backup(self) -> bytes:
        """The database as SQLite's file."""
        with closing(sqlite3.connect(self.folder / "market.sqlite")) as live:
            live.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return (self.folder / "market.sqlite").read_bytes()

    def restore(self, backup: bytes) -> None:
        self._engine.dispose()
        (self.folder / "market.sqlite").write_bytes(backup)
        self.restart()

    def close(self) -> None:
        for engine in (self._engine, *self._others):
            engine.dispose()

    def settle_down(self, steps: int = 40) -> None:
        """Steps until nothing moves."""
        for _ in range(steps):
            if not self.chain_worker.step():
                return
        raise AssertionError("the chain worker does not come to rest")

    def new_job(self, budget: int = BUDGET, state: JobState = JobState.AWAITING_FUNDS, **spec: Any) -> str:
        """A published job that waits for its deposit."""
        job_id = f"{next(self._numbers):016x}"
        fields = {
            "name": "test",
            "model": {"architecture": "mlp", "arguments": {}},
            "data": {"ready": "digits"},
            "step": {"kind": "gradient", "rows": 1, "microbatch": 1},
            "optimizer": {"name": "sgd", "lr": 0.1},
            "rounds": 1000,
            "replication": {"name": "fixed"},
            "tasks_per_round": 1,
            "seed": 1,
            "price": str(PRICE),
            "budget": str(budget),
        }
        with self.chain.begin() as work:
            work.add(
                Job(
                    id=job_id,
                    state=state,
                    reason="",
                    spec=JobSpec.model_validate(fields | spec).model_dump(mode="json"),
                    spec_digest="blake3:" + keccak(text=f"{self.folder} {job_id}").hex(),
                    token="tester",
                    secret=bytes(32),
                    unit="1",
                    price=PRICE,
                    budget=budget,
                    created_at=self.clock(),
                )
            )
        return job_id

    def running_job(self, budget: int = BUDGET) -> str:
        job_id = self.new_job(budget)
        self.settle_down()
        assert self.job(job_id).state == JobState.RUNNING
        return job_id

    def mark_asking(self, worker: Address) -> None:
        """For work, from now on and for as long as a worker lives."""
        now = self.clock()
        with self.chain.begin() as work:
            row = work.get_one(Worker, worker)
            row.seen_at, row.asking_until, row.capacity, row.determinism_class = now, now + 45, 1, CLASS

    def joins(self, job_id: str, worker: PrivateKey) -> Address:
        """The worker asks for work, of the job's class, and has an account in it."""
        address, now = address_of(worker), self.clock()
        with self.chain.begin() as work:
            row = work.get(Worker, address)
            if row is None:
                row = Worker(address=address, payout=address, operator=address, seen_at=now, joined_at=now)
                work.add(row)
                work.flush()
            job = work.get_one(Job, job_id)
            job.determinism_class = job.determinism_class or CLASS
            earned_rows.load_or_create_account(work, job_id, address)
        self.mark_asking(address)
        return address

    def earns(self, job_id: str, worker: Address, times: int = 1) -> None:
        """Accepted tasks, one replica each."""
        with self.chain.begin() as work:
            job = work.get_one(Job, job_id)
            for _ in range(times):
                name = f"{next(self._numbers):x}"
                task, replica = self._accepted(job, worker, name)
                work.add(task)
                work.flush()
                work.add(replica)
                work.flush()
                account = work.get_one(Account, (job_id, worker))
                earned_rows.record_earning(work, account, task, replica, keccak(text=name), self.clock())

    def open_task(self, job_id: str, worker: Address, state: ReplicaState, patience_until: float) -> str:
        """An open task whose only replica ended in this state; returns its id."""
        with self.chain.begin() as work:
            task, replica = self._accepted(work.get_one(Job, job_id), worker, f"{next(self._numbers):x}")
            task.state, task.patience_until, replica.state = TaskState.OPEN, patience_until, state
            work.add(task)
            work.flush()
            work.add(replica)
        return task.id

    def audits(self, job_id: str, state: AuditState) -> None:
        """The job has an audit in this state, of any task."""
        with self.chain.begin() as work:
            task = work.session.scalars(select(Task).where(Task.job_id == job_id).limit(1)).one()
            values = {"job_id": job_id, "round": 0, "rate": 1.0, "determinism_class": "", "reason": ""}
            work.session.merge(Audit(task_id=task.id, state=state, created_at=self.clock(), **values))

    def outvotes(self, job_id: str, worker: Address) -> None:
        """A verdict rejected this worker's answer to the job's first task for another root."""
        with self.chain.begin() as work:
            task = work.session.scalars(select(Task).where(Task.job_id == job_id).limit(1)).one()
            _, replica = self._accepted(work.get_one(Job, job_id), worker, f"{next(self._numbers):x}")
            replica.task_id, replica.state, replica.outcome = task.id, ReplicaState.REJECTED, int(Outcome.REJECTED)
            replica.root, replica.verdict_root = Digest("blake3:" + "1" * 64), Digest("blake3:" + "2" * 64)
            work.add(replica)

    def _accepted(self, job: Job, worker: Address, name: str) -> tuple[Task, Replica]:
        now = self.clock()
        task = Task(
            id=f"t{name}", job_id=job.id, round=0, index=int(name, 16), attempt=0, state=TaskState.FINAL,
            offer=offer(PRICE), offer_digest=keccak(text=f"{self.folder} {name}"), offer_signature=b"",
            secret=bytes(32), wave_size=1, plan=ALONE, created_at=now,
        )  # fmt: skip
        replica = Replica(
            id=f"r{name}", task_id=task.id, job_id=job.id, worker=worker, payout=worker, operator=worker,
            state=ReplicaState.PAYABLE, wave=0, fence=1, leased_at=now, lease_until=now,
        )  # fmt: skip
        return task, replica

    def voucher(self, job_id: str, worker: Address) -> tuple[Voucher, bytes]:
        """Returns the voucher for all that the worker has earned."""
        earned = self.account(job_id, worker).earned
        voucher = Voucher(self.job(job_id).chain_job or 0, worker, Units(earned))
        return voucher, sign_digest(self.signer, digest_struct(self.ledger.domain(), voucher))

    def job(self, job_id: str) -> Job:
        with self.chain.reading() as reader:
            return reader.get_one(Job, job_id)

    def account(self, job_id: str, worker: Address) -> Account:
        with self.chain.reading() as reader:
            return reader.get_one(Account, (job_id, worker))

    def all_accounts(self, job_id: str) -> list[Account]:
        with self.chain.reading() as reader:
            return list(reader.session.scalars(select(Account).where(Account.job_id == job_id)))

    def all(self, table: Any, *where: Any) -> list[Any]:
        with self.chain.reading() as reader:
            return list(reader.session.scalars(select(table).where(*where).order_by(table.id)))

    def set_job(self, job_id: str, **values: Any) -> None:
        with self.chain.begin() as work:
            row = work.get_one(Job, job_id)
            for name, value in values.items():
                setattr(row, name, value)

    def with_policy(self, **changes: Any) -> None:
        self.policy = replace(self.policy, **changes)
        self.restart()


class LossyProvider(HTTPProvider):
    """A network that fails on one method: `before` the node hears it, or after, so that the answer is lost."""

    def __init__(self, url: str, method: str, before: bool, times: int = 1) -> None:
        super().__init__(url, exception_retry_configuration=None)
        self.method, self.before, self.times = method, before, times

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        failing = method == self.method and self.times > 0
        self.times -= failing
        if failing and self.before:
            raise ConnectionError("lost on the way there")
        answer = super().make_request(method, params)
        if failing:
            raise ConnectionError("lost on the way back")
        return answer


def lossy(ledger: Ledger, method: str, before: bool, times: int = 1) -> Ledger:
    url = str(ledger.web3.provider.endpoint_uri)  # type: ignore[attr-defined]
    web3 = Web3(LossyProvider(url, method, before, times))
    web3.middleware_onion.remove("validation")
    return Ledger(web3, ledger.deployment)


def busy(chain_fixture: ChainFixture, new_key: NewKey, gradients: int = 7) -> tuple[str, Address]:
    """A running job whose worker has reserved money and EARNED rows that are due."""
    job_id, worker = chain_fixture.running_job(), new_key()
    address = chain_fixture.joins(job_id, worker)
    chain_fixture.settle_down()
    for earned in (1, 2, gradients - 3):  # the reservation grows with the earnings
        chain_fixture.earns(job_id, address, earned)
        chain_fixture.settle_down()
    chain_fixture.clock.now += chain_fixture.policy.settle_every_s
    return job_id, address


def wait_until_mined(ledger: Ledger) -> None:
    """Waits until Anvil has mined all that it can: it answers a transaction's sender before."""
    wait_until(lambda: int(call_json_rpc(ledger.web3, "txpool_status")["pending"], 16) == 0)


def check(chain_fixture: ChainFixture, job_id: str, worker: Address, gradients: int) -> None:
    """Settled once: every row is in a settled batch, and books and chain are equal."""
    chain_fixture.clock.now += chain_fixture.policy.settle_every_s
    chain_fixture.settle_down()
    wait_until_mined(chain_fixture.ledger)
    chain_fixture.settle_down()
    assert list_chain_differences(chain_fixture.chain, job_id) == []
    chain_job = chain_fixture.job(job_id).chain_job or 0
    assert chain_fixture.ledger.account(chain_job, worker).settled == gradients * PRICE
    batches = chain_fixture.all(Batch, Batch.job_id == job_id)
    assert [batch.number for batch in batches] == list(range(len(batches)))
    assert {batch.state for batch in batches} == {BatchState.SETTLED}
    assert sum(batch.gradients for batch in batches) == gradients
    assert all(row.batch_id is not None for row in chain_fixture.all(Earned, Earned.job_id == job_id))
    assert all(row.state != TransactionState.PREPARED for row in chain_fixture.all(Transaction))
