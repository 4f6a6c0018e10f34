"""The asynchronous client of the API, with the calls of RequesterClient.

Made of requester_client.py and transport.py by `python -m tests.kit.asynchronous`; change those.
"""

import asyncio
import json
import math
import random
import secrets
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from blake3 import blake3
from pydantic import BaseModel

from gradmarket.client.client_errors import (
    CertificateRefused,
    CutOff,
    Damaged,
    ServiceProblem,
    ServiceUnreachable,
    Silence,
    parse_problem,
)
from gradmarket.client.requester_client import (
    LEDGER_PAGE,
    Item,
    _build_job_path,
    _build_task_path,
    _build_token_path,
    _build_webhook_path,
)
from gradmarket.client.transport import (
    ANSWER_S,
    BUSY,
    CHUNK,
    CONNECT_S,
    CUT_AFTER_S,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    SHORTEST_WAIT_S,
    TRIES,
    UPLOAD,
    Answer,
    AnyPage,
    Open,
    Patience,
    ServerSentEvent,
    UploadStall,
    _build_interrupted,
    _build_unreachable,
    _open_content,
    _parse_answer,
    build_timeout,
    note_nothing,
)
from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.job import Publication
from gradmarket.market.release import HEADER
from gradmarket.market.terms import Address, Amount, Role, blob_digest, digest_text
from gradmarket.market.views.job_views import CheckpointView, Extension, Funded, JobView, NewerPart, RoundView, Stats
from gradmarket.market.views.payment_views import JobWorkerView, LedgerView, VerdictView
from gradmarket.market.views.service_views import (
    USUAL,
    CreatedToken,
    CreatedWebhook,
    NewToken,
    Page,
    PriceGuide,
    Readiness,
    SpendingView,
    TokenView,
    WebhookView,
)
from gradmarket.market.views.trust_views import AuditView, CalibrationView, TrustView
from gradmarket.market.wire.audit_messages import (
    AuditAnswer,
    AuditAssignment,
    AuditReceipt,
    AuditRequest,
    AuditWork,
    PanelOpening,
    PanelSeal,
    SketchAnswer,
)
from gradmarket.market.wire.evidence import PublishedEvidence
from gradmarket.market.wire.framing import PIECE, UPLOAD_OFFSET, ReceivedBytes
from gradmarket.market.wire.hearing_messages import AuditorQuestions, AuditorStatement, HearingReceipt
from gradmarket.market.wire.poll import ANSWER_WITHIN
from gradmarket.market.wire.sign_in import ChainFacts
from gradmarket.network import MAX_ANSWER, check_release, own_header
from gradmarket.network.async_transport import AsyncClockedTransport
from gradmarket.network.clocked import UntrustedCertificate


