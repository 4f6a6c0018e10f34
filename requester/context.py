"""What a stage works with. The composition root (wiring) creates it; nothing is looked up elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from gradmarket.contracts.ledger import Ledger
from gradmarket.market.messages import Voucher
from gradmarket.market.signing import Domain, Signer, Struct, digest
from gradmarket.market.terms import Address
from gradmarket.market.wire_sign_in import ChainFacts
from gradmarket.requester.blobs import Blobs
from gradmarket.requester.chain.chain_worker import ChainWorker
from gradmarket.requester.meters import Meters
from gradmarket.requester.model_runner import ModelRunner
from gradmarket.requester.notifier import Notifier
from gradmarket.requester.settings import RequesterSettings
from gradmarket.requester.store.session import Sessions, begin, reading, rings
from gradmarket.requester.store.tables import Account, Job

Clock = Callable[[], float]


@contextmanager
def begun(sessions: Sessions, notifier: Notifier) -> Iterator[Session]:
    """Opens one writing transaction; sends the notifications that it requested after the commit."""
    with begin(sessions) as session:
        yield session
        topics = rings(session)
        notifier.promise(session, topics)
    notifier.notify(topics)


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

    @contextmanager
    def begin(self) -> Iterator[Session]:
        with begun(self.sessions, self.notifier) as session:
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        with reading(self.sessions) as session:
            yield session

    def sign(self, struct: Struct) -> bytes:
        return self.signer(digest(self.domain, struct))

    def voucher(self, job: Job, account: Account) -> bytes:
        """Signs a voucher over all that the worker has earned in the job."""
        return self.sign(Voucher(job.chain_job or 0, Address(account.worker), account.earned))  # type: ignore[arg-type]
