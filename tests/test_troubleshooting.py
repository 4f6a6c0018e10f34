"""The troubleshooting page quotes the program: each quoted text stands in the sources."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
QUOTED = re.findall(r'^\| "([^|]*)" \|', PAGE, re.MULTILINE)
PLACES = ("requester", "worker", "gradmarket", "contracts")


@pytest.fixture(scope="module")
def sources() -> str:
    """Returns the text of every source file of the program."""
    return "\n".join(path.read_text() for place in PLACES for path in sorted((ROOT / place).rglob("*.py")))


def test_the_troubleshooting_page_quotes_messages() -> None:
    assert len(QUOTED) > 10


@pytest.mark.parametrize("quoted", QUOTED)
def test_each_quoted_text_stands_in_the_sources(quoted: str, sources: str) -> None:
    parts = [part.strip(" ;:…") for part in re.split(r"\b[A-Z]{1,}\b(?!_)|…", quoted)]
    assert [part for part in parts if len(part) > 3 and part.removeprefix("anvil; ") not in sources] == []
