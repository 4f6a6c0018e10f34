"""Posts the queued messages of webhooks: again after a while where no receiver accepts one, for three days at most.

The time of the next try is written before a try begins, so that one that is killed is tried again: its receiver may get
it twice, under one `webhook-id`. A webhook gets its messages in order, and a token has one try at a time in a process:
a slow receiver holds up its own token alone.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import httpx
import structlog

from gradmarket.market.errors import MarketError
from gradmarket.market.features.webhooks import sign_webhook
from gradmarket.market.wire.poll import ANSWER_WITHIN
from gradmarket.network.addresses import PublicOnly, Resolve, resolve_within
from gradmarket.network.clocked import UntrustedCertificate
from requester.context import Context
from requester.features.webhooks import webhook_rows
from requester.features.webhooks.webhook_rows import Webhook
from requester.store.locks import retry_on_conflict
from requester.store.work import RowReader

TOPIC = webhook_rows.TOPIC
LOOK_UP_S: Final = 2.0
CONNECT_S: Final = 2.0
"""Seconds to connect, and again to agree on TLS."""
WRITE_S: Final = 1.0
"""Seconds to send the headers, and again the body."""
ANSWER_S: Final = 7.0
TRY_S: Final = LOOK_UP_S + 2 * CONNECT_S + 2 * WRITE_S + ANSWER_S
"""Seconds that a try may take, in all."""
AT_ONCE: Final = 16
"""Tries at a time, each of another token."""
UNREACHED: Final = "it was not reached at a public address, or did not answer in time"
"""The only network error that a token's owner sees: details would reveal this machine's names and reach."""
FIRST_WAIT_S: Final = 5.0
LONGEST_WAIT_S: Final = 6 * 3600.0
GIVEN_UP_S: Final = 3 * 86_400.0


@dataclass(frozen=True)
class Letter:
    """A webhook's message as it is posted."""

    webhook_id: str
    url: str
    headers: dict[str, str]
    body: bytes
    token: bytes


log = structlog.get_logger("gradmarket.webhooks")
_posting = ThreadPoolExecutor(AT_ONCE, "webhooks")
_look_up = resolve_within(LOOK_UP_S)
_in_flight: set[bytes] = set()
"""The tokens that have a try in this process."""
_lock = threading.Lock()


def ready(reader: RowReader, now: float) -> Sequence[str]:
    with _lock:
        busy = set(_in_flight)
    return [] if len(busy) >= AT_ONCE else [str(number) for number in webhook_rows.list_ready(reader, now, busy)]


def run(context: Context, row_id: str) -> None:
    start_try(context, int(row_id))


def start_try(context: Context, number: int) -> Future[None] | None:
    """Begins a try, which ends in a thread of its own; returns None where none can begin now."""
    with context.reading() as reader:
        token = webhook_rows.find_token_of(reader, number)
    with _lock:
        if token is None or token in _in_flight or len(_in_flight) >= AT_ONCE:
            return None
        _in_flight.add(token)
    try:
        letter = _begin_try(context, number)
    except BaseException:
        _land(token)
        raise
    if letter is None:
        _land(token)
        return None
    return _posting.submit(_make_try, context, number, letter)


def _make_try(context: Context, number: int, letter: Letter) -> None:
    try:
        trouble = post_letter(letter, context.settings.webhook_servers)
        retry_on_conflict(_end_try)(context, number, letter, trouble)
    except Exception:
        log.exception("a webhook's try failed", webhook=letter.webhook_id)
    finally:
        _land(letter.token)
        context.notifier.notify([TOPIC])


def _land(token: bytes) -> None:
    with _lock:
        _in_flight.discard(token)


def compute_wait(tries: int) -> float:
    """Returns the seconds from try number `tries`, from 1 on, to the next: four times as long each time."""
    return min(FIRST_WAIT_S * 4.0 ** min(tries - 1, 20), LONGEST_WAIT_S)


def _begin_try(context: Context, number: int) -> Letter | None:
    """Writes the time of the next try; returns the letter to send now, or None where another process sends it."""
    now = context.clock()
    with context.begin() as work:
        row = webhook_rows.lock_delivery(work, number)
        if row is None or row.due_at > now:
            return None
        webhook = work.get_one(Webhook, row.webhook_id)
        if webhook_rows.has_ended(work, webhook, now):
            work.session.delete(webhook)
            return None
        row.tries += 1
        row.due_at = now + TRY_S + compute_wait(row.tries)  # no other process tries it before this try is over
        body = row.body.encode()
        headers = sign_webhook(webhook.secret, row.message, int(now), body)
        headers["content-type"] = "application/json"
        return Letter(webhook.id, webhook.url, headers, body, webhook.token_hash)


def post_letter(letter: Letter, allowed: frozenset[str], look_up: Resolve = _look_up) -> str:
    """Posts it to a public address, or to an origin of `allowed`; returns the error, empty where it was accepted.

    Only the status of the answer is read: a receiver's words are passed on to nobody.
    """
    network = PublicOnly(look_up, allowed)
    bounds = {ANSWER_WITHIN: ANSWER_S}
    limits = httpx.Timeout(connect=CONNECT_S, read=ANSWER_S, write=WRITE_S, pool=LOOK_UP_S)
    try:
        with (
            httpx.Client(transport=network, trust_env=False, timeout=limits) as http,
            http.stream("POST", letter.url, content=letter.body, headers=letter.headers, extensions=bounds) as answer,
        ):
            return "" if answer.is_success else f"it answered {answer.status_code}"
    except (httpx.HTTPError, MarketError) as error:
        log.info("a webhook reached nobody", webhook=letter.webhook_id, why=str(error) or type(error).__name__)
        return "its certificate is not trusted" if isinstance(error, UntrustedCertificate) else UNREACHED


def _end_try(context: Context, number: int, letter: Letter, trouble: str) -> None:
    now = context.clock()
    with context.begin() as work:
        row, webhook = webhook_rows.lock_delivery(work, number), work.get(Webhook, letter.webhook_id)
        if row is None or webhook is None:
            return
        over = now - row.created_at > GIVEN_UP_S
        row.due_at = min(row.due_at, now + compute_wait(row.tries))
        full = trouble and webhook_rows.count_waiting(work, webhook.id) >= webhook_rows.MOST_WAITING
        webhook.trouble = f"{trouble}; given up after {row.tries} tries" if trouble and over else trouble
        webhook.trouble += f"; {webhook_rows.FULL}" if full else ""
        if not trouble:
            webhook.delivered_at = now
        if over or not trouble:
            work.session.delete(row)
            work.notify(TOPIC)
