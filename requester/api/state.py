"""The dependency by which a route gets the context that the composition root stored on the application."""

from typing import Annotated

from fastapi import Depends, Request

from requester.context import Context


async def get_context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


Here = Annotated[Context, Depends(get_context)]
