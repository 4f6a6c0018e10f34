"""A real worker's context before a market of the test's own, and the funded job that this market offers."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from eth_keys.datatypes import PrivateKey

from contracts import calls, events
from contracts.ledger import Ledger
from gradmarket.compute.cache import Cache
from gradmarket.compute.executor import Executor
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.job import Publication
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Amount, Units
from gradmarket.market.wire.poll import hash_of
from gradmarket.runner import Runner
from tests.onchain import HOUR, OpenedJob, send_call, with_money
from tests.worker.fake_market import FakeMarket, Server, app_of
from worker.features.fault_reports import fault_of
from worker.journal import Journal
from worker.markets.worker_context import WorkerContext
from worker.money.account_store import AccountStore
from worker.money.chain_view import ChainView, connect_to_deployment
from worker.protocol.client import Credentials, MarketClient
from worker.protocol.policy import WorkLimits
from worker.settings import WorkerSettings
from worker.signals import Signals
from worker.wallet import Wallet


class OneChildRunner(Runner):
    """Computes all jobs in one child. In a worker each job has its own (tests/graphdoc/test_runner_jobs.py)."""

    def turn(self, job: str, publishes: bool = False) -> None:
        super().turn("any job", publishes)


def fund_job(
    ledger: Ledger, requester: PrivateKey, signer: PrivateKey, publication: Publication, **more: Any
) -> OpenedJob:
    """A funded job whose specification on the chain is the publication's; `more` are further terms of its opening."""
    with_money(ledger, requester)
    expiry, spec = ledger.block().time + HOUR, hash_of(publication.digest)
    terms = calls.OpenJob(Units(1000), Amount(1), expiry, expiry + HOUR, address_of(signer), spec, **more)
    receipt = send_call(ledger, requester, calls.open_job(ledger.deployment.contract, terms))
    (event,) = events.opened(ledger, receipt)
    return OpenedJob(event.job, ledger, requester, signer, spec, expiry, expiry + HOUR)


@contextmanager
def open_worker_context(
    market: FakeMarket,
    rpc: str,
    runner: Runner,
    key: PrivateKey,
    folder: Path,
    reserved: int = 100,
    max_memory: int = 2**31,
) -> Iterator[WorkerContext]:
    """Serves the market meanwhile; `reserved` units are set aside for the worker first."""
    with ExitStack() as open_parts:
        server = Server(app_of(market, rpc)).__enter__()
        open_parts.callback(server.stop)
        if reserved:
            market.job.reserve((address_of(key), reserved))
        wallet, facts = Wallet(key, folder / "wallet.key"), market.facts(rpc)
        client = MarketClient(server.url, keep_trying=lambda seconds: seconds < 5)
        client.identify(Credentials(wallet, wallet.address, facts.chain_id))
        limits = WorkLimits(frozenset(), Amount(1), 1, 1, 60.0, max_flops=1e12, max_memory=max_memory)
        fetcher = open_parts.enter_context(closing(Fetcher(Cache(folder / "cache", 2**26), server.url, 2**24)))
        yield WorkerContext(
            WorkerSettings(market=server.url, data=folder, wait_s=0.2),  # type: ignore[arg-type]
            limits,
            facts,
            wallet,
            client,
            ChainView(connect_to_deployment(rpc, facts), wallet.address),
            AccountStore(folder / "book.json"),
            Executor(runner, fetcher, limits),
            Journal(stream=(folder / "journal").open("a")),
            Signals(),
            "cpu",
            describe_fault=fault_of,
        )
