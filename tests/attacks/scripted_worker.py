"""A worker over HTTP: its wallet signs and its gradient is computed, but every move it makes is chosen."""

import secrets as chance
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import httpx
from eth_keys.datatypes import PrivateKey

from gradmarket.market import signing
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.messages import SignedConsent, Voucher
from gradmarket.market.terms import Address, Hash, JobId
from gradmarket.market.wire import framing, poll
from gradmarket.market.wire.poll import (
    Answer,
    CommitmentRequest,
    LeaseReturn,
    OfferFields,
    PayloadPart,
    PollAnswer,
    Reveal,
    SignedVerdict,
)
from tests.kit.behaviour import HONEST, Behaviour
from tests.kit.letters import letter, signed
from tests.kit.scripted import Held, Scripted
from tests.patience import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from tests.attacks.scene import Posted

STATUS = {"not_found": 404, "conflict": 409, "too_early": 409, "too_late": 410, "refused": 422}
"""Status codes of refused payloads, by reason."""


@dataclass(frozen=True)
class Reply:
    """Returns the answer to a payload: 200, or the reason of its refusal."""

    status_code: int


class ScriptedWorker(Scripted):
    """Signed in at the job's market; it asks for work in that job alone."""

    def __init__(self, job: "Posted", behaviour: Behaviour = HONEST, key: PrivateKey | None = None) -> None:
        super().__init__(key or PrivateKey(chance.token_bytes(32)), behaviour)
        self.job, self.waiting = job, ""
        self.voucher: tuple[Voucher, bytes] | None = None
        self.http = httpx.Client(base_url=job.scene.url, timeout=PATIENCE_S, verify=False, trust_env=False)
        self.sign_in()

    def sign_in(self, payout: Address | None = None, by: PrivateKey | None = None) -> None:
        """`by`: the payout's key, that consents."""
        nonce = self.http.get("/v1/session/nonce").json()
        self.signed_in: dict[str, Any] = signed(letter(nonce, self.address, payout), self.key)
        if by is not None:
            consent = signing.digest_struct(self.job.domain, SignedConsent(self.address, payout or self.address, 1))
            self.signed_in["consent"] = {"nonce": 1, "signature": "0x" + signing.sign_digest(by, consent).hex()}
        answer = self.http.post("/v1/session", json=self.signed_in)
        answer.raise_for_status()
        self.http.headers["Authorization"] = f"Bearer {answer.json()['token']}"

    def follow(self, job: "Posted") -> None:
        """To where the market is now."""
        self.job = job
        self.http = httpx.Client(base_url=job.scene.url, timeout=PATIENCE_S, verify=False, trust_env=False)
        self.sign_in()

    # a turn, and its parts for attacks that stop between them

    def live(self, over: threading.Event) -> None:
        """Turns until it is over, and once more to hear how everything ended."""
        while not over.is_set():
            self.turn()
        self.turn(wait_s=0.0)
        self.poll(vouchers_for=(self.job.id,))

    def turn(self, wait_s: float = 1.0) -> None:
        self.poll(self.commitments(), self.reveals(), wait_s=wait_s)
        for held in self.open():
            if held.wanted and self.behaviour.uploads:
                self.upload(held)

    def poll(
        self,
        commitments: Sequence[CommitmentRequest] = (),
        reveals: Sequence[Reveal] = (),
        given_up: Sequence[LeaseReturn] = (),
        wait_s: float = 0.0,
        vouchers_for: tuple[JobId, ...] = (),
    ) -> PollAnswer:
        """Sends one request and stores its news. The voucher of a pay by worth comes only on request."""
        said = poll.PollRequest(
            determinism_class=self.determinism_class,
            capacity=max(0, self.capacity - len(self.open()) + len(reveals)) if wait_s else 0,
            commitments=tuple(commitments),
            reveals=tuple(reveals),
            given_up=tuple(given_up),
            known={replica: held.state for replica, held in list(self.held.items())},
            jobs=(self.job.id,),
            wait_s=wait_s,
            vouchers_for=vouchers_for,
        )
        answer = self._post_within_rate("/v1/work/poll", said.model_dump(mode="json"))
        answer.raise_for_status()
        told = PollAnswer.model_validate_json(answer.content)
        self._receive_answer(told)
        return told

    def _post_within_rate(self, path: str, body: object) -> httpx.Response:
        """Asks again while the service answers that it is asked too often: on a quiet machine turns are short."""
        answers: list[httpx.Response] = []

        def is_answered() -> bool:
            answers.append(self.http.post(path, json=body))
            return answers[-1].status_code != httpx.codes.TOO_MANY_REQUESTS

        wait_until(is_answered, "an answer within the rate of requests")
        return answers[-1]

    def _receive_answer(self, told: PollAnswer) -> None:
        for lease in told.leases:
            self.held.setdefault(lease.replica, Held(lease))
        for wave in told.waves:
            self._put(self.held[wave.replica], wave=wave)
        for wanted in told.uploads:
            self._put(self.held[wanted.replica], wanted=True)
        for verdict in told.verdicts:
            self._judged(verdict)
        for voucher in told.vouchers:
            self.voucher = (voucher.struct(self.address), voucher.signature)
        self.refusals += told.refusals
        self.waiting = told.waiting or self.waiting

    def lease(self) -> Held:
        """Asks until it holds a lease."""
        wait_until(self.open, lambda: f"a lease: {self.waiting}", meanwhile=lambda: self.poll(wait_s=10.0))
        return self.newest()

    @property
    def domain(self) -> signing.Domain:
        return self.job.domain

    def sketched_layout(self, held: Held) -> Layout | None:
        return self.job.layout if self.job.spec.verifier.sketched else None

    def compute(self, offer: OfferFields) -> bytes:
        return self.job.compute(offer, self.behaviour.spoil, self.address, self.behaviour.takes)

    def new_salt(self, held: Held) -> Hash:
        return Hash(chance.token_bytes(32))

    def upload(self, held: Held, data: bytes | None = None, fence: int | None = None) -> Reply:
        return self.bring(held, held.payload if data is None else data, fence)

    def answer(self, held: Held, data: bytes | None = None, **changes: Any) -> Reply:
        """Commitment, reveal and payload in one request; `changes` replace a cheater's commitment."""
        held = self.computed(held)
        said = Answer(commitment=self.commitment(held, **changes), salt=held.salt, root=held.root)
        return self.bring(held, held.payload if data is None else data, answers=(said,))

    def bring(
        self, held: Held, data: bytes | Iterator[bytes], fence: int | None = None, answers: tuple[Answer, ...] = ()
    ) -> Reply:
        """A request with one payload, or with other bytes in its place."""
        part = PayloadPart(replica=held.lease.replica, fence=held.lease.fence if fence is None else fence)
        said = poll.PollRequest(determinism_class=self.determinism_class, answers=answers, payloads=(part,), wait_s=0.0)
        head = framing.frame_poll_request(said)
        content = head + data if isinstance(data, bytes) else chain([head], data)
        answer = self.http.post("/v1/work/answers", content=content)
        if answer.status_code != 200:
            return Reply(answer.status_code)
        told = PollAnswer.model_validate_json(answer.content)
        self._receive_answer(told)
        return Reply(next((STATUS[item.code] for item in told.refusals), 200))

    def _judged(self, told: SignedVerdict) -> None:
        if told.replica in self.held:
            self._put(self.held[told.replica], state=told.state, told=told)

    @property
    def states(self) -> str:
        """The ends of its replicas, in words: each once, in order."""
        return "+".join(dict.fromkeys(str(held.state) for held in self.held.values())) or "no lease"
