"""Makes mutants of Python sources: each is one small fault, the replacement of one piece of code.

It flips comparisons, arithmetic, logic and branches, changes numbers by one and truths, and takes away a `not`, a call
or a `raise`. Nothing is changed in annotations, decorators, docstrings and other texts, in logged or printed ones, or
in the lengths of waits (constants that are named `…_S`): no test may depend on these.
"""

import ast
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from blake3 import blake3

_COMPARISONS: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_ARITHMETIC: Final[Mapping[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
}  # fmt: skip
_LOGIC: Final[Mapping[type[ast.boolop], type[ast.boolop]]] = {ast.And: ast.Or, ast.Or: ast.And}
_TELLING: Final = ("log.", "logger.", "typer.", "print", "echo", "warnings.", "super().__init__")
_SAYING: Final = (".report", ".debug", ".info", ".warning", ".set_attribute")


@dataclass(frozen=True, slots=True)
class PythonMutant:
    """`before` at the offset `start` of the source of `path` becomes `after`. `line` counts from 1."""

    path: str
    line: int
    start: int
    before: str
    after: str
    function: str
    """The function that it is in; empty at the top of a module."""

    def apply(self, source: str) -> str:
        return source[: self.start] + self.after + source[self.start + len(self.before) :]

    @property
    def change(self) -> tuple[str, str, str, str]:
        """The same while the file moves, or other code of it changes."""
        return PurePosixPath(self.path).name, self.function, self.before, self.after

    def __str__(self) -> str:
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.path}:{self.line}: `{before}` -> `{after}`"


def sample(sources: Mapping[str, str], count: int, seed: int) -> list[PythonMutant]:
    """Returns `count` mutants, as many of each file as it has lines, on average.

    A fault is drawn by a hash of its change, weighted (Efraimidis and Spirakis 2006): most of a sample stays the
    same while other code changes and files move.
    """
    keys: list[tuple[float, PythonMutant]] = []
    for path, source in sources.items():
        mutants = list(mutants_of(path, source))
        seen = Counter[tuple[str, str, str, str]]()
        for mutant in mutants:
            seen[mutant.change] += 1
            text = repr((seed, mutant.change, seen[mutant.change]))
            chance = (int.from_bytes(blake3(text.encode()).digest(8), "big") + 1) / (1 << 64)
            keys.append((math.log(chance) * len(mutants) / source.count("\n"), mutant))
    return [mutant for _, mutant in sorted(keys, key=lambda pair: -pair[0])[:count]]


def mutants_of(path: str, source: str) -> Iterator[PythonMutant]:
    """Yields every mutant of a file once, in the order of the tree."""
    starts = _line_starts(source)
    for node, changed, function in _changes(ast.parse(source), ""):
        start = _offset(source, starts, node.lineno, node.col_offset)
        end = _offset(source, starts, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        before, after = source[start:end], ast.unparse(changed)
        if isinstance(node, ast.expr):
            after = f"({after})"
        yield PythonMutant(path, node.lineno, start, before, after, function)


_Place = ast.expr | ast.stmt


def _changes(node: ast.AST, function: str) -> Iterator[tuple[_Place, ast.AST, str]]:
    """Yields nodes, their possible replacements, and the function around them."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        function = node.name
    if isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING":
        yield node.test, ast.UnaryOp(ast.Not(), node.test), function
    if isinstance(node, ast.expr | ast.stmt):
        yield from ((node, changed, function) for changed in _variants(node))
    for child in _code_below(node):
        yield from _changes(child, function)


def _code_below(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the children that compute something, and no texts."""
    if isinstance(node, ast.Call) and _is_message(node):
        return
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.Assign | ast.AnnAssign) and (_named_wait(node) or _names_number(node)):
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, ast.AST))


def _variants(node: _Place) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(left, [operator], [right]) if type(operator) in _COMPARISONS:
            yield ast.Compare(left, [_COMPARISONS[type(operator)]()], [right])
        case ast.BinOp(left, operation, right) if type(operation) in _ARITHMETIC and not _is_text(left, right):
            yield ast.BinOp(left, _ARITHMETIC[type(operation)](), right)
        case ast.BoolOp(word, values):
            yield ast.BoolOp(_LOGIC[type(word)](), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Constant(bool() as truth):
            yield ast.Constant(not truth)
        case ast.Constant(int() as number):
            yield ast.Constant(number + 1)
        case ast.Expr(ast.Call() as call) if not _is_message(call):
            yield ast.Pass()
        case ast.Raise():
            yield ast.Pass()


def _is_text(*sides: ast.expr) -> bool:
    return any(isinstance(side, ast.JoinedStr | ast.Constant) and not _is_number(side) for side in sides)


def _is_number(side: ast.AST) -> bool:
    return isinstance(side, ast.Constant) and isinstance(side.value, int | float) and not isinstance(side.value, bool)


def _is_message(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    return name.startswith(_TELLING) or name.endswith(_SAYING)


def _named_wait(node: ast.Assign | ast.AnnAssign) -> bool:
    targets: Sequence[ast.expr] = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(target, ast.Name) and target.id.endswith(("_S", "_MS")) for target in targets)


def _names_number(node: ast.Assign | ast.AnnAssign) -> bool:
    """Whether it is at the top of a module, and its value is made of numbers alone."""
    parts = list(ast.walk(node.value)) if node.value is not None else []
    known = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    return node.col_offset == 0 and all(isinstance(part, known) for part in parts) and any(map(_is_number, parts))


def _line_starts(source: str) -> list[int]:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _offset(source: str, starts: Sequence[int], line: int, column: int) -> int:
    """Returns the offset in letters; the tree counts bytes of UTF-8."""
    text = source[starts[line - 1] :].split("\n", 1)[0]
    return starts[line - 1] + len(text.encode()[:column].decode())
