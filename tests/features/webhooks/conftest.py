"""A market that posts webhooks to a receiver on loopback, which its operator named."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from fastapi.testclient import TestClient

from gradmarket.market.features.webhooks import verify_webhook
from gradmarket.market.terms import Role
from requester.app import create_app
from requester.context import Context
from requester.features import api_tokens
from requester.features.webhooks import sending
from requester.store.tables import Job
from requester.store.work import RowReader
from tests.kit.web_server import serving_by
from tests.patience import PATIENCE_S
from tests.requester.conftest import NewMarket
from tests.requester.market_fixture import MarketFixture


@dataclass
class Receiver:
    """Takes webhooks; answers with `status`, and Location if it is a redirect's."""

    url: str
    status: int = 200
    slow: threading.Event | None = None
    """Its answers to /slow wait for it."""
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    def list_types(self) -> list[str]:
        return [json.loads(body)["type"] for _headers, body in self.got]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            made.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
            if made.slow is not None and self.path == "/slow":
                made.slow.wait(PATIENCE_S)
            self.send_response(made.status)
            self.send_header("Location", f"{made.url}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

    with serving_by(Handler) as url:
        made = Receiver(url)
        yield made


@dataclass
class WebhookMarket:
    """A market whose job alice posted, and the doors by which tokens make webhooks."""

    market: MarketFixture
    client: TestClient

    def token(self, name: str, role: Role = Role.SUBMIT, until: float | None = None) -> dict[str, str]:
        with self.market.context.begin() as work:
            secret, _row = api_tokens.create_token(work, name, role, until, self.market.clock())
        return {"Authorization": f"Bearer {secret}"}

    def revoke(self, name: str) -> None:
        with self.market.context.begin() as work:
            assert api_tokens.revoke_token(work, name, self.market.clock())

    def add(self, headers: dict[str, str], url: str, status: int = 201, **asked: Any) -> dict[str, Any]:
        answer = self.client.post("/v1/webhooks", json={"url": url} | asked, headers=headers)
        assert answer.status_code == status, answer.text
        return dict(answer.json())

    def listed(self, headers: dict[str, str]) -> list[dict[str, Any]]:
        answer = self.client.get("/v1/webhooks", headers=headers)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["items"])

    def verify(self, receiver: Receiver, secret: str) -> None:
        for headers, body in receiver.got:
            verify_webhook(secret, headers, body, self.market.clock())


class Posting:
    """The stage, but a try that it begins has ended when `run` returns."""

    TOPIC = sending.TOPIC

    def ready(self, reader: RowReader, now: float) -> Sequence[str]:
        return sending.ready(reader, now)

    def run(self, context: Context, row_id: str) -> None:
        started = sending.start_try(context, int(row_id))
        if started is not None:
            started.result(PATIENCE_S)


POSTING = Posting()

NewWebhookMarket = Callable[..., WebhookMarket]


@pytest.fixture
def new_webhook_market(new_market: NewMarket) -> NewWebhookMarket:
    def make(*allowed: str) -> WebhookMarket:
        market = new_market(settings={"webhook_servers": allowed})
        market.stages = (*(stage for stage in market.stages if stage is not sending), POSTING)
        with market.context.begin() as work:
            work.get_one(Job, market.job).token = "alice"
        return WebhookMarket(
            market, TestClient(create_app(market.context, nullcontext))
        )  # its lifespan's threads read along

    return make
