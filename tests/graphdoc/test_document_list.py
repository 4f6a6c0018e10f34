"""docs/document.md lists the operators that the code has, family by family.

`python -m tests.graphdoc.test_document_list` writes the list anew.
"""

from pathlib import Path

from graphdoc.operators import FAMILIES

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "document.md"
BEGIN, END = "<!-- operators: begin -->\n", "<!-- operators: end -->\n"


def listed() -> str:
    """Returns a line for each family; a key without its overload where that adds nothing."""
    lines = ["| family | operators |", "|---|---|"]
    for family, entries in FAMILIES.items():
        keys = ", ".join(f"`{key.removesuffix('.default')}`" for key in entries)
        lines.append(f"| {family} | {keys} |")
    return "\n".join(lines) + "\n"


def parts() -> tuple[str, str, str]:
    """Returns the text before the list, the list, and the text after it."""
    before, _, rest = GUIDE.read_text().partition(BEGIN)
    written, _, after = rest.partition(END)
    return before, written, after


def test_guide_lists_operators() -> None:
    assert parts()[1] == listed()


def write() -> None:
    before, _, after = parts()
    GUIDE.write_text(before + BEGIN + listed() + END + after)


if __name__ == "__main__":
    write()
