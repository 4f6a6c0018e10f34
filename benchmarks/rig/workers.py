"""Workers that answer every task with the same zeros: real words and signatures, no gradients."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from http.client import HTTPConnection, RemoteDisconnected
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from eth_keys.datatypes import PrivateKey

from benchmarks.rig.patience import PATIENCE_S
from benchmarks.rig.service import Service
from gradmarket.market import signing
from gradmarket.market.messages import Commitment
from gradmarket.market.rules import lifecycle, secrets
from gradmarket.market.terms import Digest, Hash, ReplicaId, ReplicaState, blob_digest
from gradmarket.market.wire import framing
from gradmarket.market.wire.poll import (
    Answer,
    CommitmentRequest,
    Lease,
    PayloadPart,
    PollAnswer,
    PollRequest,
    Reveal,
    hash_of,
)
from tests.kit.letters import letter, signed

HIDDEN = (8,)
"""The job's hidden layers."""
LAST_S = 10.0
"""Seconds in which the last votes usually end."""


def payload_of(*hidden: int) -> bytes:
    """Zeros for the digits' perceptron with these hidden layers: the loss, and a gradient for each parameter."""
    layers = pairwise((64, *hidden, 10))
    return bytes(4 * (1 + sum((inputs + 1) * outputs for inputs, outputs in layers)))


class Refused(RuntimeError):
    """The service refused."""


