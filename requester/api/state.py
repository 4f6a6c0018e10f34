"""How a door finds the context that the composition root put on the application."""

from typing import Annotated

from fastapi import Depends, Request

from gradmarket.requester.context import Context


async def here(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


Here = Annotated[Context, Depends(here)]
