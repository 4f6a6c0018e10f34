"""Pages of lists by cursor: it is the last item's key, so nothing is skipped or repeated while rows are added."""

import base64
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, HTTPException, Query, Request
from sqlalchemy import Select

from gradmarket.market.fields import not_kept
from gradmarket.market.views.service_views import Page
from requester.store.listings import Keys, next_rows
from requester.store.work import RowReader

Row = TypeVar("Row")
View = TypeVar("View")
MOST = 2**63 - 1
"""The largest integer that the database can store."""
NOT_OURS: Final = "cursor: not one of ours; begin without it"


def _build_limit_dependency(strangers: int) -> Callable[..., Awaitable[int]]:
    async def limit(
        request: Request, limit: Annotated[int, Query(ge=1, le=500, description="Items on a page, at most")] = 100
    ) -> int:
        return limit if request.state.source is None else min(limit, strangers)

    return limit


Limit = Annotated[int, Depends(_build_limit_dependency(strangers=15))]
"""Strangers get pages that cost no more than their other requests, and turn them."""
CostlyLimit = Annotated[int, Depends(_build_limit_dependency(strangers=10))]
"""For items that cost two or three statements each."""
CostliestLimit = Annotated[int, Depends(_build_limit_dependency(strangers=4))]
Cursor = Annotated[str | None, Query(max_length=500, description="`next` of the page before")]


def load_list_page(
    reader: RowReader,
    rows: Select[Row],
    keys: Keys,
    view: Callable[[Row], View],
    cursor: str | None,
    limit: int,
) -> Page[View]:
    """Returns the next `limit` rows in the order of `keys`, which together are unique among them."""
    shown, more = load_page_rows(reader, rows, keys, cursor, limit)
    return Page(items=[view(row) for row in shown], next=more)


def load_page_rows(
    reader: RowReader, rows: Select[*tuple[Any, ...]], keys: Keys, cursor: str | None, limit: int
) -> tuple[Sequence[Any], str | None]:
    """Returns the rows of the page that begins after the cursor, and the cursor of the next page."""
    after = None if cursor is None else decode_cursor(cursor, len(keys))
    for key, value in zip(keys, after or (), strict=after is not None):
        # PostgreSQL compares no number with a text, and no integer with a fraction
        kind = key.type.python_type
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise HTTPException(422, NOT_OURS)
    rows_read = next_rows(reader, rows, keys, after, limit + 1)
    shown = rows_read[:limit]
    return shown, encode_cursor([getattr(shown[-1], key.key) for key in keys]) if len(rows_read) > limit else None


def encode_cursor(values: list[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, length: int) -> list[Any]:
    try:
        values = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, list) or len(values) != length or not all(map(_is_key, values)):
        raise HTTPException(422, NOT_OURS)
    return list(values)


def _is_key(value: object) -> bool:
    if isinstance(value, str):
        return not not_kept(value)
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63
