"""Makes the asynchronous client from the synchronous one: one source for every call.

`python -m tests.kit.asynchronous` writes gradmarket/client/async_client.py. A method that sends becomes a coroutine,
one that yields an asynchronous generator, and whatever they call is awaited or iterated likewise.
"""

import ast
import subprocess
import sys
from typing import Any, Final

from tests.source_tree import ROOT

FOLDER: Final = ROOT / "gradmarket" / "client"
TARGET: Final = FOLDER / "async_client.py"
HEADER: Final = '''"""The asynchronous client of the API, with the calls of RequesterClient.

Made of requester_client.py and transport.py by `python -m tests.kit.asynchronous`; change those.
"""
'''
SOURCES: Final = {
    "transport": ("parse_events", "_in_time", "_cut_chunks", "read_bounded_body", "open_response", "ServiceTransport"),
    "requester_client": ("RequesterClient",),
}
"""Module -> its names that wait; all other names are imported."""
PLAIN: Final = {"__init__", "stream", "tries"}
"""Methods that wait for nothing themselves."""
COROUTINES: Final = {"ask", "put_bytes", "send", "aclose", "read_bounded_body", "aread"}
GENERATORS: Final = {"pages", "_cut_chunks", "_in_time", "parse_events", "aiter_bytes", "aiter_lines", "aiter_raw"}
NAMES: Final = {
    "RequesterClient": "AsyncRequesterClient",
    "ServiceTransport": "AsyncServiceTransport",
    "ClockedTransport": "AsyncClockedTransport",
    "BaseTransport": "AsyncBaseTransport",
    "Client": "AsyncClient",
    "Iterator": "AsyncIterator",
    "Iterable": "AsyncIterable",
    "AbstractContextManager": "AbstractAsyncContextManager",
    "ExitStack": "AsyncExitStack",
    "contextmanager": "asynccontextmanager",
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
    "close": "aclose",
    "read": "aread",
    "iter_bytes": "aiter_bytes",
    "iter_lines": "aiter_lines",
    "iter_raw": "aiter_raw",
}
IMPORTS: Final = """
import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from gradmarket.network.async_transport import AsyncClockedTransport
"""


class Asynchronous(ast.NodeTransformer):
    """Rewrites the functions of one class, or of none; `coroutines` and `generators` are names of callees."""

    def __init__(self, coroutines: set[str], generators: set[str]) -> None:
        self._coroutines, self._generators = coroutines, generators
        self._received: set[str] = set()
        """The parameters of the function at hand that are iterated."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._received = {
            one.arg for one in node.args.args if one.annotation and ast.unparse(one.annotation).startswith("Itera")
        }
        node.name = NAMES.get(node.name, node.name)
        waits = _waits(node)
        self.generic_visit(node)
        return _as_async(ast.AsyncFunctionDef, node) if waits else node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = NAMES.get(node.id, node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        node.attr = NAMES.get(node.attr, node.attr)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        node.value = NAMES.get(node.value, node.value) if isinstance(node.value, str) else node.value
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = _called(node)
        if ast.unparse(node.func) == "self._patience.pause":
            node.func = ast.parse("asyncio.sleep", mode="eval").body
            return ast.Await(node)
        if name == "enter_context" and _called(node.args[0]) == "stream":
            node.func = ast.parse("stack.enter_async_context", mode="eval").body
            return ast.Await(node)
        if name == "list" and self._flows(node.args[0]):
            each = ast.Name("each")
            return ast.ListComp(each, [ast.comprehension(each, node.args[0], [], 1)])
        return ast.Await(node) if name in self._coroutines else node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        return _as_async(ast.AsyncFor, node) if self._flows(node.iter) else node

    def visit_With(self, node: ast.With) -> Any:
        self.generic_visit(node)
        plain = [item for item in node.items if _called(item.context_expr) == "open"]
        own = [item for item in node.items if item not in plain]
        inner = [ast.With(plain, node.body)] if plain else node.body
        return ast.AsyncWith(own, inner)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.value, ast.YieldFrom):
            return node
        each, source = ast.Name("each"), node.value.value
        body: list[ast.stmt] = [ast.Expr(ast.Yield(each))]
        return ast.AsyncFor(each, source, body, []) if self._flows(source) else ast.For(each, source, body, [])

    def _flows(self, node: ast.AST) -> bool:
        """Returns whether the expression is iterated asynchronously."""
        if isinstance(node, ast.Name):
            return node.id in self._received
        return _called(node) in self._generators


def _called(node: ast.AST) -> str:
    """Returns the last name of the callee."""
    return ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""


def _yields(node: ast.FunctionDef) -> bool:
    return any(isinstance(inside, ast.Yield | ast.YieldFrom) for inside in ast.walk(node))


def _passes_on(node: ast.FunctionDef) -> bool:
    """Returns whether it only returns another generator."""
    return node.returns is not None and "Iterator" in ast.unparse(node.returns) and not _yields(node)


def _waits(node: ast.FunctionDef) -> bool:
    return node.name not in PLAIN and not _passes_on(node)


def _as_async(kind: type[Any], node: Any) -> Any:
    return kind(**{name: getattr(node, name, None) for name in node._fields})


def make_client() -> str:
    """Returns the source of the asynchronous client."""
    trees = {name: ast.parse((FOLDER / f"{name}.py").read_text()) for name in SOURCES}
    gone = {name for names in SOURCES.values() for name in names}
    imports, made = list[str](), list[ast.stmt]()
    for module, names in SOURCES.items():
        for node in trees[module].body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                node.names = [one for one in node.names if one.name not in gone]
                imports += [ast.unparse(node)] if node.names else []
            elif getattr(node, "name", "") in names:
                made.append(node)
            else:
                targets = [getattr(one, "id", "") for one in getattr(node, "targets", [getattr(node, "target", None)])]
                own = [name for name in (getattr(node, "name", ""), *targets) if name]
                imports += [f"from gradmarket.client.{module} import {name}" for name in own]
    written = "\n\n\n".join(ast.unparse(ast.fix_missing_locations(_rewrite(node))) for node in made)
    return _tidy(f"{HEADER}\n{IMPORTS}\n" + "\n".join(imports) + f"\n\n\n{written}\n")


def _rewrite(node: ast.stmt) -> ast.AST:
    coroutines, generators = set(COROUTINES), set(GENERATORS)
    methods = [one for one in getattr(node, "body", []) if isinstance(one, ast.FunctionDef)]
    if isinstance(node, ast.ClassDef):
        node.name = NAMES.get(node.name, node.name)
        for one in methods:
            opens = any("contextmanager" in ast.unparse(mark) for mark in one.decorator_list)
            if (_yields(one) and not opens) or _passes_on(one):
                generators.add(one.name)
            elif not opens and _waits(one) and not one.name.startswith("__"):
                coroutines.add(one.name)
    return Asynchronous(coroutines - PLAIN, generators).visit(node)


def _tidy(source: str) -> str:
    """Drops unused imports and formats, by the project's ruff."""
    for command in (["check", "--fix", "--quiet", "--exit-zero"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"]
        source = subprocess.run(ruff, input=source, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return source


if __name__ == "__main__":
    TARGET.write_text(make_client())
