"""A page has at most 900 words; README and docs/ have 27,000 together, of which half are written by hand.

A word has a letter or a digit. Comments, bars of tables, code between fences and names of tests are none. The pages of
MADE, those of docs/results, and the lists of doors and operators are made from the code or from committed results, or
held against the code by tests of their own; all else is written by hand.
"""

import re
from typing import Final

import pytest
from markdown_it import MarkdownIt

from benchmarks.house import count_words
from tests.source_tree import ROOT

DOCS: Final = ROOT / "docs"
PAGES: Final = {
    str(path.relative_to(ROOT)): path.read_text() for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
}
MADE: Final = {"docs/job.md", "docs/settings.md", "docs/errors.md", "docs/results/figures.md"}
LISTS: Final = re.compile(
    r"(?s:<!-- operators: begin -->.*?<!-- operators: end -->)|^- `[A-Z]+ /\S*`: .*$", re.MULTILINE
)


@pytest.mark.parametrize("page", sorted(PAGES.keys() - MADE))
def test_page_has_900_words(page: str) -> None:
    assert count_words(LISTS.sub("", PAGES[page])) <= 900


def test_contributing_has_900_words() -> None:
    assert count_words((ROOT / "CONTRIBUTING.md").read_text()) <= 900


def test_all_pages_have_27000_words_and_half_of_them_by_hand() -> None:
    by_hand = [LISTS.sub("", text) for page, text in PAGES.items() if page not in MADE and "/results/" not in page]
    assert sum(map(count_words, PAGES.values())) <= 27_000
    assert sum(map(count_words, by_hand)) <= 13_500


@pytest.mark.parametrize(
    ("text", "count"), [("| two words |\n|---|", 2), ("<!--=a:.1f-->3.5<!--/--> ms", 2), ("`a.py::b` c", 1)]
)
def test_words_are_what_a_reader_reads(text: str, count: int) -> None:
    assert count_words(text) == count


def find_hidden_figures(text: str) -> list[str]:
    """Returns the marked figures inside of HTML blocks, which CommonMark passes on with the rest of their line."""
    blocks = [token.content for token in MarkdownIt("commonmark").parse(text) if token.type == "html_block"]
    return [line for block in blocks for line in block.splitlines() if "<!--=" in line]


@pytest.mark.parametrize("page", sorted(PAGES))
def test_a_figure_begins_no_html_block(page: str) -> None:
    assert find_hidden_figures(PAGES[page]) == []


def test_a_line_that_begins_with_a_figure_is_one() -> None:
    assert find_hidden_figures("- an element\n  of <!--=a:.0f-->149<!--/--> bytes") == []
    assert find_hidden_figures("- an element\n  <!--=a:.0f-->149<!--/--> times")
