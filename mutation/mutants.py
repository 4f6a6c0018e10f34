"""Makes mutants of Solidity sources: each is one small fault, the replacement of one piece of code.

It mutates comparisons, arithmetic, logic, conditions, literals, choices, assembly operations, and whole statements, but
no comments, strings, pragmas, imports or function signatures.
"""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_SWAPS: Final[Mapping[str, tuple[str, ...]]] = {
    r"(?<= )<(?= )": ("<=", ">"),
    r"(?<= )>(?= )": (">=", "<"),
    r"(?<= )<=(?= )": ("<",),
    r"(?<= )>=(?= )": (">",),
    r"(?<= )==(?= )": ("!=",),
    r"(?<= )!=(?= )": ("==",),
    r"(?<= )\+(?= )": ("-",),
    r"(?<= )-(?= )": ("+",),
    r"(?<= )\*(?= )": ("/",),
    r"(?<= )/(?= )": ("*",),
    r"(?<= )%(?= )": ("*",),
    r"(?<= )\+=(?= )": ("-=", "="),
    r"(?<= )-=(?= )": ("+=",),
    r"\+\+": ("--",),
    r"(?<= )&&(?= )": ("||",),
    r"(?<= )\|\|(?= )": ("&&",),
    r"(?<= )>>(?= )": ("<<",),
    r"\btrue\b": ("false",),
    r"\bfalse\b": ("true",),
    r"\b(?<![\w.\"])\d+\b": ("{next}",),
    r"\blt\(": ("gt(",),
    r"\bgt\(": ("lt(",),
    r"\badd\(": ("sub(",),
    r"\bsub\(": ("add(",),
    r"\bshl\(": ("shr(",),
    r"\bmsg\.sender\b": ("tx.origin",),
}
_CONDITION: Final = re.compile(r"\bif \((?P<condition>.+?)\) (?=revert|return|emit|_|\w+ [=+-])")
_CHOICE: Final = re.compile(r"\? (?P<yes>[^:?]+) : (?P<no>[^;)]+)")
_STATEMENT: Final = re.compile(
    r"^ {8,}(?!return|uint|address|bytes|bool|Job |Account |Staker |Case |Exposure |let |\}|\()\S.*;$"
)
_SKIPPED: Final = re.compile(
    r"\s*(//|/?\*|pragma|import|using|error|event|mapping|function|constructor|contract|abstract|library)"
)
_LITERAL_TEXT: Final = re.compile(r'"[^"]*"|hex"[^"]*"|//.*')


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed line. `line` counts from 1; `before` and `after` are the whole line."""

    path: str
    line: int
    before: str
    after: str

    def apply(self, source: str) -> str:
        lines = source.splitlines(keepends=True)
        lines[self.line - 1] = self.after + "\n"
        return "".join(lines)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: `{self.before.strip()}` -> `{self.after.strip() or '(nothing)'}`"


def mutants_of(path: str, source: str) -> Iterator[Mutant]:
    """Yields every mutant of a file once, in order."""
    for number, line in enumerate(source.splitlines(), start=1):
        if _SKIPPED.match(line):
            continue
        for after in dict.fromkeys(_variants(line)):
            if after != line:
                yield Mutant(path, number, line, after)


def sample(sources: Mapping[str, str], seed: int) -> Sequence[Mutant]:
    """Returns all mutants of the files, in an order that depends on `seed` alone."""
    mutants = [mutant for path in sorted(sources) for mutant in mutants_of(path, sources[path])]
    random.Random(seed).shuffle(mutants)
    return mutants


def _variants(line: str) -> Iterator[str]:
    yield from _swapped(line)
    yield from _decided(line)
    for match in _CHOICE.finditer(line):
        yield f"{line[: match.start()]}? {match['no']} : {match['yes']}{line[match.end() :]}"
    if _STATEMENT.match(line):
        yield ""


def _swapped(line: str) -> Iterator[str]:
    hidden = [match.span() for match in _LITERAL_TEXT.finditer(line)]
    for pattern, replacements in _SWAPS.items():
        for match in re.finditer(pattern, line):
            if any(start <= match.start() < end for start, end in hidden):
                continue
            for replacement in replacements:
                text = str(int(match[0]) + 1) if replacement == "{next}" else replacement
                yield line[: match.start()] + text + line[match.end() :]


def _decided(line: str) -> Iterator[str]:
    for match in _CONDITION.finditer(line):
        for outcome in ("true", "false"):
            yield line[: match.start("condition")] + outcome + line[match.end("condition") :]
