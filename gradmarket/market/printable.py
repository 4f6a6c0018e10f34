"""Text without control over its display: over the terminal, the line, or the direction of the text beside it."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator

_CONTROLS: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # ESC, CSI, OSC and their like; line breaks
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # Unicode's bidirectional controls (UAX #9)
    "\u2028\u2029\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"  # breaks, marks, half pairs, tags
)


def replace_controls(text: str, instead: str = "?") -> str:
    """Returns the text as one line, with `instead` for each control and direction character."""
    return _CONTROLS.sub(instead, text)


def printable_lines(text: str) -> str:
    """Returns the text with control and direction characters replaced, but for line feeds and tabs."""
    return re.sub(r"[^\n\t]+", lambda part: replace_controls(part[0]), text)


def escape_controls(text: str) -> str:
    """Returns JSON with control and direction characters as escapes; a line feed between its tokens stays."""
    return _CONTROLS.sub(lambda found: found[0] if found[0] == "\n" else _escape_letter(found[0]), text)


def find_text_fault(text: str) -> str:
    """Returns why a field may not be this text; empty if it may."""
    found = _CONTROLS.search(text)
    return f"has U+{ord(found[0]):04X}: leave control and direction characters out" if found else ""


def _escape_letter(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _check_printable(text: str) -> str:
    if why := find_text_fault(text):
        raise ValueError(why)
    return text


Printable = Annotated[str, AfterValidator(_check_printable)]
"""A field whose value is displayed to others."""
