"""HTTP client for the market's API: signs in, retries while the market is down, and limits every response's size."""

import math
import random
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import httpx
from pydantic import ValidationError

from gradmarket.compute.addresses import SOCKET_OPTIONS, PublicOnly
from gradmarket.market.errors import Refused
from gradmarket.market.terms import JobId, JobState, ReplicaId
from gradmarket.market.wire import MAX_WAIT_S, PollAnswer, PollRequest, UploadAnswer
from gradmarket.market.wire_evidence import PublishedAudit, PublishedEvidence, PublishedPayment, PublishedVerdict
from gradmarket.market.wire_sign_in import ChainFacts, Session, SignInNonce
from gradmarket.worker.journal import Journal
from gradmarket.worker.problems import MarketProblem, MarketUnreachable, problem
from gradmarket.worker.protocol.answers import (
    Answer,
    CutOff,
    JobPage,
    ListedJob,
    PublishedPage,
    bounded,
    parsed,
    timeout,
)
from gradmarket.worker.protocol.outgoing import Payload
from gradmarket.worker.protocol.signin import Credentials, sign_in

MAX_PAGES: Final = 10
MAX_ITEMS: Final = 1_000_000
FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 10.0
BUSY: Final = frozenset({429, 502, 503, 504})

SHORTEST_WAIT_S: Final = 10.0
SHORT_FOR_S: Final = 3600.0
CUT_AFTER_S: Final = 5.0
"""Seconds. A request that fails sooner means that the market is down or busy, not that a long wait was cut off."""


