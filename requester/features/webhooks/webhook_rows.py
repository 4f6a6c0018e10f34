"""Webhooks and their queued messages as rows: a message is written in the transaction of its event."""

import json
from collections.abc import Collection, Mapping, Sequence
from secrets import token_bytes, token_hex
from typing import Any, Final

from sqlalchemy import ForeignKey, ScalarSelect, Select, delete, func, or_, select
from sqlalchemy.orm import Mapped, mapped_column

from gradmarket.market.errors import Conflict
from gradmarket.market.terms import JobState, Role
from requester.api.job_views import choose_remedy, format_time
from requester.store.among import NOW
from requester.store.stored_times import SLACK_S, bound_row_times
from requester.store.tables import ApiToken, Base, BigKey, Job, JobEvent
from requester.store.work import RowReader, Work

MOST: Final = 20
"""Webhooks of one token."""
MOST_READY: Final = 256
MOST_WAITING: Final = 1000
"""Queued messages of one webhook."""
FULL: Final = f"{MOST_WAITING} wait, and each that comes drops the oldest"
TOPIC: Final = "webhooks"
KINDS: Final = {
    kind: f"job.{kind}"
    for kind in ("funded", "round_closed", "low_balance", "paused", "resumed", "finished", "cancelled", "failed")
}
"""Kind of an event -> its name for webhooks (market.views.service_views.Happening)."""


class Webhook(Base):
    """An address that receives the events of a token's jobs; an admin's receives those of all jobs."""

    __tablename__ = "webhooks"

    id: Mapped[str] = mapped_column(primary_key=True)
    token: Mapped[str]
    """The token's name."""
    token_hash: Mapped[bytes] = mapped_column(
        ForeignKey("tokens.hash", name="webhooks_of_token", ondelete="CASCADE"), index=True
    )
    """The token itself: a later one of that name has webhooks of its own."""
    role: Mapped[str]
    url: Mapped[str]
    happenings: Mapped[dict[str, Any]]
    """`told`: a list of market.views.service_views.Happening."""
    secret: Mapped[bytes]
    """The key of the signatures. No route returns it once the webhook is made."""
    created_at: Mapped[float]
    delivered_at: Mapped[float | None]
    trouble: Mapped[str]
    """Why the newest try failed; empty where it did not."""


class WebhookDelivery(Base):
    """A queued message of a webhook. The row is deleted once the message is accepted, or nobody took it for days."""

    __tablename__ = "webhook_deliveries"

    number: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=True)
    webhook_id: Mapped[str] = mapped_column(
        ForeignKey("webhooks.id", name="deliveries_of_webhook", ondelete="CASCADE"), index=True
    )
    message: Mapped[str]
    """Its id, alike in every try: a receiver that gets it twice recognises it."""
    body: Mapped[str]
    tries: Mapped[int]
    due_at: Mapped[float]
    created_at: Mapped[float]


def create_webhook(work: Work, token: ApiToken, url: str, happenings: Sequence[str], now: float) -> Webhook:
    """Raises Conflict where the token has MOST webhooks, or one of this address."""
    work.one_at_a_time(f"webhooks of {token.subject}")
    known = work.session.scalars(select_webhooks(token.hash)).all()
    if any(row.url == url for row in known):
        raise Conflict(f"the token {token.subject} has a webhook to this address: remove it first")
    if len(known) >= MOST:
        raise Conflict(f"the token {token.subject} has {MOST} webhooks and may have no more: remove one first")
    row = Webhook(
        id=token_hex(8),
        token=token.subject,
        token_hash=token.hash,
        role=token.role,
        url=url,
        happenings={"told": list(happenings)},
        secret=token_bytes(24),
        created_at=now,
        delivered_at=None,
        trouble="",
    )
    work.add(row)
    work.flush()
    return row


def select_webhooks(token: bytes | None) -> Select[Webhook]:
    """Selects the webhooks of the token of this hash, or all."""
    return select(Webhook) if token is None else select(Webhook).where(Webhook.token_hash == token)


def has_ended(reader: RowReader, webhook: Webhook, now: float) -> bool:
    """Returns whether its token has expired.

    A revoked token has no row, and its webhooks were deleted with it.
    """
    until = reader.get_one(ApiToken, webhook.token_hash).until
    return until is not None and until <= now


def count_waiting(reader: RowReader, webhook_id: str) -> int:
    found = select(func.count()).where(WebhookDelivery.webhook_id == webhook_id)
    return reader.session.scalar(found) or 0


