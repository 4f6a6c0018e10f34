"""Routes by which an administrator creates, lists and revokes API tokens; a secret is shown only on creation."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from gradmarket.market.errors import NotFound
from gradmarket.market.fields import TOKEN_NAME
from gradmarket.market.views.service_views import CreatedToken, NewToken, Page, TokenView
from requester.api.auth_routes import ROLE, Admin
from requester.api.paging import Cursor, Limit, load_list_page
from requester.api.problems import describe_problems
from requester.api.state import Here
from requester.api.views.formats import format_time
from requester.store import tokens
from requester.store.retries import retry_on_conflict
from requester.store.tables import ApiToken

router = APIRouter(prefix="/v1/tokens", tags=["tokens"])

NamePath = Annotated[str, Path(pattern=TOKEN_NAME)]


def _build_token_view(row: ApiToken) -> TokenView:
    return TokenView(**_build_token_fields(row))


def _build_token_fields(row: ApiToken) -> dict[str, str | None]:
    times = {"created_at": format_time(row.created_at or None), "expires_at": format_time(row.until)}
    return {"name": row.subject, "role": row.role, **times}


@router.post(
    "",
    operation_id="create_token",
    status_code=201,
    responses={**ROLE, **describe_problems(409)},
    summary="A new token; its secret is told once",
)
@retry_on_conflict
def create(context: Here, _who: Admin, asked: NewToken) -> CreatedToken:
    now = context.clock()
    until = None if asked.expires_in_s is None else now + asked.expires_in_s
    with context.begin() as work:
        secret, row = tokens.create_token(work, asked.name, asked.role, until, now)
        return CreatedToken(**_build_token_fields(row), token=secret)


@router.get("", operation_id="list_tokens", responses=ROLE, summary="Every token by its name, without its secret")
def listed(context: Here, _who: Admin, cursor: Cursor = None, limit: Limit = 100) -> Page[TokenView]:
    with context.reading() as reader:
        return load_list_page(reader, tokens.select_tokens(), [ApiToken.subject], _build_token_view, cursor, limit)


@router.delete(
    "/{name}",
    operation_id="revoke_token",
    status_code=204,
    response_class=Response,
    responses={**ROLE, **describe_problems(404, 409)},
    summary="End a token, at once",
)
@retry_on_conflict
def revoke(context: Here, _who: Admin, name: NamePath) -> Response:
    with context.begin() as work:
        if not tokens.revoke_token(work, name, context.clock()):
            raise NotFound(f"no token {name}")
    return Response(status_code=204)
