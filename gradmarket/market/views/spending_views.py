"""What a token may spend in a day, as an administrator sets it and the API tells it: requester/api/fields.json."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gradmarket.market.fields import AmountField


class NewSpendingLimit(BaseModel):
    model_config = ConfigDict(extra="forbid")

    a_day: Annotated[str, Field(max_length=200)] | None


class SpendingView(BaseModel):
    token: str
    a_day: AmountField | None
    spent: AmountField
    left: AmountField | None
