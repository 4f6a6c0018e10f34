"""What files of tests that trace modules say of them all."""

from typing import Final

import pytest

TRACING: Final = [
    pytest.mark.usefixtures("seeded"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]
"""Torch draws the same each time, and what it warns of is not what is tested."""