def queue_events(work: Work, events: Sequence[JobEvent]) -> None:
    """Queues the events for those webhooks of the job's token, and of admins, that named their kind."""
    for event in events:
        kind = KINDS.get(event.kind)
        token = select(Job.token).where(Job.id == event.job_id).scalar_subquery()
        listeners = [] if kind is None else work.session.scalars(_select_listeners(token, event.at)).all()
        subscribed = [webhook for webhook in listeners if kind in webhook.happenings["told"]]
        if kind is not None and subscribed:
            job = work.get_one(Job, event.job_id)
            about = {"job": job.id, "name": job.spec["name"], "state": str(job.state), "token": job.token}
            about |= {"remedy": choose_remedy(work, job)} if job.state == JobState.PAUSED else {}
            for webhook in subscribed:
                queue_delivery(work, webhook, kind, about | event.body, event.at)


def queue_for_token(work: Work, job: Job, token: str, kind: str, fields: Mapping[str, object], at: float) -> None:
    """Queues an event of this token's part in the job, for its webhooks and those of admins alone."""
    about = {"job": job.id, "name": job.spec["name"], "state": str(job.state)}
    for webhook in work.session.scalars(_select_listeners(token, at)).all():
        if kind in webhook.happenings["told"]:
            queue_delivery(work, webhook, kind, {**about, **fields}, at)


def _select_listeners(token: str | ScalarSelect[str], at: float) -> Select[Webhook]:
    """Selects the webhooks of the token and of admins, without those whose token has expired."""
    condition = or_(Webhook.token == token, Webhook.role == Role.ADMIN)
    lasts = or_(ApiToken.until.is_(None), ApiToken.until > at)
    return select(Webhook).join(ApiToken, ApiToken.hash == Webhook.token_hash).where(condition, lasts)


def queue_delivery(work: Work, webhook: Webhook, kind: str, fields: dict[str, Any], at: float) -> None:
    body = json.dumps({"type": kind, "timestamp": format_time(at), "data": fields})
    message = f"msg_{token_hex(12)}"
    held = select(WebhookDelivery.number).where(WebhookDelivery.webhook_id == webhook.id)
    over = work.session.scalars(held.order_by(WebhookDelivery.number.desc()).offset(MOST_WAITING - 1)).all()
    if over:
        work.session.execute(delete(WebhookDelivery).where(WebhookDelivery.number.in_(over)))
        webhook.trouble = FULL
    work.add(WebhookDelivery(webhook_id=webhook.id, message=message, body=body, due_at=at, created_at=at, tries=0))
    work.notify(TOPIC)


def queue_ping(work: Work, webhook: Webhook, now: float) -> None:
    """Raises Conflict where a ping waits already."""
    work.one_at_a_time(f"pings of {webhook.id}")
    waits = select(WebhookDelivery.number).where(
        WebhookDelivery.webhook_id == webhook.id, WebhookDelivery.body.startswith('{"type": "ping"')
    )
    if work.session.scalars(waits.limit(1)).first() is not None:
        raise Conflict(f"a ping of the webhook {webhook.id} waits: {webhook.trouble or 'it is posted soon'}")
    queue_delivery(work, webhook, "ping", {}, now)


def find_token_of(reader: RowReader, number: int) -> bytes | None:
    """Returns the hash of the token whose webhook gets the message; None where the message is gone."""
    query = select(Webhook.token_hash).join(WebhookDelivery, WebhookDelivery.webhook_id == Webhook.id)
    return reader.session.scalar(query.where(WebhookDelivery.number == number))


def list_ready(reader: RowReader, now: float, busy: Collection[bytes]) -> Sequence[int]:
    """Returns the messages that are due and the oldest of their webhook, to keep its order; none of `busy` tokens."""
    if not busy:
        return reader.session.scalars(_READY, {"now": now}).all()
    of_webhook = _READY.join(Webhook, Webhook.id == WebhookDelivery.webhook_id)
    return reader.session.scalars(of_webhook.where(Webhook.token_hash.not_in(busy)), {"now": now}).all()


_OLDEST: Final = select(func.min(WebhookDelivery.number)).group_by(WebhookDelivery.webhook_id)
_READY: Final = (
    select(WebhookDelivery.number)
    .where(WebhookDelivery.number.in_(_OLDEST), WebhookDelivery.due_at <= NOW)
    .order_by(WebhookDelivery.due_at)
    .limit(MOST_READY)
)


def lock_delivery(work: Work, number: int) -> WebhookDelivery | None:
    """Returns the message, locked; None where it was accepted already."""
    query = select(WebhookDelivery).where(WebhookDelivery.number == number).with_for_update()
    return work.session.scalars(query.execution_options(populate_existing=True)).one_or_none()


def bound_times(work: Work, now: float, latest: float) -> int:
    """Brings back tries that are due after `latest`, and ages ahead of the clock; returns the number of rows."""
    rows = work.session.scalars(
        select(WebhookDelivery).where(
            or_(WebhookDelivery.due_at > latest + SLACK_S, WebhookDelivery.created_at > now + SLACK_S)
        )
    ).all()
    return sum(bound_row_times(row, {"due_at": latest, "created_at": now}) for row in rows)
