"""A market for one worker on a real chain: honest as it stands; tests make it cheat by replacing one of its moves."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import uvicorn
from eth_keys.datatypes import PrivateKey
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from starlette.middleware.base import RequestResponseEndpoint

from gradmarket.market.features.log.job_log import ConsistencyProof, LeafProof
from gradmarket.market.features.log.merkle import GrowingTree, hash_leaf
from gradmarket.market.features.windows import StateReceipt, StateRequest, StatesAsked
from gradmarket.market.job import Publication
from gradmarket.market.messages import LogHead, Offer, Outcome, SignedWave, Verdict, Voucher
from gradmarket.market.release import HEADER, PROTOCOL
from gradmarket.market.rules import secrets
from gradmarket.market.rules.lifecycle import is_final_state
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import (
    Address,
    Digest,
    Hash,
    JobId,
    ReplicaId,
    ReplicaState,
    TaskId,
    Units,
    blob_digest,
    domain_hash,
)
from gradmarket.market.views.payment_views import WorkerView
from gradmarket.market.wire.evidence import PublishedAudit, PublishedEvidence
from gradmarket.market.wire.framing import HEAD
from gradmarket.market.wire.log_proofs import LeafHashes, LeafKind, PublishedHead, PublishedRestart
from gradmarket.market.wire.poll import (
    Answer,
    CommitmentRequest,
    Lease,
    OfferFields,
    PollAnswer,
    PollRequest,
    RefusedItem,
    Reveal,
    SignedVerdict,
    SignedVoucher,
    UnusedReservation,
    UploadRequest,
    WaveOpened,
    hash_of,
)
from gradmarket.market.wire.sign_in import ChainFacts, Session, SignInNonce
from tests.kit.prompt_server import PromptServer
from tests.onchain import OpenedJob
from tests.patience import pause

PRICE = Units(7)
FALSE_ROOT = Digest("blake3:" + "11" * 32)
OTHER = Address("0x000000000000000000000000000000000000dEaD")


@dataclass(frozen=True)
class Taken:
    """The result of a payload."""

    verdict: SignedVerdict
    voucher: SignedVoucher | None


@dataclass
class Row:
    """One replica, as the market keeps it."""

    id: ReplicaId
    number: int
    offer: Offer
    secret: Hash
    worker: Address
    state: ReplicaState = ReplicaState.LEASED
    sealed: Hash | None = None
    root: Digest | None = None
    heard: bool = False
    uploads: int = 0


@dataclass
class FakeMarket:
    job: OpenedJob
    publication: Publication
    blobs: dict[Digest, bytes]
    price: Units = PRICE
    most: int = 3
    rows: dict[ReplicaId, Row] = field(default_factory=dict)
    leased: int = 0
    earned: int = 0
    left: bool = False
    state: str = "running"
    asked: list[PollRequest] = field(default_factory=list)
    down: int = 0
    """Times that it does not answer with its chain."""
    broken: int = 0
    """Times that it fails to list its jobs."""
    failing: bool = False
    """Polls end in an error of its own."""
    elsewhere: bool = False
    """All sessions have ended, and further sign-ins are sent to another place."""
    decimals: int = 18
    """The stated decimals of its token."""
    protocol: int = PROTOCOL
    unlisted: set[ReplicaId] = field(default_factory=set)
    """Paid, and left out of the published payments."""
    shown: dict[str, PublishedEvidence] = field(default_factory=dict)
    """Its published tasks."""
    unwell: set[str] = field(default_factory=set)
    """Tasks at which it fails."""
    found: list[PublishedAudit] = field(default_factory=list)
    """Its published audits."""
    record: WorkerView | None = None
    """Its view of every worker."""
    longest_wait: float = 0.2
    left_s: float = 60.0
    """The stated seconds of every lease."""
    audited: list[StateRequest] = field(default_factory=list)
    """States that its audits ask for."""
    brought: dict[str, bytes] = field(default_factory=dict)
    logged: dict[str, bytes] = field(default_factory=dict)
    """The leaves of the log that it shows, by their subject."""
    unused: dict[JobId, UnusedReservation] = field(default_factory=dict)
    """Reservations that it names to the worker whenever it has no lease for it."""
    shows_head: bool = False
    restarts: tuple[PublishedRestart, ...] = ()
    """Restores that its head admits."""

    # the moves that a cheat replaces

    def offer(self, number: int) -> tuple[Offer, PrivateKey]:
        spec = self.publication.spec
        secret = self.secret(number)
        offer = Offer(
            job=self.job.id,
            spec=hash_of(self.publication.digest),
            round=0,
            task=number,
            attempt=0,
            parameters=hash_of(self.publication.parameters),
            seed=secrets.task_seed(spec.seed, 0, number),
            price=self.price,
            anchor=secrets.compute_anchor(secret, 5),
            lease_seconds=60,
            wave_seconds=30,
            upload_seconds=30,
        )
        return offer, self.job.signer

    def wave(self, row: Row) -> WaveOpened:
        commitments = ((row.worker, row.sealed or Hash(bytes(32))), (OTHER, Hash(bytes(32))))
        return self.signed_wave(row, secrets.derive_links(row.secret, 5)[0], commitments)

    def verdict(self, row: Row) -> SignedVerdict:
        return self.signed_verdict(row, row.state, Outcome.ACCEPTED, row.root, self.price)

    def voucher(self, worker: Address) -> SignedVoucher | None:
        return self.signed_voucher(worker, self.earned, self.job.signer)

    def uploaded(self, row: Row) -> None:
        row.state = ReplicaState.PAYABLE
        self.earned += row.offer.price

    # their parts

    def secret(self, number: int) -> Hash:
        return domain_hash("stranger", self.job.id.to_bytes(8, "big"), number.to_bytes(8, "big"))

    def sign(self, struct: Any, key: PrivateKey) -> bytes:
        return sign_digest(key, digest_struct(self.job.ledger.domain(), struct))

    def offer_digest(self, row: Row) -> Hash:
        return digest_struct(self.job.ledger.domain(), row.offer)

    def signed_wave(self, row: Row, secret: Hash, commitments: tuple[tuple[Address, Hash], ...]) -> WaveOpened:
        struct = SignedWave(self.offer_digest(row), 0, secret, secrets.digest_of(commitments))
        signature = self.sign(struct, self.job.signer)
        return WaveOpened(replica=row.id, wave=0, secret=secret, commitments=commitments, signature=signature)

    def signed_verdict(
        self, row: Row, state: ReplicaState, outcome: Outcome, root: Digest | None, price: int
    ) -> SignedVerdict:
        struct = Verdict(
            self.offer_digest(row), row.worker, outcome, hash_of(root) if root else Hash(bytes(32)), Units(price)
        )
        return SignedVerdict(
            replica=row.id,
            state=state,
            outcome=outcome,
            root=root,
            price=price,
            reason="",
            signature=self.sign(struct, self.job.signer),
        )

    def signed_voucher(self, worker: Address, cumulative: int, key: PrivateKey) -> SignedVoucher | None:
        if cumulative == 0:
            return None
        signature = self.sign(Voucher(self.job.id, worker, Units(cumulative)), key)
        job = JobId(self.publication.job)
        return SignedVoucher(job=job, chain_job=self.job.id, cumulative=cumulative, signature=signature)

    @property
    def committed(self) -> int:
        """Gradients that it got out of the worker."""
        return sum(row.sealed is not None for row in self.rows.values())

    def facts(self, rpc: str | None) -> ChainFacts:
        place = self.job.ledger.deployment
        return ChainFacts(
            **{k: v for k, v in asdict(place).items() if k != "block"},
            signer=address_of(self.job.signer),
            symbol="GRAD",
            decimals=self.decimals,
            unit="1",
            rpc=rpc,
            protocol=self.protocol,
        )

    def log_tree(self) -> GrowingTree:
        return GrowingTree(map(hash_leaf, self.logged.values()))

    def published_head(self) -> PublishedHead:
        tree = self.log_tree()
        head = LogHead(self.job.id, len(tree), Hash(tree.compute_root()))
        signature = sign_digest(self.job.signer, digest_struct(self.job.ledger.domain(), head))
        return PublishedHead(job=head.job, size=head.size, root=head.root, signature=signature, restarts=self.restarts)

    # the service

    def handle_poll(self, worker: Address, said: PollRequest, bring: Callable[[], object] = lambda: None) -> None:
        """`bring` takes the payloads that come with it."""
        self.asked.append(said)
        self.left |= said.leaving
        for made in (made for made in said.commitments if made.replica in self.rows):
            self._commit(made)
        for answer in (answer for answer in said.answers if answer.replica in self.rows):
            self._answered(answer)
        for reveal in said.reveals:
            if reveal.replica in self.rows:
                self._reveal(reveal)
        for given in said.given_up:
            if given.replica in self.rows:
                self.rows[given.replica].state = ReplicaState.ERROR if given.failed else ReplicaState.ABANDONED
        for row in self.rows.values():
            row.heard |= said.known.get(row.id) == row.state and row.state in ENDS
        bring()
        unpaid = sum(self.rows[part.replica].state not in PAID for part in said.payloads if part.replica in self.rows)
        unheard = sum(row.state is ReplicaState.LEASED and row.id not in said.known for row in self.rows.values())
        unjudged = sum(
            not is_final_state(self.rows[made.replica].state) for made in said.reveals if made.replica in self.rows
        )
        if said.capacity > unpaid + unjudged + unheard and len(self.rows) < self.most:
            self._lease(worker)

    def _commit(self, made: CommitmentRequest) -> None:
        row = self.rows[made.replica]
        if row.state is ReplicaState.LEASED:
            row.sealed, row.state = made.sealed, ReplicaState.COMMITTED

    def _answered(self, said: Answer) -> None:
        if self.rows[said.replica].state is ReplicaState.LEASED:
            self._commit(said.commitment)
            self._reveal(said.reveal())

    def _reveal(self, said: Reveal) -> None:
        row = self.rows[said.replica]
        if secrets.seal_commitment(self.offer_digest(row), row.worker, said.salt, hash_of(said.root)) == row.sealed:
            row.root, row.state = said.root, ReplicaState.AGREE

    def _lease(self, worker: Address) -> None:
        number = self.leased
        self.leased += 1
        offer, _ = self.offer(number)
        row = Row(ReplicaId(f"{self.publication.job}-{number}"), number, offer, self.secret(number), worker)
        self.rows[row.id] = row

    def answer(self, worker: Address, said: PollRequest) -> PollAnswer:
        open_ = [row for row in self.rows.values() if not row.heard]
        new = [row for row in open_ if said.known.get(row.id) != row.state]
        voucher = self.voucher(worker) if said.vouchers_for or any(row.state in PAID for row in new) else None
        return PollAnswer(
            leases=tuple(self.build_lease(row) for row in new if row.state is ReplicaState.LEASED),
            waves=tuple(self.wave(row) for row in open_ if row.state is ReplicaState.COMMITTED),
            uploads=tuple(UploadRequest(replica=r.id, seconds=30) for r in open_ if r.state is ReplicaState.AGREE),
            verdicts=tuple(self.verdict(row) for row in new if row.state not in EARLY),
            vouchers=(voucher,) if voucher else (),
            refusals=tuple(self._lost(replica) for replica in said.known if replica not in self.rows),
            unused={} if open_ else self.unused,
        )

    def _lost(self, replica: ReplicaId) -> RefusedItem:
        return RefusedItem(replica=replica, code="not_found", detail="you hold no such replica")

    def build_lease(self, row: Row) -> Lease:
        offer, key = self.offer(row.number)
        return Lease(
            replica=row.id,
            task=TaskId(f"task-{row.number}"),
            job=JobId(self.publication.job),
            fence=1,
            seconds=self.left_s,
            offer=OfferFields(**asdict(offer)),
            signature=self.sign(offer, key),
        )

    def take(self, replica: ReplicaId, data: bytes) -> Taken:
        row = self.rows[replica]
        if blob_digest(data) != row.root:
            raise HTTPException(409, "other bytes than committed")
        row.uploads += 1
        self.uploaded(row)
        return self.build_taken(row)

    def build_taken(self, row: Row) -> Taken:
        """Returns the result of a payload that is here."""
        return Taken(verdict=self.verdict(row), voucher=self.voucher(row.worker))


EARLY = frozenset({ReplicaState.LEASED, ReplicaState.COMMITTED})
PAID = frozenset({ReplicaState.PAYABLE, ReplicaState.DIVERGED})
ENDS = frozenset(state for state in ReplicaState if is_final_state(state))


class Sessions:
    """The signed-in workers."""

    def __init__(self) -> None:
        self._workers: dict[str, Address] = {}

    def open(self, address: Address) -> str:
        token = f"token-{len(self._workers)}"
        self._workers[token] = address
        return token

    def authenticate(self, request: Request) -> Address:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self._workers:
            raise HTTPException(401, "sign in")
        return self._workers[token]


def app_of(fake_market: FakeMarket, rpc: str | None) -> FastAPI:
    app, sessions = FastAPI(), Sessions()

    @app.middleware("http")
    async def name_release(request: Request, call_next: RequestResponseEndpoint) -> Response:
        answer = await call_next(request)
        answer.headers[HEADER] = f"{fake_market.protocol}/9.9.9"
        return answer

    _publish(app, fake_market, rpc)
    _admit(app, sessions, fake_market)
    _exchange(app, sessions, fake_market)
    _audit(app, sessions, fake_market)
    _serve_dealings(app, fake_market)
    _serve_log(app, fake_market)
    return app


def _publish(app: FastAPI, fake_market: FakeMarket, rpc: str | None) -> None:
    @app.get("/v1/chain")
    def chain() -> ChainFacts:
        if fake_market.down:
            fake_market.down -= 1
            raise HTTPException(503, "not now")
        return fake_market.facts(rpc)

    @app.get("/v1/jobs")
    def jobs() -> dict[str, Any]:
        if fake_market.broken:
            fake_market.broken -= 1
            raise HTTPException(500, "out of order")
        return {"items": [job(fake_market.publication.job)], "next": None}

    @app.get("/v1/jobs/{job_id}")
    def job(job_id: str) -> dict[str, Any]:
        published = fake_market.publication.model_dump(mode="json")
        return {
            "id": job_id,
            "name": "digits",
            "state": fake_market.state,
            "publication": published,
            "chain_job": fake_market.job.id,
        }

    @app.get("/v1/blobs/{name}")
    def blob(name: str) -> Response:
        if Digest(name) not in fake_market.blobs:
            return JSONResponse({"title": "not found"}, 404)
        return Response(fake_market.blobs[Digest(name)], media_type="application/octet-stream")


def _admit(app: FastAPI, sessions: Sessions, fake_market: FakeMarket) -> None:
    chain_id = fake_market.job.ledger.deployment.chain_id

    @app.get("/v1/session/nonce")
    def nonce(request: Request) -> SignInNonce:
        domain, until = (
            "elsewhere.example" if fake_market.elsewhere else request.headers["host"],
            "2036-01-01T00:00:00Z",
        )
        uri = f"http://{domain}/v1/session"
        return SignInNonce(nonce="n0nce123456", domain=domain, uri=uri, chain_id=chain_id, expires_at=until)

    @app.post("/v1/session")
    def session(body: dict[str, Any]) -> Session:
        address = Address(body["message"].splitlines()[1])
        return Session(token=sessions.open(address), address=address, payout=address, expires_at="2036-01-01T00:00:00Z")


def _exchange(app: FastAPI, sessions: Sessions, fake_market: FakeMarket) -> None:
    @app.post("/v1/work/poll")
    async def poll(request: Request, said: PollRequest) -> PollAnswer:
        worker = sessions.authenticate(request)
        if fake_market.failing or fake_market.elsewhere:
            raise HTTPException(500 if fake_market.failing else 401, "not here")
        fake_market.handle_poll(worker, said)
        loop = asyncio.get_running_loop()
        end = loop.time() + min(said.wait_s, fake_market.longest_wait)
        while (told := fake_market.answer(worker, said)) == PollAnswer() and loop.time() < end:
            await pause()
        return told

    @app.post("/v1/work/answers")
    async def answers(request: Request) -> PollAnswer:
        worker, body = sessions.authenticate(request), await request.body()
        end = HEAD + int.from_bytes(body[:HEAD], "big")
        said, data = PollRequest.model_validate_json(body[HEAD:end]), body[end:]
        length, taken = len(data) // max(1, len(said.payloads)), list[Taken]()

        def bring() -> None:
            for number, part in enumerate(said.payloads):
                row = fake_market.rows[part.replica]
                bytes_of = data[number * length : (number + 1) * length]
                again = row.state in PAID
                taken.append(fake_market.build_taken(row) if again else fake_market.take(part.replica, bytes_of))

        fake_market.handle_poll(worker, said, bring)
        told = fake_market.answer(worker, said)
        brought = {part.replica for part in said.payloads}
        verdicts = [verdict for verdict in told.verdicts if verdict.replica not in brought]
        vouchers = [one.voucher for one in taken if one.voucher is not None] or told.vouchers
        verdicts += [one.verdict for one in taken]
        return told.model_copy(update={"verdicts": tuple(verdicts), "vouchers": tuple(vouchers)})


def _audit(app: FastAPI, sessions: Sessions, fake_market: FakeMarket) -> None:
    @app.get("/v1/work/states")
    def states(request: Request) -> StatesAsked:
        sessions.authenticate(request)
        return StatesAsked(states=tuple(fake_market.audited))

    @app.put("/v1/work/states/{digest}")
    async def bring(request: Request, digest: str) -> StateReceipt:
        sessions.authenticate(request)
        fake_market.brought[digest] = await request.body()
        return StateReceipt(digest=digest)


def _serve_dealings(app: FastAPI, fake_market: FakeMarket) -> None:
    """Adds the routes of its publications."""

    @app.get("/v1/jobs/{job_id}/payments")
    def payments(job_id: str) -> dict[str, Any]:
        paid = [row for row in fake_market.rows.values() if row.state in PAID and row.id not in fake_market.unlisted]
        items = [
            {"id": at, "task": "t", "replica": row.id, "worker": row.worker, "amount": "7"}
            for at, row in enumerate(paid)
        ]
        return {"items": items, "next": None}

    @app.get("/v1/workers/{address}")
    def worker(address: str) -> WorkerView:
        if fake_market.record is None:
            raise HTTPException(404, "no worker of that address has signed in")
        return fake_market.record.model_copy(update={"address": address})

    @app.get("/v1/jobs/{job_id}/audits")
    def audits(job_id: str) -> dict[str, Any]:
        return {"items": [one.model_dump(mode="json") for one in fake_market.found], "next": None}

    @app.get("/v1/jobs/{job_id}/tasks/{task}")
    def evidence(job_id: str, task: str) -> PublishedEvidence:
        if task in fake_market.unwell:
            raise HTTPException(500, "out of order")
        if task not in fake_market.shown:
            raise HTTPException(404, f"no task {task}")
        return fake_market.shown[task]

    @app.get("/v1/jobs/{job_id}/verdicts")
    def verdicts(job_id: str) -> dict[str, Any]:
        told = [(row, fake_market.verdict(row)) for row in fake_market.rows.values() if row.state not in EARLY]
        items = [{"worker": row.worker, **verdict.model_dump(mode="json")} for row, verdict in told]
        return {"items": items, "next": None}


HEARD = (LeafKind.HEARING, LeafKind.ANSWERS, LeafKind.ATTEMPT)


def _serve_log(app: FastAPI, fake_market: FakeMarket) -> None:
    """Adds the routes of its job's log."""

    @app.get("/v1/jobs/{job_id}/log")
    def log(job_id: str) -> PublishedHead:
        if not fake_market.shows_head:
            raise HTTPException(404, "the log has no leaf yet")
        return fake_market.published_head()

    @app.get("/v1/jobs/{job_id}/log/consistency")
    def consistency(job_id: str, old: int, size: int) -> ConsistencyProof:
        tree = fake_market.log_tree()
        return ConsistencyProof(old=old, size=size, path=tuple(map(Hash, tree.prove_consistency(old, size))))

    @app.get("/v1/jobs/{job_id}/log/leaves")
    def leaves(job_id: str, first: int, size: int) -> LeafHashes:
        return LeafHashes(first=first, hashes=tuple(map(Hash, fake_market.log_tree().leaves[first:size])))

    @app.get("/v1/jobs/{job_id}/log/leaves/{kind}")
    def leaf(job_id: str, kind: str, about: str, size: int) -> LeafProof:
        about = f"{kind} {about}" if kind in HEARD else about  # each other record has one kind
        if about not in fake_market.logged:
            raise HTTPException(404, "no such leaf")
        number, tree = list(fake_market.logged).index(about), GrowingTree(map(hash_leaf, fake_market.logged.values()))
        return LeafProof(number=number, size=size, path=tuple(map(Hash, tree.prove_inclusion(number))))


class Server:
    """The app on a free port of the loopback, in a thread."""

    def __init__(self, app: FastAPI, port: int = 0) -> None:
        silent: Any = {"log_config": None, "log_level": "critical", "access_log": False}
        self._server = PromptServer(uvicorn.Config(app, port=port, lifespan="off", ws="none", **silent))

    def __enter__(self) -> "Server":
        self._server.start()
        self.port = int(self._server.servers[0].sockets[0].getsockname()[1])
        return self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._server.request_stop()

    def __exit__(self, *_: object) -> None:
        self._server.stop()


def other(value: Any, **changes: Any) -> Any:
    """A copy of a dataclass or a model with some fields changed."""
    return value.model_copy(update=changes) if hasattr(value, "model_copy") else replace(value, **changes)


def some_rows(count: int, columns: int, classes: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        "x": rng.standard_normal((count, columns)).astype(np.float32),
        "y": rng.integers(0, classes, count).astype(np.int64),
    }
