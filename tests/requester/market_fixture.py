"""A market in one thread: the real stages over a real database and real blobs, driven step by step by a settable clock.

The effects of HTTP, the chain and the runner are set by hand: a published and funded job, and reserved money.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from eth_utils.crypto import keccak
from sqlalchemy import select
from sqlalchemy.orm import Session

from contracts.ledger import Ledger
from gradmarket.market.admissible import move_of
from gradmarket.market.gradient.payload_layout import Layout, LayoutEntry
from gradmarket.market.gradient.round_update import build_model_state
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.release import PROTOCOL
from gradmarket.market.rules import assignment
from gradmarket.market.signing import address_of, signer_of
from gradmarket.market.terms import Address, Digest, JobState
from gradmarket.market.wire.poll import PollAnswer
from gradmarket.market.wire.sign_in import ChainFacts
from graphdoc import tensors
from requester.blobs.disk import DiskBlobs
from requester.chain.chain_context import ChainContext
from requester.chain.chain_worker import ChainWorker
from requester.context import Context, open_work
from requester.engine import Stage
from requester.exchange import outbox, poll
from requester.feature import beginning_of
from requester.features import FEATURES
from requester.model_runner import ModelRunner
from requester.moves.ending import end_job
from requester.moves.resume import resume_job
from requester.notifier import Notifier
from requester.settings import RequesterSettings
from requester.stages import (
    aggregate,
    assign,
    close,
    collect,
    expire,
    judge,
    plan,
)
from requester.store import earned_rows, identities, strikes
from requester.store.answer_kind import explanation_of
from requester.store.facts import Facts, as_json, layout_facts
from requester.store.session import Sessions, sessions_of
from requester.store.tables import Account, Base, Earned, Job, JobEvent, Replica, Round, Strike, Task, Worker
from requester.store.work import open_reader
from requester.wiring import extend_opening, measure_stake, open_notifier
from tests.databases import NewDatabase, in_memory
from tests.kit.behaviour import HONEST, Behaviour
from tests.kit.clock import Clock
from tests.requester.lent_engines import LentDatabase
from tests.requester.market_rest import Rest
from tests.requester.market_workers import SimWorker, key_of

LAYOUT = Layout((LayoutEntry("loss", (), "loss"), LayoutEntry("w", (4,), "gradient"), LayoutEntry("m", (2,), "buffer")))
COUNTER = "n"
PRICE = 10
BESIDE = {"audits", "part_merges", "leftovers"}
"""Features whose stages run earlier, are a merge's own, or delete rows that no test of a job has."""
STAGES: tuple[Stage, ...] = (
    *(plan, assign, close, judge, aggregate, expire),
    *(stage for feature in FEATURES if feature.review is not None for stage in feature.stages),
    collect,
    *(stage for one in FEATURES if one.name not in BESIDE for stage in one.stages),
)
CLASS = "cpu"
DEADLINES = {"lease_s": 20, "wave_s": 10, "upload_s": 10}


@cache
def modelling() -> ModelRunner:
    """One for all markets, as one service has it for all its jobs: a child takes seconds to start."""
    return ModelRunner()


@cache
def usual_settings() -> RequesterSettings:
    """Reads the environment, which takes as long as some statements."""
    return RequesterSettings()


def market_folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(dir=in_memory())


def first_parameters() -> dict[str, np.ndarray]:
    return {
        "w": np.array([1.0, -2.0, 3.0, -4.0], np.float32),
        "m": np.zeros(2, np.float32),
        COUNTER: np.array(0, np.int64),
    }


def find_row_class(table: str) -> type[Any] | None:
    """Returns the class of a table's rows; None where this tree lacks the feature that has it."""
    return next((one.class_ for one in Base.registry.mappers if one.local_table.name == table), None)


