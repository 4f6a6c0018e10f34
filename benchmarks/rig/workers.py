"""Workers that answer every task with the same zeros: real words and signatures, no gradients."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from http.client import HTTPConnection, RemoteDisconnected
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from eth_account import Account
from eth_account.messages import encode_defunct
from eth_keys.datatypes import PrivateKey
from siwe import SiweMessage

from benchmarks.rig.service import Service
from gradmarket.market import signing, wire
from gradmarket.market.gradient.merkle import root
from gradmarket.market.messages import Commitment
from gradmarket.market.rules import lifecycle, secrets
from gradmarket.market.terms import Digest, Hash, ReplicaId, ReplicaState

HIDDEN = (8,)
"""The job's hidden layers."""


def payload_of(*hidden: int) -> bytes:
    """Zeros for the digits' perceptron with these hidden layers: the loss, and a gradient for each parameter."""
    layers = pairwise((64, *hidden, 10))
    return bytes(4 * (1 + sum((inputs + 1) * outputs for inputs, outputs in layers)))


class Refused(RuntimeError):
    """The service said no."""


class Worker:
    """Takes up to `batch` leases at a time and brings them to their end together."""

    def __init__(self, service: Service, batch: int = 1, payload: bytes = payload_of(*HIDDEN)) -> None:
        self.answer_with(payload)
        self.uploads: list[float] = []
        """Seconds that each took."""
        self.sent = 0
        """Bytes of payloads, whether they were taken or not."""
        self._account = Account.create()
        self._key = PrivateKey(bytes(self._account.key))
        self._domain = service.domain
        self._batch = batch
        place = urlsplit(service.url)
        self._http = HTTPConnection(str(place.hostname), place.port, timeout=120)
        self._headers = {"Content-Type": "application/json"}
        self.token = self._sign_in()
        self._headers["Authorization"] = f"Bearer {self.token}"
        self._address = signing.address_of(self._key)
        self._salt = Hash(os.urandom(32))
        self._known: dict[ReplicaId, ReplicaState] = {}
        self.done = 0

    def answer_with(self, payload: bytes) -> None:
        """From the next task on."""
        self.payload, self._root = payload, root(payload)

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        try:
            self._http.request(method, path, body, self._headers)
            answer = self._http.getresponse()
        except (ConnectionError, RemoteDisconnected):  # let go while it was idle
            self._http.close()
            self._http.request(method, path, body, self._headers)
            answer = self._http.getresponse()
        told = answer.read()
        if answer.status >= 300:
            raise Refused(f"{answer.status}: {told!r}")
        return told

    def _sign_in(self) -> str:
        told = json.loads(self.ask("GET", "/v1/session/nonce"))
        message = SiweMessage(
            domain=told["domain"],
            address=self._account.address,
            statement=wire.STATEMENT.format(payout=self._account.address),
            uri=told["uri"],
            version="1",
            chain_id=told["chain_id"],
            nonce=told["nonce"],
            issued_at="2026-01-01T00:00:00Z",
        ).prepare_message()
        signature = "0x" + self._account.sign_message(encode_defunct(text=message)).signature.hex()
        said = json.dumps({"message": message, "signature": signature}).encode()
        return str(json.loads(self.ask("POST", "/v1/session", said))["token"])

    def poll(self, **said: Any) -> wire.PollAnswer:
        request = wire.PollRequest(determinism_class="bench", known=self._known, **said)
        return wire.PollAnswer.model_validate_json(
            self.ask("POST", "/v1/work/poll", request.model_dump_json().encode())
        )

    def batch(self, wait_s: float = 20.0) -> int:
        """As many tasks as it is given at once, from leases to vouchers; how many that were."""
        return self._bring(self.poll(capacity=self._batch, wait_s=wait_s).leases)

    def finish(self) -> None:
        """Asks no more; what was leased to it just before is brought, for others wait for it."""
        self._bring(self.poll(wait_s=0.0).leases)

    def _bring(self, leased: Iterable[wire.Lease]) -> int:
        leases = {lease.replica: lease for lease in leased}
        self._known = dict.fromkeys(leases, ReplicaState.LEASED)
        if not leases:
            return 0
        told = self.poll(commitments=tuple(map(self._commitment, leases.values())))
        self._known = dict.fromkeys(leases, ReplicaState.COMMITTED)
        revealed: set[ReplicaId] = set()
        over: set[ReplicaId] = set()
        while len(over) < len(leases):
            for verdict in told.verdicts:
                self._known[verdict.replica] = verdict.state
                if verdict.state == ReplicaState.PAYABLE or lifecycle.over(verdict.state):
                    over.add(verdict.replica)
            for wanted in (wanted.replica for wanted in told.uploads if wanted.replica in leases):
                self._known[wanted] = self._upload(leases[wanted])
                over.add(wanted)
            opened = {wave.replica for wave in told.waves} - revealed
            revealed |= opened
            if len(over) < len(leases):
                told = self.poll(reveals=tuple(self._reveal(leases[replica]) for replica in opened))
        self.done += len(leases)
        return len(leases)

    def _upload(self, lease: wire.Lease) -> ReplicaState:
        """What the answer says that the replica is now."""
        began = time.perf_counter()
        self._put(lease, self.payload)
        self.uploads.append(time.perf_counter() - began)
        return ReplicaState.PAYABLE

    def _put(self, lease: wire.Lease, data: bytes) -> None:
        self.sent += len(data)
        self.ask("PUT", f"/v1/work/payloads/{lease.replica}?fence={lease.fence}", data)

    def _commitment(self, lease: wire.Lease) -> wire.CommitmentMade:
        offer = signing.digest(self._domain, lease.offer.struct())
        sealed = secrets.seal(offer, self._address, self._salt, wire.hash_of(self._root))
        signature = signing.sign(self._key, signing.digest(self._domain, Commitment(offer, self._address, sealed)))
        return wire.CommitmentMade(replica=lease.replica, fence=lease.fence, sealed=sealed, signature=signature)

    def _reveal(self, lease: wire.Lease) -> wire.Reveal:
        return wire.Reveal(replica=lease.replica, fence=lease.fence, salt=self._salt, root=Digest(self._root))


class Spoiler(Worker):
    """Agrees, and brings other bytes than it agreed on: nothing else makes the market carry a payload in vain."""

    def _upload(self, lease: wire.Lease) -> ReplicaState:
        with suppress(Refused):
            self._put(lease, self.payload[:-1] + b"\1")
        return ReplicaState.AGREE


def work(workers: Iterable[Worker], replicas: int) -> int:
    """Every worker in a thread of its own, until `replicas` are done between them; how many were."""
    crew = tuple(workers)
    before = sum(worker.done for worker in crew)
    work_until(crew, lambda: sum(worker.done for worker in crew) - before >= replicas)
    return sum(worker.done for worker in crew) - before


def work_until(workers: Iterable[Worker], enough: Callable[[], bool]) -> None:
    """Every worker in a thread of its own; raises RuntimeError where one fails."""
    failed: list[BaseException] = []

    def one(worker: Worker) -> None:
        try:
            while not failed and not enough():
                worker.batch(wait_s=1.0)
            worker.finish()
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=one, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise RuntimeError("a worker failed") from failed[0]
