"""Further API tokens, beside the service's own.

A secret is shown only on creation.
"""

import re
from typing import Annotated, Any, cast

from fastapi import APIRouter, HTTPException, Path, Response
from sqlalchemy import CursorResult, delete
from sqlalchemy.orm import Mapped, mapped_column

from gradmarket.market.errors import Conflict, NotFound
from gradmarket.market.fields import ADDRESS, TOKEN_NAME
from gradmarket.market.terms import Role
from gradmarket.market.views.service_views import CreatedToken, NewToken, Page, TokenView
from requester.api.auth_routes import ROLE, Admin, Here
from requester.api.job_views import format_time
from requester.api.paging import Cursor, Limit, load_list_page
from requester.api.problems import describe_problems
from requester.context import Context
from requester.feature import Feature
from requester.store import identities, leader_leases
from requester.store.identities import AUDITOR, OWN, select_tokens
from requester.store.locks import retry_on_conflict
from requester.store.tables import ApiToken, Base
from requester.store.work import Work


class UploadSum(Base):
    """The bytes that a submit token has uploaded in all, by its name."""

    __tablename__ = "upload_sums"

    token: Mapped[str] = mapped_column(primary_key=True)
    bytes: Mapped[int]


def spend_upload_quota(work: Work, token: str, length: int, most: int) -> None:
    """Counts bytes that the token uploads. Raises 413 where they exceed its quota."""
    work.one_at_a_time(f"uploads of {token}")
    row = work.get(UploadSum, token)
    spent = 0 if row is None else row.bytes
    if spent + length > most:
        detail = f"the token {token} has uploaded {spent:,} bytes and may upload {most:,} in all"
        raise HTTPException(413, f"{detail}: ask whoever runs the service for more (GRADMARKET_UPLOAD_QUOTA)")
    if row is None:
        work.add(UploadSum(token=token, bytes=length))
    else:
        row.bytes += length


router = APIRouter(prefix="/v1/tokens", tags=["tokens"])

NamePath = Annotated[str, Path(pattern=TOKEN_NAME)]


def _build_token_fields(row: ApiToken) -> dict[str, str | None]:
    times = {"created_at": format_time(row.created_at or None), "expires_at": format_time(row.until)}
    return {"name": row.subject, "role": row.role, **times}


@router.post(
    "",
    operation_id="create_token",
    status_code=201,
    responses={**ROLE, **describe_problems(409)},
    summary="A new token; its secret is shown once",
)
@retry_on_conflict
def create(context: Here, _who: Admin, asked: NewToken) -> CreatedToken:
    now = context.clock()
    until = None if asked.expires_in_s is None else now + asked.expires_in_s
    with context.begin() as work:
        secret, row = create_token(work, asked.name, asked.role, until, now)
        return CreatedToken(**_build_token_fields(row), token=secret)


@router.get("", operation_id="list_tokens", responses=ROLE, summary="Every token by its name, without its secret")
def listed(context: Here, _who: Admin, cursor: Cursor = None, limit: Limit = 100) -> Page[TokenView]:
    with context.reading() as reader:
        return load_list_page(
            reader,
            select_tokens(),
            [ApiToken.subject],
            lambda row: TokenView(**_build_token_fields(row)),
            cursor,
            limit,
        )


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
        if not revoke_token(work, name, context.clock()):
            raise NotFound(f"no token {name}")
    return Response(status_code=204)


def create_token(work: Work, name: str, role: Role, until: float | None, now: float) -> tuple[str, ApiToken]:
    """Returns the secret, shown only this once, and its row; raises Conflict where a token of this name is valid."""
    if re.fullmatch(ADDRESS, name):
        raise Conflict(f"{name} is the address of a wallet, whose uploads are kept under it", "take another name")
    work.one_at_a_time(f"token {name}")
    work.session.execute(delete(ApiToken).where(ApiToken.until < now))
    if name in (OWN, AUDITOR) or work.session.scalar(select_tokens().where(ApiToken.subject == name)) is not None:
        raise Conflict(
            f"there is a token named {name}", f"`gradmarket token revoke {name}` first, or take another name"
        )
    secret = identities.issue_token(work, role, name, until, now)
    return secret, work.get_one(ApiToken, identities.hash_of(secret))


def revoke_token(work: Work, name: str, now: float) -> bool:
    """Ends the token with this transaction; returns whether there was one.

    Raises Conflict for the service's own, and for its auditor's while a service runs one.
    """
    if name == OWN:
        raise Conflict("this is the service's own token: change it in GRADMARKET_TOKEN or keys/token, and start again")
    if name == AUDITOR and leader_leases.is_held(work, leader_leases.AUDITOR, now):
        raise Conflict("this is the token of the service's own auditor: start the service with --auditor none first")
    named = delete(ApiToken).where(ApiToken.role.in_(Role), ApiToken.subject == name)
    return cast(CursorResult[Any], work.session.execute(named)).rowcount > 0


class ApiTokensFeature(Feature):
    name = "api_tokens"
    routers = (router,)

    def charge_upload(self, context: Context, work: Work, role: str, token: str, length: int) -> None:
        if role == Role.SUBMIT:
            spend_upload_quota(work, token, length, context.settings.upload_quota)
