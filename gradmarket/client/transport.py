"""HTTP requests to a market's service: bounded and typed answers, retries, timeouts, and errors in sentences.

A newer service may answer with more fields than this version knows: they are ignored.
"""

import json
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from gradmarket.client.client_errors import (
    CertificateRefused,
    CutOff,
    ServiceProblem,
    ServiceUnreachable,
    Silence,
    parse_problem,
)
from gradmarket.market.errors import Refused
from gradmarket.market.fields import first_fault
from gradmarket.market.release import HEADER
from gradmarket.market.views.payment_views import LedgerView
from gradmarket.market.views.service_views import Page
from gradmarket.market.wire import Wire
from gradmarket.market.wire.evidence import PublishedView
from gradmarket.market.wire.framing import PIECE, UPLOAD_OFFSET, ReceivedBytes
from gradmarket.market.wire.poll import ANSWER_WITHIN
from gradmarket.network import MAX_ANSWER, MOST_VALUES, check_release, own_header
from gradmarket.network.clocked import ClockedTransport, UntrustedCertificate

CONNECT_S: Final = 5.0
READ_S: Final = 60.0
SEND_S: Final = 30.0
ANSWER_S: Final = 300.0
"""Seconds from the end of the allowed wait to the answer's end; READ_S runs from one byte to the next."""
CHUNK: Final = 1 << 16
UPLOAD: Final = httpx.Timeout(600.0, connect=CONNECT_S, write=READ_S)
"""Of bytes that go on where they broke off: the answer comes once they are hashed and on the disk."""
STALLED_S: Final = 120.0
"""Seconds for which an upload of which nothing more comes is tried again."""
TRIES: Final = 8
"""Tries of a short request between uploads, once the service has answered one: 20 seconds or more."""
MOST_STEPS: Final = 1000
"""Times that an upload may come further after a break: no service keeps its sender going by a byte at a time."""
GO_ON: Final = "do the same again within an hour: it goes on where it broke off"

FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 10.0
BUSY: Final = frozenset({429, 502, 503, 504})
SHORTEST_WAIT_S: Final = 10.0
CUT_AFTER_S: Final = 5.0
"""Seconds. A request that fails sooner means that the service is down or busy, not that a long wait was cut off."""

Answer = TypeVar("Answer", bound=BaseModel)
AnyPage = TypeVar("AnyPage", bound=Page[Any] | LedgerView)
Open = Callable[[], AbstractContextManager[BinaryIO | Iterator[bytes] | bytes]]
"""Opens the bytes to send, anew for each try."""


def build_timeout(waits: float = 0.0) -> httpx.Timeout:
    """Returns the timeout of a request whose answer the service may hold back for `waits` seconds."""
    return httpx.Timeout(SEND_S, connect=CONNECT_S, read=waits + READ_S)


def build_item_path(items: str, item: object, noun: str, remedy: str) -> str:
    """Returns the path of one of the `items` by its id.

    Raises Refused where it is no text, and where it is empty: the path is that of another route then.
    """
    if not isinstance(item, str):
        raise Refused(f"{noun} is a word, not a {type(item).__name__}", remedy)
    if not item:
        raise Refused(f"{noun} is empty", remedy)
    return f"{items}/{quote(item, safe='')}"


def refuse_retry(_seconds: float) -> bool:
    return False


def note_nothing(_sent: int) -> None:
    """Shows nobody how far an upload came."""


def keep_trying_for(most_s: float) -> Callable[[float], bool]:
    """Returns a function of the seconds tried so far: whether they are fewer than `most_s`."""
    return lambda seconds: seconds < most_s


@dataclass(frozen=True)
class Patience:
    """When a request that failed is sent again.

    `keep_trying(seconds)` returns whether to go on with a service that has been unreachable, or has answered with a
    status of `busy`, for this long; `pause` sleeps; `on_retry` receives the reason each time.
    """

    keep_trying: Callable[[float], bool] = refuse_retry
    pause: Callable[[float], object] = time.sleep
    busy: frozenset[int] = frozenset()
    on_retry: Callable[[Exception], None] = lambda _error: None


