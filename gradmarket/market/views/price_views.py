"""What a market's records tell of prices: requester/api/fields.json."""

from pydantic import BaseModel

from gradmarket.market.fields import AmountField


class PriceGuide(BaseModel):
    """A GFLOP is 10^9 operations of a task's document."""

    paid: list[AmountField]
    taken: list[AmountField]
