"""A service's statements about itself, as the API answers them: health, tokens, budgets, prices, pages of lists."""

from typing import Final, Generic, Literal, TypeVar

from pydantic import ConfigDict, Field

from gradmarket.market.fields import TOKEN_NAME, AmountField, DeferredModel, OneFaultModel
from gradmarket.market.terms import Role


class Readiness(DeferredModel):
    """`ok`, or the fault in words."""

    status: str
    database: str
    blobs: str
    chain: str


Item = TypeVar("Item")


class Page(OneFaultModel, Generic[Item]):
    """`next` goes into `?cursor=` for the next page; none at the end."""

    items: list[Item]
    next: str | None


class PriceGuide(DeferredModel):
    """A GFLOP is 10^9 operations of a task's document."""

    paid: list[AmountField]
    taken: list[AmountField]
    classes: dict[str, int] = {}


class SpendingView(DeferredModel):
    token: str
    a_day: AmountField | None
    spent: AmountField
    left: AmountField | None


DAY_S: Final = 86_400
LONGEST_DAYS: Final = 3650


class NewToken(DeferredModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=TOKEN_NAME, description="Its purpose; no two tokens share a name")
    role: Role
    expires_in_s: int | None = Field(
        default=90 * DAY_S, ge=1, le=LONGEST_DAYS * DAY_S, description="Seconds until it ends; null: never"
    )


class TokenView(DeferredModel):
    name: str
    role: Role
    created_at: str | None
    expires_at: str | None


class CreatedToken(TokenView):
    token: str = Field(description="The secret, shown only here: the service keeps its hash.")


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
"""The happenings of webhooks; `spending.alarm`: a token has spent four fifths of its budget of a day."""
USUAL: Final[tuple[Happening, ...]] = ("job.paused", "job.finished", "job.cancelled", "job.failed", "spending.alarm")


class WebhookView(DeferredModel):
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
