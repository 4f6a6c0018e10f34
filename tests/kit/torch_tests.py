"""Settings shared by test files that trace modules."""

from typing import Final

import pytest

TRACING: Final = [
    pytest.mark.usefixtures("seeded"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]
"""Torch draws the same each time, and its warnings are not under test."""