class MarketClient:
    """`keep_trying(seconds)` says whether to retry a market that was unreachable for so long; `pause` sleeps.

    `public_only` is for a market that the worker's owner did not name: it may not be in the worker's own network.
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
        self._keep_trying = keep_trying
        self._pause = pause
        self._session: Session | None = None
        self._short_until = -math.inf
        self._longest_wait = MAX_WAIT_S
        own = httpx.HTTPTransport(trust_env=False, socket_options=SOCKET_OPTIONS)
        transport = PublicOnly() if public_only else own
        self._http = httpx.Client(
            base_url=origin, timeout=timeout(0.0), follow_redirects=False, trust_env=False, transport=transport
        )

    def close(self) -> None:
        self._http.close()

    def identify(self, credentials: Credentials) -> None:
        """Sets the credentials used to sign in when a request needs a session."""
        self._credentials = credentials

    def facts(self) -> ChainFacts:
        return self._ask(ChainFacts, "GET", "/v1/chain")

    def jobs(self) -> list[ListedJob]:
        """Returns the running jobs on the first MAX_PAGES pages."""
        jobs, cursor = [], None
        for _ in range(MAX_PAGES):
            page = self._ask(JobPage, "GET", "/v1/jobs", params={"cursor": cursor} if cursor else {})
            jobs += [job for job in page.items if job.state is JobState.RUNNING]
            cursor = page.next
            if cursor is None:
                break
        return jobs

    def job(self, job: JobId) -> ListedJob:
        return self._ask(ListedJob, "GET", f"/v1/jobs/{quote(job, safe='')}")

    def payments(self, job: JobId) -> list[PublishedPayment]:
        return self._all(PublishedPayment, f"/v1/jobs/{quote(job, safe='')}/payments")

    def verdicts(self, job: JobId) -> list[PublishedVerdict]:
        return self._all(PublishedVerdict, f"/v1/jobs/{quote(job, safe='')}/verdicts")

    def audits(self, job: JobId) -> list[PublishedAudit]:
        return self._all(PublishedAudit, f"/v1/jobs/{quote(job, safe='')}/audits")

    def task(self, job: JobId, task: str) -> PublishedEvidence:
        return self._ask(PublishedEvidence, "GET", f"/v1/jobs/{quote(job, safe='')}/tasks/{quote(task, safe='')}")

    def _all(self, kind: type[Answer], path: str) -> list[Answer]:
        """Returns every item of a paginated list, at most MAX_ITEMS."""
        items: list[Answer] = []
        cursor: str | None = None
        while len(items) < MAX_ITEMS:
            page = self._ask(
                PublishedPage, "GET", path, params={"limit": 500, **({"cursor": cursor} if cursor else {})}
            )
            items += [parsed(kind, item) for item in page.items]
            cursor = page.next
            if cursor is None:
                break
        return items

    def evidence(self, job: JobId, task: str) -> str:
        """Returns the URL at which the evidence of a verdict is published."""
        return f"{self.origin}/v1/jobs/{quote(job, safe='')}/tasks/{quote(task, safe='')}"

    def poll(self, request: PollRequest) -> PollAnswer:
        """Long-polls the market.

        If something on the path cuts long waits off, waits less during the next SHORT_FOR_S seconds.
        """
        while True:
            began = time.monotonic()
            longest = self._longest_wait if began < self._short_until else MAX_WAIT_S
            short = request.model_copy(update={"wait_s": min(request.wait_s, longest)})
            options = {"json": short.model_dump(mode="json"), "timeout": timeout(short.wait_s), "waits": short.wait_s}
            try:
                return self.signed_in(PollAnswer, "POST", "/v1/work/poll", **options)
            except CutOff:
                self._short_until = began + SHORT_FOR_S
                self._longest_wait = max(SHORTEST_WAIT_S, (time.monotonic() - began) / 2)

    def upload(self, replica: ReplicaId, fence: int, payload: Payload) -> UploadAnswer:
        """Uploads a payload.

        Raises MarketProblem: 409 for bytes other than committed, 410 if too late, 413 if too large.
        """
        path = f"/v1/work/payloads/{quote(replica, safe='')}"
        headers = {"content-type": "application/octet-stream"}
        return self.signed_in(UploadAnswer, "PUT", path, params={"fence": fence}, headers=headers, body=payload)

    def said_put(self, replica: ReplicaId, fence: int) -> UploadAnswer:
        """Reports that the payload was put into the market's object store. Raises MarketProblem if it is not there."""
        path = f"/v1/work/payloads/{quote(replica, safe='')}"
        return self.signed_in(UploadAnswer, "PUT", path, params={"fence": fence, "put": True})

    def signed_in(self, kind: type[Answer], method: str, path: str, **options: Any) -> Answer:
        """Sends a request with a session token; signs in again once if the session has expired."""
        headers = options.pop("headers", {})
        try:
            return self._ask(kind, method, path, headers={**headers, **self.bearer()}, **options)
        except MarketProblem as refused:
            if refused.status != 401:
                raise
        self._session = None
        return self._ask(kind, method, path, headers={**headers, **self.bearer()}, **options)

    def bearer(self) -> dict[str, str]:
        if self._credentials is None:
            raise Refused("nobody is signed in")
        if self._session is None:
            nonce = self._ask(SignInNonce, "GET", "/v1/session/nonce")
            request = sign_in(self._credentials, nonce, self.origin)
            self._session = self._ask(Session, "POST", "/v1/session", json=request.model_dump(mode="json"))
        return {"authorization": f"Bearer {self._session.token}"}

    def _ask(self, kind: type[Answer], method: str, path: str, waits: float = 0.0, **options: Any) -> Answer:
        """Sends a request until it is answered.

        Raises MarketProblem, or MarketUnreachable once it may not retry any more.

        Raises CutOff if the market was to wait for `waits` seconds and the connection was closed earlier.
        """
        since, longest = time.monotonic(), FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            try:
                return self._once(kind, method, path, **options)
            except (httpx.TransportError, MarketProblem) as error:
                if isinstance(error, MarketProblem) and error.status not in BUSY:
                    raise
                if waits > SHORTEST_WAIT_S and CUT_AFTER_S < time.monotonic() - began < waits:
                    raise CutOff(f"{self.origin}: {error}") from error
                if not self._keep_trying(time.monotonic() - since):
                    raise MarketUnreachable(f"{self.origin}: {error}") from error
                self._say_down(error)
            self._pause(longest * random.uniform(0.5, 1.0))
            longest = min(2 * longest, LONGEST_PAUSE_S)

    def _say_down(self, error: Exception) -> None:
        if self._journal is not None:
            text = f"The market at {self.origin} does not answer ({error or type(error).__name__}); trying again."
            self._journal.once("unreachable", text)

    def _once(self, kind: type[Answer], method: str, path: str, body: Payload | None = None, **options: Any) -> Answer:
        if body is None:
            return self._send(kind, method, path, **options)
        with body.open() as file:
            return self._send(kind, method, path, content=file, **options)

    def _send(self, kind: type[Answer], method: str, path: str, **options: Any) -> Answer:
        with self._http.stream(method, path, **options) as response:
            body = bounded(response)
            if not response.is_success:
                raise problem(response, body)
        try:
            return kind.model_validate_json(body)
        except ValidationError as error:
            raise MarketProblem(response.status_code, f"{method} {path} answered something else: {error}") from error
