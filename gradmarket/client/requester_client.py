"""The requester's client of the API: post a job, follow it, control it, download its parameters.

Every method raises ServiceProblem if the service refuses, and ServiceUnreachable if it does not answer.
"""

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx
from blake3 import blake3
from pydantic import BaseModel

from gradmarket.client.client_errors import Damaged, ServiceProblem, Silence
from gradmarket.client.transport import (
    CHUNK,
    CONNECT_S,
    Answer,
    Patience,
    ServerSentEvent,
    ServiceTransport,
    build_item_path,
    build_timeout,
    note_nothing,
    open_response,
    parse_events,
)
from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.job import Publication
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
from gradmarket.market.wire.hearing_messages import AuditorQuestions, AuditorStatement, HearingReceipt
from gradmarket.market.wire.sign_in import ChainFacts
from gradmarket.network.clocked import ClockedTransport

LEDGER_PAGE: Final = 1000

Item = TypeVar("Item")


class RequesterClient:
    """`url` of the service; `token` is the requester's, needed for all requests that change something or cost
    bandwidth.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else None
        self._transport = ServiceTransport(url, Patience(), headers)
        self.url = self._transport.url

    def __enter__(self) -> "RequesterClient":
        return self

    def __exit__(self, *_exception: object) -> None:
        self._transport.close()

    def ready(self) -> Readiness:
        """Returns the state of each part that the service needs; raises ServiceProblem (503) if one is not ok."""
        return self._fetch_answer(Readiness, "/v1/ready")

    def chain(self) -> ChainFacts:
        return self._fetch_answer(ChainFacts, "/v1/chain")

    def submit(self, spec: Mapping[str, Any]) -> JobView:
        return self._send_post(JobView, "/v1/jobs", spec)

    def extend(self, job_id: str, rounds: int, budget: str | None = None) -> JobView:
        """Posts a job of more rounds that goes on from this one's end; `budget` as people write amounts."""
        asked = Extension(rounds=rounds, budget=budget).model_dump(exclude_none=True)
        return self._send_post(JobView, f"{_build_job_path(job_id)}/extend", asked)

    def job(self, job_id: str) -> JobView:
        return self._fetch_answer(JobView, _build_job_path(job_id))

    def publication(self, job_id: str) -> Publication:
        """Raises NotFound if the job has none yet, Refused if this version does not know all of its fields."""
        publication = self.job(job_id).publication
        if publication is None:
            raise NotFound(f"job {job_id} is not published yet")
        if isinstance(publication, NewerPart):
            raise Refused(f"job {job_id} has fields that this version does not know: update gradmarket")
        return publication

    def jobs(self, state: str | None = None, tag: str | None = None) -> Iterator[JobView]:
        asked = {"state": state, "tag": tag}
        return self._fetch_items(Page[JobView], "/v1/jobs", {name: value for name, value in asked.items() if value})

    def checkpoints(self, job_id: str) -> Iterator[CheckpointView]:
        return self._fetch_items(Page[CheckpointView], f"{_build_job_path(job_id)}/checkpoints")

    def label(self, job_id: str, tags: Sequence[str] | None = None, note: str | None = None) -> JobView:
        """Writes tags and a note on the job in place of those that stand there; None leaves them."""
        if isinstance(tags, str) or not (tags is None or isinstance(tags, Collection)):
            raise Refused(f"tags: give a list, such as [{str(tags)[:40]!r}]")
        wanted = {"tags": None if tags is None else list(tags), "note": note}
        return self._transport.ask(JobView, "PATCH", _build_job_path(job_id), json=wanted)

    def steer(self, job_id: str, action: str) -> JobView:
        """Changes the job's state; `action` is pause, resume or cancel."""
        return self._send_post(JobView, f"{_build_job_path(job_id)}/{action}")

    def fund(self, job_id: str, amount: Amount | None = None) -> Funded:
        """Raises the budget by `amount` of the token's smallest unit; `to_sign` are the transactions that the funds'
        owner must sign.
        """
        return self._send_post(Funded, f"{_build_job_path(job_id)}/fund", {"amount": str(amount)} if amount else {})

    def stats(self, job_id: str) -> Stats:
        return self._fetch_answer(Stats, f"{_build_job_path(job_id)}/stats")

    def task(self, job_id: str, task_id: str) -> PublishedEvidence:
        """Returns all evidence for the verdicts on a task."""
        return self._fetch_answer(PublishedEvidence, _build_task_path(job_id, task_id))

    def rounds(self, job_id: str) -> Iterator[RoundView]:
        return self._fetch_items(Page[RoundView], f"{_build_job_path(job_id)}/rounds")

    def verdicts(self, job_id: str) -> Iterator[VerdictView]:
        return self._fetch_items(Page[VerdictView], f"{_build_job_path(job_id)}/verdicts")

    def workers(self, job_id: str) -> Iterator[JobWorkerView]:
        return self._fetch_items(Page[JobWorkerView], f"{_build_job_path(job_id)}/workers")

    def audits(self, job_id: str) -> Iterator[AuditView]:
        return self._fetch_items(Page[AuditView], f"{_build_job_path(job_id)}/audits")

    def trust(self, job_id: str) -> TrustView:
        """Returns how well the job's checks find wrong answers, by tasks whose right answers are known."""
        return self._fetch_answer(TrustView, f"{_build_job_path(job_id)}/trust")

    def ledger(self, job_id: str) -> LedgerView:
        """Returns every entry of the job's ledger, with the `books` of its first page."""
        path = f"{_build_job_path(job_id)}/ledger"
        first, *others = list(self._transport.pages(LedgerView, path, {"limit": LEDGER_PAGE}))
        items = [*first.items, *(item for page in others for item in page.items)]
        return first.model_copy(update={"items": items, "next": None})

    def calibration(self, job_id: str) -> CalibrationView:
        """Returns the allowed deviations between two classes, and the trusted runs that they come from."""
        return self._fetch_answer(CalibrationView, f"{_build_job_path(job_id)}/calibration")

    def claim_audit(self, asked: AuditRequest) -> AuditWork | None:
        """Claims the next accepted task that a machine of this class is to audit, or to calibrate with."""
        return self._transport.ask(AuditAssignment, "POST", "/v1/audits/claim", json=asked.model_dump(mode="json")).work

    def answer_audit(self, task: str, answer: AuditAnswer) -> bool:
        """Sends an audit's answer; returns whether the task must be run once more."""
        return self._put_audit(f"/v1/audits/{quote(task, safe='')}", answer)

    def bring_payload(self, task: str, payload: bytes) -> None:
        """Brings the auditor's own payload of a task whose answers were all wrong."""
        path = f"/v1/audits/payloads/{quote(task, safe='')}"
        self._transport.put_bytes(path, blob_digest(payload), payload)

    def answer_sketch(self, task: str, answer: SketchAnswer) -> bool:
        """Sends a calibration sketch; returns whether the task must be computed once more."""
        return self._put_audit(f"/v1/audits/{quote(task, safe='')}/sketch", answer)

    def seal_audit(self, task: str, seal: PanelSeal) -> None:
        """Sends an auditor's sealed answer to a panel."""
        self._put_audit(f"/v1/audits/{quote(task, safe='')}/seal", seal)

    def list_auditor_questions(self, signer: Address, wait_s: float) -> AuditorQuestions:
        """Returns a referee's questions to the auditor that signs with this key; waits up to `wait_s` for one."""
        asked = {"signer": signer, "wait_s": wait_s}
        return self._transport.ask(AuditorQuestions, "GET", "/v1/audits/hearings", params=asked, waits=wait_s)

    def answer_as_auditor(self, statement: AuditorStatement, body: bytes) -> HearingReceipt:
        """Answers a referee's question about an answer that an auditor opened to its panel; returns its receipt."""
        headers = {f"hearing-{name}": str(value) for name, value in statement.model_dump(mode="json").items()}
        headers["content-length"] = str(len(body))
        return self._transport.ask(
            HearingReceipt, "POST", "/v1/audits/hearings", headers=headers, content=lambda: nullcontext(body)
        )

    def open_audit(self, task: str, opening: PanelOpening) -> None:
        """Sends the opening of the auditor's seal, once all of the panel have sealed their answers."""
        self._put_audit(f"/v1/audits/{quote(task, safe='')}/opening", opening)

    def plant_answer(self, task: str, answer: AuditAnswer) -> None:
        """Sends the answer to a task that nobody has answered yet."""
        self._put_audit(f"/v1/audits/{quote(task, safe='')}/planted", answer)

    def _put_audit(self, path: str, message: BaseModel) -> bool:
        return self._transport.ask(AuditReceipt, "PUT", path, json=message.model_dump(mode="json")).again

    def upload(self, data: bytes, on_sent: Callable[[int], object] = note_nothing) -> str:
        """Uploads a blob unless the service has it; returns its digest.

        `on_sent` receives the number of bytes that are sent, as they go, and at the end all of them.
        """
        digest = blob_digest(data)
        missing = False
        try:
            self._transport.send("HEAD", f"/v1/blobs/{digest}", tries=self._transport.tries)
        except ServiceProblem:
            missing = True  # or a refusal without a body: the answer to PUT has one
        if missing:
            self._transport.put_bytes(f"/v1/blobs/{digest}", digest, data, on_sent=on_sent)
        else:
            on_sent(len(data))
        return digest

    def upload_unserved(self, data: bytes, on_sent: Callable[[int], object] = note_nothing) -> str:
        """Uploads rows that only jobs of the same token measure on and that are never served; returns their digest.

        `on_sent`: as of `upload`.
        """
        digest = blob_digest(data)
        self._transport.put_bytes(f"/v1/blobs/{digest}?unserved=true", digest, data, on_sent=on_sent)
        return digest

    def blob(self, digest: str) -> bytes:
        """Returns a blob; raises Damaged if its bytes have another digest."""
        with self._open_stream(f"/v1/blobs/{digest}", {}) as (response, _):
            data = response.read()
        if digest != blob_digest(data):
            raise Damaged(f"the service sent other bytes than those of {digest}")
        return data

    def watch(self, job_id: str, after: int = 0, silence_s: float = 2.0) -> Iterator[ServerSentEvent | None]:
        """Yields the job's events as they happen, until it ends; None after each `silence_s` seconds without one."""
        while True:
            try:
                for event in self._stream_events(job_id, after, silence_s):
                    after = event.id
                    yield event
                return
            except Silence:
                yield None

    def download(self, job_id: str, path: Path, after_round: int | None = None) -> str:
        """Writes the parameters (safetensors) to `path` and returns their digest; raises Damaged, leaving no file."""
        parameters = {} if after_round is None else {"round": str(after_round)}
        part = path.with_name(path.name + ".part")
        try:
            digest = self._download_to_file(f"{_build_job_path(job_id)}/parameters", parameters, part)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        return digest

    def _download_to_file(self, path: str, asked: Mapping[str, str], target: Path) -> str:
        hashed = blake3()
        with self._open_stream(path, asked) as (response, etag), target.open("wb") as file:
            for chunk in response.iter_bytes(CHUNK):
                hashed.update(chunk)
                file.write(chunk)
        digest, expected = digest_text(hashed), etag.strip('"')
        if digest != expected:
            raise Damaged(f"the service announced {expected or 'no digest'}, the bytes have {digest}")
        return digest

    @contextmanager
    def _open_stream(self, path: str, asked: Mapping[str, str]) -> Iterator[tuple[httpx.Response, str]]:
        """Yields the response, after at most one redirect, and the entity tag that the service itself gives.

        The token is not sent to another server.
        """
        with self._transport.stream("GET", path, params=asked) as response:
            etag = response.headers.get("etag", "")
            if not response.has_redirect_location:
                yield response, etag
                return
            elsewhere = str(response.next_request.url) if response.next_request else ""
        with (
            httpx.Client(trust_env=False, transport=ClockedTransport(), timeout=build_timeout()) as http,
            open_response(self.url, http.stream("GET", elsewhere)) as other,
        ):
            yield other, etag

    def create_token(self, name: str, role: Role, expires_in_s: int | None) -> CreatedToken:
        """Creates an API token; `token` is its secret, shown only this once."""
        asked = NewToken(name=name, role=role, expires_in_s=expires_in_s)
        return self._transport.ask(CreatedToken, "POST", "/v1/tokens", json=asked.model_dump(mode="json"))

    def tokens(self) -> Iterator[TokenView]:
        return self._fetch_items(Page[TokenView], "/v1/tokens")

    def revoke_token(self, name: str) -> None:
        self._transport.send("DELETE", _build_token_path(name))

    def limit_spending(self, name: str, a_day: str | None) -> SpendingView:
        """Limits the spending of the token of this name in any 24 hours, such as "10 GRAD"; None removes the limit."""
        return self._transport.ask(SpendingView, "PUT", f"{_build_token_path(name)}/spending", json={"a_day": a_day})

    def spending(self, name: str) -> SpendingView:
        """Returns the spending limit of the token of this name in any 24 hours, and the remainder."""
        return self._fetch_answer(SpendingView, f"{_build_token_path(name)}/spending")

    def prices(self) -> PriceGuide:
        """Returns the prices that other jobs pay per GFLOP, and those that workers took."""
        return self._fetch_answer(PriceGuide, "/v1/prices")

    def create_webhook(self, url: str, happenings: Sequence[str] = USUAL) -> CreatedWebhook:
        """Posts events of the token's jobs to `url`; `secret` signs them and is shown only this once."""
        asked = {"url": url, "happenings": list(happenings)}
        return self._transport.ask(CreatedWebhook, "POST", "/v1/webhooks", json=asked)

    def webhooks(self) -> Iterator[WebhookView]:
        return self._fetch_items(Page[WebhookView], "/v1/webhooks")

    def ping_webhook(self, webhook_id: str) -> WebhookView:
        """Posts a webhook of the type `ping` as a test."""
        return self._transport.ask(WebhookView, "POST", f"{_build_webhook_path(webhook_id)}/ping")

    def delete_webhook(self, webhook_id: str) -> None:
        self._transport.send("DELETE", _build_webhook_path(webhook_id))

    def _stream_events(self, job_id: str, after: int, silence_s: float) -> Iterator[ServerSentEvent]:
        waits = httpx.Timeout(silence_s, connect=CONNECT_S)
        headers = {"Last-Event-ID": str(after)}
        with self._transport.stream(
            "GET", f"{_build_job_path(job_id)}/events", headers=headers, timeout=waits
        ) as response:
            yield from parse_events(response.iter_lines())

    def _fetch_items(self, kind: type[Page[Item]], path: str, asked: Mapping[str, str] | None = None) -> Iterator[Item]:
        for page in self._transport.pages(kind, path, asked or {}):
            yield from page.items

    def _fetch_answer(self, kind: type[Answer], path: str) -> Answer:
        return self._transport.ask(kind, "GET", path)

    def _send_post(self, kind: type[Answer], path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """Sends a POST with an idempotency key, so that a retry after a broken connection has no second effect."""
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        return self._transport.ask(kind, "POST", path, json=body, headers=headers, tries=2)


def _build_token_path(name: str) -> str:
    return build_item_path("/v1/tokens", name, "a token's name", "`gradmarket token list` lists them")


def _build_webhook_path(webhook_id: str) -> str:
    return build_item_path("/v1/webhooks", webhook_id, "a webhook's id", "`gradmarket webhook list` has them")


def _build_job_path(job_id: str) -> str:
    return build_item_path("/v1/jobs", job_id, "a job's id", "give job.id; `gradmarket job list` lists them")


def _build_task_path(job_id: str, task_id: str) -> str:
    return build_item_path(f"{_build_job_path(job_id)}/tasks", task_id, "a task's id", "its verdict names it")
