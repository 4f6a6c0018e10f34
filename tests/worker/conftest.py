"""Shared fixtures of the worker's tests: a runner, a tiny published job on the session's chain, and its market."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, nullcontext
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from eth_keys.datatypes import PrivateKey
from typer.testing import CliRunner

from contracts.ledger import Ledger
from contracts.local import LocalChain
from gradmarket.cli import app
from gradmarket.compute import own_machine
from gradmarket.compute.cache import Cache
from gradmarket.compute.executor import Executor
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.manifest import Column, Labelled, Manifest, Partition
from gradmarket.market.messages import Offer
from gradmarket.market.rules.secrets import task_seed
from gradmarket.market.terms import Digest, Hash, Units, blob_digest
from gradmarket.market.wire.poll import hash_of
from gradmarket.runner import Runner, RunnerSettings
from graphdoc.encoding import canonical
from graphdoc.figures import Published
from graphdoc.tensors import pack_tensors
from tests.kit.web_server import send_page, serving_by
from tests.kit.worker_context import OneChildRunner, fund_job, open_worker_context
from tests.onchain import NewKey, OpenedJob
from tests.worker.fake_market import FakeMarket, Server, app_of, some_rows
from worker import durable, wallet
from worker.features.verify import self_check
from worker.markets.loop import Loop
from worker.markets.worker_context import WorkerContext
from worker.money import known_chains
from worker.protocol.in_flight import InFlightFolder

ROWS = 32
NOTHING = Hash(bytes(32))
SPEC = {
    "name": "digits",
    "model": {"architecture": "mlp", "arguments": {"hidden": [8]}},
    "data": {"ready": "digits"},
    "step": {"kind": "gradient", "rows": 8},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "rounds": 100,
    "replication": {"name": "fixed"},
    "tasks_per_round": 4,
    "price": "7",
}


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    with OneChildRunner(RunnerSettings(seconds=60.0)) as started:
        yield started


@pytest.fixture(scope="session")
def published() -> Published:
    with Runner() as publisher:
        publisher.turn("", publishes=True)
        return publisher.publish("mlp", {"hidden": [8]}, Labelled(dtype="float32", shape=(4,), classes=3), seed=0)


@pytest.fixture
def blobs(published: Published) -> dict[Digest, bytes]:
    data = pack_tensors(some_rows(ROWS, 4, 3))
    kept = {blob_digest(blob): blob for blob in (published.document, pack_tensors(published.parameters), data)}
    partition = Partition(
        name="train", link=f"/v1/blobs/{blob_digest(data)}", digest=blob_digest(data), bytes=len(data), rows=ROWS
    )
    inputs = {"x": Column(dtype="float32", shape=(4,)), "y": Column(dtype="int64")}
    manifest = canonical(Manifest(inputs=inputs, partitions=(partition,)).model_dump(mode="json"))
    return {**kept, blob_digest(manifest): manifest}


@pytest.fixture
def publication(blobs: dict[Digest, bytes]) -> Publication:
    return published_as(blobs, **SPEC)


def published_as(blobs: dict[Digest, bytes], **spec: Any) -> Publication:
    document, parameters, _, manifest = blobs
    return Publication(
        job="0123456789abcdef",
        spec=JobSpec.model_validate(spec),
        document=document,
        evaluation=None,
        parameters=parameters,
        manifest=manifest,
    )


@pytest.fixture
def chain_job(ledger: Ledger, new_key: NewKey, publication: Publication) -> OpenedJob:
    return fund_job(ledger, new_key(), new_key(), publication)


@pytest.fixture
def worker_key(new_key: NewKey) -> PrivateKey:
    return new_key()


@pytest.fixture
def fake_market(chain_job: OpenedJob, publication: Publication, blobs: dict[Digest, bytes]) -> FakeMarket:
    return FakeMarket(chain_job, publication, blobs)


MakeContext = Callable[..., WorkerContext]


@pytest.fixture
def make_context(anvil: LocalChain, runner: Runner, tmp_path: Path, worker_key: PrivateKey) -> Iterator[MakeContext]:
    """Serves a market and gives a worker's context for it; money is reserved for the worker first."""
    with ExitStack() as sessions:
        yield lambda market, **changes: sessions.enter_context(
            open_worker_context(market, anvil.url, runner, worker_key, tmp_path, **changes)
        )


@pytest.fixture
def folder(tmp_path: Path, worker_key: PrivateKey) -> Path:
    """A worker's folder with a known key."""
    durable.write_file_atomically(tmp_path / wallet.PLAIN, worker_key.to_bytes().hex().encode())
    return tmp_path


@pytest.fixture
def server(anvil: LocalChain, fake_market: FakeMarket) -> Iterator[Server]:
    with Server(app_of(fake_market, anvil.url)) as serving:
        yield serving


@pytest.fixture
def shared_child(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker computes in the child that the tests share: to start one takes seconds."""
    monkeypatch.setattr(own_machine, "Runner", lambda _settings: nullcontext(runner))


MakeExecutor = Callable[..., Executor]


@pytest.fixture
def fetched_digests() -> list[Digest]:
    """The blobs that were asked for, in order."""
    return []


@pytest.fixture
def make_executor(
    tmp_path: Path, runner: Runner, blobs: dict[Digest, bytes], fetched_digests: list[Digest]
) -> Iterator[MakeExecutor]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            digest = Digest(self.path.rpartition("/")[2])
            fetched_digests.append(digest)
            if digest not in blobs:
                self.send_error(403)
                return
            send_page(self, blobs[digest])

    with serving_by(Handler) as origin, closing(Fetcher(Cache(tmp_path / "cache", 2**26), origin, 2**24)) as fetcher:
        yield lambda limits, *more: Executor(runner, fetcher, limits, *more)


def offer(publication: Publication) -> Offer:
    seed = task_seed(publication.spec.seed, 0, 0)
    parameters = hash_of(publication.parameters)
    return Offer(1, NOTHING, 0, 0, 0, parameters, seed, Units(1), NOTHING, 600, 600, 600)


Verified = Callable[[], tuple[int, set[str]]]


@pytest.fixture
def worked(
    fake_market: FakeMarket,
    make_context: Callable[..., WorkerContext],
    worker_key: PrivateKey,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[], WorkerContext]:
    """Returns a worker that has worked for the market until nothing more comes, a minute and more between messages."""
    monkeypatch.setattr(self_check, "FRESH_S", -1e9)

    def work() -> WorkerContext:
        context, clock = make_context(fake_market), count(1_900_000_000, 100)
        known_chains.store_chain_facts(context.settings.data, context.facts)
        durable.write_file_atomically(context.settings.data / wallet.PLAIN, worker_key.to_bytes().hex().encode())
        loop = Loop(context, InFlightFolder(context.settings.data / "held"), lambda: float(next(clock)))
        while loop.turn():
            pass
        return context

    return work


@pytest.fixture
def verified(tmp_path: Path) -> Verified:
    """The command's exit code, and the faults that it named."""

    def run() -> tuple[int, set[str]]:
        done = CliRunner().invoke(app, ["wallet", "verify", "--data", str(tmp_path), "--json"])
        told = [json.loads(line) for line in done.stdout.splitlines()]
        assert told[-1]["event"] == "verified", done.output
        grieved = {line["event"] for line in told} & {"grievance"}
        return done.exit_code, grieved | {line["fault"] for line in told if line["event"] == "fault"}

    return run
