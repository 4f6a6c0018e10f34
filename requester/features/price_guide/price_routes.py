"""The route for what other jobs pay a GFLOP."""

from fastapi import APIRouter

from gradmarket.market.views.price_views import PriceGuide
from requester.api.auth_routes import ROLE, Submitter
from requester.api.state import Here
from requester.features.price_guide import paid_prices

router = APIRouter(prefix="/v1", tags=["jobs"])


@router.get(
    "/prices", operation_id="get_prices", responses=ROLE, summary="What jobs pay a GFLOP, and what workers took"
)
def prices(context: Here, _who: Submitter) -> PriceGuide:
    with context.reading() as reader:
        return paid_prices.load_price_guide(reader, context.clock())
