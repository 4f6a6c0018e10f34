"""Figures in README.md and docs/ are those of the committed results."""

import json
import re
from pathlib import Path

import pytest

from benchmarks import pages
from benchmarks.figure import Figure
from benchmarks.rig import figures_page

SEEN = Figure("doors.worst", 4.567, "ms", "a peer", 1.25, "<= 4", measured="2026-11-23").line()


@pytest.mark.parametrize("page", pages.pages(), ids=lambda path: path.name)
def test_a_page_quotes_its_results(page: Path) -> None:
    text = page.read_text()
    assert pages.renewed(text, pages.results()) == text
    assert len(pages.QUOTE.findall(text)) == text.count("<!--=") + text.count("<!-- =")


@pytest.mark.parametrize("page", pages.pages(), ids=lambda path: path.name)
def test_no_line_begins_with_a_figure(page: Path) -> None:
    """CommonMark takes such a line as a block of HTML: the paragraph ends there, and its links stay raw."""
    assert not re.search(r"^ {0,3}<!-- ?=", page.read_text(), re.MULTILINE)


def test_page_of_figures_is_current() -> None:
    assert figures_page.PAGE.read_text() == figures_page.page(pages.results()), "run: make figures"


@pytest.mark.parametrize(
    ("how", "text"),
    [(".1f", "4.6"), (".0f", "5"), ("ratio:.2f", "1.25"), ("target", "<= 4: missed"), ("date", "2026-11-23")],
)
def test_a_figure_is_written_in_its_tag_s_form(how: str, text: str) -> None:
    page = f"It takes <!--=doors.worst:{how}-->9<!--/--> ms."
    assert pages.renewed(page, {"doors.worst": SEEN}) == page.replace("9", text)


def test_a_figure_without_a_result_is_refused() -> None:
    with pytest.raises(ValueError, match=r"gone\.ms has no committed result"):
        pages.renewed("<!--=gone.ms:.1f-->1.0<!--/-->", {"doors.worst": SEEN})


def test_a_figure_in_two_results_is_refused(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps([SEEN]))
    with pytest.raises(ValueError, match=r"b\.json has doors\.worst again"):
        pages.results(tmp_path)
