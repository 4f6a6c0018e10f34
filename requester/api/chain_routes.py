"""The route for the chain's facts, which a worker checks against the chain itself."""

from fastapi import APIRouter

from gradmarket.market.wire.sign_in import ChainFacts
from requester.api.state import Here

router = APIRouter(prefix="/v1", tags=["service"])


@router.get("/chain", operation_id="get_chain", summary="Chain, contract, token, and the signer of offers and vouchers")
def chain(context: Here) -> ChainFacts:
    return context.chain_facts
