"""A page of a list."""

from typing import Generic, TypeVar

from pydantic import BaseModel

Item = TypeVar("Item")


class Page(BaseModel, Generic[Item]):
    """`next` goes into `?cursor=` for what follows; none at the end."""

    items: list[Item]
    next: str | None
