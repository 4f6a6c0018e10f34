"""The context of a stage. The composition root (wiring) creates it; nothing is looked up elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import structlog

from contracts.ledger import Ledger
from gradmarket.market.messages import Voucher
from gradmarket.market.signing import Domain, Signer, Struct, digest_struct
from gradmarket.market.terms import Address
from gradmarket.market.wire.sign_in import ChainFacts
from requester.blobs import Blobs
from requester.chain.chain_worker import ChainWorker
from requester.live_states import LiveStates
from requester.logs import parse_row_ids
from requester.merge_turns import MergeTurns
from requester.meters import Meters, record_span
from requester.model_runner import ModelRunner
from requester.notifier import Notifier
from requester.settings import RequesterSettings
from requester.store.session import Sessions
from requester.store.tables import Account, Job, JobEvent
from requester.store.work import RowReader, Work, begin_work, open_reader

Clock = Callable[[], float]


@contextmanager
def open_work(sessions: Sessions, notifier: Notifier) -> Iterator[Work]:
    """Opens one unit of work; after its commit logs the events and sends the notifications that it asked for."""
    with record_span("transaction"), begin_work(sessions) as work:
        yield work
        notifier.promise(work.connection, work.topics)
    for row in work.recorded:
        if isinstance(row, JobEvent):
            subject = row.body.get("replica") or row.body.get("task")
            log.info(row.kind, fields=row.body, **parse_row_ids(subject if isinstance(subject, str) else row.job_id))
    notifier.notify(work.topics)


@dataclass(frozen=True)
class Context:
    settings: RequesterSettings
    sessions: Sessions
    blobs: Blobs
    notifier: Notifier
    clock: Clock
    domain: Domain
    signer: Signer
    signer_address: Address
    public_url: str
    chain_facts: ChainFacts
    modelling: ModelRunner
    ledger: Ledger
    chain_worker: ChainWorker
    """Does the chain work; nothing else sends transactions."""
    on_sign_in: Callable[[Address], None]
    """Gives a new worker gas, on a local chain."""
    chain_trouble: Callable[[], str]
    """Returns why the chain cannot be used; empty where it can."""
    meters: Meters = field(default_factory=Meters)
    states: LiveStates = field(default_factory=LiveStates)
    turns: MergeTurns = field(default_factory=MergeTurns)

    def begin(self) -> AbstractContextManager[Work]:
        return open_work(self.sessions, self.notifier)

    def reading(self) -> AbstractContextManager[RowReader]:
        return open_reader(self.sessions)

    def sign(self, struct: Struct) -> bytes:
        return self.signer(digest_struct(self.domain, struct))

    def voucher(self, job: Job, account: Account) -> bytes:
        """Signs a voucher over all that the worker has earned in the job and that waits for no test."""
        return self.sign(Voucher(job.chain_job or 0, account.worker, account.promised))  # type: ignore[arg-type]


log = structlog.get_logger("gradmarket.events")
