"""What a worker tells to take part in a private job with rows of its own."""

from pydantic import Field

from gradmarket.market.wire.base import JobField, Wire


class Holding(Wire):
    """`rows`: how many its owner says that it has; null where the owner tells none. What is told first stands."""

    rows: int | None = Field(default=None, ge=1, lt=2**53)


class HoldingReceipt(Wire):
    """The worker may be drawn for the job's tasks. `rows` are what it told first: its answers weigh by them."""

    job: JobField
    rows: int | None
