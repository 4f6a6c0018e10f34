"""A real service on loopback: uvicorn over a context, with no stages driving it."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import httpx
from eth_account import Account
from fastapi import FastAPI

from gradmarket.market.sign_in_message import SignInMessage
from requester.app import create_app
from requester.context import Context
from requester.features import FEATURES
from requester.serving import build_server_config, open_listener, own_url
from requester.settings import RequesterSettings
from requester.wiring import open_context
from tests.api.declared import Declared, describe_once
from tests.databases import sqlite_template
from tests.kit.letters import letter, signed
from tests.kit.prompt_server import PromptServer
from tests.patience import PATIENCE_S


class Service:
    """`anyone`, `requester` and each `worker` are clients that hold every answer against the OpenAPI document."""

    def __init__(self, url: str, context: Context, app: FastAPI) -> None:
        self.url, self.context, self.app = url, context, app
        self._declared = Declared(describe_once(app))
        self.token = (context.settings.data / "keys" / "token").read_text().strip()
        self.anyone = self.client(None)
        self.requester = self.client(self.token)

    def client(self, token: str | None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(
            base_url=self.url,
            headers=headers,
            event_hooks={"response": [self._declared]},
            timeout=PATIENCE_S,
            verify=False,  # over http, where it would read all authorities for nothing
        )

    def siwe(self, account, **changed) -> SignInMessage:  # type: ignore[no-untyped-def]
        return letter(self.anyone.get("/v1/session/nonce").json(), account.address, **changed)

    def knock(self, account, message: SignInMessage, **more: object) -> httpx.Response:  # type: ignore[no-untyped-def]
        return self.anyone.post("/v1/session", json=signed(message, account.key) | more)

    def worker(self) -> tuple[str, httpx.Client]:
        account = Account.create()
        token = self.knock(account, self.siwe(account)).json()["token"]
        return account.address, self.client(token)


@contextmanager
def serving(settings: RequesterSettings, path: str = "") -> Iterator[Service]:
    """A service under these settings, on its own port; `path` in its address.

    It finds a database of the newest revision, which takes a quarter of a second to make.
    """
    database = settings.data / "gradmarket.sqlite"
    if settings.database is None and not database.exists():
        database.write_bytes(sqlite_template())
    with open_listener(settings.host, 0) as door:
        url = own_url(settings.host, door.getsockname()[1]) + path
        with open_context(settings, url) as context:
            app = create_app(context, nullcontext)
            server = PromptServer(build_server_config(app, settings, FEATURES))
            server.start([door])
            try:
                yield Service(url, context, app)
            finally:
                context.notifier.close()
                server.stop()
