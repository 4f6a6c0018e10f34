"""What a requester writes on a job to find it again: tags and a note, which are under no digest."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from gradmarket.market.fields import Part
from gradmarket.market.patterns import TAG
from gradmarket.market.printable import Printable

MOST_TAGS: Final = 20


def _sort_once(tags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(tags)))


Tag = Annotated[str, Field(pattern=TAG)]
Tags = Annotated[tuple[Tag, ...], Field(max_length=MOST_TAGS), AfterValidator(_sort_once)]
Note = Annotated[Printable, Field(max_length=2000)]


class Labels(Part):
    """What to write on a job in place of what stands there; null leaves it."""

    tags: Tags | None = None
    note: Note | None = None
