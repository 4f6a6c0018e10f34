"""A real worker's loop against a market of the attack's own: what a requester gets out of it by cheating."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from contracts import calls, events
from contracts.transactions import execute_call, require_receipt
from gradmarket.compute.cache import Cache
from gradmarket.compute.executor import Executor
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Amount, Units
from gradmarket.market.wire.poll import hash_of
from gradmarket.runner import Runner, RunnerSettings
from tests.attacks.scene import Scene
from tests.attacks.tiny import named
from tests.onchain import HOUR, OpenedJob, with_money
from tests.worker.fake_market import PRICE, FakeMarket, Server, app_of
from worker.journal import Journal
from worker.markets.loop import Loop
from worker.markets.worker_context import WorkerContext
from worker.money.account_store import AccountStore
from worker.money.chain_view import ChainView, connect_to_deployment
from worker.protocol.client import MarketClient
from worker.protocol.in_flight import InFlightFolder
from worker.protocol.policy import WorkLimits
from worker.protocol.signin import Credentials
from worker.settings import WorkerSettings
from worker.signals import Signals
from worker.wallet import Wallet

TURNS = 7


def market(scene: Scene, document: bytes | None = None, parameters: bytes | None = None, **changes: Any) -> FakeMarket:
    """A funded job on the scene's chain that asks for this document or the scene's, and whoever runs its market."""
    spec = JobSpec.model_validate(scene.spec(rounds=100, price=str(PRICE), **changes))
    document, parameters = document or scene.document, parameters or scene.parameters
    blobs = {named(blob): blob for blob in (document, parameters, scene.data, scene.manifest)}
    publication = Publication(
        job="0123456789abcdef",
        spec=spec,
        document=named(document),
        evaluation=None,
        parameters=named(parameters),
        manifest=named(scene.manifest),
    )
    return FakeMarket(_funded(scene, publication), publication, blobs)


def _funded(scene: Scene, publication: Publication) -> OpenedJob:
    ledger = scene.ledger
    requester, signer = with_money(ledger, scene.key()), scene.key()
    expiry, spec = ledger.block().time + HOUR, hash_of(publication.digest)
    terms = calls.OpenJob(Units(1000), Amount(1), expiry, expiry + HOUR, address_of(signer), spec)
    receipt = require_receipt(execute_call(ledger.web3, requester, calls.open_job(ledger.deployment.contract, terms)))
    (event,) = events.opened(ledger, receipt)
    return OpenedJob(event.job, ledger, requester, signer, spec, expiry, expiry + HOUR)


def worked(scene: Scene, stranger: FakeMarket, turns: int = TURNS) -> tuple[WorkerContext, str]:
    """The worker's desk after so many turns for this market, and its journal."""
    with TemporaryDirectory() as folder, _desk(scene, stranger, Path(folder)) as desk:
        loop = Loop(desk, InFlightFolder(Path(folder) / "held"))
        for _ in range(turns):
            loop.turn()
        return desk, (Path(folder) / "journal").read_text()


def grievance(desk: WorkerContext) -> str:
    """Its first word, or none."""
    found = desk.account_store.dealings(desk.signer).grievances
    return found[0].split()[0] if found else "none"


@contextmanager
def _desk(scene: Scene, stranger: FakeMarket, folder: Path) -> Iterator[WorkerContext]:
    rpc = str(scene.ledger.web3.provider.endpoint_uri)  # type: ignore[attr-defined]
    with Server(app_of(stranger, rpc)) as server, Runner(RunnerSettings(seconds=60.0)) as runner:
        wallet = Wallet(scene.rich(), folder / "wallet.key")
        stranger.job.reserve((wallet.address, 100))
        facts = stranger.facts(rpc)
        client = MarketClient(server.url, keep_trying=lambda seconds: seconds < 5)
        client.identify(Credentials(wallet, wallet.address, facts.chain_id))
        limits = WorkLimits(frozenset(), Amount(1), 1, 1, 60.0, max_flops=1e12, max_memory=2**31)
        fetcher = Fetcher(Cache(folder / "cache", 2**26), server.url, 2**24)
        settings = WorkerSettings(market=server.url, data=folder, wait_s=0.2)  # type: ignore[arg-type]
        sight, bench = ChainView(connect_to_deployment(rpc, facts), wallet.address), Executor(runner, fetcher, limits)
        journal, signals = Journal(stream=(folder / "journal").open("a")), Signals()
        book = AccountStore(folder / "book.json")
        try:
            yield WorkerContext(settings, limits, facts, wallet, client, sight, book, bench, journal, signals, "cpu")
        finally:
            fetcher.close()
