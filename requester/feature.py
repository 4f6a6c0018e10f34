"""The hooks of a feature beside the kernel. The kernel calls every feature by these names and knows none of them.

`requester.features.FEATURES` has them in the order of their calls. It is imported by the wiring alone and travels with
the sessions, so a transaction and a context both lead to it (`features_of`).
"""

from abc import ABC, abstractmethod
from asyncio import Protocol
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from logging import Filter
from types import ModuleType
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast

from fastapi import APIRouter, FastAPI, Request
from prometheus_client import Metric
from sqlalchemy import ColumnElement
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import State
from starlette.types import ASGIApp
from structlog.typing import Processor

from contracts.calls import OpenJob
from gradmarket.market.errors import JobRefused
from gradmarket.market.gradient.arrays import Arrays
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.job_parts import Continued
from gradmarket.market.manifest import Manifest
from gradmarket.market.messages import LogHead
from gradmarket.market.rules.assignment import Mixable
from gradmarket.market.rules.verifiers.tolerance import Allowed
from gradmarket.market.terms import Address, Amount, Digest, Units
from gradmarket.market.wire.log_proofs import LeafKind
from requester.blobs import Blobs
from requester.chain.chain_context import ChainContext, Correction, OwnerElsewhere
from requester.context import Clock, Context
from requester.model_runner import PublishedModel
from requester.moves.candidates import CandidatePool
from requester.moves.replay import MergedRound, MergeInputs
from requester.notifier import Notifier, Relay
from requester.settings import RequesterSettings
from requester.store.answer_kind import AnswerKind, Explanation
from requester.store.in_hand import TaskInHand
from requester.store.review import Review
from requester.store.round_sum import RoundSum
from requester.store.session import features_in
from requester.store.tables import Base, Job, JobEvent, Replica, Round, Task, Worker
from requester.store.work import RowReader, Work

Standing = TypeVar("Standing")
Question = TypeVar("Question")
Result = TypeVar("Result")


class HeardAnswer(NamedTuple):
    root: Digest
    determinism_class: str


class AnswersLeft(NamedTuple):
    """The parties that lost no hearing, and their one answer; no root where they have several, or no party stands."""

    sides: Collection[Address]
    root: Digest | None


class Dispatcher(Generic[Question, Result]):
    """Passes requests to `act` one by one; a feature may pass several together, that one transaction handles them.

    `act` returns one result for each request, in the same order.
    """

    def __init__(self, act: Callable[[Sequence[Question]], Sequence[Result]]) -> None:
        self._act = act

    async def ask(self, asked: Question) -> Result:
        """Returns the result of `act` for this request, or raises its error."""
        return (await run_in_threadpool(self._act, [asked]))[0]


class HearingParty(ABC):
    """`run`: the run of the task's audit in which a party answered; None for its workers."""

    @abstractmethod
    def load_answers(self, reader: RowReader, task: Task, run: int | None) -> Mapping[Address, HeardAnswer]:
        """Returns the answers that differ; none once no ruling on them is awaited any more."""

    @abstractmethod
    def may_speak(self, reader: RowReader, task_id: str, run: int | None, side: Address, caller: str) -> bool:
        """Returns whether the caller, a worker or an operator of auditors, is that side."""

    @abstractmethod
    def settle(self, context: Context, work: Work, hand: TaskInHand, run: int | None, left: AnswersLeft) -> None:
        """Called in the transaction that holds the task, once no pair of standing parties is left to hear."""


class Lateness:
    """The feature that measures the speed of workers."""

    def expect_seconds(self, reader: RowReader, job: Job) -> Callable[[Worker], float | None]:
        """Called in the transaction that gives leases; returns the seconds within which a worker should commit.

        None: within its lease.
        """
        return lambda _worker: None

    def list_late_tasks(self, reader: RowReader, now: float) -> Sequence[str]:
        """Called by the stage `expire`; returns tasks that may need another worker beside their wave."""
        return ()

    def request_backup(self, work: Work, hand: TaskInHand, now: float) -> None:
        """Called in that stage's transaction, which has locked the task; may open one more place of it."""

    def compute_wait(self, reader: RowReader, job: Job, row: Round, now: float) -> float:
        """Called in the transaction that begins a merge; returns the seconds that the round still waits for others."""
        return 0.0


