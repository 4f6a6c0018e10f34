"""The worker's client of the market's API: signs in, and repeats requests while the market is down."""

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit

from eth_account import Account
from eth_account.messages import encode_defunct
from pydantic import BaseModel

from gradmarket.client import transport
from gradmarket.client.client_errors import CutOff, ServiceProblem, ServiceUnreachable
from gradmarket.client.transport import BUSY, Patience, ServiceTransport, build_item_path
from gradmarket.market.errors import Refused, SignatureRefused
from gradmarket.market.sign_in_message import SignInMessage, write_time
from gradmarket.market.terms import Address, Hash, JobId, JobState, ReplicaId
from gradmarket.market.views.job_views import JobPay, ListedJob
from gradmarket.market.views.payment_views import WorkerView
from gradmarket.market.views.service_views import Page
from gradmarket.market.wire.evidence import (
    PublishedAudit,
    PublishedEvidence,
    PublishedPayment,
    PublishedRound,
    PublishedTask,
    PublishedVerdict,
)
from gradmarket.market.wire.framing import MissingParts, PartAddress, ReceivedBytes, frame_poll_request
from gradmarket.market.wire.log_proofs import LeafHashes, PublishedHead
from gradmarket.market.wire.poll import MAX_WAIT_S, PollAnswer, PollRequest
from gradmarket.market.wire.sign_in import STATEMENT, ChainFacts, ConsentRequest, Session, SignIn, SignInNonce
from gradmarket.network.addresses import PublicOnly
from gradmarket.network.environment import is_loopback
from worker import Untrusted
from worker.journal import Journal
from worker.protocol.outgoing import FramedPayloads, Payload
from worker.wallet import Wallet


@dataclass(frozen=True)
class Credentials:
    """The signer of the sign-in, the payout address, and the chain."""

    wallet: Wallet
    payout: Address
    chain_id: int
    consent: ConsentRequest | None = None
    """The payout key's consent to be the worker's operator, if there is one."""


def sign_in(credentials: Credentials, nonce: SignInNonce, origin: str) -> SignIn:
    """Raises Untrusted if the message would sign in elsewhere: a market must not use a worker's identity there.

    So it would with lines of its own in a nonce, which a lax reader takes for those of another message.
    """
    for netloc in (nonce.domain, urlsplit(nonce.uri).netloc):
        if not same_place(netloc, urlsplit(origin).netloc):
            raise Untrusted(f"{origin} asks to sign in at {netloc}; if that is the same service, use that address")
    if nonce.chain_id != credentials.chain_id:
        raise Untrusted(f"{origin} asks to sign in on chain {nonce.chain_id}, the job is on {credentials.chain_id}")
    message = SignInMessage(
        domain=nonce.domain,
        address=credentials.wallet.address,
        uri=nonce.uri,
        chain_id=nonce.chain_id,
        nonce=nonce.nonce,
        issued_at=write_time(datetime.now(UTC)),
        expiration_time=nonce.expires_at,
        statement=STATEMENT.format(payout=credentials.payout),
    )
    try:
        sound = SignInMessage.read(message.text()) == message
    except SignatureRefused:
        sound = False
    if not sound:
        raise Untrusted("the market asks to sign more than a sign-in")
    text = message.text()
    signed = Account.sign_message(encode_defunct(text=text), credentials.wallet.key)
    return SignIn(message=text, signature=bytes(signed.signature), consent=credentials.consent)


def same_place(one: str, other: str) -> bool:
    """Returns whether two `host:port` name the same service; all names of the loopback count as one."""
    return _parse_host_and_port(one) == _parse_host_and_port(other)


def _parse_host_and_port(netloc: str) -> tuple[str, int | None, str | None]:
    """Returns the user too, which no service's own address has."""
    parts = urlsplit(f"//{netloc}")
    host = (parts.hostname or "").rstrip(".")
    return ("localhost" if is_loopback(host) else host, parts.port, parts.username)


MAX_PAGES: Final = 10
MOST_LEAVES: Final = 10_000_000
"""The most leaves of a log that are read: 32 bytes each on the wire, and a hundred in memory."""
MAX_ITEMS: Final = 1_000_000
MAX_LISTING: Final = 2 * 2**30
"""Bytes of all pages of one list."""
PAGE: Final = 500
SHORT_FOR_S: Final = 3600.0
COMMAND_WAIT_S: Final = 10.0
"""Seconds that a command of the worker's owner waits for an unreachable market."""
AGAIN_S: Final = 1.0
"""Seconds, about, before a broken upload continues."""

Answer = TypeVar("Answer", bound=BaseModel)
Item = TypeVar("Item")
Result = TypeVar("Result")