class Worker:
    """Has up to `leases` replicas in flight.

    `ahead`: asks for further ones while the others are judged, as `gradmarket worker` does; else only when all are
    over, so that its messages about them share requests. `alone`: nobody else votes, so it uploads payloads unasked.
    """

    def __init__(
        self,
        service: Service,
        leases: int = 1,
        payload: bytes = payload_of(*HIDDEN),
        ahead: bool = False,
        alone: bool = False,
    ) -> None:
        self.answer_with(payload)
        self.uploads: list[float] = []
        """Seconds that each took."""
        self.sent = 0
        """Bytes of payloads, whether they were taken or not."""
        self._key = PrivateKey(os.urandom(32))
        self._address = signing.address_of(self._key)
        self._domain = service.domain
        self._leases = leases
        self._ahead = ahead
        self._alone = alone
        place = urlsplit(service.url)
        self._http = HTTPConnection(str(place.hostname), place.port, timeout=PATIENCE_S)
        self._headers = {"Content-Type": "application/json"}
        self.token = self._sign_in()
        self._headers["Authorization"] = f"Bearer {self.token}"
        self._salt = Hash(os.urandom(32))
        self._open: dict[ReplicaId, Lease] = {}
        self._known: dict[ReplicaId, ReplicaState] = {}
        """States of open replicas, and of those that ended since the last poll."""
        self._waves: set[ReplicaId] = set()
        """Opened, and not revealed to."""
        self._wanted: set[ReplicaId] = set()
        """Replicas whose payload is requested, and not sent yet."""
        self.done = 0

    def answer_with(self, payload: bytes) -> None:
        """From the next task on."""
        self.payload, self._root = payload, blob_digest(payload)

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        try:
            self._http.request(method, path, body, self._headers)
            answer = self._http.getresponse()
        except (ConnectionError, RemoteDisconnected):  # closed while it was idle
            self._http.close()
            self._http.request(method, path, body, self._headers)
            answer = self._http.getresponse()
        answer_bytes = answer.read()
        if answer.status >= 300:
            raise Refused(f"{answer.status}: {answer_bytes!r}")
        return answer_bytes

    def _sign_in(self) -> str:
        nonce = json.loads(self.ask("GET", "/v1/session/nonce"))
        signed_in = json.dumps(signed(letter(nonce, self._address), self._key)).encode()
        return str(json.loads(self.ask("POST", "/v1/session", signed_in))["token"])

    def poll(self, payload: bytes = b"", **fields: Any) -> PollAnswer:
        """With as many payloads as are named, each of these bytes."""
        request = PollRequest(determinism_class="bench", known=self._known, **fields)
        if request.payloads:
            body = framing.frame_poll_request(request) + payload * len(request.payloads)
            self.sent += len(payload) * len(request.payloads)
            return PollAnswer.model_validate_json(self.ask("POST", "/v1/work/answers", body))
        return PollAnswer.model_validate_json(self.ask("POST", "/v1/work/poll", request.model_dump_json().encode()))

    def batch(self) -> None:
        """As many tasks as it is given at once, from leases to vouchers."""
        self.turn()
        self.finish()

    def finish(self) -> None:
        """Stops asking; the payloads of its last leases are sent too, since others wait for them.

        Where it waits long itself, a vote lacks replicas that nobody asks for: it asks again, as they all do then.
        """
        self.turn(wait_s=0.0, asks=False)
        until = time.monotonic() + LAST_S
        while self._open:
            self.turn(wait_s=5.0, asks=time.monotonic() > until)

    def turn(self, wait_s: float = 20.0, asks: bool = True) -> None:
        """Sends one poll, and applies the answer."""
        sealed = [lease for replica, lease in self._open.items() if self._known[replica] == ReplicaState.LEASED]
        opened, self._waves = self._waves & self._open.keys(), set()
        wanted, self._wanted = self._wanted & self._open.keys(), set()
        brought = {*wanted, *(lease.replica for lease in sealed if self._alone)}
        began = time.perf_counter()
        answer = self.poll(
            self.bytes_of(),
            capacity=self._room(len(brought | opened)) if asks else 0,
            commitments=() if self._alone else tuple(map(self._commitment, sealed)),
            answers=tuple(map(self._answer, sealed)) if self._alone else (),
            payloads=tuple(PayloadPart(replica=r, fence=self._open[r].fence) for r in sorted(brought)),
            reveals=tuple(self._reveal(self._open[replica]) for replica in opened),
            wait_s=wait_s,
        )
        self.uploads += [time.perf_counter() - began] * bool(brought)
        self._known = {replica: self._known[replica] for replica in self._open}
        self._known |= dict.fromkeys([lease.replica for lease in sealed], ReplicaState.COMMITTED)
        self._known |= dict.fromkeys(opened, ReplicaState.REVEALED)
        self._apply_answer(answer)

    def bytes_of(self) -> bytes:
        """The bytes of its payload."""
        return self.payload

    def _room(self, ending: int) -> int:
        left = len(self._open) - ending
        return self._leases - left if self._ahead or not left else 0

    def is_busy(self) -> bool:
        """Returns whether a replica of its own is not over."""
        return bool(self._open)

    def _apply_answer(self, answer: PollAnswer) -> None:
        self._waves = {wave.replica for wave in answer.waves if self._known.get(wave.replica) == ReplicaState.COMMITTED}
        for verdict in answer.verdicts:
            self._known[verdict.replica] = verdict.state
            if verdict.state == ReplicaState.PAYABLE or lifecycle.is_final_state(verdict.state):
                self._end(verdict.replica)
        for item in answer.refusals:
            self._end(item.replica)
        self._wanted = {wanted.replica for wanted in answer.uploads if wanted.replica in self._open}
        for lease in answer.leases:
            if lease.replica not in self._open:
                self._open[lease.replica], self._known[lease.replica] = lease, ReplicaState.LEASED

    def _end(self, replica: ReplicaId) -> None:
        self.done += self._open.pop(replica, None) is not None

    def _commitment(self, lease: Lease) -> CommitmentRequest:
        offer = signing.digest_struct(self._domain, lease.offer.struct())
        sealed = secrets.seal_commitment(offer, self._address, self._salt, hash_of(self._root))
        signature = signing.sign_digest(
            self._key, signing.digest_struct(self._domain, Commitment(offer, self._address, sealed))
        )
        return CommitmentRequest(replica=lease.replica, fence=lease.fence, sealed=sealed, signature=signature)

    def _answer(self, lease: Lease) -> Answer:
        return Answer(commitment=self._commitment(lease), salt=self._salt, root=Digest(self._root))

    def _reveal(self, lease: Lease) -> Reveal:
        return Reveal(replica=lease.replica, fence=lease.fence, salt=self._salt, root=Digest(self._root))


class Spoiler(Worker):
    """Agrees, and brings other bytes than it agreed on: nothing else makes the market carry a payload in vain."""

    def bytes_of(self) -> bytes:
        return self.payload[:-1] + b"\1"


def work(workers: Iterable[Worker], replicas: int) -> int:
    """Every worker in a thread of its own, until `replicas` are done between them; how many were."""
    shared = tuple(workers)
    before = sum(worker.done for worker in shared)
    work_until(shared, lambda: sum(worker.done for worker in shared) - before >= replicas)
    return sum(worker.done for worker in shared) - before


def work_until(workers: Iterable[Worker], enough: Callable[[], bool]) -> None:
    """Every worker in a thread of its own; raises RuntimeError where one fails."""
    shared = tuple(workers)
    failed: list[BaseException] = []

    def one(worker: Worker) -> None:
        try:
            while not failed and not enough():
                worker.turn(wait_s=1.0)
            worker.finish()
            until = time.monotonic() + LAST_S
            while not failed and any(other.is_busy() for other in shared):  # a vote may lack this worker
                worker.turn(wait_s=1.0, asks=time.monotonic() > until)
                worker.finish()
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=one, args=(worker,)) for worker in shared]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise RuntimeError(f"a worker failed: {failed[0]!r}") from failed[0]