class MarketFixture:
    """One service with one running job; `spec` and `settings` change the defaults.

    Auditors of `audited_classes` asked for work before.
    """

    def __init__(
        self,
        folder: Path,
        ledger: Ledger,
        database: NewDatabase,
        settings: dict[str, Any] | None = None,
        chain_job: int = 7,
        audited_classes: Sequence[str] = (CLASS,),
        **spec: Any,
    ) -> None:
        self.folder, self.ledger, self.clock = folder, ledger, Clock()
        self.signer, self._names = key_of("signer"), count()
        own = {"data": folder}
        self.settings = RequesterSettings(**own, **settings) if settings else usual_settings().model_copy(update=own)
        self.workers: list[SimWorker] = []
        self.one_by_one = False
        """Whether a worker polls only when the one before it was answered: it is drawn before the others ask."""
        self.stages = STAGES
        self.sketched: set[str] = set()
        """The jobs that compare sketches."""
        self.driven = False
        """Somebody else drives the stages."""
        self._rest = Rest()
        self._database = LentDatabase(database)
        self._open_parts: list[Callable[[], None]] = []
        self.context = self._open()
        self.job = "00000000000000aa"
        self._post(self.job, chain_job, **spec)
        with self.context.begin() as work:
            if (audited_class := find_row_class("audited_classes")) is not None:
                for name in audited_classes:
                    work.add(audited_class(determinism_class=name, asked_at=self.clock()))
        self.drive(plan)  # a job without rounds is ready for no other stage
        self.drive()

    def _open(self) -> Context:
        facts = ChainFacts(
            chain_id=self.ledger.deployment.chain_id,
            genesis=self.ledger.deployment.genesis,
            contract=self.ledger.deployment.contract,
            token=self.ledger.deployment.token,
            instance=self.ledger.deployment.instance,
            signer=address_of(self.signer),
            symbol="TEST",
            decimals=18,
            unit="1",
            rpc=None,
            protocol=PROTOCOL,
        )
        engine, notifier = self._database.engine(), open_notifier(self._database.url)
        self._rest.watch(engine)
        self._open_parts += [
            notifier.stop,
            partial(self._rest.leave, engine),
            partial(self._database.take_back, engine),
        ]
        sessions = sessions_of(engine, FEATURES)
        return Context(
            settings=self.settings,
            sessions=sessions,
            blobs=DiskBlobs(self.folder / "blobs"),
            notifier=notifier,
            clock=self.clock,
            domain=self.ledger.domain(),
            signer=signer_of(self.signer),
            signer_address=address_of(self.signer),
            public_url="http://127.0.0.1",
            chain_facts=facts,
            modelling=modelling(),
            ledger=self.ledger,
            chain_worker=ChainWorker(self._chain(sessions, notifier)),
            on_sign_in=lambda _address: None,
            chain_trouble=lambda: "",
        )

    def chain(self, holder: str) -> ChainContext:
        """As a process of this name has it."""
        context = self._open()
        return replace(self._chain(context.sessions, context.notifier), holder=holder)

    def _chain(self, sessions: Sessions, notifier: Notifier) -> ChainContext:
        begin, look = partial(open_work, sessions, notifier), partial(open_reader, sessions)
        return ChainContext(
            begin,
            look,
            self.ledger,
            key_of("sender"),
            address_of(self.signer),
            self.clock,
            extend_opening=extend_opening,
            measure_stake=measure_stake,
        )

    def crash(self) -> None:
        """Everything in memory is lost; the files stay."""
        self._shut()
        self.context = self._open()

    def another(self) -> Context:
        """Returns the context of another process on the same database and blobs."""
        return self._open()

    def _shut(self) -> None:
        for end_part in self._open_parts:
            end_part()
        self._open_parts.clear()

    def close(self) -> None:
        self._shut()
        self._database.end()

    def also(self, job: str, chain_job: int, **spec: Any) -> None:
        """A second job beside the first, with as much money for every worker."""
        self._post(job, chain_job, **spec)
        with self.context.begin() as work:
            for worker in self.workers:
                earned_rows.load_or_create_account(work, job, worker.address).reserved = 1000 * PRICE
        self.drive()

    def _post(self, job: str, chain_job: int, published: dict[str, Digest] | None = None, **changes: Any) -> None:
        """`published`: blobs of its own that the publication names."""
        spec = self._start(JobSpec.model_validate(self._spec(**changes)))
        self.sketched |= {job} if spec.verifier.sketched else set()
        blobs = self.context.blobs
        start = spec.continue_from
        named = {"document": Digest("blake3:" + "1" * 64), "manifest": Digest("blake3:" + "2" * 64)}
        publication = Publication(
            job=job,
            spec=spec,
            evaluation=None,
            parameters=start.parameters if start else blobs.put(tensors.pack_tensors(first_parameters())),
            **(named | (published or {})),
        )
        fresh = build_model_state(LAYOUT, first_parameters(), move_of(spec)).memory
        with self.context.reading() as reader:
            memory = beginning_of(reader).check_state_fits(reader, blobs, start, LAYOUT, fresh) if start else None
        memory = memory or blobs.put(tensors.pack_tensors(fresh))
        facts = Facts(layout=layout_facts(LAYOUT), counters=(COUNTER,), flops=1, peak_bytes=1, memory=memory)
        with self.context.begin() as work:
            work.add(
                Job(
                    id=job,
                    state=JobState.RUNNING,
                    reason="",
                    spec=spec.model_dump(mode="json"),
                    publication=publication.model_dump(mode="json"),
                    spec_digest=publication.digest,
                    facts=as_json(facts),
                    token="requester",
                    secret=keccak(text="the job's secret"),
                    chain_job=chain_job,
                    unit="1",
                    price=spec.price.most,
                    budget=10**9,
                    deposited=10**9,
                    refunded=0,
                    created_at=self.clock(),
                    compute_seconds=0.0,
                )
            )

    def _start(self, spec: JobSpec) -> JobSpec:
        with self.context.reading() as reader:
            found = beginning_of(reader).find_start(reader, spec)
        assert found is not None, "the job that it continues goes on"
        return found

    def _spec(self, **changes: Any) -> dict[str, Any]:
        digest = "blake3:" + "3" * 64
        votes = {} if "holders" in changes.get("data", {}) else {"replication": {"name": "fixed"}}
        return (
            votes
            | {
                "name": "test",
                "model": {"document": digest, "parameters": digest},
                "data": {"manifest": digest},
                "step": {"rows": 1},
                "optimizer": {"name": "sgd", "lr": 0.125},
                "rounds": 1,
                "seed": 5,
                "price": str(PRICE),
                "deadlines": DEADLINES,
            }
            | changes
        )

    def prove_class(self) -> None:
        """As audits of three operators' work leave it."""
        with self.context.begin() as work:
            work.get_one(Job, self.job).proven_class = CLASS

    def worker(
        self,
        behaviour: Behaviour = HONEST,
        payout: Address | None = None,
        determinism_class: str = CLASS,
        reserved: int = 1000 * PRICE,
        consent: int | None = None,
        kind: type[SimWorker] = SimWorker,
    ) -> SimWorker:
        """A worker that has signed in, with `reserved` units for it in the job; `consent`: its payout key's nonce."""
        made = kind(self, key_of(f"worker {next(self._names)}"), behaviour, determinism_class)
        with self.context.begin() as work:
            identities.sign_in(work, made.address, payout or made.address, None, self.clock(), consent)
            work.flush()
            earned_rows.load_or_create_account(work, self.job, made.address).reserved = reserved
        self.workers.append(made)
        return made

    def drive(self, *stages: Stage) -> None:
        """Runs the stages, or these alone, until none has anything to do at this instant; raises where one never comes
        to rest."""
        for _ in range(0 if self.driven else 200):
            if not self._sweep(stages or self.stages):
                return
        if not self.driven:
            raise AssertionError("the stages do not come to rest")

    def _sweep(self, stages: Sequence[Stage]) -> bool:
        """As engine.sweep_once for every one of the stages, but errors are the test's."""
        now = self.clock()
        asked = [stage for stage in stages if not self._rest.lasts(stage, now)]
        if not asked:
            return False
        ready: list[tuple[Stage, str]] = []
        with self.reading() as reader:
            for stage in asked:
                with self._rest.recording_reads(stage, now, ready):
                    ready += [(stage, row_id) for row_id in stage.ready(reader, now)]
        waits = [self._rest.ran(stage, row_id, now, self.context) for stage, row_id in ready]
        soon = [wait for wait in waits if wait is not None and wait <= assignment.WINDOW_MAX_S]
        self.clock.now += min(soon, default=0.0)
        return bool(soon) or None in waits

    def play(self, *workers: SimWorker, passes: int = 60, seconds: float = 2.0) -> None:
        """Every worker takes a turn, time passes, and again, until the job is over or at rest for people to act."""
        for _ in range(passes):
            self.take_turns(*workers)
            if self.state() != JobState.RUNNING:
                break
            self.clock.now += seconds
            self.drive()
        self.take_turns()

    def until(self, done: Callable[[], object], *workers: SimWorker, seconds: float = 1.0) -> None:
        """Plays until `done()`; raises where that never comes."""
        for _ in range(100):
            if done():
                return
            self.take_turns(*workers)
            self.clock.now += seconds
            self.drive()
        raise AssertionError("it never came")

    def lapse(self, seconds: float) -> None:
        """Moves the clock without any message."""
        self.clock.now += seconds
        self.drive()

    def gather(self, *workers: SimWorker) -> None:
        """All of them ask and hold a lease, and nobody has committed."""
        for _ in range(2):
            self.request_work(*workers)

    def request_work(self, *workers: SimWorker) -> None:
        """The workers ask for work and receive their answers."""
        self._poll(workers, lambda _worker: {})
        self.drive()
        self._receive_answers(workers)

    def commit(self, *workers: SimWorker) -> None:
        self._poll(workers, lambda worker: {"commitments": worker.commitments()})
        self.drive()

    def reveal(self, *workers: SimWorker) -> None:
        self._receive_answers(workers)
        self._poll(workers, lambda worker: {"reveals": worker.reveals()})
        self.drive()

    def take_turns(self, *workers: SimWorker) -> None:
        """Each polls as a real worker's loop does and acts on the answer; polls are heard together, or `one_by_one`."""
        if self.one_by_one and len(asking := workers or self.workers) > 1:
            for worker in tuple(asking):
                self.take_turns(worker)
            return
        self._poll(workers, lambda worker: {"commitments": worker.commitments(), "reveals": worker.reveals()})
        self.drive()
        self._receive_answers(workers)
        for worker in workers or self.workers:
            worker.finish_turn()

    def _poll(self, workers: Sequence[SimWorker], say: Callable[[SimWorker], dict[str, Any]]) -> None:
        asking = workers or self.workers
        answers = poll.handle_polls(self.context, [worker.poll(**say(worker)) for worker in asking])
        for worker, told in zip(asking, answers, strict=True):
            worker.refusals.extend(told.refusals)

    def _receive_answers(self, workers: Sequence[SimWorker]) -> None:
        asking = workers or self.workers
        answers = outbox.load_poll_answers(self.context, [worker.newest_poll for worker in asking])
        for worker, told in zip(asking, answers, strict=True):
            worker.take_in(PollAnswer.model_validate_json(told.model_dump_json()))

    # contents of the rows

    @contextmanager
    def reading(self) -> Iterator[Session]:
        with self.context.reading() as reader:
            yield reader

    def all(self, table: type[Any], *where: Any) -> Sequence[Any]:
        with self.reading() as reader:
            return reader.session.scalars(select(table).where(*where)).all()

    def the_job(self) -> Job:
        with self.reading() as reader:
            return reader.get_one(Job, self.job)

    def state(self) -> JobState:
        return JobState(self.the_job().state)

    def tasks(self, *where: Any) -> list[Task]:
        return sorted(self.all(Task, *where), key=lambda task: (task.round, task.index, task.attempt))

    def task(self) -> Task:
        """The newest attempt at the only task."""
        return self.tasks()[-1]

    def rounds(self) -> list[Round]:
        return sorted(self.all(Round), key=lambda row: row.number)

    def replicas(self, worker: SimWorker | None = None) -> list[Replica]:
        found = self.all(Replica) if worker is None else self.all(Replica, Replica.worker == worker.address)
        return sorted(found, key=lambda replica: (replica.leased_at, replica.id))

    def replica(self, worker: SimWorker) -> Replica:
        """The worker's newest."""
        return self.replicas(worker)[-1]

    def account(self, worker: SimWorker) -> Account:
        (account,) = self.all(Account, Account.worker == worker.address)
        return account  # type: ignore[no-any-return]

    def row(self, worker: SimWorker) -> Worker:
        (row,) = self.all(Worker, Worker.address == worker.address)
        return row  # type: ignore[no-any-return]

    def strikes(self, worker: SimWorker) -> int:
        with self.reading() as reader:
            operator = reader.get_one(Worker, worker.address).operator
        rows = self.all(Strike, Strike.operator == operator)
        return round(sum(strikes.compute_strike_weight(row, self.clock()) for row in rows))

    def earned(self) -> dict[str, int]:
        """Returns the earned units by worker, without dropped pay."""
        sums: dict[str, int] = {}
        for row in self.all(Earned, ~(Earned.waits & Earned.revoked)):
            sums[row.worker] = sums.get(row.worker, 0) + row.units
        return sums

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event.body for event in self.all(JobEvent, JobEvent.kind == kind)]

    def why_waiting(self) -> str:
        with self.reading() as reader:
            job = reader.get_one(Job, self.job)
            return explanation_of(reader).explain_wait(reader, job, self.clock())

    def final_parameters(self) -> str:
        return str(self.rounds()[-1].updated)

    # acts of people

    def resume(self) -> None:
        with self.context.begin() as work:
            resume_job(self.context, work, work.get_one(Job, self.job))
        self.drive()

    def cancel(self) -> None:
        with self.context.begin() as work:
            end_job(self.context, work, work.get_one(Job, self.job), JobState.CANCELLED, "cancelled")
        self.drive()
