"""Our modules as syntax trees with their imports. Nothing is executed."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ("contracts", "gradmarket", "graphdoc", "migrations", "requester", "worker")
"""The installed packages: a name of import is its path from the root."""
SKIPPED: Final = {"node_modules", "__pycache__", "out", "cache"}


@dataclass(frozen=True)
class Import:
    """`name` is the imported module, as far as its own line names it."""

    name: str
    line: int
    inside: str
    """The function it stands in; empty at the top of a module."""


@dataclass(frozen=True)
class Module:
    name: str
    tree: ast.Module
    imports: tuple[Import, ...]

    @property
    def outside(self) -> set[str]:
        """Modules of others, by their full name."""
        return {found.name for found in self.imports if not is_ours(found.name)}


def within(name: str, package: str) -> bool:
    """Whether the dotted `name` is `package` or lies in it."""
    return name == package or name.startswith(package + ".")


def is_ours(name: str) -> bool:
    """Whether the dotted `name` is a module of ours."""
    return name.partition(".")[0] in PACKAGES


@cache
def load_modules() -> dict[str, Module]:
    """Every module of ours by its installed name."""
    sources = dict(list_sources())
    return {name: parse(name, path.read_text(), sources) for name, path in sources.items()}


def parse(name: str, text: str, known: Iterable[str]) -> Module:
    tree = ast.parse(text)
    return Module(name, tree, tuple(_imports(tree, frozenset(known), "")))


def ours(module: Module) -> set[str]:
    """Modules of ours that it imports, but for itself."""
    return {found.name for found in module.imports if is_ours(found.name)} - {module.name}


def reachable(modules: Mapping[str, Module], start: str) -> set[str]:
    """Returns our modules that an import of `start` loads, with the packages on the way."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name in seen or name not in modules:
            continue
        seen.add(name)
        waiting += [*ours(modules[name]), name.rpartition(".")[0]]
    return seen


def cycles(modules: Mapping[str, Module]) -> list[set[str]]:
    """Modules that import each other, directly or not (Tarjan 1972 finds the same; this is the short way)."""
    below = {name: _strictly_below(modules, name) for name in modules}
    looped = {name for name in modules if name in below[name]}
    groups = {frozenset(other for other in looped if other in below[name] and name in below[other]) for name in looped}
    return [set(group) for group in groups]


def _strictly_below(modules: Mapping[str, Module], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = list(ours(modules[start]))
    while waiting:
        name = waiting.pop()
        if name in modules and name not in seen:
            seen.add(name)
            waiting += ours(modules[name])
    return seen


def list_sources() -> Iterator[tuple[str, Path]]:
    """Every module of ours by its installed name, with its file."""
    for package in PACKAGES:
        yield from _folder(ROOT / package, package)


def _folder(folder: Path, package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*.py")):
        inner = path.relative_to(folder).with_suffix("").parts
        if SKIPPED.isdisjoint(inner):
            yield ".".join((package, *(part for part in inner if part != "__init__"))), path


def _imports(node: ast.AST, known: frozenset[str], inside: str) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, inside) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = child.module or ""
            for alias in child.names:
                full = f"{base}.{alias.name}"
                yield Import(full if full in known else base, child.lineno, inside)
        else:
            named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _imports(child, known, getattr(child, "name", "lambda") if named else inside)
