"""Webhooks, as their owner asks for them and the API answers them."""

from typing import Annotated, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

Happening = Literal[
    "job.funded",
    "job.round_closed",
    "job.low_balance",
    "job.paused",
    "job.resumed",
    "job.finished",
    "job.cancelled",
    "job.failed",
    "spending.alarm",
]
"""What a webhook may tell; `spending.alarm`: a token has spent four fifths of its budget of a day."""
HAPPENINGS: Final[tuple[str, ...]] = get_args(Happening)
USUAL: Final[tuple[Happening, ...]] = ("job.paused", "job.finished", "job.cancelled", "job.failed", "spending.alarm")
URL_LENGTH: Final = 2000


class NewWebhook(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: Annotated[str, Field(min_length=1, max_length=URL_LENGTH)]
    """Takes the webhooks by POST: https, unless the operator named its origin."""
    happenings: Annotated[list[Happening], Field(min_length=1)] = list(USUAL)
    """What is told."""


class WebhookView(BaseModel):
    id: str
    token: str
    url: str
    happenings: list[str]
    created_at: str | None
    delivered_at: str | None
    waiting: int
    trouble: str


class CreatedWebhook(WebhookView):
    secret: str
