"""The scene of the attacks: one served market with its chain, small jobs, and the money of everybody afterwards."""

import secrets as chance
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx
import numpy as np
import torch
from eth_keys.datatypes import PrivateKey

from contracts import claims
from contracts import deployment as deployments
from contracts.deployment import deploy_market
from contracts.ledger import Ledger
from contracts.local import LocalChain, fund_gas
from contracts.transactions import require_receipt
from gradmarket.market.gradient import payload, payload_layout
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.payload_layout import build_layout
from gradmarket.market.job import JobSpec
from gradmarket.market.manifest import Column, Manifest, Partition, parse_manifest
from gradmarket.market.sampling import task_rows
from gradmarket.market.signing import Domain, address_of
from gradmarket.market.terms import Address, Digest, JobId, blob_digest
from gradmarket.market.wire.poll import OfferFields, digest_of
from gradmarket.runner import Runner, RunnerSettings
from gradmarket.runner.steps import compute_step
from graphdoc import tensors
from graphdoc.document.interpret import Program
from graphdoc.document.schema import parse_document
from graphdoc.encoding import canonical
from tests.attacks.scripted_worker import ScriptedWorker
from tests.attacks.tiny import ROWS, document, table
from tests.kit.behaviour import HONEST, Behaviour, Spoil
from tests.kit.worker_context import OneChildRunner
from tests.onchain import DEPLOYER, ETHER
from tests.ops.served import Served, served
from tests.patience import wait_until

UNIT: Final = 10**9
PRICE: Final = 10
"""Units that a gradient pays."""
BUDGET: Final = 400
"""Units in a job's escrow: enough to reserve for every asking worker, not only for the drawn ones."""
QUICK: Final = {
    "GRADMARKET_SETTLE_EVERY_S": "1",
    "GRADMARKET_LOG": "WARNING",
    "GRADMARKET_UNLIMITED": '["127.0.0.1/32"]',
}
"""The rest of loopback has the limits of any address."""
OVER: Final = ("finished", "cancelled", "failed", "paused")


class Scene:
    """`rows`, `document` and `parameters` are every job's."""

    def __init__(self, market: Served, ledger: Ledger, runner: Runner | None = None) -> None:
        torch.set_num_threads(1)
        self.market, self.ledger, self.url = market, ledger, market.url
        self.requester = market.http(market.token)
        self.document, self.rows = document(), table()
        self.data = tensors.pack_tensors(self.rows)
        self.program = Program(parse_document(self.document))
        self.parameters = tensors.pack_tensors({"b": np.zeros(1, np.float32), "w": np.ones((1, 3), np.float32)})
        self.partition, self.manifest = self._publish(self.data)
        self.measured = self._publish(tensors.pack_tensors(table(4)), unserved=True)
        """Rows of the same law that nobody trains on, and their manifest."""
        self._clean: dict[int, str] = {}
        self._one = threading.Lock()
        self._runner, self._lent = runner, threading.Lock()

    def _publish(self, data: bytes, *, unserved: bool = False) -> tuple[Partition, bytes]:
        link = f"/v1/blobs/{blob_digest(data)}"
        partition = Partition(name="train", link=link, digest=blob_digest(data), bytes=len(data), rows=ROWS)
        inputs = {"x": Column(dtype="float32", shape=(3,)), "y": Column(dtype="float32", shape=(1,))}
        manifest = canonical(Manifest(inputs=inputs, partitions=(partition,)).model_dump(mode="json"))
        self.put(data, unserved=unserved)
        for blob in (manifest, self.document, self.parameters):
            self.put(blob)
        return partition, manifest

    @contextmanager
    def lend_runner(self) -> Iterator[Runner]:
        """A real worker's, for one attack at a time: starting a child takes longer than most of them."""
        assert self._runner is not None, "this scene has no real workers"
        with self._lent:
            yield self._runner

    def put(self, blob: bytes, *, unserved: bool = False) -> Digest:
        asked = self.requester.put(f"/v1/blobs/{blob_digest(blob)}", params={"unserved": unserved}, content=blob)
        asked.raise_for_status()
        return blob_digest(blob)

    def key(self) -> PrivateKey:
        return PrivateKey(chance.token_bytes(32))

    def rich(self) -> PrivateKey:
        """A fresh key with gas money."""
        key = self.key()
        fund_gas(self.ledger.web3, address_of(key), ETHER)
        return key

    def spec(self, **changes: Any) -> dict[str, Any]:
        return {
            "name": "attacked",
            "model": {"document": blob_digest(self.document), "parameters": blob_digest(self.parameters)},
            "data": {"manifest": blob_digest(self.manifest)},
            "step": {"rows": 8},
            "optimizer": {"name": "sgd", "lr": 0.125},
            "rounds": 1,
            "replication": {"name": "fixed"},
            "seed": 5,
            "price": str(PRICE * UNIT),
            "budget": str(BUDGET * UNIT),
            "deadlines": {"lease_s": 60, "wave_s": 60, "upload_s": 60},
        } | changes

    def submit(self, **changes: Any) -> httpx.Response:
        return self.requester.post("/v1/jobs", json=self.spec(**changes))

    def clean(self, rounds: int) -> str:
        """Digest of the model after this number of honest rounds."""
        with self._one:
            if rounds not in self._clean:
                job = self.post(rounds=rounds)
                job.play(*job.team(HONEST, HONEST, HONEST))
                self._clean[rounds] = job.fetch_view()["parameters"]
        return self._clean[rounds]

    def post(self, **changes: Any) -> "Posted":
        """A job that runs: published, and its deposit on-chain."""
        answer = self.submit(**changes)
        assert answer.status_code == 201, answer.text
        job = Posted(self, answer.json()["id"])
        wait_until(lambda: job.fetch_view()["state"] not in ("draft", "awaiting_funds"), "the job runs")
        assert job.fetch_view()["state"] == "running", job.fetch_view()["reason"]
        return job


