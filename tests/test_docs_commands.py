"""Every `gradmarket …` command in README and docs/ exists with the words, options and arguments that it is given."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from gradmarket.cli import COMMANDS, _load_command
from tests.source_tree import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md", *(ROOT / "docs").rglob("*.md")]
BLOCK = re.compile(r"^```sh[^\n]*\n(.*?)^```", re.S | re.M)
SPAN = re.compile(r"(?<!`)`(gradmarket [a-z][^`]*)`(?!`)")
NUMBERS = re.compile(r"\bN\b")
"""A placeholder of a number."""


def list_commands() -> Iterator[tuple[str, bool, str]]:
    """Yields the page, whether the command stands whole in a block, and its words after `gradmarket`."""
    for page in sorted(PAGES):
        text, name = page.read_text(), str(page.relative_to(ROOT))
        lines = [line for block in BLOCK.findall(text) for line in block.replace("\\\n", " ").splitlines()]
        parts = [part for line in lines for part in re.split(r"&&|\||;|&(?=\s|$)", line)]
        yield from ((name, True, found[1]) for part in parts if (found := re.match(r"\s*gradmarket\s+([a-z].*)", part)))
        yield from ((name, False, " ".join(span.split()[1:])) for span in SPAN.findall(text))


def split_words(command: str) -> list[str]:
    words = shlex.split(NUMBERS.sub("1", re.sub(r"\$\([^)]*\)", "JOB", command)), comments=True)
    return words[: words.index(">")] if ">" in words else words


def find_command(words: list[str]) -> tuple[Any, str, list[str]]:
    """Returns the command that the words name, and the words after its name."""
    assert words[0] in COMMANDS, f"no command {words[0]}"
    command, name, rest = _load_command(words[0]), words[0], words[1:]
    while rest and (inside := getattr(command, "commands", {})):
        assert rest[0] in inside, f"no command {name} {rest[0]}"
        command, name, rest = inside[rest[0]], f"{name} {rest[0]}", rest[1:]
    return command, name, rest


@pytest.mark.parametrize(("page", "whole", "text"), dict.fromkeys(list_commands()))
def test_a_command_of_the_docs_is_taken_as_it_stands(page: str, whole: bool, text: str) -> None:
    command, name, words = find_command(split_words(text))
    if whole:
        command.make_context(name, words)
        return
    options = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    assert {word for word in words if word.startswith("--")} <= options, f"{page}: {text}"
