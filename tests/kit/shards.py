"""Payloads of few elements that have several shards all the same."""

from collections.abc import Iterator
from typing import Any

import pytest

from gradmarket.market.gradient import payload_layout


def shorten_shards(elements: int) -> Any:
    """Returns a fixture for a whole module, under which a shard has `elements` elements."""

    @pytest.fixture(scope="module", autouse=True)
    def short_shards() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(payload_layout, "SHARD_ELEMENTS", elements)
            yield

    return short_shards