class Posted:
    """One job of the scene and its public views."""

    def __init__(self, scene: Scene, id_: str) -> None:
        self.scene, self.id, self.domain = scene, JobId(id_), _domain(scene)
        self._blobs: dict[Digest, bytes] = {}

    def fetch_view(self, path: str = "") -> dict[str, Any]:
        answer: dict[str, Any] = self.scene.requester.get(f"/v1/jobs/{self.id}{path}").json()
        return answer

    @cached_property
    def spec(self) -> JobSpec:
        return JobSpec.model_validate(self.fetch_view()["spec"])

    @property
    def layout(self) -> payload_layout.Layout:
        return build_layout(self.scene.program.document)

    @property
    def chain_job(self) -> int:
        return int(self.fetch_view()["chain_job"])

    def scripted(self, behaviour: Behaviour = HONEST, key: PrivateKey | None = None) -> ScriptedWorker:
        return ScriptedWorker(self, behaviour, key)

    def team(self, *behaviours: Behaviour) -> list[ScriptedWorker]:
        with ThreadPoolExecutor(len(behaviours)) as pool:
            return list(pool.map(self.scripted, behaviours))

    def present(self, *behaviours: Behaviour) -> list[ScriptedWorker]:
        """They have asked for work once, so that the market knows the voters for a split."""
        team = self.team(*behaviours)
        self.each(team, lambda scripted: scripted.poll(wait_s=0.1))
        return team

    def play(self, *puppets: ScriptedWorker, done: Callable[[], object] | None = None) -> None:
        """All of them live until the job is over, or `done`."""
        over = threading.Event()
        with ThreadPoolExecutor(max(1, len(puppets))) as pool:
            lives = [pool.submit(scripted.live, over) for scripted in puppets]
            try:
                ended = done or (lambda: self.fetch_view()["state"] in OVER)
                wait_until(lambda: ended() or any(life.done() for life in lives), "the job is over")
            finally:
                over.set()
            for life in lives:
                life.result()

    def each(self, puppets: Sequence[ScriptedWorker], move: Callable[[ScriptedWorker], Any]) -> list[Any]:
        """One move of each of them, at once."""
        with ThreadPoolExecutor(len(puppets)) as pool:
            return list(pool.map(move, puppets))

    def gather(self, *puppets: ScriptedWorker) -> None:
        """All of them hold a lease, and have computed."""
        self.each(puppets, lambda scripted: scripted.computed(scripted.lease()))

    def commit(self, *puppets: ScriptedWorker) -> None:
        for scripted in puppets:
            scripted.poll(commitments=scripted.commitments())

    def opened(self, *puppets: ScriptedWorker) -> None:
        """Polls until each of them has heard of its wave."""
        for scripted in puppets:
            wait_until(lambda: scripted.poll() and scripted.newest().wave, "the wave opens")  # noqa: B023

    # the honest gradient, and its short cuts

    def compute(self, offer: OfferFields, spoil: Spoil, address: Address, takes: str) -> bytes:
        scene, spec = self.scene, self.spec
        digest = blob_digest(scene.parameters) if takes == "stale weights" else digest_of(offer.parameters)
        own = spec.private is not None
        chosen = (
            range(spec.step.rows) if own else task_rows(parse_manifest(scene.manifest), spec, offer.round, offer.task)
        )
        batch = {name: np.ascontiguousarray(rows[chosen]) for name, rows in scene.rows.items()}
        step = spec.step
        if takes == "fewer samples":
            batch = {name: rows[:-1] for name, rows in batch.items()}
            step = step.model_copy(update={"rows": step.rows - 1})
        if takes == "flipped labels":
            batch["y"] = -batch["y"]
        answer = compute_step(scene.program, tensors.unpack_tensors(self._blob(digest)), batch, offer.seed, step)
        return bytes(
            payload.encode_payload(self.layout, spoil(answer, address), load_codec(spec.uplink.codec), offer.seed)
        )

    def _blob(self, digest: Digest) -> bytes:
        if digest not in self._blobs:
            self._blobs[digest] = self.scene.requester.get(f"/v1/blobs/{digest}").content
        return self._blobs[digest]

    # the money afterwards

    def redeem(self, *puppets: ScriptedWorker) -> None:
        """Each puts its newest voucher on-chain, sent by a stranger."""
        vouchers = [scripted.voucher for scripted in puppets if scripted.voucher]
        if vouchers:
            require_receipt(claims.redeem_batch(self.scene.ledger, self.scene.rich(), vouchers))

    def paid(self, scripted: ScriptedWorker) -> int:
        """Units that it has on-chain once its newest voucher was presented."""
        self.redeem(scripted)
        return self.scene.ledger.balance(scripted.address) // UNIT

    def balanced(self) -> str:
        """Compares the service's double entry with the contract's own figures, once settlement is through."""
        try:
            wait_until(lambda: self.fetch_view("/ledger").get("books", {}).get("balanced"), "the books balance")
        except AssertionError:
            return f"books differ: {self.fetch_view('/ledger')}"
        return "books balanced"

    def seen(self, **roles: ScriptedWorker | Sequence[ScriptedWorker]) -> str:
        """Each worker's messages and units on-chain, the outcome of the job, and the books."""
        words = []
        for role, members in roles.items():
            for scripted in [members] if isinstance(members, ScriptedWorker) else members:
                words.append(f"{role} {scripted.states} {self.paid(scripted)}")
        return "; ".join([*dict.fromkeys(words), self.fetch_view()["state"], self.balanced()])


def _domain(scene: Scene) -> Domain:
    return scene.ledger.domain()


@contextmanager
def funded(history: bool = False) -> Iterator[tuple[Path, LocalChain, Ledger]]:
    """A chain with the contract on it, and a market's folder that names it; `history`: it can go back."""
    with TemporaryDirectory() as folder:
        chain = LocalChain.start(None, history=history)
        try:
            web3 = chain.connect()
            deployment = deploy_market(web3, DEPLOYER)
            data = Path(folder) / "market"
            data.mkdir()
            deployments.write_deployment(deployment, data / "deployment.json")
            yield data, chain, Ledger(web3, deployment)
        finally:
            chain.stop()


@contextmanager
def staged() -> Iterator[Scene]:
    """`gradmarket serve` as a process on such a chain."""
    with (
        funded() as (data, chain, ledger),
        served(data, chain.url, QUICK) as market,
        OneChildRunner(RunnerSettings(seconds=60.0)) as runner,
    ):
        yield Scene(market, ledger, runner)
