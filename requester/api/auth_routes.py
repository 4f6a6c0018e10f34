"""Authenticates requests: the bearer token is a requester's API token or a worker's session (sign_in_routes)."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.concurrency import run_in_threadpool

from gradmarket.market.release import HEADER
from gradmarket.market.terms import Address, Role
from gradmarket.network import check_release
from requester.api.callers import Buckets, retry_after
from requester.api.problems import describe_problems
from requester.context import Context
from requester.store import identities
from requester.store.remembered import Remembered

WORKER: Final = "worker"
TRUSTED_S: Final = 60.0
"""Seconds for which a worker's token is cached. API tokens are not, since any process may revoke them."""
SEND_TOKEN: Final = "send `Authorization: Bearer <token>`: a requester's API token, or a worker's from POST /v1/session"
WRONG_TOKEN: Final = (
    "this token is not known here, or ended: `gradmarket token create` makes a requester's where the service runs, and "
    "POST /v1/session a worker's"
)
_bearer = HTTPBearer(auto_error=False, description="A requester's API token, or a worker's session token.")


async def get_context(request: Request) -> Context:
    """Returns the context that the composition root stored on the application."""
    context: Context = request.app.state.context
    return context


Here = Annotated[Context, Depends(get_context)]


@dataclass(frozen=True)
class Identity:
    role: str
    subject: str
    proven: bool
    """Whether it has an API token or is a worker that was paid before; wallets of other workers cost nothing."""
    token: bytes
    """The hash of the token: another token may have the same subject later."""


async def _require_identity(
    context: Here,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
    request: Request,
) -> Identity:
    if credentials is not None:
        callers: Callers = request.app.state.callers
        identity = await callers.identify(context, credentials.credentials)
        if identity is not None:
            await limit_wallet(request, context, identity.subject)
            return identity
    raise token_needed(sent=credentials is not None)


def token_needed(sent: bool = False) -> HTTPException:
    """Returns the answer to a request without a token, or with a wrong one."""
    return HTTPException(401, WRONG_TOKEN if sent else SEND_TOKEN, {"WWW-Authenticate": "Bearer"})


class Callers:
    """Caches the identities of workers' tokens for a minute; for rate limits, which tokens were proven."""

    def __init__(self) -> None:
        self._found = Remembered[tuple[Identity, float]](most=100_000)
        self._proven = Remembered[tuple[Identity, float]](most=100_000)

    def known(self, token: str, now: float) -> Identity | None:
        """Returns the cached identity, without a query."""
        cached = self._found.peek(_hash_token(token))
        return cached[0] if cached is not None and now < cached[1] else None

    def proven(self, token: str, now: float) -> Identity | None:
        """Returns a paid worker's identity until its session ends, without a query; use it for rate limits only."""
        kept = self._proven.peek(_hash_token(token))
        return kept[0] if kept is not None and now < kept[1] else None

    def was_proven(self, token: str) -> bool:
        """Whether the token was proven when its row was last read."""
        return self._proven.peek(_hash_token(token)) is not None

    async def identify(self, context: Context, token: str) -> Identity | None:
        """Returns the token's identity from the cache or the database; None for an unknown token."""
        return self.known(token, context.clock()) or await run_in_threadpool(self.find, context, token)

    def find(self, context: Context, token: str) -> Identity | None:
        now = context.clock()
        with context.reading() as reader:
            row = identities.find_token(reader, token, now)
            if row is None:
                self._proven.drop(_hash_token(token))
                return None
            proven = row.role != WORKER or identities.was_paid(reader, Address(row.subject))
        identity = Identity(row.role, row.subject, proven, row.hash)
        if proven:
            self._proven.remember(
                _hash_token(token), (identity, (row.until or math.inf) if row.role == WORKER else 0.0)
            )
        if row.role == WORKER:
            self._found.remember(_hash_token(token), (identity, min(row.until or math.inf, now + TRUSTED_S)))
        return identity


def _hash_token(token: str) -> str:
    return identities.hash_of(token).hex()


async def limit_wallet(request: Request, context: Context, subject: str) -> None:
    """Raises 429 if the wallet sends too many requests; all its tokens share one bucket."""
    wallets: Buckets = request.app.state.wallets
    wait = wallets.take(subject)
    if wait > 0:
        context.meters.limited.labels("wallet").inc()
        await asyncio.sleep(context.settings.refused_s)
        detail = f"too many requests from one wallet: come again in {wait:.1f} s"
        raise HTTPException(429, detail, retry_after(wait))


async def _anyone_or_nobody(
    context: Here,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
    request: Request,
) -> Identity | None:
    return None if credentials is None else await _require_identity(context, credentials, request)


def _with_role(*roles: Role) -> Callable[[Identity], Awaitable[Identity]]:
    """Returns a dependency that raises 403 unless the API token has one of these roles."""

    async def check(identity: Annotated[Identity, Depends(_require_identity)]) -> Identity:
        if identity.role not in roles:
            raise HTTPException(403, f"only an API token may call this, of the role {' or '.join(roles)}: send one")
        return identity

    return check


async def require_worker(identity: Annotated[Identity, Depends(_require_identity)]) -> Address:
    if identity.role != WORKER:
        raise HTTPException(403, "only workers may call this: sign in with POST /v1/session")
    return Address(identity.subject)


async def require_same_worker(worker: Annotated[Address, Depends(require_worker)], request: Request) -> Address:
    """Raises OtherRelease, before the request is read, if the worker is of another release than this service."""
    check_release(request.headers.get(HEADER), "this worker", "the market")
    return worker


async def _require_auditor(
    identity: Annotated[Identity, Depends(_with_role(Role.AUDIT, Role.ADMIN))], request: Request
) -> Identity:
    check_release(request.headers.get(HEADER), "this auditor", "the market")
    return identity


ANYONE: Final = describe_problems(401)
ROLE: Final = describe_problems(401, 403)
SAME_RELEASE: Final = describe_problems(401, 403, 409)
"""Further responses of a route for any token (ANYONE), for one role (ROLE), or for workers or auditors, which must be
of this release (SAME_RELEASE).
"""

Anyone = Annotated[Identity, Depends(_require_identity)]
AnyoneOrNobody = Annotated[Identity | None, Depends(_anyone_or_nobody)]
Submitter = Annotated[Identity, Depends(_with_role(Role.SUBMIT, Role.ADMIN))]
Auditor = Annotated[Identity, Depends(_require_auditor)]
Admin = Annotated[Identity, Depends(_with_role(Role.ADMIN))]
Worker = Annotated[Address, Depends(require_same_worker)]
Earner = Annotated[Address, Depends(require_worker)]
"""A worker of any release, which may read its own earnings."""