class AsyncServiceTransport:
    """Sends requests to the service at `url`; `headers` go with each. `network` decides which addresses are reached.

    Without a `network` the environment's settings apply (network.environment). Redirects are not followed.
    Where `side` names the caller's side, every request raises OtherRelease once the service answers as another release.
    """

    def __init__(
        self,
        url: str,
        patience: Patience,
        headers: Mapping[str, str] | None = None,
        network: httpx.AsyncBaseTransport | None = None,
        side: str = "",
    ) -> None:
        self.url = url.rstrip("/")
        self._side = side
        self._patience = patience
        self._trusted = False
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers={**dict([own_header()]), **(headers or {})},
            timeout=build_timeout(),
            trust_env=False,
            transport=network or AsyncClockedTransport(),
            event_hooks={"response": [self._note_answer]},
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _note_answer(self, response: httpx.Response) -> None:
        self._trusted = True
        if self._side and HEADER in response.headers:
            check_release(response.headers[HEADER], self.url, self._side)

    @property
    def tries(self) -> int:
        """Returns the tries of a short request between uploads: one until the service has answered anything."""
        return TRIES if self._trusted else 1

    async def ask(self, kind: type[Answer], method: str, path: str, **options: Any) -> Answer:
        """Returns the JSON answer as a `kind`. Options and errors are those of `send`."""
        return _parse_answer(kind, f"{method} {path}", *await self.send(method, path, **options))

    async def pages(
        self, kind: type[AnyPage], path: str, asked: Mapping[str, str | int], most: float = math.inf
    ) -> AsyncIterator[AnyPage]:
        """Yields the pages of a list, one request each.

        Raises ServiceProblem for a list without an end, or with more than `most` bytes on all its pages.
        """
        cursor: str | None = None
        taken = 0
        while True:
            status, body = await self.send("GET", path, params={**asked, **({"cursor": cursor} if cursor else {})})
            taken += len(body)
            if taken > most:
                raise ServiceProblem(status, f"{path} has more than {most} bytes: ask another service")
            page = _parse_answer(kind, f"GET {path}", status, body)
            yield page
            cursor = page.next
            if cursor is None:
                return
            if not page.items:
                raise ServiceProblem(200, f"{path} has an empty page and announces more: ask another service")

    async def send(
        self,
        method: str,
        path: str,
        *,
        tries: int = 1,
        waits: float = 0.0,
        content: Open | None = None,
        patient: bool = True,
        **options: Any,
    ) -> tuple[int, bytes]:
        """Sends a request until it is answered; returns the status and the body of a success.

        Tries at least `tries` times, then as patience allows, where it is `patient`. Raises ServiceProblem, or
        ServiceUnreachable once it may not retry any more; CutOff if the service was to wait for `waits` seconds and the
        connection closed earlier; Refused at once if its certificate was never trusted, which no patience mends.
        """
        options.setdefault("timeout", build_timeout(waits))
        options.setdefault("extensions", {ANSWER_WITHIN: waits + ANSWER_S})
        since, longest, tried = (time.monotonic(), FIRST_PAUSE_S, 0)
        while True:
            began, tried = (time.monotonic(), tried + 1)
            try:
                return await self._send_once(method, path, content, **options)
            except (ServiceUnreachable, ServiceProblem) as error:
                if isinstance(error, CertificateRefused) and (not self._trusted):
                    raise Refused(error.detail, error.remedy) from error
                if isinstance(error, ServiceProblem) and error.status not in self._patience.busy:
                    raise
                if waits > SHORTEST_WAIT_S and CUT_AFTER_S < time.monotonic() - began < waits:
                    raise CutOff(f"{self.url}: {error}") from error
                if tried >= tries and (not (patient and self._patience.keep_trying(time.monotonic() - since))):
                    raise _build_unreachable(self.url, error) from error
                self._patience.on_retry(error)
            await asyncio.sleep(longest * random.uniform(0.5, 1.0))
            longest = min(2 * longest, LONGEST_PAUSE_S)

    async def put_bytes(
        self,
        path: str,
        digest: str,
        data: bytes,
        headers: Mapping[str, str] | None = None,
        on_sent: Callable[[int], object] = note_nothing,
    ) -> None:
        """PUTs the bytes of this digest; after a break it goes on from where the service has them.

        It tries again for STALLED_S seconds after the last byte that came, then as patience allows; the service keeps
        the bytes for a later call. `on_sent` receives the number of bytes that are sent, as they go. Raises as `send`.
        """
        if len(data) <= PIECE:
            await self.send("PUT", path, tries=self.tries, content=_open_content(data), timeout=UPLOAD, headers=headers)
            on_sent(len(data))
            return
        _, asked, query = path.partition("?")
        place = f"/v1/blobs/{digest}/received{asked}{query}"
        stall, pause, start, failed = (UploadStall(len(data), self._trusted), FIRST_PAUSE_S, 0, None)
        while True:
            sending = False
            try:
                there = (await self.ask(ReceivedBytes, "GET", place, patient=False, headers=headers)).received
                start = min(there, len(data))
                if stall.note_received(start):
                    pause = FIRST_PAUSE_S
                elif failed is not None and stall.is_over(self._patience.keep_trying, failed):
                    raise failed
                own = {**(headers or {}), UPLOAD_OFFSET: str(start), "Content-Length": str(len(data) - start)}
                rest, sending = (_cut_chunks(data, start, on_sent), True)
                await self.send("PUT", path, content=_open_content(rest), timeout=UPLOAD, patient=False, headers=own)
                return
            except (ServiceUnreachable, ServiceProblem) as error:
                if isinstance(error, ServiceProblem) and error.status not in {409, *BUSY}:
                    raise
                if sending:
                    stall.note_break()
                if stall.is_over(self._patience.keep_trying, error):
                    raise _build_interrupted(self.url, error, start, len(data)) from error
                self._patience.on_retry(error)
                failed = error
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _send_once(self, method: str, path: str, content: Open | None, **options: Any) -> tuple[int, bytes]:
        async with AsyncExitStack() as stack:
            if content is not None:
                options["content"] = stack.enter_context(content())
            response = await stack.enter_async_context(self.stream(method, path, **options))
            body = await read_bounded_body(response)
            if response.has_redirect_location:
                place = f"{self.url} leads on to {response.headers['location']}"
                raise ServiceProblem(response.status_code, place, remedy="give the address there as the service's own")
            if not response.is_success:
                raise parse_problem(response.status_code, response.reason_phrase, body)
            return (response.status_code, body)

    def stream(self, method: str, path: str, **options: Any) -> AbstractAsyncContextManager[httpx.Response]:
        """Yields the response before its body is read; for options and errors see `open_response`."""
        return open_response(self.url, self._http.stream(method, path, **options))