class UploadStall:
    """For how long an upload of `length` bytes has come no further, by what the service has of it.

    The time of a try that broke off counts only once the service's answer has shown that it brought nothing.
    """

    def __init__(self, length: int, answered: bool) -> None:
        """`answered`: the service has answered something before."""
        self._length, self._answered = length, answered
        self._further = 0
        self._since = time.monotonic()
        self._broke: float | None = None

    def note_received(self, received: int) -> bool:
        """Returns whether it came further; a step has at least CHUNK bytes and a MOST_STEPS-th of the upload."""
        self._broke, self._answered = None, True
        further = received >= self._further
        if further:
            self._further = received + max(CHUNK, self._length // MOST_STEPS)
            self._since = time.monotonic()
        return further

    def note_break(self) -> None:
        self._broke = time.monotonic()

    def is_over(self, keep_trying: Callable[[float], bool], error: ServiceUnreachable | ServiceProblem) -> bool:
        """Returns whether to try no more: at once, unless patient, where the service has answered nothing yet."""
        seconds = time.monotonic() - (self._since if self._broke is None else self._broke)
        if self._answered and seconds <= STALLED_S:
            return False
        return (isinstance(error, ServiceProblem) and error.status not in BUSY) or not keep_trying(seconds)


class ServiceTransport:
    """Sends requests to the service at `url`; `headers` go with each. `network` decides which addresses are reached.

    Without a `network` the environment's settings apply (network.environment). Redirects are not followed.
    Where `side` names the caller's side, every request raises OtherRelease once the service answers as another release.
    """

    def __init__(
        self,
        url: str,
        patience: Patience,
        headers: Mapping[str, str] | None = None,
        network: httpx.BaseTransport | None = None,
        side: str = "",
    ) -> None:
        self.url = url.rstrip("/")
        self._side = side
        self._patience = patience
        self._trusted = False
        self._http = httpx.Client(
            base_url=self.url,
            headers={**dict([own_header()]), **(headers or {})},
            timeout=build_timeout(),
            trust_env=False,
            transport=network or ClockedTransport(),
            event_hooks={"response": [self._note_answer]},
        )

    def close(self) -> None:
        self._http.close()

    def _note_answer(self, response: httpx.Response) -> None:
        self._trusted = True
        if self._side and HEADER in response.headers:
            check_release(response.headers[HEADER], self.url, self._side)

    @property
    def tries(self) -> int:
        """Returns the tries of a short request between uploads: one until the service has answered anything."""
        return TRIES if self._trusted else 1

    def ask(self, kind: type[Answer], method: str, path: str, **options: Any) -> Answer:
        """Returns the JSON answer as a `kind`. Options and errors are those of `send`."""
        return _parse_answer(kind, f"{method} {path}", *self.send(method, path, **options))

    def pages(
        self, kind: type[AnyPage], path: str, asked: Mapping[str, str | int], most: float = math.inf
    ) -> Iterator[AnyPage]:
        """Yields the pages of a list, one request each.

        Raises ServiceProblem for a list without an end, or with more than `most` bytes on all its pages.
        """
        cursor: str | None = None
        taken = 0
        while True:
            status, body = self.send("GET", path, params={**asked, **({"cursor": cursor} if cursor else {})})
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

    def send(
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
        since, longest, tried = time.monotonic(), FIRST_PAUSE_S, 0
        while True:
            began, tried = time.monotonic(), tried + 1
            try:
                return self._send_once(method, path, content, **options)
            except (ServiceUnreachable, ServiceProblem) as error:
                if isinstance(error, CertificateRefused) and not self._trusted:
                    raise Refused(error.detail, error.remedy) from error
                if isinstance(error, ServiceProblem) and error.status not in self._patience.busy:
                    raise
                if waits > SHORTEST_WAIT_S and CUT_AFTER_S < time.monotonic() - began < waits:
                    raise CutOff(f"{self.url}: {error}") from error
                if tried >= tries and not (patient and self._patience.keep_trying(time.monotonic() - since)):
                    raise _build_unreachable(self.url, error) from error
                self._patience.on_retry(error)
            self._patience.pause(longest * random.uniform(0.5, 1.0))
            longest = min(2 * longest, LONGEST_PAUSE_S)

    def put_bytes(
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
            self.send("PUT", path, tries=self.tries, content=_open_content(data), timeout=UPLOAD, headers=headers)
            on_sent(len(data))
            return
        _, asked, query = path.partition("?")
        place = f"/v1/blobs/{digest}/received{asked}{query}"
        stall, pause, start, failed = UploadStall(len(data), self._trusted), FIRST_PAUSE_S, 0, None
        while True:
            sending = False
            try:
                there = self.ask(ReceivedBytes, "GET", place, patient=False, headers=headers).received
                start = min(there, len(data))
                if stall.note_received(start):
                    pause = FIRST_PAUSE_S
                elif failed is not None and stall.is_over(self._patience.keep_trying, failed):
                    raise failed
                own = {**(headers or {}), UPLOAD_OFFSET: str(start), "Content-Length": str(len(data) - start)}
                rest, sending = _cut_chunks(data, start, on_sent), True
                self.send("PUT", path, content=_open_content(rest), timeout=UPLOAD, patient=False, headers=own)
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
            self._patience.pause(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _send_once(self, method: str, path: str, content: Open | None, **options: Any) -> tuple[int, bytes]:
        with ExitStack() as stack:
            if content is not None:
                options["content"] = stack.enter_context(content())
            response = stack.enter_context(self.stream(method, path, **options))
            body = read_bounded_body(response)
            if response.has_redirect_location:
                place = f"{self.url} leads on to {response.headers['location']}"
                raise ServiceProblem(response.status_code, place, remedy="give the address there as the service's own")
            if not response.is_success:
                raise parse_problem(response.status_code, response.reason_phrase, body)
            return response.status_code, body

    def stream(self, method: str, path: str, **options: Any) -> AbstractContextManager[httpx.Response]:
        """Yields the response before its body is read; for options and errors see `open_response`."""
        return open_response(self.url, self._http.stream(method, path, **options))


def _parse_answer(kind: type[Answer], asked: str, status: int, body: bytes) -> Answer:
    if body.count(b",") > MOST_VALUES:
        raise ServiceProblem(status, f"{asked} answered more than {MOST_VALUES} values: ask another service")
    try:
        return kind.model_validate_json(body, extra="ignore" if issubclass(kind, Wire | PublishedView) else None)
    except ValidationError as error:
        where = ": ".join(filter(None, first_fault(error)))
        fix = "check the address, or update gradmarket"
        raise ServiceProblem(status, f"{asked} answered something else ({where}): {fix}") from error


def read_bounded_body(response: httpx.Response) -> bytes:
    """Returns the body.

    Raises ServiceProblem for one that is longer than MAX_ANSWER, ServiceUnreachable for one that takes longer than
    ANSWER_S.
    """
    body = bytearray()
    packed = _in_time(response.iter_raw(), time.monotonic() + ANSWER_S)
    for chunk in httpx.Response(response.status_code, headers=response.headers, content=packed).iter_bytes(CHUNK):
        body += chunk
        if len(body) > MAX_ANSWER:
            raise ServiceProblem(response.status_code, f"an answer of more than {MAX_ANSWER} bytes")
    return bytes(body)


def _in_time(received: Iterator[bytes], until: float) -> Iterator[bytes]:
    """Yields each received chunk at once, also an empty one: compressed bytes may unpack to nothing."""
    for part in received:
        if time.monotonic() > until:
            raise ServiceUnreachable(f"the service did not end its answer within {ANSWER_S:g} seconds")
        yield part


@contextmanager
def open_response(url: str, streamed: AbstractContextManager[httpx.Response]) -> Iterator[httpx.Response]:
    """Yields the response. Raises ServiceProblem for an error's status, Silence or ServiceUnreachable with the `url`
    for httpx's errors, those of reading the body included."""
    try:
        with streamed as response:
            if response.is_error:
                raise parse_problem(response.status_code, response.reason_phrase, read_bounded_body(response))
            yield response
    except httpx.ReadTimeout as error:
        raise Silence(url) from error
    except UntrustedCertificate as error:
        raise CertificateRefused(f"{url}: {error}") from error
    except (httpx.TransportError, httpx.DecodingError) as error:
        raise ServiceUnreachable(f"{url}: {error or type(error).__name__}") from error


def _open_content(content: Any) -> Open:
    """`content`: bytes, or an iterator of either client, which is sent once."""
    return lambda: nullcontext(content)


def _cut_chunks(data: bytes, start: int, on_sent: Callable[[int], object]) -> Iterator[bytes]:
    """Yields the bytes from `start` on; `on_sent` receives the number of those before the next chunk."""
    for place in range(start, len(data), CHUNK):
        on_sent(place)
        yield data[place : place + CHUNK]
    on_sent(len(data))


def _build_unreachable(url: str, error: ServiceUnreachable | ServiceProblem) -> ServiceUnreachable:
    return error if isinstance(error, ServiceUnreachable) else ServiceUnreachable(f"{url}: {error}")


def _build_interrupted(
    url: str, error: ServiceUnreachable | ServiceProblem, there: int, length: int
) -> ServiceUnreachable:
    """Returns the error of an upload of which the service has some bytes, with what to do."""
    unreachable = _build_unreachable(url, error)
    if there == 0:
        return unreachable
    return ServiceUnreachable(f"{unreachable.detail}; {there:,} of {length:,} bytes are there", GO_ON)


@dataclass(frozen=True)
class ServerSentEvent:
    id: int
    kind: str
    body: dict[str, Any]


def parse_events(lines: Iterable[str]) -> Iterator[ServerSentEvent]:
    """Yields the events of the stream's lines; skips comments, which keep the connection open."""
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if name:
            fields[name] = value.removeprefix(" ")
        elif not line:
            if "data" in fields:
                yield ServerSentEvent(int(fields["id"]), fields["event"], json.loads(fields["data"]))
            fields = {}