class Beginning:
    """The feature that continues jobs from another's end; admission refuses these without one."""

    def fill_posted(self, context: Context, body: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a posted job, its open fields filled from the job that it continues; other jobs unchanged."""
        return dict(body)

    def check_posted(self, context: Context, spec: JobSpec, token: str) -> None:
        """Raises JobRefused for a job that may not continue the job that it names."""

    def explain_draft(self, reader: RowReader, spec: JobSpec, token: str) -> str:
        """Returns the reason of a job that is a draft. Raises JobRefused where too many drafts of the token wait."""
        return "being published"

    def find_start(self, reader: RowReader, spec: JobSpec) -> JobSpec | None:
        """Returns the job with the state that its first round starts from; None while the earlier job goes on."""
        return spec

    def check_state_fits(
        self, reader: RowReader, blobs: Blobs, start: Continued, layout: Layout, fresh: Arrays
    ) -> Digest:
        """Returns the optimizer's memory that the job starts with. Raises JobRefused for another model or optimizer.

        `fresh`: the memory with which such a job would begin anew.
        """
        raise JobRefused("continue_from", "this service is built without jobs that continue others")


@dataclass(frozen=True)
class LogRecords:
    """Records that are leaves of a job's log: `about` names one among those of its kind, `columns` go into `encode`,
    `of_job` are the conditions on a job's id, and `order` is that of the new ones. `is_open`, by a record's name and
    columns, returns whether anybody may see it: others wait."""

    kind: LeafKind
    about: ColumnElement[str]
    columns: Sequence[Any]
    of_job: Callable[[str], Sequence[Any]]
    encode: Callable[..., bytes]
    order: Sequence[Any]
    is_open: Callable[[RowReader, str, Sequence[Any]], bool] = lambda _reader, _about, _fields: True


class MergeWatch:
    """A feature's work on one merge, beside it."""

    def measure(self, context: Context, inputs: MergeInputs) -> None:
        """Called once the round is merged, within no transaction; may read the answers, and be called again.

        May pay for them, in a transaction of its own.
        """

    def close(self, work: Work, job: Job, row: Round, now: float) -> None:
        """Called in the closing transaction, which holds the draw and the job; before any blob is locked.

        May write the feature's rows, the job's reason and events.
        """


class Merger(ABC):
    """Merges the rounds of some jobs otherwise than in the process that closes them."""

    @abstractmethod
    def takes(self, context: Context, inputs: MergeInputs) -> bool:
        """Called within no transaction; returns whether the job's rounds are this merger's."""

    @abstractmethod
    def merge(self, context: Context, job_id: str, inputs: MergeInputs) -> MergedRound | float | None:
        """Called within no transaction, by the one process that merges the job's rounds, until the round is merged.

        Returns the merged round; or the seconds until the next call; or None where the calling process must merge this
        round itself.
        """


class Feature:
    """A feature that does nothing. A hook that is called "in a transaction" gets that transaction and
    opens no other.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    """Names of the features that this one imports."""
    stages: ClassVar[tuple[ModuleType, ...]] = ()
    """Stages that run beside the kernel's (requester.stages)."""
    routers: ClassVar[tuple[APIRouter, ...]] = ()
    """Routes that are served after the kernel's."""
    merger: ClassVar[Merger | None] = None
    answer_kind: ClassVar[AnswerKind | None] = None
    dispatcher: ClassVar[type[Dispatcher[Any, Any]] | None] = None
    explanation: ClassVar[Explanation | None] = None
    review: ClassVar[Review | None] = None
    beginning: ClassVar[Beginning | None] = None
    lateness: ClassVar[Lateness | None] = None
    elsewhere: ClassVar[OwnerElsewhere | None] = None
    correction: ClassVar[Correction | None] = None
    chain_steps: ClassVar[tuple[Callable[[ChainContext], bool], ...]] = ()
    """Each is called in every step of the chain's work, while no other process does any; returns whether it moved."""
    blob_kinds: ClassVar[Mapping[str, Callable[[RowReader, str], bool]]] = {}
    """By the kind under which a job releases a blob: whether a row still needs the digest. Called in the transaction
    that deletes the blob, which has locked it.
    """

    log_processors: ClassVar[tuple[Processor, ...]] = ()
    """Each sees the lines of a process before the kernel's own (requester.logs)."""
    log_filters: ClassVar[tuple[Filter, ...]] = ()
    """Each sees the lines that libraries write."""

    log_records: ClassVar[Sequence[LogRecords]] = ()
    """Records of the feature's own tables that are leaves of a job's log."""

    claimed_tables: ClassVar[tuple[type[Base], ...]] = ()
    """Tables whose rows are claimed for a task's lease (`task_id`, `claimed_until`)."""

    round_sum: ClassVar[RoundSum | None] = None

    def bound_times(self, work: Work, now: float) -> int:
        """Called once the clock was set back; brings the feature's stored times back (store.stored_times).

        Returns how many rows had a time further ahead than its rule allows.
        """
        return 0

    def serve_beside(self, context: Context, here: str) -> AbstractContextManager[object]:
        """Called when the service starts, before its stages do; the result is entered until the service ends.

        `here` is the service's address on its own machine. May change rows, in transactions of its own.
        """
        return nullcontext()

    def record_process(self, settings: RequesterSettings) -> AbstractContextManager[object]:
        """Called in every process before its context is made; the result is entered until the context is closed."""
        return nullcontext()

    def open_clock(self) -> Clock | None:
        """Called before the context is made; returns the service's clock. Without one it is the machine's."""
        return None

    def look_after(self, context: Context) -> None:
        """Called in every process about once a sweep, within no transaction; may use a part to see whether it works."""

    def describe_start(self, settings: RequesterSettings) -> Mapping[str, str]:
        """Called when the service starts; returns the lines that it prints for the feature, by a word."""
        return {}

    def add_middleware(self, app: FastAPI, context: Context) -> None:
        """Called when the API starts, once it has all routes; may describe them, and add middleware behind the limits
        that the kernel has for all requests.
        """

    def limit_requests(self, app: FastAPI, context: Context) -> None:
        """Called after that; adds middleware that refuses a request before its body is read."""

    def guard_connections(self, app: ASGIApp, settings: RequesterSettings) -> tuple[ASGIApp, type[Protocol]] | None:
        """Called when the service starts to listen; returns the application behind a guard, and uvicorn's protocol."""
        return None

    def open_relay(self, settings: RequesterSettings) -> Relay | None:
        """Called where other processes run the stages, before the context is made; returns the relay that notifies
        them.
        """
        return None

    def open_notifier(self, url: str, relay: Relay | None) -> Notifier | None:
        """Called for a database that several processes share; returns the notifier that reaches them all."""
        return None

    def find_manifest(self, spec: JobSpec) -> Manifest | None:
        """Called for a job whose data come with the service; returns their manifest, if this process has them."""
        return None

    def store_data(self, context: Context, spec: JobSpec, manifest: Manifest) -> None:
        """Called within no transaction, before a job's partitions are checked; may store them as blobs."""

    def publish_model(self, context: Context, spec: JobSpec, manifest: Manifest) -> PublishedModel | None:
        """Called within no transaction, for a job that names an architecture instead of a document."""
        return None

    def check_model(self, context: Context, spec: JobSpec, model: PublishedModel, manifest: Manifest) -> None:
        """Called within no transaction, once a job's model is bounded and its inputs fit. Raises JobRefused."""

    def check_publication(self, context: Context, publication: Publication, manifest: Manifest) -> None:
        """Called within no transaction, before a job is published. Raises JobRefused."""

    def watch_merge(self, reader: RowReader, job: Job, used: Sequence[Task]) -> MergeWatch | None:
        """Called in the transaction that begins a merge, or resumes one; `used` are the tasks that are merged."""
        return None

    def evaluate_round(
        self, context: Context, spec: JobSpec, number: int, publication: Publication, parameters: Callable[[], Arrays]
    ) -> tuple[dict[str, float], str] | None:
        """Called within no transaction once a round is merged; returns its metrics, and without any a reason that
        stops the job.
        """
        return None

    def round_closing(self, work: Work, job: Job, row: Round, merged: MergedRound, now: float) -> None:
        """Called in the closing transaction once its blobs are locked, just before the round becomes closed.

        May delete the feature's rows and release blobs.
        """

    def rounds_undone(self, context: Context, work: Work, job: Job, first: int, now: float) -> None:
        """Called in the transaction that takes back the merges of round `first` and all later ones."""

    def round_closed(self, work: Work, job: Job, row: Round, now: float) -> None:
        """Called in the closing transaction once the round is closed, before the next one opens."""

    def job_collected(self, work: Work, job: Job, now: float) -> None:
        """Called in the transaction that releases the blobs of an ended job; may come more than once."""

    def blame_job(self, context: Context, work: Work, hand: TaskInHand, in_vain: bool) -> bool:
        """Called in the transaction in which a lease ended without an answer; returns whether the job is at fault.

        `in_vain`: no worker came that could still be asked. May pause the job and fail the task.
        """
        return False

    def extend_log(self, chain: ChainContext, job_id: str) -> LogHead | None:
        """Called before a new batch of the job is written, within no transaction; returns the head that it carries."""
        return None

    def extend_opening(self, opening: OpenJob, job: Job, min_window: int) -> OpenJob:
        """Called before a job is opened on-chain; returns the terms with the feature's own. The contract has no windows
        shorter than `min_window` seconds.
        """
        return opening

    def measure_stake(self, chain: ChainContext, job: Job, worker: Address) -> Units:
        """Called before accounts are copied from the chain; returns the stake that the job can slash."""
        return Units(0)

    def check_amounts(self, context: Context, spec: JobSpec, unit: Amount) -> None:
        """Called for a posted job. Raises JobRefused for a feature's amount that is no number of units."""

    def choose_pool(self, reader: RowReader, job: Job, now: float) -> type[CandidatePool] | None:
        """Called before workers are drawn; returns the pool that draws them, where the job's policy has its own."""
        return None

    def list_next_covered(self, reader: RowReader, job: Job, mixable: Mixable, now: float) -> list[Address] | None:
        """Called before reservations are made; returns the workers for which a price is reserved next, in their order.

        None where the job's policy leaves it to chance (store.newcomers).
        """
        return None

    def list_overruled(self, reader: RowReader, hand: TaskInHand, root: str) -> Sequence[Replica]:
        """Called in the judging transaction where all ballots agree on `root`; returns those of earlier attempts that
        they refute."""
        return ()

    def ballots_refuted(self, work: Work, replicas: Sequence[Replica], now: float) -> None:
        """Called in the judging transaction with the replicas whose ballots others refuted, before their verdicts."""

    def places_left(self, work: Work, left: Sequence[tuple[str, str]], now: float) -> None:
        """Called at the end of a transaction with the wallets and operators that left a place again, and the classes.

        The accounts are locked, and the strikes are not.
        """

    def operator_left(self, work: Work, worker: str, operator: str, now: float) -> None:
        """Called in the transaction in which a worker signs in, where it leaves an operator."""

    def load_thresholds(self, reader: RowReader, job: Job) -> Allowed:
        """Called where sketches are compared; returns how far honest answers of two classes may deviate."""
        return {}

    def hide_blob(self, digest: ColumnElement[str]) -> ColumnElement[bool] | None:
        """Called once for all features; returns the condition under which no worker reads the blob."""
        return None

    hearing_party: ClassVar[HearingParty | None] = None
    """Other parties than a task's workers that answer it, and that a referee may hear: a panel of its auditors."""

    def hear_task(self, work: Work, task: Task, now: float, run: int | None = None) -> None:
        """Called in the judging transaction of a task whose answers a referee hears: those of its workers, once it is
        REFERRED, or of the party that answered in run `run` of its audit.
        """

    def audit_ended(self, work: Work, task: Task, now: float) -> None:
        """Called in the transaction in which an audit of the task is over: before, nothing may reveal it."""

    def describe_wait(self, reader: RowReader, job: Job) -> str:
        """Called for a running job without an open task; names the cause for which its tasks wait, or nothing."""
        return ""

    def describe_task(self, reader: RowReader, row: Task) -> Mapping[str, object]:
        """Called while the API reads a task whose answers may be shown; returns optional fields of its TaskEvidence."""
        return {}

    def describe_round(self, row: Round) -> Mapping[str, object]:
        """Called while a round is read by the API; returns optional fields of its RoundView."""
        return {}

    def describe_job(self, reader: RowReader, job: Job) -> Mapping[str, object]:
        """Called while a job is read by the API, and cached; returns optional fields of its JobView."""
        return {}

    def describe_trust(self, reader: RowReader, job: Job) -> Mapping[str, object]:
        """Called while the API reads how well a job's checks find wrong answers; returns optional fields
        of TrustView.
        """
        return {}

    def events_recorded(self, work: Work, events: Sequence[JobEvent]) -> None:
        """Called at the end of each transaction that records events; may write the feature's rows."""

    def charge_upload(self, context: Context, work: Work, role: str, token: str, length: int) -> None:
        """Called in the transaction that first records an upload of `length` bytes. Raises HTTPException."""

    def budget_raised(self, context: Context, work: Work, job: Job, token: str, amount: Amount) -> None:
        """Called in the transaction that posts a job or raises its budget with a token of this name.

        `amount` is in the token's smallest unit; raises JobRefused where it may not be laid out.
        """

    def topped_up(self, work: Work, job: Job, amount: Units, at: float) -> None:
        """Called in the transaction that records a further deposit of `amount` units for the job."""

    def queue_token_event(
        self, work: Work, job: Job, token: str, kind: str, fields: Mapping[str, object], at: float
    ) -> None:
        """Called in the transaction of an event that only the owner of this token may know.

        `kind` is a market.views.service_views.Happening. Events of a job are public.
        """

    def metrics(self, reader: RowReader, now: float) -> Iterable[Metric]:
        """Called at each scrape, in a reading transaction."""
        return ()

    def cache_standing(self, request: Request, job_id: str, mark: str, make: Callable[[], Standing]) -> Standing | None:
        """Called while the API shows a job to anybody; returns what was made for it under this mark before, or now."""
        return None

    def open_caches(self, state: State, context: Context) -> None:
        """Called when the API starts; sets the objects that the feature's routes read from `request.app.state`.

        `state.strangers_share` is the time that all strangers together have for computations (features.answer_cache).
        """


def dispatcher_of(context: Context) -> type[Dispatcher[Any, Any]]:
    return next((feature.dispatcher for feature in features_of(context) if feature.dispatcher is not None), Dispatcher)


def beginning_of(holder: Context | RowReader) -> Beginning:
    return next((feature.beginning for feature in features_of(holder) if feature.beginning is not None), Beginning())


def choose_pool(reader: RowReader, job: Job, now: float) -> type[CandidatePool]:
    found = (feature.choose_pool(reader, job, now) for feature in features_of(reader))
    return next((pool for pool in found if pool is not None), CandidatePool)


def lateness_in(reader: RowReader) -> Lateness:
    return next((feature.lateness for feature in features_of(reader) if feature.lateness is not None), Lateness())


def look_after(context: Context) -> None:
    for feature in features_of(context):
        feature.look_after(context)


def features_of(holder: Context | RowReader) -> tuple[Feature, ...]:
    """Returns the features of the service, in the order of their calls."""
    return cast(
        tuple[Feature, ...],
        features_in(holder.sessions) if isinstance(holder, Context) else holder.session.info["features"],
    )