async def read_bounded_body(response: httpx.Response) -> bytes:
    """Returns the body.

    Raises ServiceProblem for one that is longer than MAX_ANSWER, ServiceUnreachable for one that takes longer than
    ANSWER_S.
    """
    body = bytearray()
    packed = _in_time(response.aiter_raw(), time.monotonic() + ANSWER_S)
    async for chunk in httpx.Response(response.status_code, headers=response.headers, content=packed).aiter_bytes(
        CHUNK
    ):
        body += chunk
        if len(body) > MAX_ANSWER:
            raise ServiceProblem(response.status_code, f"an answer of more than {MAX_ANSWER} bytes")
    return bytes(body)


async def _in_time(received: AsyncIterator[bytes], until: float) -> AsyncIterator[bytes]:
    """Yields each received chunk at once, also an empty one: compressed bytes may unpack to nothing."""
    async for part in received:
        if time.monotonic() > until:
            raise ServiceUnreachable(f"the service did not end its answer within {ANSWER_S:g} seconds")
        yield part


@asynccontextmanager
async def open_response(
    url: str, streamed: AbstractAsyncContextManager[httpx.Response]
) -> AsyncIterator[httpx.Response]:
    """Yields the response. Raises ServiceProblem for an error's status, Silence or ServiceUnreachable with the `url`
    for httpx's errors, those of reading the body included."""
    try:
        async with streamed as response:
            if response.is_error:
                raise parse_problem(response.status_code, response.reason_phrase, await read_bounded_body(response))
            yield response
    except httpx.ReadTimeout as error:
        raise Silence(url) from error
    except UntrustedCertificate as error:
        raise CertificateRefused(f"{url}: {error}") from error
    except (httpx.TransportError, httpx.DecodingError) as error:
        raise ServiceUnreachable(f"{url}: {error or type(error).__name__}") from error


async def _cut_chunks(data: bytes, start: int, on_sent: Callable[[int], object]) -> AsyncIterator[bytes]:
    """Yields the bytes from `start` on; `on_sent` receives the number of those before the next chunk."""
    for place in range(start, len(data), CHUNK):
        on_sent(place)
        yield data[place : place + CHUNK]
    on_sent(len(data))


async def parse_events(lines: AsyncIterable[str]) -> AsyncIterator[ServerSentEvent]:
    """Yields the events of the stream's lines; skips comments, which keep the connection open."""
    fields: dict[str, str] = {}
    async for line in lines:
        name, _, value = line.partition(":")
        if name:
            fields[name] = value.removeprefix(" ")
        elif not line:
            if "data" in fields:
                yield ServerSentEvent(int(fields["id"]), fields["event"], json.loads(fields["data"]))
            fields = {}


