"""What a holder hears of a step of a secure aggregation; what it says is in wire.sum_messages."""

from pydantic import Field

from gradmarket.market.wire.base import Wire
from gradmarket.market.wire.sum_messages import NeighbourKeys, SharesForHolder, SurvivorsProposed, UnmaskRequest


class StepTold(Wire):
    """Where the aggregation is; what the holder is told after the step that it asked about, once that is over."""

    attempt: int = Field(ge=0, lt=2**31)
    """The attempt that is under way. A holder that took part in an earlier one, and unmasked nothing, begins anew."""
    step: int = Field(ge=0, le=6)
    """The step that is open: 1 to 5; 0 before the first, 6 once the sum is there."""
    keys: NeighbourKeys | None = None
    """After step 1."""
    shares: SharesForHolder | None = None
    """After step 2."""
    survivors: SurvivorsProposed | None = None
    """After step 3."""
    unmask: UnmaskRequest | None = None
    """After step 4."""
    summed: bool = False
    """The sum is there, and the holder's vector is in it: it is paid for its receipt."""
