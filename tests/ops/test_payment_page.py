"""docs/payment.md and docs/losses.md: every line of their tables names a test that is there; prices are made."""

import re
from pathlib import Path

import pytest

from benchmarks.simulations import prices
from tests.ops.test_security_page import functions

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "payment.md").read_text() + (ROOT / "docs" / "losses.md").read_text()
NAMED = sorted(set(re.findall(r"`([\w/.]+)::(\w+)`", PAGE)))


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[f"{path}-{name}" for path, name in NAMED])
def test_a_test_named_on_the_payment_page_exists(path: str, name: str) -> None:
    assert name in functions(ROOT / path)


def test_every_line_names_a_test() -> None:
    tables = [block for block in re.findall(r"(?:^\|.*\n)+", PAGE, re.M) if "| tests |" in block]
    rows = [row for table in tables for row in table.splitlines()[2:]]
    losses = [line for line in PAGE.partition("# Losses of each side")[2].splitlines() if line.startswith("- ")]
    assert len(rows + losses) > 30
    assert [row for row in rows + losses if "::" not in row] == []


def test_prices_as_simulated() -> None:
    assert prices.tables() in (ROOT / "docs" / "results" / "prices.md").read_text()
