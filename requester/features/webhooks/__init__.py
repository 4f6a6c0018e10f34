"""Webhooks: events of a token's jobs are posted, signed, to the addresses that it named, until they accept them.

A secret is shown only on creation.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Path, Response

from gradmarket.market.errors import FieldRefused, MarketError, NotFound
from gradmarket.market.features.webhooks import NewWebhook, write_secret
from gradmarket.market.fields import SHORT_ID
from gradmarket.market.terms import Role
from gradmarket.market.views.service_views import CreatedWebhook, Page, WebhookView
from gradmarket.network.addresses import HOOK_SERVERS, check_link_target, resolve_within
from requester.api.auth_routes import ROLE, Here, Identity, Submitter, token_needed
from requester.api.job_views import format_time
from requester.api.paging import Cursor, Limit, load_list_page
from requester.api.problems import describe_problems
from requester.context import Context
from requester.feature import Feature
from requester.features.webhooks import sending, webhook_rows
from requester.features.webhooks.webhook_rows import Webhook
from requester.store.locks import retry_on_conflict
from requester.store.tables import ApiToken, Job, JobEvent
from requester.store.work import RowReader, Work

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"])

IdPath = Annotated[str, Path(pattern=SHORT_ID)]
SOME_PUBLIC: Final = "1.1.1.1"
"""Stands for a host's address while only the words of a link are checked; nothing goes there."""
_look_up = resolve_within(2.0)
NO_WEBHOOK = {**ROLE, **describe_problems(404)}


def _build_webhook_view(reader: RowReader, row: Webhook) -> WebhookView:
    return WebhookView(
        id=row.id,
        token=row.token,
        url=row.url,
        happenings=row.happenings["told"],
        created_at=format_time(row.created_at),
        delivered_at=format_time(row.delivered_at),
        waiting=webhook_rows.count_waiting(reader, row.id),
        trouble=row.trouble,
    )


@router.post(
    "",
    operation_id="create_webhook",
    status_code=201,
    responses={**ROLE, **describe_problems(409)},
    summary="Have news of your jobs posted to an address, signed; the secret is shown once",
)
def create(context: Here, who: Submitter, asked: NewWebhook) -> CreatedWebhook:
    # the error reveals neither whether a name resolves here, nor to which address
    url = asked.url
    allowed = context.settings.webhook_servers
    try:
        check_link_target(url, "", lambda _host, _port: [SOME_PUBLIC], own=False, allowed=allowed)
    except MarketError as error:
        raise FieldRefused("url", error.detail) from error
    try:
        check_link_target(url, "", _look_up, own=False, allowed=allowed)
    except MarketError as error:
        raise FieldRefused("url", f"its host is not a public address; {HOOK_SERVERS}") from error
    parts = urlsplit(url)
    if parts.scheme != "https" and f"{parts.scheme}://{parts.netloc}" not in allowed:
        raise FieldRefused("url", f"webhooks need https; {HOOK_SERVERS}")
    return _create_webhook(context, who, asked)


@retry_on_conflict
def _create_webhook(context: Context, who: Identity, asked: NewWebhook) -> CreatedWebhook:
    happenings = list(dict.fromkeys(asked.happenings))
    with context.begin() as work:
        token = work.get(ApiToken, who.token)
        if token is None:
            raise token_needed(sent=True)
        row = webhook_rows.create_webhook(work, token, asked.url, happenings, context.clock())
        return CreatedWebhook(**_build_webhook_view(work, row).model_dump(), secret=write_secret(row.secret))


@router.get("", operation_id="list_webhooks", responses=ROLE, summary="Your webhooks; an admin's: everybody's")
def listed(context: Here, who: Submitter, cursor: Cursor = None, limit: Limit = 100) -> Page[WebhookView]:
    listed = webhook_rows.select_webhooks(None if who.role == Role.ADMIN else who.token)
    with context.reading() as reader:
        return load_list_page(reader, listed, [Webhook.id], lambda row: _build_webhook_view(reader, row), cursor, limit)


@router.post(
    "/{webhook_id}/ping",
    operation_id="ping_webhook",
    status_code=202,
    responses={**ROLE, **describe_problems(404, 409)},
    summary="Post a webhook of the type `ping` as a try",
)
@retry_on_conflict
def ping(context: Here, who: Submitter, webhook_id: IdPath) -> WebhookView:
    with context.begin() as work:
        row = _find_own(work, webhook_id, who)
        webhook_rows.queue_ping(work, row, context.clock())
        work.flush()
        return _build_webhook_view(work, row)


@router.delete(
    "/{webhook_id}",
    operation_id="delete_webhook",
    status_code=204,
    response_class=Response,
    responses=NO_WEBHOOK,
    summary="Post nothing more there",
)
@retry_on_conflict
def delete(context: Here, who: Submitter, webhook_id: IdPath) -> Response:
    with context.begin() as work:
        work.session.delete(_find_own(work, webhook_id, who))
    return Response(status_code=204)


def _find_own(reader: RowReader, webhook_id: str, who: Identity) -> Webhook:
    """Raises NotFound for another token's webhook, too, as if it did not exist."""
    row = reader.get(Webhook, webhook_id)
    if row is None or (who.role != Role.ADMIN and row.token_hash != who.token):
        raise NotFound(f"no webhook {webhook_id}")
    return row


class WebhooksFeature(Feature):
    name = "webhooks"
    stages = (sending,)
    routers = (router,)

    def events_recorded(self, work: Work, events: Sequence[JobEvent]) -> None:
        webhook_rows.queue_events(work, events)

    def bound_times(self, work: Work, now: float) -> int:
        return webhook_rows.bound_times(work, now, now + sending.TRY_S + sending.LONGEST_WAIT_S)

    def queue_token_event(
        self, work: Work, job: Job, token: str, kind: str, fields: Mapping[str, object], at: float
    ) -> None:
        webhook_rows.queue_for_token(work, job, token, kind, fields, at)