class AsyncRequesterClient:
    """`url` of the service; `token` is the requester's, needed for all requests that change something or cost
    bandwidth.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else None
        self._transport = AsyncServiceTransport(url, Patience(), headers)
        self.url = self._transport.url

    async def __aenter__(self) -> "AsyncRequesterClient":
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._transport.aclose()

    async def ready(self) -> Readiness:
        """Returns the state of each part that the service needs; raises ServiceProblem (503) if one is not ok."""
        return await self._fetch_answer(Readiness, "/v1/ready")

    async def chain(self) -> ChainFacts:
        return await self._fetch_answer(ChainFacts, "/v1/chain")

    async def submit(self, spec: Mapping[str, Any]) -> JobView:
        return await self._send_post(JobView, "/v1/jobs", spec)

    async def extend(self, job_id: str, rounds: int, budget: str | None = None) -> JobView:
        """Posts a job of more rounds that goes on from this one's end; `budget` as people write amounts."""
        asked = Extension(rounds=rounds, budget=budget).model_dump(exclude_none=True)
        return await self._send_post(JobView, f"{_build_job_path(job_id)}/extend", asked)

    async def job(self, job_id: str) -> JobView:
        return await self._fetch_answer(JobView, _build_job_path(job_id))

    async def publication(self, job_id: str) -> Publication:
        """Raises NotFound if the job has none yet, Refused if this version does not know all of its fields."""
        publication = (await self.job(job_id)).publication
        if publication is None:
            raise NotFound(f"job {job_id} is not published yet")
        if isinstance(publication, NewerPart):
            raise Refused(f"job {job_id} has fields that this version does not know: update gradmarket")
        return publication

    def jobs(self, state: str | None = None, tag: str | None = None) -> AsyncIterator[JobView]:
        asked = {"state": state, "tag": tag}
        return self._fetch_items(Page[JobView], "/v1/jobs", {name: value for name, value in asked.items() if value})

    def checkpoints(self, job_id: str) -> AsyncIterator[CheckpointView]:
        return self._fetch_items(Page[CheckpointView], f"{_build_job_path(job_id)}/checkpoints")

    async def label(self, job_id: str, tags: Sequence[str] | None = None, note: str | None = None) -> JobView:
        """Writes tags and a note on the job in place of those that stand there; None leaves them."""
        if isinstance(tags, str) or not (tags is None or isinstance(tags, Collection)):
            raise Refused(f"tags: give a list, such as [{str(tags)[:40]!r}]")
        wanted = {"tags": None if tags is None else list(tags), "note": note}
        return await self._transport.ask(JobView, "PATCH", _build_job_path(job_id), json=wanted)

    async def steer(self, job_id: str, action: str) -> JobView:
        """Changes the job's state; `action` is pause, resume or cancel."""
        return await self._send_post(JobView, f"{_build_job_path(job_id)}/{action}")

    async def fund(self, job_id: str, amount: Amount | None = None) -> Funded:
        """Raises the budget by `amount` of the token's smallest unit; `to_sign` are the transactions that the funds'
        owner must sign.
        """
        return await self._send_post(
            Funded, f"{_build_job_path(job_id)}/fund", {"amount": str(amount)} if amount else {}
        )

    async def stats(self, job_id: str) -> Stats:
        return await self._fetch_answer(Stats, f"{_build_job_path(job_id)}/stats")

    async def task(self, job_id: str, task_id: str) -> PublishedEvidence:
        """Returns all evidence for the verdicts on a task."""
        return await self._fetch_answer(PublishedEvidence, _build_task_path(job_id, task_id))

    def rounds(self, job_id: str) -> AsyncIterator[RoundView]:
        return self._fetch_items(Page[RoundView], f"{_build_job_path(job_id)}/rounds")

    def verdicts(self, job_id: str) -> AsyncIterator[VerdictView]:
        return self._fetch_items(Page[VerdictView], f"{_build_job_path(job_id)}/verdicts")

    def workers(self, job_id: str) -> AsyncIterator[JobWorkerView]:
        return self._fetch_items(Page[JobWorkerView], f"{_build_job_path(job_id)}/workers")

    def audits(self, job_id: str) -> AsyncIterator[AuditView]:
        return self._fetch_items(Page[AuditView], f"{_build_job_path(job_id)}/audits")

    async def trust(self, job_id: str) -> TrustView:
        """Returns how well the job's checks find wrong answers, by tasks whose right answers are known."""
        return await self._fetch_answer(TrustView, f"{_build_job_path(job_id)}/trust")

    async def ledger(self, job_id: str) -> LedgerView:
        """Returns every entry of the job's ledger, with the `books` of its first page."""
        path = f"{_build_job_path(job_id)}/ledger"
        first, *others = [each async for each in self._transport.pages(LedgerView, path, {"limit": LEDGER_PAGE})]
        items = [*first.items, *(item for page in others for item in page.items)]
        return first.model_copy(update={"items": items, "next": None})

    async def calibration(self, job_id: str) -> CalibrationView:
        """Returns the allowed deviations between two classes, and the trusted runs that they come from."""
        return await self._fetch_answer(CalibrationView, f"{_build_job_path(job_id)}/calibration")

    async def claim_audit(self, asked: AuditRequest) -> AuditWork | None:
        """Claims the next accepted task that a machine of this class is to audit, or to calibrate with."""
        return (
            await self._transport.ask(AuditAssignment, "POST", "/v1/audits/claim", json=asked.model_dump(mode="json"))
        ).work

    async def answer_audit(self, task: str, answer: AuditAnswer) -> bool:
        """Sends an audit's answer; returns whether the task must be run once more."""
        return await self._put_audit(f"/v1/audits/{quote(task, safe='')}", answer)

    async def bring_payload(self, task: str, payload: bytes) -> None:
        """Brings the auditor's own payload of a task whose answers were all wrong."""
        path = f"/v1/audits/payloads/{quote(task, safe='')}"
        await self._transport.put_bytes(path, blob_digest(payload), payload)

    async def answer_sketch(self, task: str, answer: SketchAnswer) -> bool:
        """Sends a calibration sketch; returns whether the task must be computed once more."""
        return await self._put_audit(f"/v1/audits/{quote(task, safe='')}/sketch", answer)

    async def seal_audit(self, task: str, seal: PanelSeal) -> None:
        """Sends an auditor's sealed answer to a panel."""
        await self._put_audit(f"/v1/audits/{quote(task, safe='')}/seal", seal)

    async def list_auditor_questions(self, signer: Address, wait_s: float) -> AuditorQuestions:
        """Returns a referee's questions to the auditor that signs with this key; waits up to `wait_s` for one."""
        asked = {"signer": signer, "wait_s": wait_s}
        return await self._transport.ask(AuditorQuestions, "GET", "/v1/audits/hearings", params=asked, waits=wait_s)

    async def answer_as_auditor(self, statement: AuditorStatement, body: bytes) -> HearingReceipt:
        """Answers a referee's question about an answer that an auditor opened to its panel; returns its receipt."""
        headers = {f"hearing-{name}": str(value) for name, value in statement.model_dump(mode="json").items()}
        headers["content-length"] = str(len(body))
        return await self._transport.ask(
            HearingReceipt, "POST", "/v1/audits/hearings", headers=headers, content=lambda: nullcontext(body)
        )

    async def open_audit(self, task: str, opening: PanelOpening) -> None:
        """Sends the opening of the auditor's seal, once all of the panel have sealed their answers."""
        await self._put_audit(f"/v1/audits/{quote(task, safe='')}/opening", opening)

    async def plant_answer(self, task: str, answer: AuditAnswer) -> None:
        """Sends the answer to a task that nobody has answered yet."""
        await self._put_audit(f"/v1/audits/{quote(task, safe='')}/planted", answer)

    async def _put_audit(self, path: str, message: BaseModel) -> bool:
        return (await self._transport.ask(AuditReceipt, "PUT", path, json=message.model_dump(mode="json"))).again

    async def upload(self, data: bytes, on_sent: Callable[[int], object] = note_nothing) -> str:
        """Uploads a blob unless the service has it; returns its digest.

        `on_sent` receives the number of bytes that are sent, as they go, and at the end all of them.
        """
        digest = blob_digest(data)
        missing = False
        try:
            await self._transport.send("HEAD", f"/v1/blobs/{digest}", tries=self._transport.tries)
        except ServiceProblem:
            missing = True
        if missing:
            await self._transport.put_bytes(f"/v1/blobs/{digest}", digest, data, on_sent=on_sent)
        else:
            on_sent(len(data))
        return digest

    async def upload_unserved(self, data: bytes, on_sent: Callable[[int], object] = note_nothing) -> str:
        """Uploads rows that only jobs of the same token measure on and that are never served; returns their digest.

        `on_sent`: as of `upload`.
        """
        digest = blob_digest(data)
        await self._transport.put_bytes(f"/v1/blobs/{digest}?unserved=true", digest, data, on_sent=on_sent)
        return digest

    async def blob(self, digest: str) -> bytes:
        """Returns a blob; raises Damaged if its bytes have another digest."""
        async with self._open_stream(f"/v1/blobs/{digest}", {}) as (response, _):
            data = await response.aread()
        if digest != blob_digest(data):
            raise Damaged(f"the service sent other bytes than those of {digest}")
        return data

    async def watch(self, job_id: str, after: int = 0, silence_s: float = 2.0) -> AsyncIterator[ServerSentEvent | None]:
        """Yields the job's events as they happen, until it ends; None after each `silence_s` seconds without one."""
        while True:
            try:
                async for event in self._stream_events(job_id, after, silence_s):
                    after = event.id
                    yield event
                return
            except Silence:
                yield None

    async def download(self, job_id: str, path: Path, after_round: int | None = None) -> str:
        """Writes the parameters (safetensors) to `path` and returns their digest; raises Damaged, leaving no file."""
        parameters = {} if after_round is None else {"round": str(after_round)}
        part = path.with_name(path.name + ".part")
        try:
            digest = await self._download_to_file(f"{_build_job_path(job_id)}/parameters", parameters, part)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        return digest

    async def _download_to_file(self, path: str, asked: Mapping[str, str], target: Path) -> str:
        hashed = blake3()
        async with self._open_stream(path, asked) as (response, etag):
            with target.open("wb") as file:
                async for chunk in response.aiter_bytes(CHUNK):
                    hashed.update(chunk)
                    file.write(chunk)
        digest, expected = (digest_text(hashed), etag.strip('"'))
        if digest != expected:
            raise Damaged(f"the service announced {expected or 'no digest'}, the bytes have {digest}")
        return digest

    @asynccontextmanager
    async def _open_stream(self, path: str, asked: Mapping[str, str]) -> AsyncIterator[tuple[httpx.Response, str]]:
        """Yields the response, after at most one redirect, and the entity tag that the service itself gives.

        The token is not sent to another server.
        """
        async with self._transport.stream("GET", path, params=asked) as response:
            etag = response.headers.get("etag", "")
            if not response.has_redirect_location:
                yield (response, etag)
                return
            elsewhere = str(response.next_request.url) if response.next_request else ""
        async with (
            httpx.AsyncClient(trust_env=False, transport=AsyncClockedTransport(), timeout=build_timeout()) as http,
            open_response(self.url, http.stream("GET", elsewhere)) as other,
        ):
            yield (other, etag)

    async def create_token(self, name: str, role: Role, expires_in_s: int | None) -> CreatedToken:
        """Creates an API token; `token` is its secret, shown only this once."""
        asked = NewToken(name=name, role=role, expires_in_s=expires_in_s)
        return await self._transport.ask(CreatedToken, "POST", "/v1/tokens", json=asked.model_dump(mode="json"))

    def tokens(self) -> AsyncIterator[TokenView]:
        return self._fetch_items(Page[TokenView], "/v1/tokens")

    async def revoke_token(self, name: str) -> None:
        await self._transport.send("DELETE", _build_token_path(name))

    async def limit_spending(self, name: str, a_day: str | None) -> SpendingView:
        """Limits the spending of the token of this name in any 24 hours, such as "10 GRAD"; None removes the limit."""
        return await self._transport.ask(
            SpendingView, "PUT", f"{_build_token_path(name)}/spending", json={"a_day": a_day}
        )

    async def spending(self, name: str) -> SpendingView:
        """Returns the spending limit of the token of this name in any 24 hours, and the remainder."""
        return await self._fetch_answer(SpendingView, f"{_build_token_path(name)}/spending")

    async def prices(self) -> PriceGuide:
        """Returns the prices that other jobs pay per GFLOP, and those that workers took."""
        return await self._fetch_answer(PriceGuide, "/v1/prices")

    async def create_webhook(self, url: str, happenings: Sequence[str] = USUAL) -> CreatedWebhook:
        """Posts events of the token's jobs to `url`; `secret` signs them and is shown only this once."""
        asked = {"url": url, "happenings": list(happenings)}
        return await self._transport.ask(CreatedWebhook, "POST", "/v1/webhooks", json=asked)

    def webhooks(self) -> AsyncIterator[WebhookView]:
        return self._fetch_items(Page[WebhookView], "/v1/webhooks")

    async def ping_webhook(self, webhook_id: str) -> WebhookView:
        """Posts a webhook of the type `ping` as a test."""
        return await self._transport.ask(WebhookView, "POST", f"{_build_webhook_path(webhook_id)}/ping")

    async def delete_webhook(self, webhook_id: str) -> None:
        await self._transport.send("DELETE", _build_webhook_path(webhook_id))

    async def _stream_events(self, job_id: str, after: int, silence_s: float) -> AsyncIterator[ServerSentEvent]:
        waits = httpx.Timeout(silence_s, connect=CONNECT_S)
        headers = {"Last-Event-ID": str(after)}
        async with self._transport.stream(
            "GET", f"{_build_job_path(job_id)}/events", headers=headers, timeout=waits
        ) as response:
            async for each in parse_events(response.aiter_lines()):
                yield each

    async def _fetch_items(
        self, kind: type[Page[Item]], path: str, asked: Mapping[str, str] | None = None
    ) -> AsyncIterator[Item]:
        async for page in self._transport.pages(kind, path, asked or {}):
            for each in page.items:
                yield each

    async def _fetch_answer(self, kind: type[Answer], path: str) -> Answer:
        return await self._transport.ask(kind, "GET", path)

    async def _send_post(self, kind: type[Answer], path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """Sends a POST with an idempotency key, so that a retry after a broken connection has no second effect."""
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        return await self._transport.ask(kind, "POST", path, json=body, headers=headers, tries=2)
