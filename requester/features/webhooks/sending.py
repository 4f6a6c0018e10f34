"""Posts what webhooks have still to be told: again after a while where nobody takes it, and for three days at most.

The time of the next try is written before a try begins, so that one that is killed is tried again: its receiver may
get it twice, under one `webhook-id`. A webhook is told in order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import httpx

from gradmarket.market.errors import MarketError
from gradmarket.market.features.webhooks.webhook_signing import sign_webhook
from gradmarket.market.wire.poll import ANSWER_WITHIN
from gradmarket.network.addresses import HOOK_SERVERS, PublicOnly, Resolve, resolve_host
from requester.context import Context
from requester.features.webhooks import webhook_rows
from requester.features.webhooks.webhook_rows import Webhook
from requester.store.work import RowReader

TOPIC = webhook_rows.TOPIC
TRY_S: Final = 10.0
"""Seconds that a receiver may take, in all."""
FIRST_WAIT_S: Final = 5.0
LONGEST_WAIT_S: Final = 6 * 3600.0
GIVEN_UP_S: Final = 3 * 86_400.0


@dataclass(frozen=True)
class Letter:
    """A webhook as it is posted."""

    webhook_id: str
    url: str
    headers: dict[str, str]
    body: bytes


def ready(reader: RowReader, now: float) -> Sequence[str]:
    return [str(number) for number in webhook_rows.list_ready(reader, now)]


def run(context: Context, row_id: str) -> None:
    letter = _begin_try(context, int(row_id))
    if letter is not None:
        _end_try(context, int(row_id), letter, post_letter(letter, context.settings.webhook_servers))


def compute_wait(tries: int) -> float:
    """Returns the seconds from try number `tries`, from 1 on, to the next: four times as long each time."""
    return min(FIRST_WAIT_S * 4.0 ** min(tries - 1, 20), LONGEST_WAIT_S)


def _begin_try(context: Context, number: int) -> Letter | None:
    """Writes down when to try again; returns what to send now, or None where another process does."""
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
        row.due_at = now + compute_wait(row.tries)
        body = row.body.encode()
        headers = sign_webhook(webhook.secret, row.message, int(now), body)
        return Letter(webhook.id, webhook.url, {"content-type": "application/json", **headers}, body)


def post_letter(letter: Letter, allowed: frozenset[str], look_up: Resolve = resolve_host) -> str:
    """Posts it to a public address, or to an origin of `allowed`; returns what went wrong, empty where nothing did.

    Of the answer only the status is read: what a receiver says is told to nobody.
    """
    network = PublicOnly(look_up, allowed, HOOK_SERVERS)
    bounds = {ANSWER_WITHIN: TRY_S}
    try:
        with (
            httpx.Client(transport=network, trust_env=False, timeout=TRY_S) as http,
            http.stream("POST", letter.url, content=letter.body, headers=letter.headers, extensions=bounds) as answer,
        ):
            return "" if answer.is_success else f"it answered {answer.status_code}"
    except (httpx.HTTPError, MarketError) as error:
        return str(error) or type(error).__name__


def _end_try(context: Context, number: int, letter: Letter, trouble: str) -> None:
    now = context.clock()
    with context.begin() as work:
        row, webhook = webhook_rows.lock_delivery(work, number), work.get(Webhook, letter.webhook_id)
        if row is None or webhook is None:
            return
        over = now - row.created_at > GIVEN_UP_S
        webhook.trouble = f"{trouble}; given up after {row.tries} tries" if trouble and over else trouble
        if not trouble:
            webhook.delivered_at = now
        if over or not trouble:
            work.session.delete(row)
            work.notify(TOPIC)
