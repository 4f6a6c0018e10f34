"""The requester's side of the API: post a job, follow it, steer it, take the parameters home.

Every method raises Problem where the service refuses and Unreachable where it does not answer.
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
    """`url` of the service; `token` is its requester's, needed for all that changes something or costs bandwidth."""

    def __init__(self, url: str, token: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.url = url.rstrip("/")
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=TIMEOUT)

    def __enter__(self) -> "RequesterClient":
        return self

    def __exit__(self, *_exception: object) -> None:
        self._http.close()

    def ready(self) -> Json:
        """What the service needs, each `ok` or in trouble; raises Problem (503) where something is missing."""
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
        """`action` is pause, resume or cancel."""
        return self._post(f"/v1/jobs/{job_id}/{action}")

    def fund(self, job_id: str, amount: str | None = None) -> Json:
        """Raises the budget by `amount` of the token's smallest unit; `to_sign` is what the funds' owner is to sign."""
        return self._post(f"/v1/jobs/{job_id}/fund", {"amount": amount} if amount else {})

    def stats(self, job_id: str) -> Json:
        return self._get(f"/v1/jobs/{job_id}/stats")

    def task(self, job_id: str, task_id: str) -> Json:
        """All that the verdicts on a task rest on."""
        return self._get(f"/v1/jobs/{job_id}/tasks/{task_id}")

    def listed(self, job_id: str, kind: str) -> Iterator[Json]:
        """`kind` is rounds, tasks, verdicts, workers, payments or audits."""
        return self._pages(f"/v1/jobs/{job_id}/{kind}", {})

    def ledger(self, job_id: str) -> Json:
        """Every entry of the job's ledger, with the books of its first page."""
        whole = self._get(f"/v1/jobs/{job_id}/ledger", {"limit": LEDGER_PAGE})
        cursor = whole["next"]
        while cursor is not None:
            page = self._get(f"/v1/jobs/{job_id}/ledger", {"limit": LEDGER_PAGE, "cursor": cursor})
            whole["items"] += page["items"]
            cursor = page["next"]
        return {name: value for name, value in whole.items() if name != "next"}

    def calibration(self, job_id: str) -> Json:
        """How far honest answers of two classes may deviate, and the trusted runs that say so."""
        return self._get(f"/v1/jobs/{job_id}/calibration")

    def claim_audit(self, asked: AuditRequest) -> AuditWork | None:
        """The next accepted task that a machine of this class is to run again, or is to calibrate with."""
        told = self._answer("POST", "/v1/audits/claim", json=asked.model_dump(mode="json"))
        return AuditAssignment.model_validate(told).work

    def answer_audit(self, task: str, said: AuditAnswer) -> bool:
        """Whether the task is to be run once more."""
        told = self._answer("PUT", f"/v1/audits/{task}", json=said.model_dump(mode="json"))
        return AuditReceipt.model_validate(told).again

    def answer_sketch(self, task: str, said: SketchAnswer) -> bool:
        """Whether the task is to be computed once more."""
        told = self._answer("PUT", f"/v1/audits/{task}/sketch", json=said.model_dump(mode="json"))
        return AuditReceipt.model_validate(told).again

    def upload(self, data: bytes) -> str:
        """Puts a blob there, unless it is there; its digest."""
        digest = f"blake3:{blake3(data).hexdigest()}"
        with _answering(self.url):
            there = self._http.head(f"/v1/blobs/{digest}")
            if there.status_code == httpx.codes.NOT_FOUND:
                there = self._http.put(f"/v1/blobs/{digest}", content=data, timeout=UPLOAD)
        _check(there)
        return digest

    def blob(self, digest: str) -> bytes:
        """A blob that lies there; raises Damaged where the bytes have another digest."""
        with _answering(self.url), self._stream(f"/v1/blobs/{digest}", {}) as (response, _):
            data = response.read()
        if digest != f"blake3:{blake3(data).hexdigest()}":
            raise Damaged(f"the service sent other bytes than those of {digest}")
        return data

    def watch(self, job_id: str, after: int = 0, silence_s: float = 2.0) -> Iterator[ServerSentEvent | None]:
        """The job's events as they happen, until it has ended; None after each `silence_s` without one."""
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
        asked = {} if after_round is None else {"round": str(after_round)}
        part = path.with_name(path.name + ".part")
        try:
            digest = self._save(f"/v1/jobs/{job_id}/parameters", asked, part)
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
        digest, told = f"blake3:{hashed.hexdigest()}", etag.strip('"')
        if digest != told:
            raise Damaged(f"the service says {told or 'no digest'}, the bytes have {digest}")
        return digest

    @contextmanager
    def _stream(self, path: str, asked: Mapping[str, str]) -> Iterator[tuple[httpx.Response, str]]:
        """The bytes, from wherever the service says, and the tag that the service itself gives them.

        Who serves them elsewhere is not sent the token.
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
        """A new API token; `token` is its secret, told this once."""
        asked = {"name": name, "role": role, "expires_in_s": expires_in_s}
        return self._answer("POST", "/v1/tokens", json=asked)

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
        """Under a key of its own, so that asking again after a broken connection does nothing twice."""
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
