"""The requester's client of the API: post a job, follow it, control it, download its parameters.

Every method raises ServiceProblem if the service refuses, and ServiceUnreachable if it does not answer.
"""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
from blake3 import blake3

from gradmarket.events import ServerSentEvent, read
from gradmarket.market.audit_wire import (
    AuditAnswer,
    AuditAssignment,
    AuditReceipt,
    AuditRequest,
    AuditWork,
    SketchAnswer,
)
from gradmarket.problems import Damaged, ServiceUnreachable, Silence, problem

Json = dict[str, Any]
CONNECT_S: Final = 5.0
TIMEOUT: Final = httpx.Timeout(30.0, connect=CONNECT_S)
UPLOAD: Final = httpx.Timeout(600.0, connect=CONNECT_S)
CHUNK: Final = 1 << 20
LEDGER_PAGE: Final = "1000"


class RequesterClient:
    """`url` of the service; `token` is the requester's, needed for all that changes something or costs bandwidth."""

    def __init__(self, url: str, token: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.url = url.rstrip("/")
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=TIMEOUT)

    def __enter__(self) -> "RequesterClient":
        return self

    def __exit__(self, *_exception: object) -> None:
        self._http.close()

    def ready(self) -> Json:
        """Returns the state of each part that the service needs; raises ServiceProblem (503) if one is not ok."""
        return self._get("/v1/ready")

    def chain(self) -> Json:
        return self._get("/v1/chain")

    def submit(self, spec: Mapping[str, Any]) -> Json:
        return self._post("/v1/jobs", spec)

    def job(self, job_id: str) -> Json:
        return self._get(f"/v1/jobs/{job_id}")

    def jobs(self, state: str | None = None) -> Iterator[Json]:
        return self._pages("/v1/jobs", {"state": state} if state else {})

    def steer(self, job_id: str, action: str) -> Json:
        """Changes the job's state; `action` is pause, resume or cancel."""
        return self._post(f"/v1/jobs/{job_id}/{action}")

    def fund(self, job_id: str, amount: str | None = None) -> Json:
        """Raises the budget by `amount` of the token's smallest unit; `to_sign` is what the funds' owner must sign."""
        return self._post(f"/v1/jobs/{job_id}/fund", {"amount": amount} if amount else {})

    def stats(self, job_id: str) -> Json:
        return self._get(f"/v1/jobs/{job_id}/stats")

    def task(self, job_id: str, task_id: str) -> Json:
        """Returns all evidence for the verdicts on a task."""
        return self._get(f"/v1/jobs/{job_id}/tasks/{task_id}")

    def listed(self, job_id: str, kind: str) -> Iterator[Json]:
        """Yields a job's items; `kind` is rounds, tasks, verdicts, workers, payments or audits."""
        return self._pages(f"/v1/jobs/{job_id}/{kind}", {})

    def ledger(self, job_id: str) -> Json:
        """Returns every entry of the job's ledger, with the `books` of its first page."""
        whole = self._get(f"/v1/jobs/{job_id}/ledger", {"limit": LEDGER_PAGE})
        cursor = whole["next"]
        while cursor is not None:
            page = self._get(f"/v1/jobs/{job_id}/ledger", {"limit": LEDGER_PAGE, "cursor": cursor})
            whole["items"] += page["items"]
            cursor = page["next"]
        return {name: value for name, value in whole.items() if name != "next"}

    def calibration(self, job_id: str) -> Json:
        """Returns the allowed deviations between two classes, and the trusted runs that they come from."""
        return self._get(f"/v1/jobs/{job_id}/calibration")

    def claim_audit(self, asked: AuditRequest) -> AuditWork | None:
        """Claims the next accepted task that a machine of this class is to audit, or to calibrate with."""
        response = self._answer("POST", "/v1/audits/claim", json=asked.model_dump(mode="json"))
        return AuditAssignment.model_validate(response).work

    def answer_audit(self, task: str, said: AuditAnswer) -> bool:
        """Sends an audit's answer; returns whether the task must be run once more."""
        response = self._answer("PUT", f"/v1/audits/{task}", json=said.model_dump(mode="json"))
        return AuditReceipt.model_validate(response).again

    def answer_sketch(self, task: str, said: SketchAnswer) -> bool:
        """Sends a calibration sketch; returns whether the task must be computed once more."""
        response = self._answer("PUT", f"/v1/audits/{task}/sketch", json=said.model_dump(mode="json"))
        return AuditReceipt.model_validate(response).again

    def upload(self, data: bytes) -> str:
        """Uploads a blob unless the service has it; returns its digest."""
        digest = f"blake3:{blake3(data).hexdigest()}"
        with _answering(self.url):
            response = self._http.head(f"/v1/blobs/{digest}")
            if response.status_code == httpx.codes.NOT_FOUND:
                response = self._http.put(f"/v1/blobs/{digest}", content=data, timeout=UPLOAD)
        _check(response)
        return digest

    def blob(self, digest: str) -> bytes:
        """Returns a blob; raises Damaged if its bytes have another digest."""
        with _answering(self.url), self._stream(f"/v1/blobs/{digest}", {}) as (response, _):
            data = response.read()
        if digest != f"blake3:{blake3(data).hexdigest()}":
            raise Damaged(f"the service sent other bytes than those of {digest}")
        return data

    def watch(self, job_id: str, after: int = 0, silence_s: float = 2.0) -> Iterator[ServerSentEvent | None]:
        """Yields the job's events as they happen, until it ends; None after each `silence_s` seconds without one."""
        while True:
            try:
                for event in self._events(job_id, after, silence_s):
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
            digest = self._save(f"/v1/jobs/{job_id}/parameters", parameters, part)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        return digest

    def _save(self, path: str, asked: Mapping[str, str], target: Path) -> str:
        hashed = blake3()
        with _answering(self.url), self._stream(path, asked) as (response, etag), target.open("wb") as file:
            for chunk in response.iter_bytes(CHUNK):
                hashed.update(chunk)
                file.write(chunk)
        digest, expected = f"blake3:{hashed.hexdigest()}", etag.strip('"')
        if digest != expected:
            raise Damaged(f"the service says {expected or 'no digest'}, the bytes have {digest}")
        return digest

    @contextmanager
    def _stream(self, path: str, asked: Mapping[str, str]) -> Iterator[tuple[httpx.Response, str]]:
        """Yields the response, after at most one redirect, and the entity tag that the service itself gives.

        The token is not sent to another server.
        """
        with self._http.stream("GET", path, params=asked) as response:
            etag = response.headers.get("etag", "")
            if not response.has_redirect_location:
                _check(response)
                yield response, etag
                return
        with httpx.stream("GET", response.headers["location"], timeout=TIMEOUT) as elsewhere:
            _check(elsewhere)
            yield elsewhere, etag

    def create_token(self, name: str, role: str, expires_in_s: int | None) -> Json:
        """Creates an API token; `token` is its secret, shown only this once."""
        fields = {"name": name, "role": role, "expires_in_s": expires_in_s}
        return self._answer("POST", "/v1/tokens", json=fields)

    def tokens(self) -> Iterator[Json]:
        return self._pages("/v1/tokens", {})

    def revoke_token(self, name: str) -> None:
        with _answering(self.url):
            response = self._http.delete(f"/v1/tokens/{name}")
        _check(response)

    def _events(self, job_id: str, after: int, silence_s: float) -> Iterator[ServerSentEvent]:
        timeout = httpx.Timeout(silence_s, connect=CONNECT_S)
        headers = {"Last-Event-ID": str(after)}
        path = f"/v1/jobs/{job_id}/events"
        with _answering(self.url), self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
            _check(response)
            yield from read(response.iter_lines())

    def _pages(self, path: str, asked: Mapping[str, str]) -> Iterator[Json]:
        cursor: str | None = None
        while True:
            page = self._get(path, {**asked, **({"cursor": cursor} if cursor else {})})
            yield from page["items"]
            cursor = page["next"]
            if cursor is None:
                return

    def _get(self, path: str, asked: Mapping[str, str] | None = None) -> Json:
        return self._answer("GET", path, params=asked or {})

    def _post(self, path: str, body: Mapping[str, Any] | None = None) -> Json:
        """Sends a POST with an idempotency key, so that a retry after a broken connection has no second effect."""
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        try:
            return self._answer("POST", path, json=body, headers=headers)
        except ServiceUnreachable:
            return self._answer("POST", path, json=body, headers=headers)

    def _answer(self, method: str, path: str, **request: Any) -> Json:
        with _answering(self.url):
            response = self._http.request(method, path, **request)
        _check(response)
        answer: Json = response.json()
        return answer


@contextmanager
def _answering(url: str) -> Iterator[None]:
    try:
        yield
    except httpx.ReadTimeout as error:
        raise Silence(url) from error
    except httpx.TransportError as error:
        raise ServiceUnreachable(f"{url}: {error or type(error).__name__}") from error


def _check(response: httpx.Response) -> None:
    if response.is_error:
        response.read()
        raise problem(response)