class MarketClient:
    """`keep_trying(seconds)` decides whether to retry a market that was unreachable for these seconds; `pause` sleeps.

    `public_only` is for a market that the worker's owner did not name: it may not be in the worker's own network.
    Every request raises OtherRelease where the market has become one of another release.
    """

    def __init__(
        self,
        origin: str,
        keep_trying: Callable[[float], bool] = lambda _seconds: True,
        pause: Callable[[float], object] = time.sleep,
        journal: Journal | None = None,
        public_only: bool = False,
    ) -> None:
        self.origin = origin
        self._credentials: Credentials | None = None
        self._journal = journal
        self._session: Session | None = None
        self._short_until = -math.inf
        self._longest_wait = MAX_WAIT_S
        self._patience = Patience(keep_trying, pause, BUSY, self._report_down)
        network = PublicOnly() if public_only else None
        self._transport = ServiceTransport(origin, self._patience, network=network, side="this worker")

    def close(self) -> None:
        """Closes the client. A poll that still waits in its thread ends silently."""
        self._journal = None
        self._transport.close()

    def identify(self, credentials: Credentials) -> None:
        """Sets the credentials used to sign in when a request needs a session."""
        self._credentials = credentials

    def facts(self) -> ChainFacts:
        return self._transport.ask(ChainFacts, "GET", "/v1/chain")

    def jobs(self) -> list[ListedJob]:
        """Returns the running jobs on the first MAX_PAGES pages."""
        pages = islice(self._transport.pages(Page[ListedJob], "/v1/jobs", {}), MAX_PAGES)
        return [job for page in pages for job in page.items if job.state is JobState.RUNNING]

    def job(self, job: JobId) -> ListedJob:
        return self._transport.ask(ListedJob, "GET", build_job_path(job))

    def pay(self, job: JobId) -> JobPay:
        """Returns the market's measurements of the job's pay."""
        return self._transport.ask(JobPay, "GET", f"{build_job_path(job)}/stats")

    def worker(self, address: Address) -> WorkerView:
        """Returns the market's public record of a worker."""
        return self._transport.ask(WorkerView, "GET", f"/v1/workers/{quote(address, safe='')}")

    def fetch_payments(self, job: JobId) -> Iterator[PublishedPayment]:
        return self._fetch_all_items(Page[PublishedPayment], f"{build_job_path(job)}/payments")

    def verdicts(self, job: JobId) -> Iterator[PublishedVerdict]:
        return self._fetch_all_items(Page[PublishedVerdict], f"{build_job_path(job)}/verdicts")

    def log(self, job: JobId) -> PublishedHead | None:
        """Returns the newest head of the job's log; None where the market keeps none, or none yet."""
        return self.find(PublishedHead, f"{build_job_path(job)}/log")

    def leaves(self, job: JobId, size: int) -> Iterator[Hash]:
        """Yields the hashes of the log's first `size` leaves, or of all if it has fewer."""
        first = 0
        while first < min(size, MOST_LEAVES):
            path = f"{build_job_path(job)}/log/leaves"
            page = self._transport.ask(LeafHashes, "GET", path, params={"first": first, "size": size})
            yield from page.hashes
            if not page.hashes:
                return
            first += len(page.hashes)

    def find(self, kind: type[Answer], path: str, **options: Any) -> Answer | None:
        """Sends a request that needs no session. Returns None where there is nothing (404)."""
        try:
            return self._transport.ask(kind, "GET", path, **options)
        except ServiceProblem as problem:
            if problem.status != 404:
                raise
            return None

    def rounds(self, job: JobId) -> Iterator[PublishedRound]:
        return self._fetch_all_items(Page[PublishedRound], f"{build_job_path(job)}/rounds")

    def tasks(self, job: JobId) -> Iterator[PublishedTask]:
        return self._fetch_all_items(Page[PublishedTask], f"{build_job_path(job)}/tasks")

    def audits(self, job: JobId) -> Iterator[PublishedAudit]:
        return self._fetch_all_items(Page[PublishedAudit], f"{build_job_path(job)}/audits")

    def task(self, job: JobId, task: str) -> PublishedEvidence:
        return self._transport.ask(PublishedEvidence, "GET", _build_task_path(job, task))

    def _fetch_all_items(self, kind: type[Page[Item]], path: str) -> Iterator[Item]:
        """Yields the items of a paginated list, at most MAX_ITEMS; asks for a page when the one before is used up."""
        pages = self._transport.pages(kind, path, {"limit": PAGE}, MAX_LISTING)
        return islice((item for page in pages for item in page.items), MAX_ITEMS)

    def evidence(self, job: JobId, task: str) -> str:
        """Returns the URL at which the evidence of a verdict is published."""
        return f"{self.origin}{_build_task_path(job, task)}"

    def poll(self, request: PollRequest, payloads: Sequence[Payload] = ()) -> PollAnswer:
        """Long-polls the market, with the payloads that the request names; those go without waiting for more.

        If something on the path cuts long waits off, waits less during the next SHORT_FOR_S seconds. Raises
        ServiceProblem, or OSError if a payload's file is gone.
        """
        if payloads:
            return self._send_payloads(request, payloads)
        while True:
            began = time.monotonic()
            longest = self._longest_wait if began < self._short_until else MAX_WAIT_S
            short = request.model_copy(update={"wait_s": min(request.wait_s, longest)})
            options = {"json": short.model_dump(mode="json"), "waits": short.wait_s}
            try:
                return self.signed_in(PollAnswer, "POST", "/v1/work/poll", **options)
            except CutOff:
                self._short_until = began + SHORT_FOR_S
                self._longest_wait = max(transport.SHORTEST_WAIT_S, (time.monotonic() - began) / 2)

    def _send_payloads(self, request: PollRequest, payloads: Sequence[Payload]) -> PollAnswer:
        """Sends the bytes that the market lacks; after a broken connection, resumes a payload in pieces there.

        It retries for longer where the market has more than ever before.
        """
        if not any(payload.in_pieces for payload in payloads):
            return self._send_answers_once(request, payloads)
        began = time.monotonic()
        payloads = [self._fetch_payload_rest(payload) if payload.begun else payload for payload in payloads]
        most = _count_received_bytes(payloads)
        while True:
            try:
                return self._send_answers_once(request, payloads, patient=False)
            except ServiceUnreachable as error:
                if not self._patience.keep_trying(time.monotonic() - began):
                    raise
                self._report_down(error)
            self._patience.pause(random.uniform(0.5, 1.0) * AGAIN_S)
            payloads = [self._fetch_payload_rest(payload) for payload in payloads]
            if (there := _count_received_bytes(payloads)) > most:
                most, began = there, time.monotonic()

    def _send_answers_once(self, request: PollRequest, payloads: Sequence[Payload], **options: Any) -> PollAnswer:
        rest = {payload.part.replica: payload.part for payload in payloads if payload.part is not None}
        parts = tuple(rest.get(part.replica, part) for part in request.payloads)
        content = FramedPayloads(frame_poll_request(request.model_copy(update={"payloads": parts})), payloads)
        headers = {"content-type": "application/octet-stream", "content-length": str(content.length)}
        return self.signed_in(PollAnswer, "POST", "/v1/work/answers", headers=headers, content=content.open, **options)

    def missing_parts(self, replica: ReplicaId, fence: int) -> Sequence[PartAddress]:
        """Returns the addresses of parts of the payload that the store lacks; none once it has all."""
        place = f"{quote(replica, safe='')}/{fence}"
        return self.signed_in(MissingParts, "POST", f"/v1/work/payloads/{place}/parts").parts

    def _fetch_payload_rest(self, payload: Payload) -> Payload:
        """Returns the payload from where the market has it; raises as `signed_in` does."""
        if payload.part is None or not payload.in_pieces:
            return payload
        place = f"{quote(payload.part.replica, safe='')}/{payload.part.fence}"
        received = self.signed_in(ReceivedBytes, "GET", f"/v1/work/payloads/{place}")
        return payload.from_byte(received.received)

    def ask(self, kind: type[Answer], method: str, path: str) -> Answer:
        """Sends a request that needs no session."""
        return self._transport.ask(kind, method, path)

    def signed_in(self, kind: type[Answer], method: str, path: str, **options: Any) -> Answer:
        """Sends a request with a session token; signs in again once if the session has expired."""
        headers = options.pop("headers", {})
        return self._with_session(
            lambda bearer: self._transport.ask(kind, method, path, headers={**headers, **bearer}, **options)
        )

    def put_bytes(self, path: str, digest: str, data: bytes) -> None:
        """PUTs the bytes of this digest with a session token; they go on where a connection broke."""
        self._with_session(lambda bearer: self._transport.put_bytes(path, digest, data, bearer))

    def _with_session(self, send: Callable[[dict[str, str]], Result]) -> Result:
        try:
            return send(self.bearer())
        except ServiceProblem as refused:
            if refused.status != 401:
                raise
        self._session = None
        return send(self.bearer())

    def bearer(self) -> dict[str, str]:
        if self._credentials is None:
            raise Refused("the worker is not signed in")
        if self._session is None:
            nonce = self._transport.ask(SignInNonce, "GET", "/v1/session/nonce")
            request = sign_in(self._credentials, nonce, self.origin)
            self._session = self._transport.ask(Session, "POST", "/v1/session", json=request.model_dump(mode="json"))
        return {"authorization": f"Bearer {self._session.token}"}

    def _report_down(self, error: Exception) -> None:
        journal = self._journal
        if journal is not None:
            journal.once("unreachable", f"The market at {self.origin} does not answer ({error}); trying again.")


def _count_received_bytes(payloads: Sequence[Payload]) -> int:
    """Returns how many bytes of the payloads the market confirms."""
    return sum(payload.start or 0 for payload in payloads)


def build_job_path(job: JobId) -> str:
    return build_item_path("/v1/jobs", job, "a job's id", "its market's page has it")


def _build_task_path(job: JobId, task: str) -> str:
    return build_item_path(f"{build_job_path(job)}/tasks", task, "a task's id", "its verdict names it")
